"""Gradients of an optimizer's parameters as pieces, for whoever averages them after the backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from thc.torch.engine.bucket import is_finite
from thc.torch.engine.piece import Piece

__all__ = ["Gradients", "cut_gradients"]

PIECE = 1 << 22
"""Coordinates that travel in one call, about."""


class Gradients(Piece):
    """Gradients of some neighbouring parameters."""

    def __init__(self, name: str, parameters: list[torch.nn.Parameter], names: Mapping[torch.nn.Parameter, str]) -> None:
        self.parameters = parameters
        lengths = [p.numel() for p in parameters]
        flat = torch.empty(sum(lengths), pin_memory=any(p.device.type == "cuda" for p in parameters))
        self._parts = [part.view_as(p) for part, p in zip(flat.split(lengths), parameters)]
        super().__init__(name, flat, compressed=True, names={names[p]: p.numel() for p in parameters})

    def fill(self, factor: float, finite: bool) -> bool:
        """Takes the gradients of this step times a factor; of a parameter that has none, zero. Whether they are finite."""
        for part, p in zip(self._parts, self.parameters):
            if p.grad is None:
                part.zero_()
            else:
                part.copy_(p.grad)
        if factor != 1.0:
            self.numbers.mul_(factor)
        if not finite:
            # All ranks hear of one whose gradients are not finite, and leave the step out.
            self.numbers[0] = float("nan")
        return is_finite(self.numbers)

    def give(self) -> None:
        """Makes the mean the gradients of the parameters. A mean of zeros is no gradient: nothing used the parameter, on any rank, and an
        optimizer with momentum or weight decay leaves it as it is."""
        for part, p in zip(self._parts, self.parameters):
            p.grad = part.to(device=p.device, dtype=p.dtype) if part.any() else None


def cut_gradients(scope: str, parameters: Sequence[torch.nn.Parameter], names: Mapping[torch.nn.Parameter, str]) -> list[Gradients]:
    """Neighbours together, until there are enough for a call."""
    cut: list[list[torch.nn.Parameter]] = [[]]
    done = 0
    for p in parameters:
        if cut[-1] and done + p.numel() > PIECE:
            cut.append([])
            done = 0
        cut[-1].append(p)
        done += p.numel()
    return [Gradients(f"{scope}.{number}", some, names) for number, some in enumerate(cut)]
