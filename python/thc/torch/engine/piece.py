"""Numbers of a program that are averaged again and again, and whose means nobody waits for at once."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from thc.torch.engine.bucket import Arrival, Bucket, is_finite
from thc.torch.compression.layout import Layout, Segment

__all__ = ["Piece"]


class Piece:
    """Numbers that are averaged together, again and again: f32 on the CPU, in place. ``names`` are those of its parts, one after
    the other, with their lengths."""

    def __init__(self, name: str, numbers: torch.Tensor, compressed: bool, names: Mapping[str, int] | None = None) -> None:
        self.numbers = numbers
        segments, at = [], 0
        for part, length in (names or {"all": numbers.numel()}).items():
            segments.append(Segment(part, at, length, compressed))
            at += length
        self.layout = Layout(name, segments)
        self._copy: torch.Tensor | None = None
        self._arrival: Arrival | None = None

    @property
    def under_way(self) -> bool:
        """Whether its mean has been asked for and not been waited for."""
        return self._arrival is not None

    def bucket(self, index: int, is_last: bool, keeps: bool) -> Bucket:
        """The piece as a bucket of the step that begins; ``keeps`` a copy of the numbers, from which the bucket can be restored."""
        if keeps:
            self._copy = self.numbers.clone() if self._copy is None else self._copy.copy_(self.numbers)
        self._arrival = Arrival()
        return Bucket(index, is_last, self.numbers, [], self.layout, self._arrival, self._copy)

    def wait(self) -> bool:
        """Waits until the mean is in place. Whether all ranks' numbers were finite; if not, there is nothing of use. Raises what went wrong."""
        arrival, self._arrival = self._arrival, None
        assert arrival is not None, "nothing was asked for"
        arrival.wait()
        return is_finite(self.numbers)
