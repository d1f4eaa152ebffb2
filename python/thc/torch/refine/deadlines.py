"""How wide each bucket travels, and what of it is refined, so that nothing waits: AQGB's control (section 4.3) over an aggregator.

Nothing in here waits, sends or looks at a clock: measurements go in, each rank's are told to all, and what comes out is the same everywhere.

Times are of computing, waits left out, since the last step's means were there: when a bucket was *produced* by the backward pass, and
when the forward pass before *consumed* it first. The ranks' largest hold for all: all gradients of a bucket must be there before it
can travel, and a rank that is early waits for the others anyway. Of bandwidths the largest holds, for a rank whose gradients are late
makes the others' calls look long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thc import adapt
from thc.row import Span

__all__ = ["Deadlines", "Refinement", "Width"]

LATEST = 0.7
"""What the latest step counts in a time: what has changed is known after two."""
IN_TIME = 0.9
"""The share of a time that is planned with: a step is not exactly like the one before."""
MOST = 0xFFFF_FFFF
"""What ranks tell has 32 bits."""


@dataclass(frozen=True)
class Width:
    """A way in which a bucket may travel."""

    name: str
    choice: int | str
    """A table's id, or ``"raw"``."""
    share: float
    """What a link carries, as a share of 4 bytes for each coordinate, in the direction that carries more."""


@dataclass(frozen=True)
class Refinement:
    """A further call."""

    bucket: int
    number: int
    """The first, second, … of this bucket."""
    width: Width


class Deadlines:
    """One rank's view. ``widths`` are narrowest first; ``least`` is AQGB's bound on ratios; a bucket is refined by ``calls`` calls at
    most."""

    def __init__(self, widths: Sequence[Width], least: float, calls: int) -> None:
        self._widths = [width for width in widths if width.share >= least]
        self._least, self._calls = least, calls
        self._bandwidth = adapt.Bandwidth()
        self._carried: list[tuple[Span, float]] = []
        self._confirming: float | None = None
        self._consumed: dict[int, float] = {}
        self._produced: dict[int, float] = {}
        self.bandwidth = 0.0
        """Bytes a second, as all ranks have agreed."""
        self.first: list[Width] = []
        """How each bucket travels in the next step; nothing where nothing was measured."""
        self.second: list[Refinement] = []
        """The refinements of this step's buckets, in this order."""

    # This rank's measurements.

    def note_production(self, bucket: int, seconds: float) -> None:
        """A bucket's gradients were there."""
        _blend(self._produced, bucket, seconds)

    def note_consumption(self, bucket: int, seconds: float | None) -> None:
        """A forward pass needed a bucket's parameters; nothing if it is not known when."""
        if seconds is None:
            self._consumed.pop(bucket, None)
        else:
            _blend(self._consumed, bucket, seconds)

    def note_carriage(self, size: float, span: Span) -> None:
        """A call had so many bytes."""
        self._carried.append((span, size))

    def note_confirmation(self, seconds: float) -> None:
        """The call of a packet that ends another one took so long."""
        before = self._confirming
        self._confirming = seconds if before is None else before + LATEST * (seconds - before)

    def forget(self) -> None:
        """Begins anew, as after other buckets were made or the server was away: on all ranks alike."""
        self._carried.clear()
        self._consumed.clear()
        self._produced.clear()
        self.first, self.second = [], []

    def row(self, buckets: int) -> list[int]:
        """What this rank tells the others."""
        if self._carried:
            self._bandwidth.note(sum(size for _, size in self._carried), _busy([span for span, _ in self._carried]))
            self._carried.clear()
        numbers = [min(MOST, round(self._bandwidth.get() or 0.0)), _micros(self._confirming or 0.0)]
        numbers += [_micros(self._consumed.get(bucket, 0.0)) for bucket in range(buckets)]
        return numbers + [_micros(self._produced.get(bucket, 0.0)) for bucket in range(buckets)]

    # What all agree on.

    def agree(
        self, rows: Sequence[Sequence[int]], sizes: Sequence[int], shares: Sequence[float] | None = None, behind: bool = False
    ) -> None:
        """From all ranks' rows, and the coordinates of each bucket: what the others agree on as well. With ``shares``, of buckets that travel
        as somebody else decides, only what is refined; ``behind`` a step's computing, the first stage takes of the same time."""
        self.first, self.second = [], []
        self.bandwidth = float(max(row[0] for row in rows))
        if not self.bandwidth or not self._widths:
            return
        columns = list(zip(*rows))
        confirming = max(columns[1]) / 1e6
        count = len(sizes)
        # A rank that does not know when it needs a bucket may need it at once.
        consumed = [0.0 if not all(column) else max(column) / 1e6 for column in columns[2 : 2 + count]]
        produced = [max(column) / 1e6 for column in columns[2 + count : 2 + 2 * count]]
        if shares is None:
            self.first = self._plan_first(sizes, produced, confirming)
            shares = [width.share for width in self.first]
        before = sum(confirming + 4.0 * size * share / self.bandwidth for size, share in zip(sizes, shares)) if behind else 0.0
        self.second = self._plan_second(sizes, consumed, confirming, before)

    def _widest(self, ratio: float) -> Width | None:
        return max((width for width in self._widths if width.share <= ratio), key=lambda width: width.share, default=None)

    def _plan_first(self, sizes: Sequence[int], produced: Sequence[float], call: float) -> list[Width]:
        found, now = [], 0.0
        for bucket, size in enumerate(sizes):
            now = max(now, produced[bucket])
            left = IN_TIME * (produced[bucket + 1] - now) - call if bucket + 1 < len(sizes) else None
            ratio = adapt.first_ratio(4.0 * size, self.bandwidth, left, least=self._least)
            width = self._widest(ratio) or self._widths[0]
            found.append(width)
            now += call + 4.0 * size * width.share / self.bandwidth
        return found

    def _plan_second(self, sizes: Sequence[int], consumed: Sequence[float], call: float, before: float) -> list[Refinement]:
        found, now = [], before
        for bucket in sorted(range(len(sizes)), key=lambda bucket: (consumed[bucket], bucket)):
            size = 4.0 * sizes[bucket]
            for number in range(self._calls):
                # The call itself, and the one that tells that all have it.
                left = IN_TIME * consumed[bucket] - now - 2 * call
                ratio = adapt.second_ratio(size, self.bandwidth, left, least=self._least)
                width = None if ratio is None else self._widest(ratio)
                if width is None:
                    break
                found.append(Refinement(bucket, number, width))
                now += 2 * call + size * width.share / self.bandwidth
                if width.choice == "raw":
                    break  # nothing is left
        return found


def _blend(times: dict[int, float], bucket: int, seconds: float) -> None:
    before = times.get(bucket)
    times[bucket] = seconds if before is None else before + LATEST * (seconds - before)


def _micros(seconds: float) -> int:
    return min(MOST, max(0, round(seconds * 1e6)))


def _busy(spans: Sequence[Span]) -> float:
    """Seconds in which something was on its way."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
