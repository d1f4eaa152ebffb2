"""Ways that the codec does not have, in torch's operations: other roundings, other error feedback. The same blocks, ranges and tables."""

from __future__ import annotations

import math

import torch

from thc import _native

BLOCK = 1 << 13


def _transform(x: torch.Tensor) -> torch.Tensor:
    """Walsh-Hadamard of rows, its own inverse."""
    rows, size = x.shape
    stride = 1
    while stride < size:
        pairs = x.reshape(rows, -1, 2, stride)
        x = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), 2).reshape(rows, size)
        stride *= 2
    return x / math.sqrt(size)


class Emulated:
    """``rounding``: "random" or "nearest"; ``kept``: the share of what was lost that is added to the next gradient; ``differences``: what is
    sent is the difference to what was sent before (EF21)."""

    def __init__(self, length: int, ranks: int, seed: int, *, rounding: str = "random", kept: float = 0.0, differences: bool = False) -> None:
        values, self._t_p = _native.lookup_table(4, None, None, ranks, 8)
        self._values = torch.tensor(values, dtype=torch.float32)
        self._rounding, self._kept, self._differences = rounding, kept, differences
        self._generator = torch.Generator().manual_seed(seed)
        self._before = [torch.zeros(length) for _ in range(ranks)]
        """What was lost, or what has been sent so far."""
        self._length = length

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (0, -len(x) % BLOCK)).view(-1, BLOCK)

    def mean(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        if self._differences:
            sent = [gradient - before for gradient, before in zip(gradients, self._before)]
        else:
            sent = [gradient + self._kept * before for gradient, before in zip(gradients, self._before)]
        signs = 1.0 - 2.0 * torch.randint(0, 2, self._rows(sent[0]).shape, generator=self._generator)
        rotated = [_transform(self._rows(x) * signs) for x in sent]
        norms = torch.stack([x.norm(dim=1) for x in rotated]).amax(0)
        m = (self._t_p / math.sqrt(BLOCK) * norms).clamp(min=1e-30).unsqueeze(1)
        found = [(_transform(self._quantize(x, m)) * signs).reshape(-1)[: self._length] for x in rotated]
        if self._differences:
            self._before = [before + each for before, each in zip(self._before, found)]
            return torch.stack(self._before).mean(0)
        self._before = [x - each for x, each in zip(sent, found)]
        return torch.stack(found).mean(0)

    def _quantize(self, x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        values = self._values
        g = values[-1]
        q = ((x + m) * g / (2 * m)).clamp(0, float(g))
        lower = torch.searchsorted(values, q, right=True).sub_(1).clamp_(0, len(values) - 2)
        share = (q - values[lower]) / (values[lower + 1] - values[lower])
        draw = 0.5 if self._rounding == "nearest" else torch.rand(share.shape, generator=self._generator)
        return values[lower + (share > draw).long()] * 2 * m / g - m
