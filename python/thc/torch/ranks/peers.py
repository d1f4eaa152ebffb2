"""Process groups of our own, beside those of a program, and their collectives: for what THC does not carry, and when the parameter server is lost."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from thc import errors
from thc.torch.ranks.gathering import Gathering, begin_gather, gather_objects


TOGETHER = 1 << 24
"""Bytes that are broadcast together."""


def backend_on(process_group: Any, device: str) -> str | None:
    """The backend that a process group has for tensors of a kind of device, such as ``"cpu"``; nothing if it has none."""
    group = dist.group.WORLD if process_group is None else process_group
    try:
        return str(group._get_backend(torch.device(device)).name())
    except RuntimeError:
        return None


def backends_of(process_group: Any) -> str:
    """The backends of a process group, as ``new_group`` takes them to make another one like it."""
    name = str(dist.get_backend(process_group))
    # Without a name torch has chosen one for each device.
    return str(dist.get_backend_config(process_group)) if name == "undefined" else name


def time_out(process_group: Any) -> timedelta:
    """How long the collectives of a process group wait for a rank that is late."""
    group = dist.group.WORLD if process_group is None else process_group
    for kind in ("cuda", "cpu"):
        with contextlib.suppress(Exception):
            found: timedelta = group._get_backend(torch.device(kind)).options._timeout
            return found
    return cast(timedelta, default_pg_timeout)


def broadcast_tensors(tensors: Sequence[torch.Tensor], source: int, process_group: Any) -> None:
    """Gives all ranks what one has, many small tensors together. ``source`` is its number among all ranks."""
    group = dist.group.WORLD if process_group is None else process_group
    if tensors:
        dist._broadcast_coalesced(group, [tensor.detach() for tensor in tensors], TOGETHER, dist.get_group_rank(group, source))


@dataclass(eq=False)
class _Set:
    """Process groups that are used together."""

    groups: list[Any]
    uses: int = 0
    kept: dict[str, Any] = field(default_factory=dict)
    """What else all uses have in common."""


@dataclass
class _Pool:
    """All sets of one kind. They have the same numbers on all ranks, since ranks make them together."""

    sets: list[_Set] = field(default_factory=list)
    free: set[int] = field(default_factory=set)


_pools: weakref.WeakKeyDictionary[Any, dict[Any, _Pool]] = weakref.WeakKeyDictionary()
"""By the process group whose ranks they have, and by kind."""


class OwnGroups:
    """Process groups that nobody else uses until this is closed or gone; made by :func:`borrow`."""

    def __init__(self, pool: _Pool, number: int) -> None:
        self._pool, self._number = pool, number
        found = pool.sets[number]
        found.uses += 1
        self.groups, self.use, self.kept = found.groups, found.uses, found.kept
        """The process groups; how often they have been used, the same on all ranks; and what stays with them for whoever uses them next."""
        self._returns = True

    def spoil(self) -> None:
        """Something may still be under way in them, or has failed: nobody shall use them again."""
        self._returns = False

    def close(self) -> None:
        """Lets others use them. Again, it does nothing."""
        if self._returns:
            self._returns = False
            self._pool.free.add(self._number)

    def __del__(self) -> None:
        self.close()


def borrow(process_group: Any, backends: Sequence[str], ranks: Sequence[int] | None = None) -> OwnGroups:
    """Process groups of these backends, with the ranks and the time-out of ``process_group``, or with some of its ``ranks``. A collective of all of its
    ranks, each of which may name others.

    They are never destroyed: torch would give the next ones of the same ranks their names, under which the store has addresses that are gone.
    """
    parent = dist.group.WORLD if process_group is None else process_group
    patience = time_out(process_group)
    kind = (None if ranks is None else tuple(ranks), tuple(backends), patience)
    pool = _pools.setdefault(parent, {}).setdefault(kind, _Pool())
    # Ranks may notice at different times that a set is free. All reuse one or none: torch counts the process groups that a rank has made.
    common = set.intersection(*map(set, gather_objects(sorted(pool.free), process_group)))
    if common:
        number = min(common)
        pool.free.discard(number)
        return OwnGroups(pool, number)
    some: dict[str, Any] = {}
    if ranks is not None or parent is not dist.group.WORLD:
        members = range(dist.get_world_size(process_group)) if ranks is None else ranks
        some = {"ranks": [dist.get_global_rank(parent, rank) for rank in members], "use_local_synchronization": True}
    pool.sets.append(_Set([dist.new_group(timeout=patience, backend=backend, **some) for backend in backends]))
    return OwnGroups(pool, len(pool.sets) - 1)


PATIENCE = 0.2
"""Seconds that are waited for others before anything else is done."""


def wait_for(is_complete: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
    """Waits until something is complete. After a moment ``meanwhile`` is called now and then."""
    began, pause = time.monotonic(), 2e-5
    while not is_complete():
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
        if time.monotonic() - began > PATIENCE:
            meanwhile()


class Peers:
    """Process groups of our own, so that calls from the sequencer's thread cannot mix with those of the user.

    Making one is a collective: all ranks do it in the same order.
    """

    def __init__(self, process_group: Any = None) -> None:
        self.rank: int = dist.get_rank(process_group)
        self.size: int = dist.get_world_size(process_group)
        if dist.get_backend(process_group) == "thc":
            raise errors.ConfigError(
                'the process group is of the backend "thc", which compresses all-reduces itself: give one of gloo or NCCL '
                '(dist.new_group(backend="gloo")), or train as with any process group'
            )
        self.given = process_group
        """The process group of the user."""
        # A gathering may be under way while tensors are averaged: they must not meet.
        on_host = backend_on(process_group, "cpu") is not None
        self.own = borrow(process_group, [backends_of(process_group), "gloo", *([] if on_host else ["gloo"])])
        self._tensors, self._control = self.own.groups[:2]
        self._host = self._tensors if on_host else self.own.groups[2]
        """For tensors of the CPU: another one if those are averaged by something that knows only GPUs."""

    def mean(self, tensor: torch.Tensor) -> None:
        """Replaces the tensor by its mean over all ranks."""
        self.begin_mean(tensor, self._tensors)()

    def begin_mean(self, tensor: torch.Tensor, group: Any) -> Callable[[], None]:
        """Has the mean on its way through a process group of these ranks. What is returned waits for it, and puts it into the tensor."""
        on_host = tensor.device.type == "cpu"
        # Sums of halves lose less in f32.
        narrow = tensor.dtype in (torch.bfloat16, torch.float16) and on_host
        work = tensor.float() if narrow else tensor
        if work.is_sparse and not on_host:
            # NCCL knows none. gloo puts all ranks' coordinates together.
            work, on_host = work.cpu(), True
        if on_host and backend_on(group, "cpu") is None:
            group = self._host
        work.div_(self.size)
        handle = dist.all_reduce(work, group=group, async_op=True)

        def finish() -> None:
            handle.wait()
            if work is not tensor:
                tensor.copy_(work)

        return finish

    def any(self, flag: bool, meanwhile: Callable[[], None]) -> bool:
        """Whether some rank's flag is set. While others are waited for, ``meanwhile`` is called now and then."""
        # The host looks at flags: they need no GPU.
        flags = torch.tensor([float(flag)])
        work = dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._host, async_op=True)
        wait_for(work.is_completed, meanwhile)
        work.wait()
        return bool(flags.item())

    def gather_objects(self, mine: Any) -> list[Any]:
        """On the first rank what every rank has, on the others nothing."""
        every: list[Any] = [None] * self.size if self.rank == 0 else []
        first = 0 if self.given is None else dist.get_global_rank(self.given, 0)
        dist.gather_object(mine, every if self.rank == 0 else None, dst=first, group=self._control)
        return every

    def begin_gather(self, numbers: list[int]) -> Gathering:
        """Has every rank's numbers on their way, without waiting for the others. Those that are begun complete in that order."""
        return begin_gather(numbers, self._control)
