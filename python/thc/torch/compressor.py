"""What travels of a bucket, and how its mean comes back: the stages of one bucket, as the pipeline runs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from thc import errors
from thc.group import Group
from thc.torch.accuracy import Accuracy
from thc.torch.adaptive import Adaptive
from thc.torch.bucket import Bucket
from thc.torch.deadlines import Width
from thc.torch.feedback import FeedbackStore
from thc.torch.layout import Layout, Segment, scatter
from thc.torch.options import Options
from thc.torch.peers import Peers
from thc.torch.scales import Scales

__all__ = ["Compressor", "Flight", "HostCompressor", "Over"]


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

    def submit(self, bucket: Bucket, fetched: Any, step: int, wait: bool) -> Flight:
        """Begins the bucket's calls. With ``wait`` they are over on return, which saves copies. Errors of calls are for :meth:`store`
        to tell."""

    def store(self, bucket: Bucket, fetched: Any, flight: Flight) -> bool:
        """Waits for the calls, and puts the mean into the bucket's buffer: NaNs if some rank's gradients were not finite. Whether all
        were. Raises what a call raised."""

    def stand_in(self, bucket: Bucket, error: errors.ThcError) -> tuple[Any, Flight] | None:
        """In place of :meth:`fetch` and :meth:`submit` on a rank that has lost the server: what others wait for, without a call; :meth:`store` raises
        the error. Nothing where a bucket needs nobody."""

    def gather(self, end: int | None = None) -> None:
        """On the sequencer: completes the buffers of buckets up to this one, exclusive, or of all that have been stored."""

    def first_apart(self) -> int | None:
        """The first bucket that has been stored and waits for :meth:`gather`."""


class _Handle(Protocol):
    def wait(self) -> Any: ...


@dataclass
class Over:
    """A call that is over."""

    error: BaseException | None = None

    def wait(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass
class Flight:
    """A bucket's calls, in order, and what is to be done with their means."""

    handles: list[_Handle] = field(default_factory=list)
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    def call(self, begin: Callable[[], _Handle | Any], wait: bool) -> None:
        """Begins a call, or makes it."""
        try:
            handle = begin()
        except errors.ThcError as error:
            self.handles.append(Over(error))
        else:
            self.handles.append(Over() if wait else handle)

    def land(self) -> bool:
        """Waits for all. Whether all numbers were finite."""
        finite, failed = True, None
        for handle in self.handles:
            try:
                handle.wait()
            except (errors.NonFiniteError, errors.NormError):
                finite = False
            except BaseException as error:
                # The first, which others may only follow from.
                failed = failed or error
        if failed is not None:
            raise failed
        if finite:
            for work in self.afterwards:
                work()
        return finite


class HostCompressor:
    """On the CPU, by the library."""

    queues = False

    def __init__(self, group: Group, options: Options, peers: Peers, adaptive: Adaptive | None) -> None:
        self._group, self._options, self._peers, self._adaptive = group, options, peers, adaptive
        self.feedback = FeedbackStore(group)
        self.scales = Scales(options.scales, group.workers) if options.scales else None
        self._accuracy = Accuracy(options.check_accuracy, group) if options.check_accuracy is not None else None
        self._fetching: Any = None
        self._storing: Any = None
        self._apart: dict[tuple[int, str], Layout] = {}
        """The layouts of a bucket's parameters, each by itself."""

    def must_be_alone(self, bucket: Bucket) -> bool:
        if self.scales is not None and not self.scales.is_settled(bucket.layout):
            return True
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

    def store(self, bucket: Bucket, fetched: torch.Tensor, flight: Flight) -> bool:
        finite = flight.land()
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

    def stand_in(self, bucket: Bucket, error: errors.ThcError) -> tuple[Any, Flight] | None:
        return None

    def gather(self, end: int | None = None) -> None:
        pass

    def first_apart(self) -> int | None:
        return None

    # Calls.

    def submit(self, bucket: Bucket, fetched: torch.Tensor, step: int, wait: bool) -> Flight:
        flight, layout = Flight(), bucket.layout
        exact = self._exactly(flight, bucket, fetched, step)
        if step < self._options.warmup or not layout.kept:
            self._submit_uncompressed(flight, fetched, wait)
        elif bucket.width is not None:
            self._submit_planned(flight, bucket, bucket.width, fetched, wait)
        elif self._adaptive is not None:
            self._submit_adapted(flight, self._adaptive, layout, fetched, step, wait)
        else:
            self._submit_compressed(flight, layout, fetched, wait)
        if exact is not None and self._accuracy is not None:
            accuracy, beside = self._accuracy, exact
            flight.afterwards.append(lambda: accuracy.compare(layout, step, fetched, beside))
        return flight

    def _exactly(self, flight: Flight, bucket: Bucket, fetched: torch.Tensor, step: int) -> torch.Tensor | None:
        """Begins the call of a bucket's exact mean, if it is to be checked."""
        if self._accuracy is None or not self._accuracy.is_due(step, bucket.index):
            return None
        if step < self._options.warmup or (self._adaptive is not None and self._adaptive.is_warming_up):
            return None
        exact = fetched.detach().to(torch.float32, copy=True)
        self._call(flight, exact, False, plan=self._accuracy.plan(bucket.layout))
        return exact

    def _call(self, flight: Flight, data: torch.Tensor, wait: bool, **options: Any) -> None:
        work = self._group.allreduce if wait else self._group.allreduce_async
        flight.call(lambda: work(data.numpy(), **options), wait)

    def _submit_uncompressed(self, flight: Flight, data: torch.Tensor, wait: bool) -> None:
        if self._options.uncompressed == "raw":
            self._call(flight, data, wait, mode="raw")
            return
        self._peers.mean(data)
        if not bool(torch.isfinite(data.sum())):
            flight.handles.append(Over(errors.NonFiniteError("not finite on some rank")))

    def _submit_compressed(self, flight: Flight, layout: Layout, data: torch.Tensor, wait: bool) -> None:
        key = self._key(layout)
        if not layout.aside:
            self._send(flight, layout, data, wait, key)
            return
        aside = torch.cat([data[place] for place in layout.aside])
        self._submit_uncompressed(flight, aside, wait=False)
        if layout.gathers:
            kept = torch.cat([data[place] for place in layout.kept])
            self._send(flight, layout, kept, wait, key)
            flight.afterwards.append(lambda: scatter(kept, data, layout.kept))
        else:
            for place in layout.aside:
                data[place] = 0.0
            self._send(flight, layout, data, wait, key)
        flight.afterwards.append(lambda: scatter(aside, data, layout.aside))

    def _send(self, flight: Flight, layout: Layout, data: torch.Tensor, wait: bool, key: int | None) -> None:
        """What is compressed of a bucket, each coordinate by its scale."""
        scales = self.scales
        if scales is None:
            self._call(flight, data, wait, feedback=key)
            return
        scales.settle(layout, data.device)
        whole = data if data.dtype == torch.float32 else data.float()
        rows, told = scales.rows(layout), None
        if rows:
            told = rows.tell(whole)
            self._call(flight, told, wait, mode="raw")
        scale = scales.apply(layout, whole)
        choice: int | str = "raw" if scale is None else self._group.tables[0].id
        self._call(flight, whole, wait, plan=layout.spans(choice))

        def restore() -> None:
            if rows and told is not None:
                rows.clear(told, whole)
            scales.learn(layout, whole)
            if whole is not data:
                data.copy_(whole)

        flight.afterwards.append(restore)

    def _submit_adapted(
        self, flight: Flight, adaptive: Adaptive, layout: Layout, data: torch.Tensor, step: int, wait: bool
    ) -> None:
        if adaptive.measures(step):
            adaptive.look(layout.segments, data)
        spans = adaptive.spans(layout, step)
        if adaptive.is_warming_up:
            for segment in layout.segments:
                self._timed_alone(flight, adaptive, layout, segment, data, step)
            return
        started = time.perf_counter()
        self._call(flight, data, wait, feedback=self._key(layout), plan=spans)
        if wait and adaptive.times(step):
            adaptive.bucket_took(layout, time.perf_counter() - started)

    def _timed_alone(
        self, flight: Flight, adaptive: Adaptive, layout: Layout, segment: Segment, data: torch.Tensor, step: int
    ) -> None:
        """One gradient of a bucket, in a call of its own."""
        if not segment.length:
            return
        place = (layout.key, segment.name)
        if place not in self._apart:
            self._apart[place] = Layout(f"{layout.scope}.alone", [Segment(segment.name, 0, segment.length, True)])
        key, choice = self._key(self._apart[place]), adaptive.single_choice(segment.name, step)
        computed, started = self._group.stats().compression, time.perf_counter()
        self._call(flight, data[segment.slice], True, feedback=key, plan=[(segment.length, choice)])
        seconds = time.perf_counter() - started
        if not adaptive.never(segment.name):
            adaptive.took(step, segment.length, choice == "raw", seconds, min(seconds, self._group.stats().compression - computed))

    def _submit_planned(self, flight: Flight, bucket: Bucket, width: Width, data: torch.Tensor, wait: bool) -> None:
        """As it was decided for the bucket. What refines it goes as a whole, since of what travels exactly nothing is left."""
        spans: list[tuple[int, int | str]] = []
        for segment in bucket.layout.segments:
            if not segment.length:
                continue
            choice = "raw" if segment.exact and not bucket.refines else width.choice
            length = segment.length + (spans.pop()[0] if spans and spans[-1][1] == choice else 0)
            spans.append((length, choice))
        self._call(flight, data, wait, feedback=self._key(bucket.layout), plan=spans)

    def _key(self, layout: Layout) -> int | None:
        """Under which the bucket's error feedback is kept."""
        if not self._options.feedback:
            return None
        self.feedback.settle(layout)
        return layout.key
