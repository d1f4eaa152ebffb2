"""What a model's steps are made of: computing, and waiting for gradients."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from thc.stats import Training

__all__ = ["Clock", "Span", "StepClock"]

Span = tuple[float, float]
"""From when to when, in seconds of one clock."""


class Clock:
    """The times of the step under way, which it adds to a group's totals. A step goes from where one backward pass is over to where the next one
    is."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._lock = threading.Lock()
        self._began: float | None = None
        self._produced: float | None = None
        self._waited: list[Span] = []

    def note_production(self) -> None:
        """A bucket of gradients has been computed: if it is the last one, whatever follows is waiting."""
        self._produced = time.perf_counter()

    @contextlib.contextmanager
    def measure_wait(self) -> Iterator[None]:
        """What is done in it is waiting."""
        began = time.perf_counter()
        yield
        with self._lock:
            self._waited.append((began, time.perf_counter()))

    def end_step(self) -> None:
        """The means of a backward pass are there, and training goes on."""
        self._close(time.perf_counter())

    def _close(self, now: float) -> None:
        with self._lock:
            spans, self._waited = self._waited, []
        began, self._began = self._began, now
        produced, self._produced = self._produced, None
        if produced is not None:
            spans.append((produced, now))
        # Nobody knows the beginning of the first one.
        if began is not None:
            waited = sum(max(0.0, end - max(start, began)) for start, end in spans)
            self._training.add_step(now - began - waited, waited)


class StepClock(Clock):
    """One whose steps go from one optimizer's step to the next, whenever means come."""

    def end_step(self) -> None:
        """Does nothing: whoever trains tells when a step is over, by :meth:`end_optimizer_step`."""

    def end_optimizer_step(self) -> None:
        """A step is over."""
        self._close(time.perf_counter())
