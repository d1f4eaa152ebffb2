"""Rows of a parameter without gradient on any rank, as embeddings have them, stay exactly zero: ranks tell each other which rows have one.

What a rotation spreads reaches every coordinate of a block, also those that were zero everywhere; and Adam or Adagrad, which divide by
a coordinate's own size, would make steps of full size of it. So before a bucket that has such parameters goes a short call
in which each row is a few bits of a number: the sum over ranks says how many have a gradient in that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from thc.torch.compression.layout import Layout

__all__ = ["Rows"]

BITS = 22
"""Bits of a number that f32 keeps exactly, with some to spare for the mean's division."""
SHARE = 0.125
"""So many of a parameter's rows without gradient in its first mean make it one that is looked after."""


@dataclass(frozen=True)
class _Sparse:
    """A parameter's place in what is sent, and its rows."""

    place: slice
    rows: int


class Rows:
    """The rows of a layout: which of its parameters are sparse, as the first mean shows."""

    def __init__(self, layout: Layout, ranks: int, sparse: Sequence[str]) -> None:
        rows = {segment.key: segment.rows for segment in layout.segments}
        self._of = [_Sparse(place, rows[name]) for name, place in layout.feedback_places() if name in sparse]
        self._ranks, self._digit = ranks, ranks.bit_length()
        self._each = BITS // self._digit

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def _length(self) -> int:
        return sum(each.rows for each in self._of)

    def tell(self, data: torch.Tensor) -> torch.Tensor:
        """What this rank says of its gradients: for each row a digit, several in a number."""
        found = torch.cat([data[each.place].view(each.rows, -1).ne(0).any(1) for each in self._of]).to(torch.int32)
        found = torch.nn.functional.pad(found, (0, -len(found) % self._each)).view(-1, self._each)
        return (found << self._shifts(data.device)).sum(1).float()

    def clear(self, told: torch.Tensor, data: torch.Tensor) -> None:
        """Zeroes the rows of a mean that had no gradient anywhere; ``told`` is the mean of what ranks said."""
        sums = (told.double() * self._ranks).round().to(torch.int32).view(-1, 1)
        digits = (sums >> self._shifts(data.device)) & ((1 << self._digit) - 1)
        flags = digits.reshape(-1)[: self._length].ne(0)
        at = 0
        for each in self._of:
            rows = data[each.place].view(each.rows, -1)
            rows.masked_fill_(~flags[at : at + each.rows].unsqueeze(1), 0.0)
            at += each.rows

    def _shifts(self, device: torch.device) -> torch.Tensor:
        return self._digit * torch.arange(self._each, dtype=torch.int32, device=device)

    @staticmethod
    def sparse(layout: Layout, mean: torch.Tensor) -> list[str]:
        """The parameters many of whose rows had no gradient in an exact mean."""
        rows = {segment.key: segment.rows for segment in layout.segments}
        found = []
        for name, place in layout.feedback_places():
            if rows[name] > 1:
                without = int(mean[place].view(rows[name], -1).eq(0).all(1).sum())
                if SHARE * rows[name] <= without < rows[name]:
                    found.append(name)
        return found
