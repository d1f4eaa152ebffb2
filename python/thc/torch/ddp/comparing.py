"""Whether steps are shorter with compression than through the process group as it is: measured while training, on all ranks alike."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger("thc.torch")

SETTLE = 4
"""First steps that are not compared: DDP makes its final buckets."""
EACH = 6
"""Steps of each way that are compared, in turn. One more before them: connections are made in it."""
STEPS = SETTLE + 2 + 2 * EACH
"""Steps until the first bucket of the next one ends a comparison."""


@dataclass(frozen=True)
class Comparison:
    """Medians over steps, of the rank that took longest, in seconds."""

    compressed: float
    plain: float
    """Through the process group."""

    @property
    def compresses(self) -> bool:
        """Whether gradients are compressed since."""
        return self.compressed <= self.plain

    def __str__(self) -> str:
        way = "are compressed" if self.compresses else "go through the process group as they are"
        return f"a step takes {1e3 * self.compressed:.1f} ms with compression and {1e3 * self.plain:.1f} without: gradients {way}"


class Comparing:
    """Says of each step which way it goes. All methods are for the thread of autograd.

    A step goes from one backward pass's first bucket to the next one's, so that it has everything in it that training does.
    """

    def __init__(self, gather: Callable[[list[int]], list[list[int]]], every: bool | int, rank: int) -> None:
        """``gather``: every rank's numbers, of numbers of this one. ``every``: so many steps from one comparison to the next; ``True``: one."""
        self._gather, self._every, self._rank = gather, 0 if every is True else every, rank
        self.last: Comparison | None = None
        self._step = 0
        """The step of this comparison."""
        self._began = 0.0
        self._plain = False
        """How the step before went."""
        self._seconds: dict[bool, list[float]] = {False: [], True: []}
        """By whether it was plain."""

    def next(self) -> bool:
        """A backward pass has its first bucket. Whether it goes through the process group as it is. Once in a comparison the ranks tell each other."""
        now = time.perf_counter()
        first, over = SETTLE + 2, STEPS
        if first < self._step <= over:
            self._seconds[self._plain].append(now - self._began)
        if self._step == over:
            self._decide()
        if self._step < over:
            self._plain = self._step >= SETTLE and self._step % 2 == 0
        else:
            self._plain = self.last is not None and not self.last.compresses
        self._step += 1
        if self._every and self._step >= self._every:
            self._step = SETTLE - 1
        self._began = time.perf_counter()
        return self._plain

    def _decide(self) -> None:
        mine = [round(1e6 * statistics.median(self._seconds[plain])) for plain in (False, True)]
        compressed, plain = (max(column) / 1e6 for column in zip(*self._gather(mine)))
        self.last = Comparison(compressed, plain)
        self._seconds = {False: [], True: []}
        if self._rank == 0:
            log.info("%s", self.last)
