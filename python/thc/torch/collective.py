"""THC's sums through a process group's own all-reduce: no parameter server, no port, no group to join (docs/without-a-server.md)."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from thc import _native, environment, errors
from thc.arguments import Array, Plan, as_f32, spans_of
from thc.base_group import BaseGroup, Pending, _open
from thc.stats import Job, Stats, Table, Training
from thc.torch.options import Compression
from thc.torch.ranks.gathering import compare_options, gather_objects
from thc.torch.ranks.peers import OwnGroups, borrow

_seeds = itertools.count(1)
"""Seeds of the groups of this process: ranks make groups in the same order."""

WORD = 4
"""Bytes of a word."""
PIECE = 1 << 20
"""Coordinates that are added up at a time: the words of one piece are made while those of another travel."""


@dataclass(eq=False)
class _Under(Pending):
    """A call under way."""

    group: CollectiveGroup
    array: Array
    data: npt.NDArray[np.float32]
    call: _native.CollectiveCall | None
    """Until it is over."""
    norms: torch.Tensor
    work: Any
    """What finds the largest norms."""
    submitted: queue.SimpleQueue[tuple[torch.Tensor, Any] | BaseException | None] = field(default_factory=queue.SimpleQueue)
    """The words of each piece and what adds them up, then nothing, or what went wrong."""
    works: list[Any] = field(default_factory=list)
    all_submitted: bool = False
    waited: bool = False

    def piece(self, number: int) -> npt.NDArray[np.float32]:
        """A piece of the array."""
        return self.data[number * PIECE : (number + 1) * PIECE]

    def done(self) -> bool:
        return self.all_submitted and all(work is None or work.is_completed() for work in self.works)

    def wait(self) -> Array:
        self.group._finish(self)
        if self.data is not self.array:
            self.array[...] = self.data
        return self.array


def _feed(calls: queue.SimpleQueue[_Under | None]) -> None:
    """Makes the words of calls, one after the other, while norms and sums of others travel."""
    while (under := calls.get()) is not None:
        under.group._submit(under)
        # Neither it nor its group shall live until the next comes.
        del under


class CollectiveGroup(BaseGroup):
    """All ranks of a process group, as a :class:`thc.Group` whose sums the process group adds up. All ranks make it together, and its
    calls alike and in the same order; ``allreduce_async`` works on the array itself, which nobody may touch until the handle has been
    waited for.

    - ``process_group``: whose ranks these are; what carries the sums are process groups of gloo of its own.
    - ``compression``: its ``lane`` and ``block``, ``bits`` or ``tables``, ``seed`` (of signs and roundings, the same on all
      ranks) and ``threads`` count here. A ring carries 2·(n − 1)/n of a lane each way. By default every point of the grid that the lane has
      room for has an index, since it is sums that travel and not indices.
    """

    sums_in_lanes = True

    def __init__(self, process_group: Any = None, compression: Compression = Compression(), carriers: Sequence[Any] = ()) -> None:
        """With two ``carriers`` these process groups of the same ranks carry norms and words; they need not be torch's to list."""
        ranks = dist.group.WORLD if process_group is None else process_group
        self.worker, self.workers = ranks.rank(), ranks.size()
        self.ps, self.job_number = "the process group", 0
        self.training = Training()
        lane, block, seed = compression.lane or 8, compression.block or 13, compression.seed
        if (1 << lane) - 1 < self.workers:
            raise errors.ConfigError(f"lanes of {lane} bits do not hold sums of {self.workers} ranks: give a wider lane")
        given: Sequence[Mapping[str, Any]] = compression.tables or [{"bits": compression.bits}]
        if (fixed := _native.method_values(compression.method)) is not None:
            given, block = [dict(zip(("bits", "granularity", "fraction"), fixed))], fixed[3]
        self.method = compression.method
        told = [(each.get("bits"), each.get("lane"), each.get("granularity"), each.get("fraction")) for each in given]
        self._own: OwnGroups | None = None
        # The norms of one call may be on their way beside the words of another: in groups of their own they cannot meet.
        if not carriers:
            self._own = borrow(process_group, ("gloo", "gloo"))
        self._norms, self._words = carriers if self._own is None else self._own.groups
        compare_options({"lane": lane, "tables": told, "block": block}, self._norms)
        # That of the first rank is everybody's.
        job_seed = gather_objects(next(_seeds) if seed is None else seed, self._norms)[0]
        self._codec = _native.Collective(
            rank=self.worker,
            ranks=self.workers,
            tables=told,
            lane=lane,
            block=block,
            job_seed=job_seed,
            # Independent of the others' with a seed of its own.
            seed=None if fixed is None else self.worker,
            threads=compression.threads or environment.threads() or max(1, _native.available_cores() - 1),
        )
        self._lane, self._block = lane, block
        self._calls: queue.SimpleQueue[_Under | None] = queue.SimpleQueue()
        threading.Thread(target=_feed, args=(self._calls,), name="thc-collective", daemon=True).start()
        self._totals = dict.fromkeys(("calls", "failed", "coordinates", "bytes"), 0)
        self._closed = False
        self._under_way = 0
        """Calls that have not been waited for."""
        _open.add(self)

    @property
    def job(self) -> Job:
        first = self.tables[0]
        return Job.without_server(self.workers, bits=first.bits, granularity=first.granularity, lane=first.lane, block=self._block)

    @property
    def tables(self) -> list[Table]:
        return [Table(**table) for table in self._codec.tables()]

    def allreduce_async(self, array: Array, mode: str = "compressed", feedback: int | str | None = None, plan: Plan | None = None) -> Pending:
        if self._closed:
            raise errors.ClosedError("the group has been closed")
        if mode not in ("compressed", "raw"):
            raise errors.ConfigError(f'mode = {mode!r}: write "compressed" or "raw"')
        data = as_f32(array).reshape(-1)
        spans: list[tuple[int, int | None]] = [(data.size, None)] if mode == "raw" and data.size else []
        if plan is not None:
            spans = spans_of(plan)
        # What goes RAW without a plan takes no error feedback along.
        key = None if plan is None and mode == "raw" else self._key(mode, feedback, plan)
        call, own = self._codec.begin(data, spans, key)
        norms = torch.from_numpy(own)
        under = _Under(self, array, data, call, norms, dist.all_reduce(norms, op=dist.ReduceOp.MAX, group=self._norms, async_op=True))
        self._under_way += 1
        self._calls.put(under)
        return under

    def _submit(self, under: _Under) -> None:
        """Makes the words of a call when the norms of all ranks are there, and begins to add them up, piece by piece."""
        try:
            assert under.call is not None
            under.work.wait()
            counts = self._codec.settle(under.call, under.norms.numpy())
            for piece, count in enumerate(counts):
                words = torch.from_numpy(self._codec.compress(under.call, piece, under.piece(piece)))
                work = dist.all_reduce(words, group=self._words, async_op=True) if count else None
                under.works.append(work)
                under.submitted.put((words, work))
            under.submitted.put(None)
        except BaseException as error:  # told by wait
            under.submitted.put(error)
        under.all_submitted = True

    def _finish(self, under: _Under) -> None:
        """Makes the mean of each piece as its sums come."""
        if under.waited:
            raise errors.ClosedError("this handle has been waited for")
        assert under.call is not None
        under.waited, call = True, under.call
        self._under_way -= 1
        sent = under.norms.numel()
        try:
            piece = 0
            while (found := under.submitted.get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                words, work = found
                if work is not None:
                    work.wait()
                self._codec.finish(call, piece, words.numpy(), under.piece(piece))
                sent += words.numel()
                piece += 1
            self._codec.end(call)
            under.call = None
        except BaseException as error:
            # What is not ended leaves error feedback as it was.
            under.call = None
            del call
            if self._own is not None:
                self._own.spoil()
            self._totals["failed"] += 1
            if isinstance(error, RuntimeError):
                raise errors.NetworkError(f"the process group failed: {error}") from error
            raise
        carried = WORD * 2 * sent * (self.workers - 1) // self.workers
        for name, more in (("calls", 1), ("coordinates", under.data.size), ("bytes", carried)):
            self._totals[name] += more

    def stats(self) -> Stats:
        """Totals. Bytes are those of a ring, without headers; what a process group does inside nobody counts."""
        device, why = self.compresses_on
        totals = self._totals
        known = {name: totals[name] for name in ("calls", "failed", "coordinates")} | dict.fromkeys(("bytes_up", "bytes_down"), totals["bytes"])
        return Stats.without_packets(**known, device=device, why=why, **self.training.totals())

    def rejoin(self) -> None:
        raise errors.ConfigError("sums that the process group adds up have no session to join anew: make the process group anew")

    @property
    def _library(self) -> Any:
        return self._codec

    def give_up(self) -> None:
        raise errors.ConfigError("sums that the process group adds up have no session to give up: abort the process group")

    def _leave(self, linger: float) -> None:
        _open.discard(self)
        self._closed = True
        self._calls.put(None)
        if self._own is not None and self._under_way == 0:
            self._own.close()

    def __del__(self) -> None:
        if hasattr(self, "_calls"):
            self.close()

    def __repr__(self) -> str:
        return f"<thc.torch.CollectiveGroup rank {self.worker} of {self.workers}, lanes of {self._lane} bits>"
