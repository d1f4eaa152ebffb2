"""Process groups of our own, beside those of a program: made once, and used again when nobody uses them any more."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from thc.torch.ranks.gathering import gather_objects


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


class _Set:
    """Process groups that are used together."""

    def __init__(self, groups: list[Any]) -> None:
        self.groups = groups
        self.uses = 0
        self.kept: dict[str, Any] = {}
        """What else all uses have in common."""


class _Pool:
    """All sets of one kind. They have the same numbers on all ranks, since ranks make them together."""

    def __init__(self) -> None:
        self.sets: list[_Set] = []
        self.free: set[int] = set()


_pools: weakref.WeakKeyDictionary[Any, dict[Any, _Pool]] = weakref.WeakKeyDictionary()
"""By the process group whose ranks they have, and by kind."""


class OwnGroups:
    """Process groups that nobody else uses until this is closed or gone; made by :func:`borrow`."""

    def __init__(self, pool: _Pool, number: int) -> None:
        self._pool, self._number = pool, number
        self._set = pool.sets[number]
        self._set.uses += 1
        self.groups: list[Any] = self._set.groups
        self.use = self._set.uses
        """How often these have been used, the same on all ranks."""
        self._returns = True

    @property
    def kept(self) -> dict[str, Any]:
        """What stays with these process groups for whoever uses them next."""
        return self._set.kept

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
