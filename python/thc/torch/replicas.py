"""Whether all ranks have the same parameters, bit for bit: compared by a digest of each parameter."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import torch

from thc.errors import ConfigError, ReplicasError
from thc.torch.names import module_of, named_parameters
from thc.torch.ranks.gathering import gather_numbers


log = logging.getLogger("thc.torch")

CHUNK = 1 << 20
"""Elements that are digested together."""

# Odd multipliers of SplitMix64, as signed numbers; integer arithmetic wraps alike on every device.
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
MIX = 0xBF58476D1CE4E5B9 - (1 << 64)

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest(tensor: torch.Tensor) -> int:
    """64 bits that depend on every bit of a tensor and on where it is. A single element that differs always shows."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    words = flat.view(torch.uint8 if flat.dtype == torch.bool else _WHOLE[flat.element_size()])
    found = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for first in range(0, len(words), CHUNK):
        part = words[first : first + CHUNK].to(torch.int64)
        at = torch.arange(first + 1, first + 1 + len(part), dtype=torch.int64, device=tensor.device)
        weights = at * GOLDEN
        weights = (weights ^ (weights >> 29)) * MIX | 1
        found += (part * weights).sum()
    return int(found.item())


def check_replicas(model: torch.nn.Module, *, process_group: Any = None, when: str = "") -> None:
    """Compares the parameters of ``model`` on all ranks, bit for bit; all ranks must call it at the same place, between steps.

    It costs a pass over the parameters and one gathering of 8 bytes for each. ``process_group`` is that of the model if it is one of
    ``DistributedDataParallel``, else the default one. Raises :class:`thc.ReplicasError`, on all ranks, which names
    the ranks that differ from the most; ``when`` is put into its text.
    """
    if process_group is None:
        process_group = getattr(model, "process_group", None)
    mine = {name: digest(parameter) for name, parameter in named_parameters(module_of(model)).items()}
    every = gather_numbers(list(mine.values()), process_group)
    usual, _ = Counter(map(tuple, every)).most_common(1)[0]
    ranks = [rank for rank, theirs in enumerate(every) if tuple(theirs) != usual]
    if ranks:
        raise ReplicasError(ranks, [name for at, name in enumerate(mine) if any(every[rank][at] != usual[at] for rank in ranks)], when)


class DigestOf:
    """Compares a model's replicas before the forward pass that follows every so many steps."""

    def __init__(self, every: int, source: Any = None) -> None:
        """``source`` knows how many backward passes have ``begun``: the model's hook."""
        if every < 1:
            raise ConfigError(f"check_replicas is {every}: give a number of steps, at least 1")
        self.every = every
        self._next = every
        self._warned = False
        self.source = source

    def __call__(self, model: torch.nn.Module, _: Any) -> None:
        """A forward pass begins."""
        steps = 0 if self.source is None else self.source.begun
        if steps < self._next or not model.training or not torch.is_grad_enabled():
            return
        if getattr(getattr(model, "_join_config", None), "enable", False):
            # Ranks without inputs make no forward pass, and so would not compare. torch does not say when `DDP.join()` is over.
            if not self._warned:
                self._warned = True
                log.warning("from DDP.join() on replicas are not compared after every so many steps: call thc.torch.check_replicas behind it")
            return
        self._next = steps - steps % self.every + self.every
        check_replicas(model, when=f" after step {steps}")

    def __reduce__(self) -> Any:
        # A copy of the model compares nothing, as it has no hook.
        return DigestOf, (self.every,)
