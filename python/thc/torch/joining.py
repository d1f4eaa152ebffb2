"""How the ranks of a process group join a job: the one that the environment names, or one whose server they run themselves."""

from __future__ import annotations

import dataclasses
import itertools
import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from thc import environment
from thc.base_group import BaseGroup
from thc.cores import threads_of_rank
from thc.errors import ConfigError
from thc.group import Group
from thc.join import Join
from thc.rendezvous import this_host
from thc.torch.parts.tables import lanes_for, tables_for
from thc.torch.collective import CollectiveGroup
from thc.torch.hosts.rails import hosts_of, rails as make_rails
from thc.torch.options import Compression
from thc.torch.ranks.gathering import Gather, compare_options, gather_objects
from thc.torch.ranks.lone import LoneGroup
from thc.torch.ranks.peers import broadcast_tensors, time_out

_named: weakref.WeakValueDictionary[tuple[int, int, str | None, int | None], BaseGroup] = weakref.WeakValueDictionary()
"""The groups of servers that are named, by this process's rank, how much higher the job's number is, and what names them: each can be joined only
once, so models share it."""

_scopes: weakref.WeakKeyDictionary[BaseGroup, itertools.count[int]] = weakref.WeakKeyDictionary()


def scope_of(group: BaseGroup) -> int:
    """A number for who comes next to share a group, in the same order on all ranks: their keys of error feedback must differ."""
    return next(_scopes.setdefault(group, itertools.count()))


def names_server(join: Join) -> bool:
    """Whether a parameter server is named, here or in the environment, that the ranks do not run themselves."""
    return join.ps is not None or (environment.is_configured() and not join.own_server())


def check_joining(group: BaseGroup | None, over: str, compression: Compression, join: Join) -> None:
    """Refuses what does not go together, before anything is started or joined."""
    if over not in ("server", "process-group"):
        raise ConfigError(f'over is {over!r}: write "server" or "process-group"')
    joining, codec = sorted(join.given()), sorted(compression.server_keys())
    of_ranks = sorted({"method", "seed", "threads"} & compression.given().keys())
    if over == "process-group" and (group is not None or joining):
        raise ConfigError(f'{", ".join(joining) or "group"}: over="process-group" has no parameter server and nothing to join: leave it out')
    if over == "server" and group is not None and (joining or codec or of_ranks):
        raise ConfigError(f"{', '.join([*joining, *codec, *of_ranks])}: these are options of a group, and one was given: give them to it")
    if over == "server" and codec and names_server(join):
        raise ConfigError(f"{', '.join(codec)}: the parameter server that is named has its own: leave them out, or run one with server={{...}}")
    both = sorted({*codec, *of_ranks} & (join.server or {}).keys())
    if both:
        raise ConfigError(f"{', '.join(both)}: given in compression and in server: leave one out")


def enter(
    process_group: Any,
    group: BaseGroup | None,
    over: str,
    compression: Compression,
    join: Join,
    check: Callable[[], bool | str] | None = None,
    is_one_of_many: bool = False,
    **others: Any,
) -> BaseGroup:
    """The ``group`` that is given, or one of these ranks that the options describe; all of them are its workers. A collective: it checks the options and
    compares them and ``others`` between the ranks first. ``check`` checks what only the caller knows, and says whether there are to be rails.
    ``is_one_of_many``: all ranks call this, in several process groups, each of which has a job of its own: where a job is named, the k-th process group,
    in the order of their first ranks, has the one whose number is k higher."""
    for name, value, kind in (("compression", compression, Compression), ("join", join, Join)):
        if not isinstance(value, kind):
            raise ConfigError(f"{name} is a {type(value).__name__}: give a thc.torch.{kind.__name__}")
    failed: Exception | None = None
    rails: bool | str = False
    try:
        check_joining(group, over, compression, join)
        if check is not None:
            rails = check()
        elif join.rails is True:
            raise ConfigError("rails: only wrap averages on them: leave it out")
    except (ConfigError, TypeError) as error:
        failed = error
    fields = {field.name: getattr(owner, field.name) for owner in (compression, join) for field in dataclasses.fields(owner)}
    named = {"a parameter server in the environment (THC_PS, THC_CONFIG)": environment.is_configured(), "group": group is not None, "over": over}
    compare_options({**fields, **named, **others}, process_group, failed)
    ranks = dist.get_world_size(process_group)
    further = _number_of(process_group) if is_one_of_many and group is None and names_server(join) else 0
    if group is None and ranks == 1:
        return LoneGroup()
    if over == "process-group":
        if compression.adapt is not None and not compression.tables:
            compression = dataclasses.replace(compression, bits=None, tables=[{"bits": compression.bits}, *lanes_for(ranks, compression.lane or 8)])
        return CollectiveGroup(process_group, compression)
    if group is None:
        group = _join_server(process_group, compression, join, further, rails)
    if group.workers != ranks:
        raise ConfigError(f"there are {ranks} ranks, but the THC job has {group.workers} workers: they must be the same processes")
    return group


def _number_of(process_group: Any) -> int:
    """This process group's place among those of all ranks, in the order of their first ranks."""
    first = min(dist.get_process_group_ranks(process_group))
    return sorted(set(gather_objects(first, None))).index(first)


def _join_server(process_group: Any, compression: Compression, join: Join, further: int, rails: bool | str) -> BaseGroup:
    rank, ranks, named = dist.get_rank(process_group), dist.get_world_size(process_group), names_server(join)
    key = (rank, further, join.ps, join.job)
    if named and (found := _named.get(key)) is not None and not found.closed:
        return found
    told = environment.keys() if named else environment.variables()
    if join.patience is None and "patience" not in told:
        # A rank that is late holds up a collective of the process group as long.
        join = dataclasses.replace(join, patience=time_out(process_group).total_seconds())
    threads = threads_of(process_group)
    own: dict[str, Any] = {"seed": compression.seed, "threads": compression.threads or told.get("threads", threads)}
    own["method"] = None if compression.method == "default" else compression.method
    own = {name: value for name, value in own.items() if value is not None}
    server = {**compression.server_keys(), **(join.server or {})}
    if compression.adapt is not None:
        server.setdefault("tables", tables_for(ranks))

    def join_job(worker: int, workers: int, place: int, store: Any) -> BaseGroup:
        if named:
            return Group.from_env(worker=worker, workers=workers, join=_further_job(join, told, place), **own)
        port = join.port + place if join.port else join.port
        return Group.local(worker, workers, store=store, join=dataclasses.replace(join, server=server, port=port), **own)

    hosts = hosts_of(process_group) if rails else None
    made: BaseGroup
    if hosts is not None and (named or hosts.pays()) and (rails is True or hosts.is_even):
        made = make_rails(process_group, hosts, join_job)
    else:
        made = join_job(rank, ranks, further, Gather(process_group))
    if named:
        _named[key] = made
    return made


def _further_job(join: Join, told: Mapping[str, Any], further: int) -> Join:
    """The same, of the job whose number is so much higher."""
    if not further:
        return join
    ps = join.ps or str(told.get("ps", ""))
    if ps.startswith(("thc://", "thcs://")):
        raise ConfigError(f"ps is {ps}, which names one job, and these ranks need {further + 1} or more: join each with thc.Group, and give it as group")
    return dataclasses.replace(join, job=int(join.job or told.get("job") or 1) + further)


def threads_of(process_group: Any) -> int | None:
    """The option ``threads``, where several ranks are on this host: they tell each other which cores they have. A collective."""
    every = gather_objects((this_host(), sorted(os.sched_getaffinity(0))), process_group)
    return threads_of_rank([cores for host, cores in every if host == this_host()])


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor that is sharded; of another one all of it."""
    return getattr(tensor, "_local_tensor", tensor)


def begin_alike(model: torch.nn.Module, process_group: Any) -> None:
    """Copies parameters and buffers of the first rank to all; of sharded ones, each rank its part."""
    first = 0 if process_group is None else dist.get_global_rank(process_group, 0)
    own = [local_part(tensor) for tensor in [*model.parameters(), *model.buffers()]]
    with torch.no_grad():
        broadcast_tensors([tensor for tensor in own if tensor.numel()], first, process_group)
