"""How ranks notice that the parameter server is lost, that it is back, and that another rank has left: by a store that rank 0 keeps, and by questions in
the background."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from typing import Any

import torch.distributed as dist

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.engine.pipeline import looking_around

PEER_PERIOD = 0.5
"""Seconds between two looks at the other ranks."""
PEER_PATIENCE = 2.0
"""Seconds without progress after which another rank may have lost the server."""
SERVER_PERIOD = 1.0
"""Seconds between two questions to the server after a first loss."""
LONGEST = 60.0
"""Seconds between two questions to the server at most."""
STEADY = 60.0
"""Seconds with the server after which a loss counts as a first one again."""


class _Counters:
    """Counters in a store that rank 0 keeps. They stay at nothing on a rank that does not reach it, and where rank 0 is gone."""

    def __init__(self, store: Any, name: str) -> None:
        self._store = None if store is None else dist.PrefixStore(name, store)

    def add(self, key: str, amount: int = 1) -> int:
        """Adds to a counter; what it is then."""
        if self._store is not None:
            with contextlib.suppress(RuntimeError):
                return int(self._store.add(key, amount))
        return 0

    def is_set(self, key: str) -> bool:
        """Whether somebody has added to a counter."""
        return self.add(key, 0) > 0


class StepCounters:
    """Counts of completed steps; nothing on a rank that does not reach the store, which nobody ever answers.

    A rank may lose the server when others already have the last answer of a step and have gone on. They may wait for it in a
    collective of their own then, as DDP's forward pass begins with one for buffers, while it waits for them to agree. So it
    asks here, and whoever has nothing else to do answers. A step costs nothing as long as nobody asks.
    """

    def __init__(self, store: Any, use: int = 0) -> None:
        """``use`` tells those apart that have a store in common."""
        self._counters = _Counters(store, f"counters/{use}")
        self._round = 0
        self._asked = self._told = -1

    def ask(self, step: int) -> bool:
        """Whether some rank has completed a step that this one has not."""
        if step != self._asked:
            self._counters.add(f"{self._round}/asked")
            self._asked = step
        return self._counters.is_set(f"{self._round}/completed/{step}")

    def is_asked(self) -> bool:
        """Whether some rank has asked: it has lost the parameter server."""
        return self._counters.is_set(f"{self._round}/asked")

    def tell(self, step: int) -> None:
        """Tells that all up to this step, exclusive, are complete here, if somebody has asked."""
        if step > self._told and step > 0 and self.is_asked():
            self._counters.add(f"{self._round}/completed/{step - 1}")
            self._told = step

    def begin_anew(self) -> None:
        """Forgets who has asked, on all ranks alike."""
        self._round += 1


_all: weakref.WeakSet[Departures] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    for departures in list(_all):
        departures.leave()


class Departures:
    """Which ranks have left; nothing on a rank that does not reach the store."""

    def __init__(self, store: Any, use: int, rank: int, size: int) -> None:
        """``use`` tells those apart that have a store in common."""
        self._counters = _Counters(store, f"departures/{use}")
        self._rank, self._size = rank, size
        self._has_left = False
        self.rank: int | None = None
        """A rank that has left, as far as anybody has looked."""
        _all.add(self)

    def leave(self) -> None:
        """This rank makes no further step."""
        if not self._has_left:
            self._has_left = True
            self._counters.add(str(self._rank))
            self._counters.add("any")

    def look(self) -> bool:
        """Whether a rank has left."""
        if self.rank is None and self._counters.is_set("any"):
            self.rank = next((rank for rank in range(self._size) if self._counters.is_set(str(rank))), None)
        return self.rank is not None

    def check(self, steps: int) -> None:
        """Raises :exc:`~thc.MissingError` if a rank is known to have left; this one has made so many steps."""
        if self.rank is not None:
            error = errors.MissingError(
                f"rank {self.rank} has left: its program has ended, or has closed the model's hook, and this rank waits for its gradients after {steps} "
                "steps; see what it said last, and start all ranks again"
            )
            error.missing = [self.rank]
            raise error


class PeerProbe:
    """Gives the session up when another rank asks the others to agree that the server is lost, or has left.

    The server may still answer this rank, which then waits for the other one for as long as for a rank that computes: the time-out
    of the process group. The sequencer is in a call meanwhile, so this has a thread of its own.
    """

    def __init__(self, group: BaseGroup, counters: StepCounters | None, departures: Departures) -> None:
        self._group, self._counters, self._departures = group, counters, departures
        self.since: float | None = None
        """When the step under way last went on; nothing between steps, or if this rank knows itself that something is wrong."""
        threading.Thread(target=_watch_peers, args=(weakref.ref(self),), name="thc-peer-probe", daemon=True).start()

    def look(self) -> None:
        """Gives the session up if there is reason to."""
        since = self.since
        if since is None or (waited := time.monotonic() - since) < PEER_PERIOD:
            return
        if self._departures.look() or (self._counters is not None and waited > PEER_PATIENCE and self._counters.is_asked()):
            self.since = None
            self._group.give_up()


def _watch_peers(found: weakref.ref[PeerProbe]) -> None:
    while True:
        time.sleep(PEER_PERIOD)
        probe = found()
        if probe is None:
            return
        with looking_around() as may:
            if may:
                probe.look()
        del probe


class ServerProbe:
    """Asks for the server of a group from a loss on until it is taken back. A server that is lost again soon is asked for less and less
    often: each loss costs a step the group's time-out."""

    def __init__(self, group: BaseGroup) -> None:
        self._group = group
        self._period, self._back = SERVER_PERIOD, -STEADY
        self._over: threading.Event | None = None
        self.sees_server = False
        """Whether the last question was answered."""

    def begin(self) -> None:
        """The server has been lost."""
        self.end()
        soon = time.monotonic() - self._back < STEADY
        self._period = min(LONGEST, 2 * self._period) if soon else SERVER_PERIOD
        self._over = threading.Event()
        threading.Thread(target=_watch_server, args=(weakref.ref(self), self._over, self._period), name="thc-server-probe", daemon=True).start()

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


def _watch_server(found: weakref.ref[ServerProbe], over: threading.Event, period: float) -> None:
    while not over.wait(period):
        probe = found()
        if probe is None:
            return
        probe.look()
        if over.is_set():
            # The answer came too late: another loss has a thread of its own.
            probe.sees_server = False
        del probe
