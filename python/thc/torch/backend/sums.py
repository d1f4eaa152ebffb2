"""The compressed all-reduces of one process group, in the order in which it calls them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from thc import errors
from thc.stats import Stats
from thc.torch.backend.beneath import gloo_group
from thc.torch.backend.options import Options
from thc.torch.backend.staging import Staging
from thc.torch.backend.work import SumWork
from thc.torch.collective import CollectiveGroup

__all__ = ["DTYPES", "Sums"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Types of tensors that are compressed. Ranks tell each other their places in this list."""


class _Lanes(CollectiveGroup):
    """Sums in lanes through gloo on stores of their own, rather than through process groups that torch lists."""

    def __init__(self, process_group: Any, made: Sequence[Any], options: Options) -> None:
        self._made = list(made)
        super().__init__(process_group, lane=options.lane, bits=options.bits, block=options.block)

    def _place(self, process_group: Any, ranks: Sequence[int] | None) -> tuple[int, int, bool]:
        # torch's list of process groups need not have it.
        return process_group.rank(), process_group.size(), False

    def _make_groups(self, process_group: Any, ranks: Sequence[int] | None, backends: Sequence[str]) -> list[Any]:
        return self._made


@dataclass
class _Call:
    """One all-reduce."""

    staging: Staging
    work: SumWork
    mean: bool
    key: int | None
    told: torch.Tensor
    """What this rank calls."""
    headers: list[torch.Tensor]
    """What each does."""
    telling: Any
    """The collective that brings them."""


class Sums:
    """Adds up tensors compressed. All ranks of the process group make it, and all its calls, alike and in the same order.

    A call goes through three hands: the caller tells the other ranks what it calls; one thread brings tensors to the host and begins calls;
    another waits for the sums and stores them. So an all-reduce returns at once, and several are under way.
    """

    def __init__(self, process_group: Any, store: Any, timeout: timedelta, options: Options) -> None:
        rank, self._size = process_group.rank(), process_group.size()

        def group(name: str) -> Any:
            return gloo_group(dist.PrefixStore(name, store), rank, self._size, timeout)

        # Calls may be told while norms of earlier ones travel, and these beside words: in groups of their own they cannot meet.
        self._telling = group("calls")
        carriers = [group("norms"), group("words")]
        self._groups = [self._telling, *carriers]
        self._lanes = _Lanes(process_group, carriers, options)
        self._feedback, self._calls = options.feedback, 0
        self._begins: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        ends: queue.SimpleQueue[tuple[_Call, Any] | None] = queue.SimpleQueue()
        # The threads have what they need and not this object, so that it goes when nobody has it.
        for name, work in (("thc-begin", (_begin_all, self._begins, ends, self._lanes)), ("thc-end", (_end_all, ends, self._size))):
            threading.Thread(target=work[0], args=work[1:], name=name, daemon=True).start()

    def add_up(self, tensor: torch.Tensor, mean: bool) -> SumWork:
        """Begins to replace a tensor by the sum over all ranks, or by the mean."""
        told = torch.tensor([tensor.numel(), DTYPES.index(tensor.dtype), int(mean)])
        headers = [torch.empty_like(told) for _ in range(self._size)]
        telling = self._telling.allgather([headers], [told])
        key = self._calls % self._feedback if self._feedback else None
        self._calls += 1
        call = _Call(Staging(tensor), SumWork(tensor), mean, key, told, headers, telling)
        self._begins.put(call)
        return call.work

    def stats(self) -> Stats:
        """Totals of all calls."""
        return self._lanes.stats()

    def abort(self) -> None:
        """Has calls under way fail, whoever is waited for."""
        for group in self._groups:
            group.abort()

    def close(self) -> None:
        """Ends the threads when what is under way is over."""
        self._begins.put(None)

    def __del__(self) -> None:
        if hasattr(self, "_begins"):
            self.close()


def _begin_all(begins: Any, ends: Any, lanes: CollectiveGroup) -> None:
    """Begins calls, one after the other."""
    kept: dict[int, tuple[int, SumWork]] = {}
    """Error feedback by key: its length, and the last call that uses it."""
    while (call := begins.get()) is not None:
        try:
            _compare(call)
            host = call.staging.fetch()
            if call.key is not None:
                length, last = kept.get(call.key, (host.size, None))
                if last is not None:
                    last.over.wait()
                if length != host.size:
                    lanes.reset_feedback(call.key)
                kept[call.key] = (host.size, call.work)
            ends.put((call, lanes.allreduce_async(host, feedback=call.key)))
        except BaseException as error:  # told by wait
            call.work.fail(error)
        # What was called shall not live until the next call comes.
        del call
    ends.put(None)
    lanes.close()


def _compare(call: _Call) -> None:
    """Raises unless all ranks call the same."""
    try:
        call.telling.wait()
    except RuntimeError as error:
        raise errors.NetworkError(
            f"not all ranks have called this all-reduce of {_describe(call.told)}: see that they have, and with tensors that are "
            f"compressed on all of them or on none ({error})"
        ) from error
    for other, theirs in enumerate(call.headers):
        if not torch.equal(call.told, theirs):
            raise errors.MismatchError(
                f"this rank calls an all-reduce of {_describe(call.told)} and rank {other} one of {_describe(theirs)}: ranks make the same calls "
                "in the same order, of tensors of the same length and type"
            )


def _describe(header: torch.Tensor) -> str:
    length, dtype, mean = header.tolist()
    return f"{length} {DTYPES[dtype]} by {'AVG' if mean else 'SUM'}"


def _end_all(ends: Any, size: int) -> None:
    """Waits for calls, one after the other, and stores their sums."""
    while (found := ends.get()) is not None:
        call, handle = found
        try:
            factor = 1.0 if call.mean else float(size)
            try:
                handle.wait()
            except (errors.NonFiniteError, errors.NormError):
                # Known to all ranks: as the exact sum would be, but everywhere.
                factor = float("nan")
            call.staging.store(factor, call.work.finish)
        except BaseException as error:  # told by wait
            call.work.fail(error)
        del found, call, handle
