"""What a model's steps are made of: computing, and waiting for gradients."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from thc.stats import Training


class Clock:
    """The times of the step under way, which it adds to a group's totals. A step goes from one :meth:`end_step` to the next."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._lock = threading.Lock()
        self._began: float | None = None
        self.produced: float | None = None
        """When the latest bucket of gradients had been computed: after the last one, whatever follows is waiting."""
        self._waited: list[tuple[float, float]] = []

    @contextlib.contextmanager
    def measure_wait(self) -> Iterator[None]:
        """What is done in it is waiting."""
        began = time.perf_counter()
        yield
        with self._lock:
            self._waited.append((began, time.perf_counter()))

    def end_step(self) -> None:
        """A step is over, and training goes on."""
        now = time.perf_counter()
        with self._lock:
            spans, self._waited = self._waited, []
        began, self._began = self._began, now
        produced, self.produced = self.produced, None
        if produced is not None:
            spans.append((produced, now))
        # The beginning of the first one is not known.
        if began is not None:
            waited = sum(max(0.0, end - max(start, began)) for start, end in spans)
            self._training.add_step(now - began - waited, waited)
