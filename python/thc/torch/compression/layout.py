"""Which coordinates of a bucket belong to which parameter, and how they travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thc.arguments import feedback_key

SMALL, OF_BUCKET = 64, 1000
"""A parameter shares a block with its neighbours if it has fewer than SMALL coordinates, a sixteenth of the smallest block, and less than a
thousandth of its bucket's. So padding cannot make a bucket of many tiny parameters many times as long."""


@dataclass(frozen=True)
class Segment:
    """One parameter's coordinates in a bucket."""

    name: str
    offset: int
    length: int
    compressed: bool
    """Otherwise its coordinates travel as 32-bit integers."""
    order: str = ""
    """The order of its coordinates, if it is not the usual one: what is kept of a parameter is of no use in another order."""

    @property
    def key(self) -> str:
        """The name under which something is kept of it."""
        return self.name + self.order

    @property
    def slice(self) -> slice:
        """Its place in the bucket."""
        return slice(self.offset, self.offset + self.length)


@dataclass
class Layout:
    """One set of parameters that DDP puts into one bucket."""

    scope: str
    segments: Sequence[Segment]
    length: int = field(init=False)
    key: int = field(init=False)
    """Under which error feedback is kept: the same on all ranks, another one for other sets of parameters."""

    def __post_init__(self) -> None:
        self.length = sum(segment.length for segment in self.segments)
        key = feedback_key("|".join([self.scope, *(f"{s.key}:{s.length}" for s in self.segments)]))
        assert key is not None
        self.key = key
        self.compresses = any(segment.compressed and segment.length for segment in self.segments)
        """Whether anything of it is compressed."""
        self._spans: dict[int | str, list[tuple[int, int | str]]] = {}
        self._staging: torch.Tensor | None = None

    def feedback_places(self) -> list[tuple[str, slice]]:
        """Where each compressed parameter's error feedback lies in that of this layout."""
        return [(segment.key, segment.slice) for segment in self.segments if segment.compressed and segment.length]

    def spans(self, choice: int | str) -> list[tuple[int, int | str]]:
        """A plan in which each compressed parameter has blocks of its own, so that it gets an error in proportion to its own gradient. Tiny ones
        that follow each other share a block, and so do neighbours that are not compressed."""
        spans = self._spans.get(choice)
        if spans is None:
            spans, shared = [], None
            for segment in self.segments:
                if not segment.length:
                    continue
                shares = not segment.compressed or (segment.length < SMALL and OF_BUCKET * segment.length < self.length)
                own = choice if segment.compressed else "raw"
                if shares and shared == own:
                    spans[-1] = (spans[-1][0] + segment.length, own)
                else:
                    spans.append((segment.length, own))
                shared = own if shares else None
            self._spans[choice] = spans
        return spans

    def staging(self, device: Any) -> torch.Tensor:
        """Memory for the whole bucket as f32 on the CPU, pinned if the bucket is on a GPU."""
        found = self._staging
        # Another thread may forget it between two looks.
        if found is None:
            found = self._staging = torch.empty(self.length, dtype=torch.float32, pin_memory=device.type == "cuda")
        return found

    def forget_staging(self) -> None:
        """Frees that memory; the next bucket gets other."""
        self._staging = None


def shares_of(layout: Layout, count: int) -> list[slice]:
    """Divides a bucket among so many ranks, evenly."""
    cuts = [layout.length * number // count for number in range(count + 1)]
    return [slice(start, stop) for start, stop in zip(cuts, cuts[1:])]


def share_of(layout: Layout, share: slice) -> Layout:
    """What is in a share of a bucket, as a bucket of its own. A part of a parameter is named after the parameter and its place there."""
    segments = []
    for segment in layout.segments:
        start, stop = max(segment.offset, share.start), min(segment.offset + segment.length, share.stop)
        if start >= stop:
            continue
        first, last = start - segment.offset, stop - segment.offset
        name = segment.name if stop - start == segment.length else f"{segment.name}[{first}:{last}]"
        segments.append(Segment(name, start - share.start, stop - start, segment.compressed, segment.order))
    return Layout(f"{layout.scope}.{share.start}", segments)
