"""Buckets that are compressed where they are."""

from __future__ import annotations

import queue
import threading
from typing import Any

import torch

from thc.base_group import BaseGroup
from thc.torch.engine.bucket import Bucket, PendingCalls
from thc.torch.compression.compressor import HostCompressor
from thc.torch.device.call import Call
from thc.torch.device.codec import DeviceCodec
from thc.torch.compression.feedback import FeedbackStore
from thc.torch.options import Options

__all__ = ["DeviceCompressor"]


class _Feeder:
    """A thread that has indices made and hands them to the network, call after call, while the pipeline's threads begin and end
    others."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        threading.Thread(target=_feed, args=(self._calls,), name="thc-feeder", daemon=True).start()

    def put(self, call: Call) -> None:
        self._calls.put(call)

    def __del__(self) -> None:
        self._calls.put(None)


def _feed(calls: queue.SimpleQueue[Call | None]) -> None:
    """Knows only the queue, so that a feeder that nobody uses any more ends."""
    while (call := calls.get()) is not None:
        call.feed()
        # Its memory shall not live until the next comes.
        del call


class _Landing:
    """A call that the feeder has."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def wait(self) -> None:
        self._call.finish()


class DeviceCompressor(HostCompressor):
    """On the device of the gradients. What travels and in which order is as on the host; nothing of a bucket is ever there but its
    indices and sums. Norms of a bucket are taken when it is begun, on the sequencer; its indices follow from a thread of their own; the
    store thread has the mean computed."""

    def __init__(self, group: BaseGroup, options: Options, codec: DeviceCodec) -> None:
        super().__init__(group, options)
        self._codec = codec
        self.feedback = FeedbackStore(codec.feedback)
        self._feeder = _Feeder()

    def fetch(self, bucket: Bucket) -> torch.Tensor:
        """The bucket itself, when its gradients are there; the host does not wait for that."""
        bucket.stream = self._codec.stream
        if self._codec.stream is not None:
            self._codec.stream.wait_event(bucket.ready)
            bucket.buffer.record_stream(self._codec.stream)
        return bucket.buffer

    def submit(self, bucket: Bucket, fetched: torch.Tensor, step: int, wait: bool) -> PendingCalls:
        with self._codec.on_stream():
            return super().submit(bucket, fetched, step, wait)

    def store(self, bucket: Bucket, fetched: torch.Tensor, pending: PendingCalls) -> bool:
        with self._codec.on_stream():
            finite = pending.wait()
            if not finite:
                fetched.fill_(float("nan"))
        return finite

    def call(self, pending: PendingCalls, data: torch.Tensor, wait: bool, **options: Any) -> None:
        def begin() -> _Landing:
            call = self._codec.begin(data, **options)
            call.submit()
            # Also a call that is waited for: lanes of two calls must be added up in the same order on all ranks.
            self._feeder.put(call)
            if wait:
                call.finish()
            return _Landing(call)

        pending.call(begin, wait)
