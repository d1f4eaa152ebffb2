"""Whether another rank has lost the parameter server, while this one waits for an answer."""

from __future__ import annotations

import threading
import time
import weakref

from thc.base_group import BaseGroup
from thc.torch.ranks.board import Board
from thc.torch.ranks.departures import Departures
from thc.torch.engine.pipeline import looking_around

__all__ = ["Lookout"]

PERIOD = 0.5
"""Seconds between two looks."""
PATIENCE = 2.0
"""Seconds without progress after which there is anything to look for."""


class Lookout:
    """Gives the session up when another rank asks the others to agree that the server is lost, or has left.

    The server may still answer this rank, which then waits for the other one for as long as for a rank that computes: the time-out
    of the process group. The sequencer is in a call meanwhile, so this has a thread of its own.
    """

    def __init__(self, group: BaseGroup, board: Board | None, departures: Departures) -> None:
        self._group, self._board, self._departures = group, board, departures
        self._since: float | None = None
        threading.Thread(target=_watch, args=(weakref.ref(self),), name="thc-lookout", daemon=True).start()

    def progress(self) -> None:
        """A step goes on."""
        self._since = time.monotonic()

    def rest(self) -> None:
        """A step is over, or this rank knows itself."""
        self._since = None

    def look(self) -> None:
        """Gives the session up if there is reason to."""
        since = self._since
        if since is None or (waited := time.monotonic() - since) < PERIOD:
            return
        if self._departures.look() or (self._board is not None and waited > PATIENCE and self._board.is_asked()):
            self._since = None
            self._group.give_up()


def _watch(found: weakref.ref[Lookout]) -> None:
    while True:
        time.sleep(PERIOD)
        lookout = found()
        if lookout is None:
            return
        with looking_around() as may:
            if may:
                lookout.look()
        del lookout
