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
    exact: bool = False
    """Travels in one call with what is compressed, and is not."""
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
        """A plan of the compressed call in which each parameter has blocks of its own, so that it gets an error in proportion to its own
        gradient. Only tiny ones that follow each other share a block."""
        spans: list[tuple[int, int | str]] = []
        shared = False
        for segment in self.segments:
            length = segment.length
            if not length or (self.gathers and not segment.compressed):
                continue
            is_tiny = length < SMALL and OF_BUCKET * length < self.sent_length
            if is_tiny and shared:
                spans[-1] = (spans[-1][0] + length, choice)
            else:
                spans.append((length, choice))
            shared = is_tiny
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
    """Divides a bucket among so many ranks, evenly."""
    cuts = [layout.length * number // count for number in range(count)]
    return [slice(start, stop) for start, stop in zip(cuts, [*cuts[1:], layout.length])]


def share_of(layout: Layout, share: slice) -> Layout:
    """What is in a share of a bucket, as a bucket of its own. A part of a parameter is named after the parameter and its place there."""
    segments = []
    for segment in layout.segments:
        start, stop = max(segment.offset, share.start), min(segment.offset + segment.length, share.stop)
        if start >= stop:
            continue
        first, last = start - segment.offset, stop - segment.offset
        name = segment.name if stop - start == segment.length else f"{segment.name}[{first}:{last}]"
        segments.append(Segment(name, start - share.start, stop - start, segment.compressed, segment.exact, segment.order))
    return Layout(f"{layout.scope}.{share.start}", segments)
