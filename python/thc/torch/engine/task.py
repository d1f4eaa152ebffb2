"""A bucket on its way: where it goes, its calls, and its mean's arrival."""

from __future__ import annotations

import time
from typing import Any

import torch

from thc import errors
from thc.torch.engine.agreement import LOST, Route
from thc.torch.engine.bucket import Bucket, PendingCalls
from thc.torch.compression.compressor import Compressor
from thc.torch.engine.pipeline import Pipeline
from thc.torch.engine.steps import Steps

__all__ = ["BucketTask"]


class BucketTask:
    """The work of a pipeline that averages a bucket as part of a step."""

    def __init__(self, pipeline: Pipeline, steps: Steps, bucket: Bucket) -> None:
        self._pipeline, self._steps, self._bucket = pipeline, steps, bucket
        self._compressor: Compressor | None = None
        self._fetched: Any = None
        self._calls: PendingCalls | None = None
        self._began = self._landed = 0.0
        """When its calls began and were over."""
        self._is_over = False
        """Whether its calls were over when they had been submitted."""
        self._finite = True
        self._error: BaseException | None = None

    def room(self) -> int:
        try:
            return self._steps.room(self._bucket)
        except BaseException:
            # To begin will fail for the same reason, and there it is told.
            return 1

    def begin(self) -> bool:
        try:
            self._begin()
        except BaseException as error:
            self._error = error
            return False
        if self._is_over:
            self.wait()
        return self._calls is not None and not self._is_over

    def _begin(self) -> None:
        bucket, steps = self._bucket, self._steps
        if bucket.buffer.device.type == "cuda":
            # A thread begins with the first GPU, whichever this process has.
            torch.cuda.set_device(bucket.buffer.device)
        route = steps.begin(bucket)
        if route is Route.PEERS or (route is Route.THC and bucket.foreign):
            self._began = time.perf_counter()
            steps.average_by_peers(bucket)
            self._landed = time.perf_counter()
        elif bucket.buffer.numel() == 0:
            # Parameters of no coordinates have a bucket of their own where their type is another one.
            return
        elif route is Route.THC:
            self._compressor = steps.begin_calls(bucket)
            self._fetched = self._compressor.fetch(bucket)
            self._began = time.perf_counter()
            # The sequencer itself works on a bucket that nothing comes after: that saves copies and waking other threads.
            wait = steps.is_alone(bucket) and not self._compressor.queues
            self._calls = self._compressor.submit(bucket, self._fetched, steps.number, wait)
            self._is_over = wait
        elif route is Route.HOLD and not bucket.foreign:
            lost = steps.error if isinstance(steps.error, LOST) else errors.GivenUpError("another rank has lost the parameter server")
            compressor = steps.compressor(bucket)
            found = compressor.stand_in(bucket, lost)
            if found is not None:
                self._compressor = compressor
                self._fetched, self._calls = found

    def wait(self) -> None:
        assert self._compressor is not None and self._calls is not None
        try:
            self._finite = self._compressor.store(self._bucket, self._fetched, self._calls)
        except BaseException as error:
            self._error = error
        self._landed = time.perf_counter()

    def end(self) -> None:
        self._fetched = self._calls = None
        bucket = self._bucket
        if bucket.doomed is not None:
            bucket.release(bucket.doomed)
            return
        try:
            span = (self._began, self._landed) if self._landed else None
            self._steps.end(bucket, self._error, self._finite, span)
        except BaseException as error:
            self._steps.fail(bucket, error)

    def give_up(self, error: BaseException) -> None:
        self._bucket.release(error)
