"""What travels of a bucket, and how its mean comes back: the stages of one bucket, as the pipeline runs them."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.compression.accuracy import Accuracy
from thc.torch.engine.bucket import Bucket, PendingCalls
from thc.torch.compression.feedback import FeedbackStore
from thc.torch.compression.layout import Layout, scatter
from thc.torch.options import Options

__all__ = ["Compressor", "HostCompressor"]


class Compressor(Protocol):
    """How buckets travel. All ranks have the same ones and give them the same buckets in the same order.

    A bucket goes through :meth:`fetch` and :meth:`submit` on the pipeline's sequencer and through :meth:`store` on its store thread, where
    that of an earlier bucket may still be running while the sequencer fetches a later one.
    """

    queues: bool
    """Whether :meth:`store` must be called for one bucket after the other, on the store thread alone."""

    def must_be_alone(self, bucket: Bucket) -> bool:
        """Whether nothing else may be under way when the bucket is fetched and submitted."""

    def fetch(self, bucket: Bucket) -> Any:
        """Brings the bucket to where it is compressed; the buffer stays as it is."""

    def submit(self, bucket: Bucket, fetched: Any, step: int, wait: bool) -> PendingCalls:
        """Begins the bucket's calls. With ``wait`` they are over on return, which saves copies. Errors of calls are for :meth:`store`
        to tell."""

    def store(self, bucket: Bucket, fetched: Any, pending: PendingCalls) -> bool:
        """Waits for the calls, and puts the mean into the bucket's buffer: NaNs if some rank's gradients were not finite. Whether all
        were. Raises what a call raised."""

    def stand_in(self, bucket: Bucket, error: errors.ThcError) -> tuple[Any, PendingCalls] | None:
        """In place of :meth:`fetch` and :meth:`submit` on a rank that has lost the server: what others wait for, without a call; :meth:`store` raises
        the error. Nothing where a bucket needs nobody."""

    def gather(self, end: int | None = None) -> None:
        """On the sequencer: completes the buffers of buckets up to this one, exclusive, or of all that have been stored."""

    def first_apart(self) -> int | None:
        """The first bucket that has been stored and waits for :meth:`gather`."""


class HostCompressor:
    """On the CPU, by the library."""

    queues = False

    def __init__(self, group: BaseGroup, options: Options) -> None:
        self._group, self._options = group, options
        self.feedback = FeedbackStore(group)
        self._accuracy = Accuracy(options.check_accuracy, group) if options.check_accuracy is not None else None
        self._fetching: Any = None
        self._storing: Any = None

    def must_be_alone(self, bucket: Bucket) -> bool:
        return bool(self._options.feedback) and not self.feedback.is_settled(bucket.layout)

    # Between the bucket's memory and what the library works on.

    def fetch(self, bucket: Bucket) -> torch.Tensor:
        """The bucket as f32 on the CPU: itself if it is that."""
        buffer = bucket.buffer
        if buffer.device.type == "cpu" and buffer.dtype == torch.float32:
            return buffer
        staging = bucket.layout.staging(buffer.device)
        if bucket.ready is None:
            staging.copy_(buffer)
            return staging
        with torch.cuda.device(buffer.device):
            self._fetching = self._fetching or torch.cuda.Stream()
            with torch.cuda.stream(self._fetching):
                self._fetching.wait_event(bucket.ready)
                staging.copy_(buffer, non_blocking=True)
                buffer.record_stream(self._fetching)
            self._fetching.synchronize()
        return staging

    def store(self, bucket: Bucket, fetched: torch.Tensor, pending: PendingCalls) -> bool:
        finite = pending.wait()
        if not finite:
            fetched.fill_(float("nan"))
        if fetched is bucket.buffer:
            return finite
        if bucket.ready is None:
            bucket.buffer.copy_(fetched)
            return finite
        with torch.cuda.device(bucket.buffer.device):
            # Not the stream of fetching: a later bucket may be on it.
            self._storing = self._storing or torch.cuda.Stream()
            with torch.cuda.stream(self._storing):
                bucket.buffer.copy_(fetched, non_blocking=True)
            # The staging memory is used again, by the next step at the earliest.
            self._storing.synchronize()
        return finite

    def stand_in(self, bucket: Bucket, error: errors.ThcError) -> tuple[Any, PendingCalls] | None:
        return None

    def gather(self, end: int | None = None) -> None:
        pass

    def first_apart(self) -> int | None:
        return None

    # Caller.

    def submit(self, bucket: Bucket, fetched: torch.Tensor, step: int, wait: bool) -> PendingCalls:
        pending, layout = PendingCalls(), bucket.layout
        exact = self._exactly(pending, bucket, fetched, step)
        if step < self._options.warmup or not layout.kept:
            self.call(pending, fetched, wait, mode="raw")
        elif bucket.sender is not None:
            bucket.sender.send(self, pending, bucket, fetched, step, wait)
        else:
            self._submit_compressed(pending, layout, fetched, wait)
        if exact is not None and self._accuracy is not None:
            accuracy, beside = self._accuracy, exact
            pending.afterwards.append(lambda: accuracy.compare(layout, step, fetched, beside))
        return pending

    def _exactly(self, pending: PendingCalls, bucket: Bucket, fetched: torch.Tensor, step: int) -> torch.Tensor | None:
        """Begins the call of a bucket's exact mean, if it is to be checked."""
        if self._accuracy is None or not self._accuracy.is_due(step, bucket.index):
            return None
        if step < self._options.warmup or (bucket.sender is not None and bucket.sender.is_trial):
            return None
        exact = fetched.detach().to(torch.float32, copy=True)
        self.call(pending, exact, False, plan=self._accuracy.plan(bucket.layout))
        return exact

    def call(self, pending: PendingCalls, data: torch.Tensor, wait: bool, **options: Any) -> None:
        work = self._group.allreduce if wait else self._group.allreduce_async
        pending.call(lambda: work(data.numpy(), **options), wait)

    def _submit_compressed(self, pending: PendingCalls, layout: Layout, data: torch.Tensor, wait: bool) -> None:
        key = self.key(layout)
        if not layout.aside:
            self._send(pending, layout, data, wait, key)
            return
        aside = torch.cat([data[place] for place in layout.aside])
        self.call(pending, aside, False, mode="raw")
        if layout.gathers:
            kept = torch.cat([data[place] for place in layout.kept])
            self._send(pending, layout, kept, wait, key)
            pending.afterwards.append(lambda: scatter(kept, data, layout.kept))
        else:
            for place in layout.aside:
                data[place] = 0.0
            self._send(pending, layout, data, wait, key)
        pending.afterwards.append(lambda: scatter(aside, data, layout.aside))

    def _send(self, pending: PendingCalls, layout: Layout, data: torch.Tensor, wait: bool, key: int | None) -> None:
        self.call(pending, data, wait, feedback=key, plan=layout.spans(self._group.tables[0].id))

    def key(self, layout: Layout) -> int | None:
        """Under which the bucket's error feedback is kept."""
        if not self._options.feedback:
            return None
        self.feedback.settle(layout)
        return layout.key
