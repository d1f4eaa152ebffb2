"""What ranks do when they lose the server, and when it is back: they agree on it through the process group."""

from __future__ import annotations

import time
import weakref
from typing import Any

from thc import errors
from thc.base_group import BaseGroup
from thc.torch.engine.agreement import Agreement
from thc.torch.ranks.gathering import Gathering, shared_store
from thc.torch.ranks.health import Departures, PeerProbe, ServerProbe, StepCounters
from thc.torch.options import IN_FLIGHT
from thc.torch.ranks.peers import Peers

PATIENCE = 10.0
"""Seconds that the store may take to answer."""

_sessions: weakref.WeakKeyDictionary[BaseGroup, int] = weakref.WeakKeyDictionary()
"""How often all ranks of a group have joined anew, by whichever of its engines."""


class Fallback:
    """This rank's side of the agreement, with what carries questions and answers. All methods are the sequencer's.

    Making one is a collective.
    """

    def __init__(self, group: BaseGroup, is_enabled: bool, peers: Peers) -> None:
        self.group, self.peers = group, peers
        self.is_enabled = is_enabled
        """Whether training goes on through the process group when the server is lost."""
        self.agreement = Agreement(fallback=is_enabled, depth=IN_FLIGHT)
        self.error: BaseException | None = None
        """Why the parameter server counts as lost, or what ended the work."""
        own, store = peers.own, self._shared_store()
        self.counters = StepCounters(store, own.use) if self.is_enabled else None
        self.departures = Departures(store, own.use, peers.rank, peers.size)
        self._peer_probe = PeerProbe(group, self.counters, self.departures)
        self._gathering: Gathering | None = None
        self._session = _sessions.get(group, 0)
        self.server_probe = ServerProbe(group)
        self._sightings: Gathering | None = None
        """Which ranks had seen the server again at the end of the last step."""

    def _shared_store(self) -> Any:
        kept = self.peers.own.kept
        if "store" not in kept:
            kept["store"] = None if self.peers.size == 1 else shared_store(self.peers.given, PATIENCE)
        return kept["store"]

    # While steps go on.

    def note_progress(self) -> None:
        """A step goes on."""
        if not self.agreement.fallback_active:
            self._peer_probe.since = time.monotonic()

    def rest(self) -> None:
        """A step is over, or this rank knows itself that something is wrong."""
        self._peer_probe.since = None

    def idle(self) -> None:
        """Answers a rank that has lost the server, if there is one."""
        if self.counters is not None and not self.agreement.fallback_active:
            self.counters.tell(self.agreement.steps)

    # After a loss.

    def lose(self, error: BaseException) -> None:
        """A call has failed in a way that means that the server is lost. Without a fall-back that is raised."""
        if not self.is_enabled:
            raise error
        self.error = error
        self.peers.own.spoil()
        self.agreement.lose()

    def gather(self, row: list[int]) -> list[list[int]] | None:
        """All ranks' rows; nothing if some rank turns out to have completed the step. A rank's may be that of a step that it left
        that way."""
        if self._gathering is None:
            self._gathering = self.peers.begin_gather(row)
        pause = 0.001
        self.departures.check(self.agreement.steps)
        while self.counters is not None and row[0] >= 0 and not self._gathering.is_complete():
            if self.counters.ask(row[0]):
                return None
            if self.departures.look():
                self.departures.check(self.agreement.steps)
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        rows, self._gathering = self._gathering.numbers(), None
        return rows

    # The server's return.

    def all_see_server(self) -> bool:
        """At the end of a step without the server, after which all ranks are at the same place: whether all have seen it. What they have seen travels
        during the next step, so this waits for nobody; after a look that was in vain :meth:`look_again` begins the next."""
        sightings, self._sightings = self._sightings, None
        return sightings is not None and self.agreement.all_tell(sightings.numbers())

    def look_again(self) -> None:
        """Tells the other ranks what this one has seen by now."""
        self._sightings = self.peers.begin_gather(self.agreement.join_row(self.server_probe.sees_server))

    def _join(self) -> bool:
        """Joins anew, unless another engine of this group has led all ranks into another session than this one's."""
        if _sessions.get(self.group, 0) == self._session:
            try:
                self.group.rejoin()
            except errors.ThcError as error:
                self.error = error
                return False
        if self.group.workers != self.peers.size:
            self.error = errors.LostError(f"the job has {self.group.workers} workers now, and there are {self.peers.size} ranks")
            return False
        return True

    def rejoin(self) -> bool:
        """Joins anew; whether all ranks have, and so go on with the server."""
        joined, works = self._join(), None
        while works is None:
            rows = self.gather(self.agreement.join_row(joined))
            works = None if rows is None else self.agreement.finish_rejoining(rows)
        if works:
            self._session = _sessions[self.group] = max(_sessions.get(self.group, 0), self._session + 1)
            self.server_probe.end()
            # All ranks have made it; what it says is old.
            self._sightings = None
            if self.counters is not None:
                self.counters.begin_anew()
        return works
