"""How the ranks of a process group join a job: the one that the environment names, or one whose server they run themselves."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch
import torch.distributed as dist

from thc import environment, errors
from thc.group import Group
from thc.torch.adaptive import tables_for

__all__ = ["LOCAL_OPTIONS", "Gather", "begin_alike", "join", "of_environment", "scope_of"]

LOCAL_OPTIONS = frozenset("address port cookie server colocated".split())
"""Options of :meth:`thc.Group.local` alone: who gives one wants servers of the ranks' own."""

of_environment: weakref.WeakValueDictionary[int, Group] = weakref.WeakValueDictionary()
"""The group that the environment names, by this process's rank: it can be joined only once, so models share it."""

_scopes: weakref.WeakKeyDictionary[Group, itertools.count[int]] = weakref.WeakKeyDictionary()


def scope_of(group: Group) -> int:
    """A number for who comes next to share a group, in the same order on all ranks: their keys of error feedback must differ."""
    return next(_scopes.setdefault(group, itertools.count()))


class Gather:
    """Hands what each rank says to all, by a collective that torch offers to everybody."""

    def __init__(self, process_group: Any) -> None:
        self._group = process_group

    def gather(self, value: str) -> list[str]:
        every: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(every, value, group=self._group)
        return every


def join(process_group: Any, group: Group | None, options: dict[str, Any], named: bool = True, adapts: bool = False) -> Group:
    """The ``group`` that is given, or one of these ranks that ``options`` describe; all of them are its workers. The job
    that the environment names counts only if ``named``. Servers of the ranks' own have tables of several widths if the job ``adapts``."""
    ranks, rank = dist.get_world_size(process_group), dist.get_rank(process_group)
    if group is not None and options:
        raise errors.ConfigError(f"{', '.join(sorted(options))}: these are options of a group, and one was given: give them to it")
    if group is None and named and environment.configured() and not LOCAL_OPTIONS & options.keys():
        group = of_environment.get(rank)
        if group is None or group.closed:
            group = of_environment[rank] = Group.from_env(worker=rank, **options)
    if group is None:
        if adapts:
            options = {**options, "server": {"tables": tables_for(ranks), **(options.get("server") or {})}}
        group = Group.local(rank, ranks, store=Gather(process_group), **options)
    if group.workers != ranks:
        raise errors.ConfigError(f"there are {ranks} ranks, but the THC job has {group.workers} workers: they must be the same processes")
    return group


def begin_alike(model: torch.nn.Module, process_group: Any) -> None:
    """Copies parameters and buffers of the first rank to all."""
    first = 0 if process_group is None else dist.get_global_rank(process_group, 0)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor.detach(), first, group=process_group)
