"""Buckets that are compressed where they are."""

from __future__ import annotations

import queue
import threading
import weakref
from typing import Any

import torch

from thc.base_group import BaseGroup
from thc.torch.compression.compressor import HostCompressor, Task
from thc.torch.compression.feedback import FeedbackStore
from thc.torch.device.call import Call
from thc.torch.device.codec import DeviceCodec
from thc.torch.engine.bucket import Bucket, Over
from thc.torch.options import Options


def _feed(calls: queue.SimpleQueue[Call | None]) -> None:
    """Has indices made and handed to the network, call after call, while the pipeline's threads begin and end others. It knows only the queue, so
    that it ends with its compressor."""
    while (call := calls.get()) is not None:
        call.feed()
        # Its memory shall not live until the next comes.
        del call


class DeviceCompressor(HostCompressor):
    """On the device of the gradients. What travels and in which order is as on the host; nothing of a bucket is ever there but its
    indices and sums. Norms of a bucket are taken when it is begun, on the sequencer; its indices follow from a thread of their own; the
    store thread has the mean computed."""

    def __init__(self, group: BaseGroup, options: Options, codec: DeviceCodec) -> None:
        super().__init__(group, options)
        self._codec = codec
        self.feedback = FeedbackStore(codec)
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        threading.Thread(target=_feed, args=(self._calls,), name="thc-feeder", daemon=True).start()
        weakref.finalize(self, self._calls.put, None)

    def submit(self, task: Task, step: int, wait: bool) -> None:
        with self._codec.on_stream():
            super().submit(task, step, wait)

    def finish(self, task: Task) -> bool:
        with self._codec.on_stream():
            return super().finish(task)

    def _fetch(self, bucket: Bucket) -> torch.Tensor:
        """The bucket itself, when its gradients are there; the host does not wait for that."""
        bucket.stream = self._codec.stream
        if self._codec.stream is not None:
            self._codec.stream.wait_event(bucket.ready)
            bucket.buffer.record_stream(self._codec.stream)
        return bucket.buffer

    def _begin(self, data: torch.Tensor, wait: bool, **options: Any) -> Any:
        call = self._codec.begin(data, **options)
        call.submit()
        # Also a call that is waited for: lanes of two calls must be added up in the same order on all ranks.
        self._calls.put(call)
        if wait:
            call.finish()
            return Over()
        return call
