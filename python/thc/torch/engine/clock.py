"""When a model's gradients are produced, travel and are waited for, from one step to the next."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from thc.row import Row, Span

__all__ = ["Clock", "StepClock"]


class Clock:
    """The times of the step under way. A step goes from where one backward pass is over to where the next one is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: float | None = None
        self._produced: float | None = None
        self._travelled: list[Span] = []
        self._waited: list[Span] = []
        self.last = Row()
        """The step before."""

    def note_production(self) -> None:
        """A bucket of gradients has been computed: if it is the last one, whatever follows is waiting."""
        self._produced = time.perf_counter()

    def note_travel(self, began: float, landed: float) -> None:
        """Gradients were on their way from then to then."""
        with self._lock:
            self._travelled.append((began, landed))

    def note_wait(self, began: float, ended: float) -> None:
        """Training had nothing to do but wait for gradients from then to then."""
        with self._lock:
            self._waited.append((began, ended))

    @contextlib.contextmanager
    def measure_wait(self, nothing: bool = False) -> Iterator[None]:
        """What is done in it is waiting, unless there is nothing to wait for."""
        began = time.perf_counter()
        yield
        if not nothing:
            self.note_wait(began, time.perf_counter())

    def compute_time(self) -> float | None:
        """Seconds of this step so far, waits left out; nothing in the first one."""
        now = time.perf_counter()
        with self._lock:
            began = self._began
            return None if began is None else now - began - sum(end - start for start, end in self._waited)

    def end_step(self) -> Row | None:
        """The means of a backward pass are there, and training goes on. What the step was made of; nothing of the first, which nobody
        knows the beginning of."""
        return self._close(time.perf_counter())

    def _close(self, now: float) -> Row | None:
        with self._lock:
            travelled, self._travelled = self._travelled, []
            waited, self._waited = self._waited, []
        began, self._began = self._began, now
        produced, self._produced = self._produced, None
        if produced is not None:
            waited.append((produced, now))
        if began is None:
            return None
        self.last = Row.from_spans((began, now), travelled, waited)
        return self.last


class StepClock(Clock):
    """One whose steps go from one optimizer's step to the next, whenever means come."""

    def end_step(self) -> Row | None:
        """Says nothing: whoever trains tells when a step is over, by :meth:`end_optimizer_step`."""
        return None

    def end_optimizer_step(self) -> Row | None:
        """A step is over: what it was made of, but for the first."""
        return self._close(time.perf_counter())
