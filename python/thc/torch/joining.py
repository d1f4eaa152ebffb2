"""How the ranks of a process group join a job: the one that the environment names, or one whose server they run themselves."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from thc import environment
from thc.cores import threads_of_rank
from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.group import Group
from thc.rendezvous import this_host
from thc.torch.collective import CollectiveGroup
from thc.torch.ranks.gathering import Gather, gather_objects
from thc.torch.option_types import LaneOptions, LocalOptions
from thc.torch.ranks.lone import LoneGroup
from thc.torch.ranks.own_groups import time_out
from thc.torch.adapt.tables import lanes_for, tables_for

__all__ = ["begin_alike", "collective", "falls_back", "fill_in", "further_job", "join", "of_environment", "scope_of", "take_way", "threads_of"]

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
        raise ConfigError(f"{', '.join(sorted(options))}: these are options of a group, and one was given: give them to it")
    if group is None:
        options = fill_in(process_group, options, environment.keys() if environment.is_configured() else {})
    if group is None and environment.is_configured() and not LocalOptions.__annotations__.keys() & options.keys():
        key = (rank, further) if further else rank
        group = of_environment.get(key)
        if group is None or group.closed:
            group = of_environment[key] = Group.from_env(**{"worker": rank, "workers": ranks, **further_job(further), **options})
    if group is None:
        if adapts:
            options = {**options, "server": {"tables": tables_for(ranks), **(options.get("server") or {})}}
        group = Group.local(rank, ranks, store=Gather(process_group), **options)
    if group.workers != ranks:
        raise ConfigError(f"there are {ranks} ranks, but the THC job has {group.workers} workers: they must be the same processes")
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
        raise ConfigError(
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


_LANE_OPTIONS = LaneOptions.__annotations__.keys()

_COMPUTING = frozenset(("seed", "threads"))
"""Options of every group."""


def take_way(options: dict[str, Any]) -> str:
    """Takes ``over`` out of the options: ``"server"``, the default, or ``"process-group"``."""
    way: str = options.pop("over", "server")
    if way not in ("server", "process-group"):
        raise ConfigError(f'over is {way!r}: write "server" or "process-group"')
    given = sorted(_LANE_OPTIONS & options.keys())
    if way == "server" and given:
        raise ConfigError(f'{", ".join(given)}: these are options of over="process-group"; a server has its own, server={{...}}')
    return way


def collective(process_group: Any, group: BaseGroup | None, options: Mapping[str, Any], adapts: bool) -> CollectiveGroup:
    """The group whose sums a process group adds up, by options of groups. With ``adapts`` it has further lanes to choose from."""
    others = sorted(options.keys() - _LANE_OPTIONS - _COMPUTING)
    if group is not None or others:
        raise ConfigError(f'{", ".join(others) or "group"}: over="process-group" has no parameter server and nothing to join: leave it out')
    if adapts:
        options = {"tables": [{}, *lanes_for(dist.get_world_size(process_group), options.get("lane", 8))], **options}
    return CollectiveGroup(process_group, **options)


def falls_back(group: BaseGroup, fallback: bool | None) -> bool:
    """Whether training shall go on through the process group when the server is lost: by default where there is one."""
    if isinstance(group, LoneGroup):
        return False
    if fallback and group.sums_in_lanes:
        raise ConfigError('fallback: over="process-group" has no server that could be lost: leave it out')
    return not group.sums_in_lanes if fallback is None else fallback
