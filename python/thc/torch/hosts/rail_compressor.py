"""Buckets of hosts with several ranks: each rank takes a share of the host's mean to the other hosts."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from thc import errors
from thc.torch.compression.compressor import Compressor, HostCompressor, Task
from thc.torch.compression.layout import Layout, share_of, shares_of
from thc.torch.engine.agreement import LOST
from thc.torch.engine.bucket import Bucket, Over, wait_for_calls
from thc.torch.hosts.rails import RailGroup
from thc.torch.ranks.peers import wait_for

FINE, NOT_FINITE, LOST_IT, FAILED = range(4)
"""What a rank says of its share."""


@dataclasses.dataclass(eq=False, kw_only=True)
class _Share(Task):
    """This rank's share of a bucket, as a bucket of its own, on its way in the compressor that averages shares."""

    of: Bucket


class RailCompressor(Compressor):
    """Sums a bucket inside the host, has another compressor average this rank's share over the hosts, and brings the shares together.

    The ranks of a host make the same collectives in the same order, whatever happens to one of them (docs/architecture.md): for each bucket a
    reduce-scatter when it is begun, a state when its share is there, and where all say that theirs is, an all-gather. That comes just before the
    reduce-scatter of the bucket that may begin when this one is complete, or at the end of the step. A rank that has lost its server takes part until
    the step's end: so nobody of its host waits for it in vain.
    """

    queues = True

    def __init__(self, group: RailGroup, inner: Callable[[], HostCompressor], depth: int, meanwhile: Callable[[], None]) -> None:
        """``inner`` averages shares; ``depth`` is how many buckets may be under way at once. While others are waited for, ``meanwhile`` is
        called now and then."""
        self._ranks, self._inner, self._depth, self._meanwhile = group.host_ranks, inner, depth, meanwhile
        self._shares: dict[int, tuple[list[slice], Layout]] = {}
        """By layout: the shares of all ranks of the host, and what is in this rank's."""
        self._landed: deque[_Share] = deque()
        """Shares that are there on all ranks of the host, and not together yet. The store thread appends them."""
        self._stream: Any = None

    def _split(self, layout: Layout) -> tuple[list[slice], Layout]:
        found = self._shares.get(layout.key)
        if found is None:
            shares = shares_of(layout, len(self._ranks.ranks))
            found = self._shares[layout.key] = (shares, share_of(layout, shares[self._ranks.place]))
        return found

    def _share(self, bucket: Bucket) -> _Share:
        """The share of a bucket, whose numbers are not there yet."""
        layout = self._split(bucket.layout)[1]
        return _Share(bucket=dataclasses.replace(bucket, layout=layout, copy=None, ready=None), of=bucket)

    def must_be_alone(self, bucket: Bucket) -> bool:
        share = self._share(bucket).bucket
        return bool(share.layout.length) and self._inner().must_be_alone(share)

    def _on_stream(self, device: torch.device) -> Any:
        """Where, on a GPU, that happens which ranks of a host do together."""
        if device.type != "cuda":
            return contextlib.nullcontext()
        self._stream = self._stream or torch.cuda.Stream(device)
        return torch.cuda.stream(self._stream)

    def submit(self, task: Task, step: int, wait: bool) -> None:
        share = self._scatter(task)
        if share.bucket.layout.length:
            self._inner().submit(share, step, wait=False)

    def stand_in(self, task: Task, error: errors.ThcError) -> bool:
        self._scatter(task).calls = [Over(error)]
        return True

    def _scatter(self, task: Task) -> _Share:
        """Sums a bucket inside the host: this rank's share of it."""
        bucket = task.bucket
        if self._landed and self._landed[0].of.index >= bucket.index:
            # A backward pass has ended half-way.
            self._landed.clear()
        self.gather(bucket.index - self._depth + 1)
        share, shares = self._share(bucket), self._split(bucket.layout)[0]
        task.data = share
        with self._on_stream(bucket.buffer.device):
            if bucket.ready is not None:
                self._stream.wait_event(bucket.ready)
                bucket.buffer.record_stream(self._stream)
                bucket.stream = self._stream
            share.bucket.buffer = self._ranks.reduce_scatter(bucket.buffer, shares, self._meanwhile)
            if bucket.ready is not None:
                share.bucket.ready = torch.cuda.Event()
                share.bucket.ready.record(self._stream)
        if share.bucket.ready is not None:
            # The host would wait for it anyhow, with the norms; and a rank that is not there may want an answer of this thread's first.
            wait_for(share.bucket.ready.query, self._meanwhile)
        return share

    def finish(self, task: Task) -> bool:
        share: _Share = task.data
        state, failed = FINE, None
        try:
            if share.data is None:
                wait_for_calls(share.calls)
            elif not self._inner().finish(share):
                state = NOT_FINITE
        except BaseException as error:
            state, failed = LOST_IT if isinstance(error, LOST) else FAILED, error
        try:
            told = self._ranks.gather_states(state)
        except errors.NetworkError as error:
            raise failed or error
        if failed is not None:
            raise failed
        for ill, kind, what in ((FAILED, errors.SessionError, "could not average its share"), (LOST_IT, errors.LostError, "has lost its parameter server")):
            if ill in told:
                raise kind(f"rank {self._ranks.ranks[told.index(ill)]} of this host {what}")
        if NOT_FINITE in told:
            with task.bucket.on_stream():
                task.bucket.buffer.fill_(float("nan"))
            return False
        share.data, share.calls = None, []
        self._landed.append(share)
        return True

    def first_apart(self) -> int | None:
        landed = self._landed
        return landed[0].of.index if landed else None

    def gather(self, end: int | None = None) -> None:
        while self._landed and (end is None or self._landed[0].of.index < end):
            share = self._landed.popleft()
            buffer, part = share.of.buffer, share.bucket
            with self._on_stream(buffer.device):
                if part.stream is not None:
                    self._stream.wait_stream(part.stream)
                    part.buffer.record_stream(self._stream)
                self._ranks.all_gather(part.buffer, buffer, self._split(share.of.layout)[0], self._meanwhile)
