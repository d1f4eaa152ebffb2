"""The one line to change."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import Unpack

from thc import environment
from thc.errors import ConfigError
from thc.base_group import BaseGroup
from thc.group import Group
from thc.torch.adapt.tables import tables_for
from thc.torch.replicas.digests import DigestOf
from thc.torch.ranks.gathering import Gather
from thc.torch.ddp.hook import Hook, check_options, hook, thc_hook
from thc.torch.names import unwrapped
from thc.torch.ranks.alike import compare_options
from thc.torch.ranks.lone import LoneGroup
from thc.torch.joining import collective, fill_in, further_job, of_environment, take_way
from thc.torch.option_types import GroupOptions, LaneOptions, LocalOptions, WrapOptions
from thc.torch.engine.options import check_shares
from thc.torch.hosts.rails import hosts_of, rails
from thc.torch.ranks.own_groups import backend_on

__all__ = ["hook_of", "is_wrapped", "wrap"]

_hooks: weakref.WeakKeyDictionary[torch.nn.Module, Hook] = weakref.WeakKeyDictionary()

def wrap(ddp: DistributedDataParallel, group: BaseGroup | None = None, **options: Unpack[WrapOptions]) -> DistributedDataParallel:
    """Makes a DDP model average its gradients through THC, and returns it. All ranks must do it alike.

    Without a ``group`` it joins one: that of the environment if ``THC_PS`` or ``THC_CONFIG`` is set
    (:meth:`thc.Group.from_env`), otherwise one whose parameter server the ranks run themselves (:meth:`thc.Group.local`):
    a share of it on each host, or rank 0 all of it where all ranks are on one.
    ``options`` are those of :func:`thc.torch.hook`, and without a ``group`` also those of
    :class:`thc.Group`, ``server={...}`` for the options of an embedded :class:`thc.Server`, and ``address``, ``port``,
    ``cookie``, ``colocated`` of :meth:`thc.Group.local`. With ``adapt`` embedded servers have tables of several widths to choose from.
    With ``over="process-group"`` there is no server at all: the model's own process group adds the compressed values up, in lanes of
    ``lane`` bits (8); ``bits``, ``tables``, ``block`` are as for :class:`thc.torch.CollectiveGroup`.
    With ``rails=True`` each rank of a host is a worker of a job of its own, with those that have the same place on the other hosts: the ranks of a host
    reduce-scatter a bucket, each takes its share to the other hosts, and they all-gather the means. A server that the environment names has such jobs
    under consecutive numbers, each with a worker for each host. ``"auto"``, the default, does so where
    several hosts with as many ranks each have gradients on GPUs, and NCCL; on CPUs it is gloo that adds up inside a host.
    One rank alone starts no server, joins nothing and keeps its gradients as they are, bit for bit.
    With ``check_replicas=100`` the ranks compare their parameters, by a digest, after every hundredth step, and all raise
    :class:`thc.ReplicasError` if they differ. :func:`hook_of` finds the hook.
    """
    if isinstance(unwrapped(ddp), DistributedDataParallel) and unwrapped(ddp) is not ddp:
        # What torch.compile has made averages as the model in it.
        wrap(unwrapped(ddp), group, **options)
        return ddp
    if not isinstance(ddp, DistributedDataParallel):
        way = ""
        if hasattr(ddp, "set_all_reduce_hook"):
            way = ": the replicas of a sharded model are averaged by thc.torch.replicate"
        elif hasattr(ddp, "sharding_strategy"):
            way = ": shard with torch.distributed.fsdp.fully_shard, whose replicas thc.torch.replicate averages"
        elif isinstance(inner := getattr(ddp, "_forward_module", getattr(ddp, "module", None)), DistributedDataParallel):
            way = f": give it the {type(inner).__name__} in that, before it is wrapped further"
        elif isinstance(ddp, torch.nn.Module):
            way = ": make one of the model first, DistributedDataParallel(model)"
        raise TypeError(f"wrap takes a DistributedDataParallel model, not {type(ddp).__name__}{way}")
    given: dict[str, Any] = {**options}
    joining = _take(given, GroupOptions)
    embedded = _take(given, LocalOptions)
    on_rails = given.pop("rails", "auto")
    every = given.pop("check_replicas", None)
    failed: Exception | None = None
    try:
        digest = None if every is None else DigestOf(every)
        _check(ddp, group, on_rails, {**joining, **embedded}, given)
    except (ConfigError, TypeError) as error:
        failed = error
    configured = "a parameter server in the environment (THC_PS, THC_CONFIG)"
    compared = {**options, "group": group is not None, configured: environment.is_configured()}
    compare_options(compared, _process_group(ddp), failed)
    joined = group is None and not environment.is_configured()
    """Whether the group is this model's own."""
    adapts = bool(given.get("adapt"))
    if group is None and dist.get_world_size(_process_group(ddp)) == 1:
        # As without a hook: there is nothing that could be chosen or compared.
        take_way(given)
        _take(given, LaneOptions)
        given = {key: value for key, value in given.items() if key not in ("adapt", "check_accuracy", "only_if_faster")}
        group = LoneGroup()
    elif take_way(given) == "process-group":
        if on_rails is True:
            raise ConfigError('rails: a process group that adds up has no jobs: leave over="process-group" out')
        lanes = _take(given, LaneOptions)
        group = collective(_process_group(ddp), group, {**embedded, **joining, **lanes}, adapts)
    elif group is None:
        if on_rails == "auto":
            on_rails = "auto" if _gpus_compress(ddp, given, embedded) else False
        group = _join_group(ddp, on_rails, adapts, embedded, joining)
    elif on_rails is True:
        raise ConfigError("rails: this is an option of joining, and a group was given: leave it out")
    try:
        made = hook(group, ddp, _process_group(ddp), **given)
        ddp.register_comm_hook(made.state, made.fn)
    except BaseException:
        if joined:
            group.close()
        raise
    made.owns_group = joined
    _hooks[ddp] = made
    if digest is not None:
        made.compares, digest.source = True, made
        ddp.register_forward_pre_hook(digest)
    return ddp


def _check(ddp: DistributedDataParallel, group: BaseGroup | None, on_rails: bool | str, joining: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuses what is wrong before anything is started or joined."""
    _check_free(ddp)
    if group is not None and joining:
        raise ConfigError(f"{', '.join(sorted(joining))}: these are options of a group, and one was given: give them to it")
    if on_rails not in (True, False, "auto"):
        raise ConfigError(f'rails is {on_rails!r}: write True, False or "auto"')
    if on_rails is True:
        check_shares(given.get("adapt"), given.get("uncompressed", "raw"), given.get("only_if_faster", False))
    take_way(dict(given))
    check_options(ddp, {key: value for key, value in given.items() if key not in LaneOptions.__annotations__ and key != "over"})


def _check_free(ddp: DistributedDataParallel) -> None:
    """Refuses a model whose gradients something else averages already."""
    if ddp in _hooks:
        raise ConfigError("this model is wrapped already: thc.torch.hook_of finds its hook; make a new DistributedDataParallel for another one")
    # A copy lists the hook of what it is a copy of, and what was pickled none in its place.
    if any(fn is not thc_hook for fn, _ in getattr(ddp, "_comm_hooks", ())):
        raise ConfigError("this model has a communication hook already, and DDP takes one: wrap it instead of registering another")
    if any(hasattr(p, "_in_backward_optimizers") for p in ddp.parameters()):
        raise ConfigError("this model has optimizers in its backward pass, for which DDP registers a hook of its own: step them after it")


def _take(options: dict[str, Any], kind: type) -> dict[str, Any]:
    """Takes those of a kind out of the options."""
    return {key: options.pop(key) for key in kind.__annotations__.keys() & options.keys()}


def _join_group(
    ddp: DistributedDataParallel,
    on_rails: bool | str,
    adapts: bool,
    embedded: dict[str, Any],
    joining: dict[str, Any],
) -> BaseGroup:
    """The group that a model's ranks join."""
    rank, ranks = dist.get_rank(ddp.process_group), dist.get_world_size(ddp.process_group)
    configured = environment.is_configured() and not embedded
    if configured and (found := of_environment.get(rank)) is not None and not found.closed:
        return found
    told = environment.keys() if configured else {}
    joining = fill_in(_process_group(ddp), joining, told)

    def join_rail(host: int, hosts: int, place: int, store: Any) -> BaseGroup:
        if configured:
            return Group.from_env(**{"worker": host, "workers": hosts, **further_job(place), **joining})
        # A host has a share of the server of each rail.
        port = {"port": embedded["port"] + place} if embedded.get("port") else {}
        return Group.local(host, hosts, store=store, **{**embedded, **port}, **joining)

    hosts = hosts_of(_process_group(ddp)) if on_rails else None
    made: BaseGroup
    if hosts is not None and (configured or hosts.pays()) and (on_rails is True or hosts.is_even):
        made = rails(_process_group(ddp), hosts, join_rail)
    elif configured:
        made = Group.from_env(worker=rank, **{"workers": ranks, **joining})
    else:
        if adapts:
            embedded["server"] = {"tables": tables_for(ranks), **(embedded.get("server") or {})}
        made = Group.local(rank, ranks, store=Gather(_process_group(ddp)), **embedded, **joining)
    if configured:
        of_environment[rank] = made
    return made


def _gpus_compress(ddp: DistributedDataParallel, options: dict[str, Any], embedded: dict[str, Any]) -> bool:
    """Whether the ranks of a host had better be workers of several jobs, unless told otherwise: each compresses on a GPU of its own, and
    nothing is asked for that needs whole parameters, or a server that waits for nobody."""
    if environment.is_configured() or "colocated" in embedded or {"quorum", "policy"} & (embedded.get("server") or {}).keys():
        return False
    if options.get("adapt") or options.get("uncompressed") == "process-group" or options.get("device") == "cpu":
        return False
    if options.get("only_if_faster"):
        return False
    return backend_on(ddp.process_group, "cuda") == "nccl" and all(p.device.type == "cuda" for p in ddp.parameters())


def _process_group(ddp: DistributedDataParallel) -> Any:
    """The process group of a DDP model, or nothing if it is the default one."""
    return None if ddp.process_group is dist.group.WORLD else ddp.process_group


def is_wrapped(ddp: torch.nn.Module) -> bool:
    """Whether :func:`wrap` was called with a model."""
    return unwrapped(ddp) in _hooks


def hook_of(ddp: torch.nn.Module) -> Hook:
    """The hook of a model that :func:`wrap` was called with."""
    found = _hooks.get(unwrapped(ddp))
    if found is None:
        raise ConfigError("this model has no THC hook: call thc.torch.wrap with it first")
    return found
