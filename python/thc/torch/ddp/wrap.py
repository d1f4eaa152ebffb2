"""The one line to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.join import Join
from thc.torch.ddp.hook import Hook
from thc.torch.ddp.state import State, state_of, thc_hook
from thc.torch.names import unwrapped
from thc.torch.options import Compression


def wrap(
    model: DistributedDataParallel,
    *,
    group: BaseGroup | None = None,
    over: str = "server",
    exclude: Sequence[str] = (),
    fallback: bool = True,
    device: str = "auto",
    check_replicas: int | None = None,
    compression: Compression = Compression(),
    join: Join = Join(),
) -> DistributedDataParallel:
    """Makes a DDP model average its gradients through THC, and returns it. All ranks call it alike; one rank alone keeps its gradients.

    - ``group``: the group to average in, such as that of another model's hook; without one the ranks join the job that ``join`` or the
      environment names (``THC_PS``, ``THC_CONFIG``), or run a parameter server themselves, a share of it on each host.
    - ``over``: ``"server"``, or ``"process-group"``: no server, the model's own process group adds the compressed values up.
    - ``exclude``: parameters of these names, or of names that match, such as ``"*.bias"``, are not compressed.
    - ``fallback``: whether training goes on through the process group when the server is lost, and compressed when it is back.
    - ``device``: what compresses: ``"cpu"``, ``"triton"``, or ``"auto"``: Triton for gradients on a GPU, where it is installed.
    - ``check_replicas``: after every so many steps the ranks compare their parameters, and all raise :class:`thc.ReplicasError` if they differ.
    - ``compression``: bits, error feedback, what is chosen while training: see :class:`thc.torch.Compression`.
    - ``join``: server, secrets, time-outs: see :class:`thc.torch.Join`.

    :func:`hook_of` finds the hook, with its statistics, its state for a checkpoint, and what else can be asked of it.
    """
    if isinstance(unwrapped(model), DistributedDataParallel):
        # What torch.compile has made averages as the model in it.
        ddp = unwrapped(model)
    else:
        raise TypeError(f"wrap takes a DistributedDataParallel model, not {type(model).__name__}{_way(model)}")
    state = State(
        ddp, group=group, over=over, exclude=exclude, fallback=fallback, device=device, check_replicas=check_replicas, compression=compression, join=join
    )
    hook = state.connect()
    try:
        ddp.register_comm_hook(state, thc_hook)
    except BaseException:
        hook.close()
        raise
    return model


def _way(model: Any) -> str:
    """What to do with a model that is no DistributedDataParallel."""
    if hasattr(model, "set_all_reduce_hook"):
        return ": the replicas of a sharded model are averaged by thc.torch.replicate"
    if hasattr(model, "sharding_strategy"):
        return ": shard with torch.distributed.fsdp.fully_shard, whose replicas thc.torch.replicate averages"
    if isinstance(inner := getattr(model, "_forward_module", getattr(model, "module", None)), DistributedDataParallel):
        return f": give it the {type(inner).__name__} in that, before it is wrapped further"
    return ": make one of the model first, DistributedDataParallel(model)" if isinstance(model, torch.nn.Module) else ""


def is_wrapped(model: torch.nn.Module) -> bool:
    """Whether a model averages its gradients through THC."""
    return state_of(model) is not None


def hook_of(model: torch.nn.Module) -> Hook:
    """The hook of a model that :func:`wrap` was called with; of one with a :class:`State` that waits for its first bucket, it connects that."""
    state = state_of(model)
    if state is None:
        raise ConfigError("this model has no THC hook: call thc.torch.wrap with it first")
    return state.connect()
