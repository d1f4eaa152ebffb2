"""Whether a parameter server that was lost is back: asked in the background, while training goes on without it."""

from __future__ import annotations

import threading
import time
import weakref

from thc import errors
from thc.base_group import BaseGroup

__all__ = ["Scout"]

PERIOD = 1.0
"""Seconds between two questions after a first loss."""
LONGEST = 60.0
"""Seconds between two questions at most."""
STEADY = 60.0
"""Seconds with the server after which a loss counts as a first one again."""


class Scout:
    """Asks for the server of a group from a loss on until it is taken back. A server that is lost again soon is asked for less and less
    often: each loss costs a step the group's time-out."""

    def __init__(self, group: BaseGroup) -> None:
        self._group = group
        self._period, self._back = PERIOD, -STEADY
        self._over: threading.Event | None = None
        self.sees_server = False
        """Whether the last question was answered."""

    def begin(self) -> None:
        """The server has been lost."""
        self.end()
        soon = time.monotonic() - self._back < STEADY
        self._period = min(LONGEST, 2 * self._period) if soon else PERIOD
        self._over = threading.Event()
        threading.Thread(target=_ask, args=(weakref.ref(self), self._over, self._period), name="thc-scout", daemon=True).start()

    def end(self) -> None:
        """The server is there again, or is not asked for any more."""
        if self._over is not None:
            self._over.set()
            self._back = time.monotonic()
        self._over, self.sees_server = None, False

    def __del__(self) -> None:
        if self._over is not None:
            self._over.set()

    def look(self) -> None:
        """Asks once."""
        try:
            self.sees_server = self._group.find_server()
        except errors.ThcError:
            self.sees_server = False


def _ask(found: weakref.ref[Scout], over: threading.Event, period: float) -> None:
    while not over.wait(period):
        scout = found()
        if scout is None:
            return
        scout.look()
        if over.is_set():
            # The answer came too late: another loss has a thread of its own.
            scout.sees_server = False
        del scout
