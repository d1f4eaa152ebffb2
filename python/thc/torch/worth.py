"""Whether compression pays here: steps of a copy of the model, with it and without, on the ranks and links that will train it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thc import errors
from thc.join import Join
from thc.torch.ddp.comparing import STEPS, Comparison
from thc.torch.ddp.wrap import hook_of, wrap
from thc.torch.options import Compression

__all__ = ["worth_it"]

BATCHES = 4
"""Batches that are used in turn: loading is no part of what is measured."""


def worth_it(
    model: torch.nn.Module,
    loader: Iterable[Any],
    loss: Callable[[torch.nn.Module, Any], torch.Tensor],
    *,
    process_group: Any = None,
    over: str = "server",
    exclude: Sequence[str] = (),
    device: str = "auto",
    compression: Compression = Compression(),
    join: Join = Join(),
) -> Comparison:
    """Compares steps of a model through THC with steps through the process group as it is, before anything is changed; all ranks call it alike::

        print(thc.torch.worth_it(model, loader, lambda model, batch: criterion(model(batch[0]), batch[1])))

    A copy of ``model``, a plain module or one of DistributedDataParallel, makes as many steps as ``Compression(only_if_faster=True)`` compares, with the
    first batches of ``loader``, on the device where they are. The model and torch's random numbers stay as they are. ``loss(model, batch)`` is what
    is differentiated; the optimizer is no part of a step. The options are those of :func:`thc.torch.wrap`. The result is the same on all ranks.
    """
    if isinstance(model, DistributedDataParallel):
        process_group = model.process_group if process_group is None else process_group
        model = model.module
    with torch.random.fork_rng():
        batches = list(itertools.islice(loader, BATCHES))
    if not batches:
        raise errors.ConfigError("the loader has no batch: give one with at least one")
    trial = DistributedDataParallel(copy.deepcopy(model), process_group=process_group)
    wrap(trial, over=over, exclude=exclude, device=device, compression=replace(compression, only_if_faster=True), join=join)
    hook = hook_of(trial)
    on_gpu = torch.cuda.is_available() and any(p.is_cuda for p in trial.parameters())
    try:
        with torch.random.fork_rng():
            for step in range(STEPS + 1):
                trial.zero_grad(set_to_none=True)
                loss(trial, batches[step % len(batches)]).backward()
                if on_gpu:
                    torch.cuda.synchronize()
        found = hook.comparison
    finally:
        # No rank may leave while another one still needs its share of the server.
        if hook.error is None:
            dist.barrier(group=process_group)
        hook.group.close()
    if found is None:
        raise errors.ConfigError("no steps were compared: the loss must reach the model's parameters, and the options leave compression on")
    return found
