"""What travels of a bucket, and how its mean comes back: the stages of one bucket, as the pipeline runs them."""

from __future__ import annotations

import abc
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.compression.feedback import FeedbackStore
from thc.torch.compression.layout import Layout
from thc.torch.engine.bucket import Bucket, Over, Way, is_finite, wait_for_calls
from thc.torch.options import Options


@dataclass(eq=False)
class Task:
    """A bucket in a compressor."""

    bucket: Bucket
    data: Any = None
    """The bucket where it is compressed."""
    calls: list[Any] = field(default_factory=list)
    factor: float = 1.0
    """The factor of the mean."""


class Compressor(abc.ABC):
    """How buckets travel. All ranks have the same ones and give them the same buckets in the same order.

    The pipeline's sequencer calls :meth:`submit`, its store thread :meth:`finish`, where that of an earlier bucket may still be running while the
    sequencer submits a later one.
    """

    queues = False
    """Whether :meth:`finish` must be called for one bucket after the other, on the store thread alone."""

    @abc.abstractmethod
    def must_be_alone(self, bucket: Bucket) -> bool:
        """Whether nothing else may be under way when the bucket is submitted."""

    @abc.abstractmethod
    def submit(self, task: Task, step: int, wait: bool) -> None:
        """Brings the bucket to where it is compressed, and begins its calls. With ``wait`` they are over on return, which saves copies. Errors of
        calls are for :meth:`finish` to raise."""

    @abc.abstractmethod
    def finish(self, task: Task) -> bool:
        """Waits for the calls, and puts the mean into the bucket's buffer: NaNs if some rank's gradients were not finite. Whether all
        were. Raises what a call raised."""

    def stand_in(self, task: Task, error: errors.ThcError) -> bool:
        """In place of :meth:`submit` on a rank that has lost the server: does what other ranks wait for, without a call, and :meth:`finish` raises the
        error. False where no other rank waits."""
        return False

    def gather(self, end: int | None = None) -> None:
        """On the sequencer: completes the buffers of buckets up to this one, exclusive, or of all that have been finished."""

    def first_apart(self) -> int | None:
        """The first bucket that has been finished and waits for :meth:`gather`."""
        return None


class HostCompressor(Compressor):
    """On the CPU, by the library."""

    def __init__(self, group: BaseGroup, options: Options) -> None:
        self._group, self._options = group, options
        self.feedback = FeedbackStore(group)
        tables = group.tables
        self._table = tables[0].id if tables else 0
        self._fetching: Any = None
        self._storing: Any = None

    def must_be_alone(self, bucket: Bucket) -> bool:
        return bool(self._options.feedback) and not self.feedback.is_settled(bucket.layout)

    def submit(self, task: Task, step: int, wait: bool) -> None:
        bucket, layout = task.bucket, task.bucket.layout
        task.data = self._fetch(bucket)
        if step < self._options.warmup or not layout.compresses:
            self._call(task, wait, mode="raw")
        elif bucket.way is not None and bucket.way.alone:
            self._call_alone(task, bucket.way)
        else:
            self._call(task, wait, feedback=self._key(layout), plan=layout.spans(self._table) if bucket.way is None else bucket.way.spans)

    def finish(self, task: Task) -> bool:
        finite, bucket, data = wait_for_calls(task.calls), task.bucket, task.data
        if not finite:
            data.fill_(float("nan"))
        if task.factor != 1.0:
            data.mul_(task.factor)
        if data is bucket.buffer:
            return finite
        if bucket.ready is None:
            bucket.buffer.copy_(data)
            return finite
        with torch.cuda.device(bucket.buffer.device):
            # Not the stream of fetching: a later bucket may be on it.
            self._storing = self._storing or torch.cuda.Stream()
            with torch.cuda.stream(self._storing):
                bucket.buffer.copy_(data, non_blocking=True)
            # The staging memory is used again, by the next step at the earliest.
            self._storing.synchronize()
        return finite

    def _fetch(self, bucket: Bucket) -> torch.Tensor:
        """The bucket as f32 on the CPU: itself if it is that."""
        buffer = bucket.buffer
        if buffer.device.type == "cpu" and buffer.dtype == torch.float32:
            return buffer
        staging = bucket.layout.staging(buffer.device)
        if bucket.ready is None:
            return staging.copy_(buffer)
        with torch.cuda.device(buffer.device):
            self._fetching = self._fetching or torch.cuda.Stream()
            with torch.cuda.stream(self._fetching):
                self._fetching.wait_event(bucket.ready)
                staging.copy_(buffer, non_blocking=True)
                buffer.record_stream(self._fetching)
            self._fetching.synchronize()
        return staging

    def _call(self, task: Task, wait: bool, data: torch.Tensor | None = None, **options: Any) -> None:
        """Begins a call of a bucket, or of a part of it, or makes it."""
        try:
            handle = self._begin(task.data if data is None else data, wait, **options)
        except errors.ThcError as error:
            handle = Over(error)
        task.calls.append(handle)

    def _begin(self, data: torch.Tensor, wait: bool, **options: Any) -> Any:
        """Begins an all-reduce. Options are those of :meth:`thc.Group.allreduce`."""
        if not wait:
            return self._group.allreduce_async(data.numpy(), **options)
        self._group.allreduce(data.numpy(), **options)
        return Over()

    def _call_alone(self, task: Task, way: Way) -> None:
        """Makes several calls, one after the other, and measures how long each takes."""
        for call in way.alone:
            computed, started = self._group.stats().compression, time.perf_counter()
            self._call(task, True, task.data[call.place], feedback=self._key(call.layout), plan=call.spans)
            way.seconds.append((time.perf_counter() - started, self._group.stats().compression - computed))

    def _key(self, layout: Layout) -> int | None:
        """Under which the bucket's error feedback is kept, if any is."""
        if not self._options.feedback:
            return None
        self.feedback.settle(layout)
        return layout.key


class LoneCompressor(HostCompressor):
    """The compressor of a lone rank, whose gradients are their own mean."""

    def submit(self, task: Task, step: int, wait: bool) -> None:
        pass

    def finish(self, task: Task) -> bool:
        if task.bucket.ready is not None:
            task.bucket.ready.synchronize()
        return is_finite(task.bucket.buffer)
