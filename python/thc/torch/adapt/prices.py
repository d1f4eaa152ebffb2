"""What a byte of each bucket costs while training: L-GreCo's coefficients (section 4, "Optimizing for time")."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

from thc import adapt

__all__ = ["Prices"]

LEAST = 16
"""Steps that are measured at least."""
EACH = 3
"""And for each bucket so many."""


class Prices:
    """Steps in which buckets travel now in more bytes and now in fewer. What a byte of each costs follows from how long these take, from
    the start of the first synchronization to the end of the last: what hides behind the backward pass costs nothing."""

    def __init__(self, tables: int) -> None:
        self._tables = tables
        self._steps: list[tuple[dict[int, float], float]] = []
        # Of the step under way.
        self._carried: dict[int, float] = {}
        self._began: list[float] = []
        self._landed: list[float] = []

    @staticmethod
    def steps(buckets: int) -> int:
        """How many are needed."""
        return max(LEAST, EACH * (buckets + 1))

    def begin(self) -> None:
        """Forgets all."""
        self._steps.clear()
        self._begin_step()

    def _begin_step(self) -> None:
        self._carried, self._began, self._landed = {}, [], []

    def draw(self, bucket: int, step: int) -> int:
        """With which table a bucket travels in a step: no pattern, and the same on all ranks, who have the same keys of buckets."""
        return zlib.crc32(struct.pack("<QQ", bucket & 0xFFFF_FFFF_FFFF_FFFF, step)) % self._tables

    def note_travel(self, bucket: int, carried: float, began: float, landed: float) -> None:
        """A bucket of this step was on its way from then to then, in so many bytes."""
        self._carried[bucket] = carried
        self._began.append(began)
        self._landed.append(landed)

    def end_step(self) -> None:
        """All buckets of a step have landed."""
        if self._carried:
            self.took(self._carried, max(self._landed) - min(self._began))
        self._begin_step()

    def took(self, carried: Mapping[int, float], seconds: float) -> None:
        """A step whose buckets had so many bytes took so long."""
        self._steps.append((dict(carried), seconds))

    def of_buckets(self) -> dict[int, float]:
        """Seconds per byte. Steps of other buckets than the last one's count for nothing."""
        if not self._steps:
            return {}
        buckets = list(self._steps[-1][0])
        alike = [(carried, seconds) for carried, seconds in self._steps if carried.keys() == set(buckets)]
        model = adapt.fit([([carried[bucket] for bucket in buckets], seconds) for carried, seconds in alike])
        return dict(zip(buckets, model.slopes))
