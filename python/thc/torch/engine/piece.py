"""Numbers of a program that are averaged again and again, and whose means nobody waits for at once."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from thc.torch.engine.arrival import Arrival, Further
from thc.torch.engine.bucket import Bucket, is_finite
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
        self.further: Further | None = None
        """What refines the mean that is under way; a part of the engine says so."""
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
        self._arrival, self.further = Arrival(), None
        return Bucket(index, is_last, self.numbers, [], self.layout, self._arrival, self._copy)

    def arrive(self) -> None:
        """Waits until the mean that this rank has asked for is there, which may still be refined: what of a step is refined is known when
        its last piece is there."""
        if self._arrival is not None:
            self._arrival.wait()

    def wait(self) -> bool:
        """Waits until the mean is in place. Whether all ranks' numbers were finite; if not, there is nothing of use. Raises what went wrong."""
        arrival, self._arrival = self._arrival, None
        assert arrival is not None, "nothing was asked for"
        arrival.wait()
        further, self.further = self.further, None
        if further is not None:
            further.wait()
            for buffer, _ in further.calls:
                self.numbers.add_(buffer)
        return is_finite(self.numbers)
