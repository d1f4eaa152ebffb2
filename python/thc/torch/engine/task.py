"""The work of a pipeline that averages a bucket as part of a step."""

from __future__ import annotations

import time

import torch

from thc import errors
from thc.torch.compression.compressor import Task
from thc.torch.engine.agreement import LOST, Route
from thc.torch.engine.bucket import Bucket
from thc.torch.engine.steps import Steps
from thc.torch.options import IN_FLIGHT


class BucketTask(Task):
    """A bucket on its way: to the compressor, which makes its calls, or through the process group."""

    def __init__(self, steps: Steps, bucket: Bucket) -> None:
        super().__init__(bucket)
        self._steps = steps
        self._is_over = False
        """Whether its calls were over when they had been submitted."""
        self._finite = True
        self._error: BaseException | None = None

    def room(self) -> int:
        return 1 if self._steps.must_be_alone(self.bucket) else IN_FLIGHT

    def begin(self) -> bool:
        try:
            waits = self._begin()
        except BaseException as error:
            self._error = error
            return False
        if self._is_over:
            self.wait()
        return waits and not self._is_over

    def _begin(self) -> bool:
        """Whether there is something to wait for."""
        bucket, steps = self.bucket, self._steps
        if bucket.buffer.device.type == "cuda":
            # A thread begins with the first GPU, whichever this process has.
            torch.cuda.set_device(bucket.buffer.device)
        route = steps.begin(bucket)
        if route is Route.PEERS or (route is Route.THC and bucket.foreign):
            self.began = time.perf_counter()
            steps.average_by_peers(bucket)
            self.landed = time.perf_counter()
            return False
        # Parameters of no coordinates have a bucket of their own where their type is another one.
        if bucket.foreign or bucket.buffer.numel() == 0:
            return False
        compressor = steps.choose_compressor(bucket)
        if route is Route.HOLD:
            lost = steps.error if isinstance(steps.error, LOST) else errors.LostError("another rank has lost the parameter server")
            return compressor.stand_in(self, lost)
        for part in steps.parts:
            part.begin(bucket, steps.number)
        # The sequencer itself works on a bucket that nothing comes after: that saves copies and waking other threads.
        self._is_over = (bucket.is_last or steps.is_timed) and not compressor.queues
        compressor.submit(self, steps.number, self._is_over)
        return True

    def wait(self) -> None:
        assert self._steps.compressor is not None
        try:
            self._finite = self._steps.compressor.finish(self)
        except BaseException as error:
            self._error = error
        self.landed = time.perf_counter()

    def end(self) -> None:
        self.data = None
        self.calls = []
        bucket = self.bucket
        if bucket.doomed is not None:
            bucket.release(bucket.doomed)
            return
        try:
            self._steps.end(bucket, self._error, self._finite, (self.began, self.landed) if self.landed else None)
        except BaseException as error:
            self._steps.fail(bucket, error)

    def give_up(self, error: BaseException) -> None:
        self.bucket.release(error)
