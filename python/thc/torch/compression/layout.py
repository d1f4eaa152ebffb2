"""Which coordinates of a bucket belong to which parameter, and how they travel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thc.arguments import feedback_key

__all__ = ["Layout", "Segment", "scatter", "share_of", "shares_of"]

GATHER_FROM = 0.5
"""From this share of opted-out coordinates on, the others are gathered; below, those opted out are zeroed in
place, which copies less and sends a few zeros."""


PACKET = 1024
"""Coordinates of a packet."""
PADDING = 0.02
"""The share of a parameter that padding to whole packets may add if it is to have blocks of its own."""


@dataclass(frozen=True)
class Segment:
    """One parameter's coordinates in a bucket."""

    name: str
    offset: int
    length: int
    compressed: bool
    exact: bool = False
    """Travels in one call with what is compressed, and is not."""
    rows: int = 1
    """Rows of a matrix; 1 of anything else."""
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


def _runs(segments: Iterable[Segment]) -> list[slice]:
    """The places of neighbouring segments, joined."""
    found: list[slice] = []
    for segment in segments:
        if found and found[-1].stop == segment.offset:
            found[-1] = slice(found[-1].start, segment.offset + segment.length)
        else:
            found.append(segment.slice)
    return found


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
        kept = [segment for segment in self.segments if segment.compressed]
        aside = [segment for segment in self.segments if not segment.compressed]
        self.kept = _runs(kept)
        self.aside = _runs(aside)
        self.kept_length = sum(segment.length for segment in kept)
        self.gathers = bool(kept) and (self.length - self.kept_length) > GATHER_FROM * self.length
        """Whether the compressed coordinates are sent without gaps."""
        parts = [self.scope, str(self.gathers), *(f"{s.key}:{s.length}" for s in self.segments)]
        key = feedback_key("|".join(parts))
        assert key is not None
        self.key = key
        self._staging: torch.Tensor | None = None

    @property
    def sent_length(self) -> int:
        """Coordinates of the compressed call."""
        return self.kept_length if self.gathers else self.length

    def feedback_places(self) -> list[tuple[str, slice]]:
        """Where each compressed parameter's error feedback lies in that of this layout."""
        places = []
        at = 0
        for segment in self.segments:
            if segment.compressed and segment.length:
                start = at if self.gathers else segment.offset
                places.append((segment.key, slice(start, start + segment.length)))
                at += segment.length
        return places

    def spans(self, choice: int | str) -> list[tuple[int, int | str]]:
        """A plan of the compressed call whose blocks mix no large parameter with another. A span is padded to whole packets, so small
        ones share theirs with their neighbours."""
        spans: list[tuple[int, int | str]] = []
        shared = False
        lengths = [segment.length for segment in self.segments if segment.length and (segment.compressed or not self.gathers)]
        for length in lengths:
            small = -length % PACKET > PADDING * length
            if small and shared:
                spans[-1] = (spans[-1][0] + length, choice)
            else:
                spans.append((length, choice))
            shared = small
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


def scatter(source: torch.Tensor, target: torch.Tensor, places: Sequence[slice]) -> None:
    """Puts what was gathered back."""
    at = 0
    for place in places:
        length = place.stop - place.start
        target[place] = source[at : at + length]
        at += length


def shares_of(layout: Layout, count: int) -> list[slice]:
    """Divides a bucket among so many ranks, evenly, but between rows of a matrix where there is one nearby: a row without a gradient is known
    as such where it is whole."""
    cuts = [0]
    for number in range(1, count):
        at = layout.length * number // count
        for segment in layout.segments:
            if segment.rows > 1 and segment.offset <= at < segment.offset + segment.length:
                width = segment.length // segment.rows
                near = segment.offset + round((at - segment.offset) / width) * width
                at = near if abs(near - at) * 8 * count <= layout.length else at
        cuts.append(max(at, cuts[-1]))
    return [slice(start, stop) for start, stop in zip(cuts, [*cuts[1:], layout.length])]


def share_of(layout: Layout, share: slice) -> Layout:
    """What is in a share of a bucket, as a bucket of its own. A part of a parameter is named after the parameter and its place there."""
    segments = []
    for segment in layout.segments:
        start, stop = max(segment.offset, share.start), min(segment.offset + segment.length, share.stop)
        if start >= stop:
            continue
        first, last = start - segment.offset, stop - segment.offset
        name, rows = segment.name, segment.rows
        if stop - start < segment.length:
            name, width = f"{name}[{first}:{last}]", segment.length // rows
            rows = (last - first) // width if first % width == last % width == 0 else 1
        segments.append(Segment(name, start - share.start, stop - start, segment.compressed, segment.exact, rows, segment.order))
    return Layout(f"{layout.scope}.{share.start}", segments)
