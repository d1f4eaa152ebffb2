"""Equal parameters on all ranks, from time to time (paper, section 6)."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from thc.base_group import BaseGroup
from thc.errors import ConfigError
from thc.torch.ddp.wrap import hook_of
from thc.torch.ranks.gathering import gather_numbers
from thc.torch.ranks.peers import broadcast_tensors


@dataclass
class _Progress:
    calls: int = 0
    lost: int = 0


_progress: weakref.WeakKeyDictionary[torch.nn.Module, _Progress] = weakref.WeakKeyDictionary()


def sync_parameters(
    model: torch.nn.Module,
    every: int = 1,
    *,
    group: BaseGroup | None = None,
    process_group: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> bool:
    """Makes the parameters of all ranks equal again; to be called on all ranks after each optimizer step.

    With best-effort, ranks may lose different results, and their parameters drift apart. Each ``every`` calls
    the ranks compare how many packets they lost since last time; if any did, all copy the parameters and
    buffers of the one that lost least (with ``optimizer``: its state, too). If nobody lost anything, that
    comparison is all that is done. Returns whether parameters were copied.

    ``model`` is what :func:`thc.torch.wrap` returned, or any module if ``group`` is given.
    """
    if every < 1:
        raise ConfigError(f"every is {every}: give a number of steps, at least 1")
    if group is None:
        group = hook_of(model).group
    if process_group is None:
        process_group = getattr(model, "process_group", None)
    progress = _progress.setdefault(model, _Progress())
    progress.calls += 1
    if progress.calls % every:
        return False
    total = group.stats().lost
    losses = [lost for (lost,) in gather_numbers([total - progress.lost], process_group)]
    progress.lost = total
    if not any(losses):
        return False
    source = losses.index(min(losses))
    if process_group is not None:
        source = dist.get_global_rank(process_group, source)
    tensors = [*model.parameters(), *model.buffers()]
    if optimizer is not None:
        tensors.extend(tensors_of(optimizer))
    with torch.no_grad():
        broadcast_tensors(tensors, source, process_group)
    return True


def tensors_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The tensors of an optimizer's state, in the order of its parameters."""
    found: list[torch.Tensor] = []
    for settings in optimizer.param_groups:
        for parameter in settings["params"]:
            state = optimizer.state.get(parameter, {})
            found.extend(state[key] for key in sorted(state) if isinstance(state[key], torch.Tensor))
    return found
