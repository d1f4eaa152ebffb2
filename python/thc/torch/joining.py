"""How the ranks of a process group join a job: the one that the environment names, or one whose server they run themselves."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from thc import environment, errors
from thc.cores import threads_of_rank
from thc.base_group import BaseGroup
from thc.group import Group
from thc.this_host import this_host
from thc.torch.ranks.gathering import Gather, gather_objects
from thc.torch.option_types import LocalOptions
from thc.torch.ranks.lone import LoneGroup
from thc.torch.ranks.own_groups import time_out
from thc.torch.adapt.tables import tables_for
from thc.torch.way import collective, take_way

__all__ = ["begin_alike", "fill_in", "further_job", "join", "of_environment", "scope_of", "threads_of"]

of_environment: weakref.WeakValueDictionary[int | tuple[int, int], BaseGroup] = weakref.WeakValueDictionary()
"""The group that the environment names, by this process's rank, and one of a further job by the rank and how much higher its number is:
each can be joined only once, so models share it."""

_scopes: weakref.WeakKeyDictionary[BaseGroup, itertools.count[int]] = weakref.WeakKeyDictionary()


def scope_of(group: BaseGroup) -> int:
    """A number for who comes next to share a group, in the same order on all ranks: their keys of error feedback must differ."""
    return next(_scopes.setdefault(group, itertools.count()))


def join(process_group: Any, group: BaseGroup | None, options: Mapping[str, Any], further: int = 0, adapts: bool = False) -> BaseGroup:
    """The ``group`` that is given, or one of these ranks that ``options`` describe; all of them are its workers. Where the environment
    names a job it is that one, or one whose number is so much ``further``. Servers of the ranks' own have tables of several widths if
    the job ``adapts``. With ``over="process-group"`` among the options there is no server: the process group itself adds up."""
    options = dict(options)
    if group is None and not adapts and dist.get_world_size(process_group) == 1:
        take_way(options)
        return LoneGroup()
    if take_way(options) == "process-group":
        return collective(process_group, group, options, adapts)
    ranks, rank = dist.get_world_size(process_group), dist.get_rank(process_group)
    if group is not None and options:
        raise errors.ConfigError(f"{', '.join(sorted(options))}: these are options of a group, and one was given: give them to it")
    if group is None:
        options = fill_in(process_group, options, environment.keys() if environment.is_configured() else {})
    if group is None and environment.is_configured() and not LocalOptions.__annotations__.keys() & options.keys():
        key = (rank, further) if further else rank
        group = of_environment.get(key)
        if group is None or group.closed:
            group = of_environment[key] = Group.from_env(**{"worker": rank, **further_job(further), **options})
    if group is None:
        if adapts:
            options = {**options, "server": {"tables": tables_for(ranks), **(options.get("server") or {})}}
        group = Group.local(rank, ranks, store=Gather(process_group), **options)
    if group.workers != ranks:
        raise errors.ConfigError(f"there are {ranks} ranks, but the THC job has {group.workers} workers: they must be the same processes")
    return group


def fill_in(process_group: Any, options: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a group, with what its ranks find out about others that are not in them nor ``told`` elsewhere. A collective."""
    # A rank that is late holds up a collective of the process group as long.
    found = {"patience": time_out(process_group).total_seconds(), **threads_of(process_group)}
    return {**{key: value for key, value in found.items() if key not in told}, **options}


def further_job(further: int) -> dict[str, Any]:
    """The job whose number is so much higher than that of the one that the environment names."""
    if not further:
        return {}
    keys = environment.keys()
    if str(keys.get("ps", "")).startswith(("thc://", "thcs://")):
        raise errors.ConfigError(
            f"THC_PS is {keys['ps']}, which names one job, and these ranks need {further + 1} or more: join each with thc.BaseGroup, and give it as group"
        )
    job = keys.get("job")
    return {"job": (1 if job is None else int(job)) + further}


def threads_of(process_group: Any) -> dict[str, int]:
    """The option ``threads``, where several ranks are on this host: they tell each other which cores they have. A collective."""
    every = gather_objects((this_host(), sorted(os.sched_getaffinity(0))), process_group)
    found = threads_of_rank([cores for host, cores in every if host == this_host()])
    return {} if found is None else {"threads": found}


def begin_alike(model: torch.nn.Module, process_group: Any) -> None:
    """Copies parameters and buffers of the first rank to all; of sharded ones, each rank its part."""
    first = 0 if process_group is None else dist.get_global_rank(process_group, 0)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            own = getattr(tensor, "_local_tensor", tensor).detach()
            if not own.numel():
                continue
            whole = own.contiguous()
            dist.broadcast(whole, first, group=process_group)
            if whole is not own:
                own.copy_(whole)
