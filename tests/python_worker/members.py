"""The control packets of one worker (P22 to P25, P42, P43), without a socket or a clock: times are milliseconds."""

from dataclasses import dataclass

import wire

RETRY = 200  # between JOINs (P22)
IN_USE_RETRY, IN_USE_FOR = 60, 4000  # while the number is in use, by one who may be gone (P22, P24)
POSITION_RETRY = 100  # (P43)
LEAVE_RETRY = 50
LEAVE_FOR, STAY_FOR = 1000, 5000  # without BYE, where the server has the session and where it does not say so (P25)
SERVED_FOR = 250  # for which its saying so counts


class SessionError(Exception):
    """The session cannot begin, or is over."""


@dataclass
class Leaving:
    """How a worker leaves (P25)."""

    began: int
    end: int
    next: int
    served: int | None = None
    claim: int | None = None
    claimed: int = -RETRY

    def is_over(self, now):
        served = self.served is not None and now - self.served < SERVED_FOR
        return now >= (self.began + LEAVE_FOR if served else self.end)


def signed(difference, bits):
    """A difference of numbers that wrap, compared as in P9."""
    half = 1 << (bits - 1)
    return (difference + half) % (1 << bits) - half


class Member:
    """One worker's place in a job, whose sessions may change."""

    def __init__(self, job, seat, cookie, nonce, attempt, now, wants=0):
        self.job, self.seat, self.cookie, self.nonce = job, seat, cookie, nonce
        self.attempt, self.wants = attempt, wants
        self.welcome, self.workers = None, 0
        self.joining, self.began, self.next_join = True, now, now
        self.joined = None  # who is there, by the last PENDING
        self.leaving, self.left = None, False
        self._begin_session()

    def _begin_session(self):
        self.told = None  # "forgotten", ("stop", calls or None) or ("hold", calls)
        self.question = 0
        self.stopped = False
        self.asked_at = 0
        self.position, self.next_position = None, 0
        self.finished = self.begun = self.results = 0

    @property
    def number(self):
        """This worker's number in the session (P42)."""
        return self.welcome.members[0] if self.welcome.members else self.seat

    @property
    def changes(self):
        """Whether members of the job come and go."""
        return self.welcome.min_workers < self.welcome.max_workers

    # ---- what the program does

    def begin_call(self, now):
        self.begun += 1
        self._update(now)

    def have_results(self, now, calls):
        """All results of the first so many calls are in. They are finished as far as this worker may (P43)."""
        self.results = calls
        self._update(now)

    def must_wait(self, now):
        """Whether the program, which is at a boundary with no call under way, must wait there (P43)."""
        stop = isinstance(self.told, tuple) and self.told[0] == "stop"
        self.stopped = stop and (self.told[1] is None or self.begun >= self.told[1])
        self._update(now)
        return self.stopped or self._holds()

    def claim(self, now):
        """The server may have lost the session: introduces this worker again (P24)."""
        if not self.joining and self.leaving is None:
            self.joining, self.attempt = True, (self.attempt + 1) % (1 << 32)
            self.began = self.next_join = now

    def leave(self, now):
        """Begins to leave (P25)."""
        self.position = None
        self.leaving = Leaving(now, now + STAY_FOR, now)

    def stay(self, now):
        """Somebody needed what this leaving worker has sent."""
        self.leaving.end = now + STAY_FOR

    def _holds(self):
        return isinstance(self.told, tuple) and self.told[0] == "hold"

    def _update(self, now):
        """What follows from what has come, or from the program."""
        limit = self.told[1] if self._holds() else self.results
        self.finished = max(self.finished, min(self.results, limit))
        if self.leaving is not None:
            return
        position = None
        if self.told is not None:
            stand = 1 if self._holds() else 2 if self.stopped else 0
            calls = self.finished % (1 << 32), self.begun % (1 << 32)
            position = wire.position_payload(self.nonce, *calls, stand, self.question)
        if position != self.position:
            self.position, self.next_position = position, now

    # ---- packets

    def deadline(self):
        """When something is to be sent; None if nothing is."""
        times = [self.next_position] if self.position else []
        if self.leaving is not None:
            times += [self.leaving.next] + ([self.leaving.claim] if self.leaving.claim is not None else [])
        elif self.joining:
            times.append(self.next_join)
        return None if self.left else min(times, default=None)

    def poll(self, now):
        """The packets that are due."""
        if self.position and self.next_position <= now:
            self.next_position = now + POSITION_RETRY
            yield self._header(wire.POSITION, self.welcome.session).packet(self.position)
        if self.leaving is not None and not self.left:
            yield from self._poll_leaving(now)
        elif self.joining and self.next_join <= now:
            self.next_join = now + RETRY
            yield self._join()

    def _poll_leaving(self, now):
        leaving = self.leaving
        if leaving.claim is not None and leaving.claim <= now:
            leaving.claim, leaving.claimed = None, now
            yield self._join()
        if leaving.next <= now:
            if leaving.is_over(now):
                self.left = True
                return
            leaving.next = now + LEAVE_RETRY
            header = self._header(wire.LEAVE, self.welcome.session, round=self.finished % (1 << 32))
            yield header.packet(wire.leave_payload(self.nonce))

    def _header(self, kind, cookie, **fields):
        return wire.Header(kind, self.job, self.seat, cookie, **fields)

    def _join(self):
        claim, n, epoch = (0, 0), self.wants, 0
        if self.welcome:
            claim = self.welcome.session, self.welcome.fingerprint
            n = self.workers if self.changes else 0
            epoch = self.welcome.members[2] if self.welcome.members else 0
        header = self._header(wire.JOIN, self.cookie, num_workers=n, round=self.attempt, slot=epoch)
        return header.packet(wire.join_payload(self.nonce, *claim))

    def take(self, now, header, payload):
        """Takes a control packet (P27); returns whether another session has begun."""
        session = self.welcome.session if self.welcome else 0
        own = session != 0 and header.cookie == session
        if header.kind == wire.WELCOME:
            return self._take_welcome(header, payload)
        if header.kind == wire.DESCRIPTION and self.joining and header.cookie == self.cookie:
            description = wire.Welcome.parse(payload)
            if description and description.nonce == self.nonce and self.welcome:
                self._compare(description)
        elif header.kind == wire.PENDING:
            if own and self.leaving is not None:
                self.leaving.served = now
            elif self.joining and header.cookie == self.cookie:
                self.joined = wire.parse_pending(payload)
        elif header.kind == wire.REFUSED:
            self._take_refused(now, header, payload, own)
        elif header.kind == wire.ASK and own and wire.parse_ask(payload) == self.nonce:
            # P24: somebody wants this worker's number, and whoever does not answer loses it.
            if self.leaving is not None:
                self.leaving.served = None
                self.leaving.claim = max(now, self.leaving.claimed + RETRY)
            else:
                self.claim(now)
        elif header.kind == wire.BOUNDARY and own and self.leaving is None:
            self._obey(now, payload)
        elif header.kind == wire.BYE and own and self.leaving is not None:
            self.left = True
        return False

    def _take_welcome(self, header, payload):
        welcome, before = wire.Welcome.parse(payload), self.welcome
        if welcome is None or welcome.nonce != self.nonce or self.leaving is not None:
            return False
        number = welcome.members[0] if welcome.members else self.seat
        if welcome.quorum > header.num_workers or number >= header.num_workers:
            return False
        if before and welcome.session != before.session:
            if not self.changes:
                raise SessionError("the session has ended: all workers must join anew")
            # P42, P43: one who is asked, or claims, goes over to the next session, and never to one that is over.
            newer = signed(welcome.members[2] - before.members[2], 16) > 0
            if not newer or not (self.joining or self.position):
                return False
        elif not self.joining:
            return False
        elif before:
            self._compare(welcome)
        self.joining = False
        self.welcome, self.workers = welcome, header.num_workers
        if before and before.session == welcome.session:
            return False
        self._begin_session()
        return True

    def _compare(self, now):
        """P24: the session is over if the job is configured otherwise than it was."""
        own = ("session", "nonce", "fingerprint", "credit", "members", "marks")
        was, is_ = (vars(welcome) | vars(welcome.tables[0]) for welcome in (self.welcome, now))
        differ = [name for name in is_ if name not in own and was[name] != is_[name]]
        if self.welcome.fingerprint != now.fingerprint:
            raise SessionError(f"the job is configured otherwise than it was: {', '.join(differ)}")

    def _take_refused(self, now, header, payload, own):
        reason, worker = wire.parse_refused(payload)
        if reason == wire.REFORMING:
            if own and self.leaving is not None:
                self.left = True
            elif own:
                raise SessionError(f"worker {worker} has restarted: all workers must join anew")
        elif self.joining and (header.cookie, header.round) == (self.cookie, self.attempt):
            if reason != wire.IN_USE or now > self.began + IN_USE_FOR:
                raise SessionError(f"refused for reason {reason} because of worker {worker}")
            self.next_join = min(self.next_join, now + IN_USE_RETRY)

    def _obey(self, now, payload):
        """P43: what the server asks, or tells."""
        what, _, question, calls = wire.parse_boundary(payload)
        self.asked_at = now
        if signed(self.question - question, 16) > 0:
            # It has come late, or its server does not know what was asked before.
            self.told = self.told or "forgotten"
        else:
            self.question = question
            calls = self.begun + signed(calls - self.begun, 32)
            self.told = {
                wire.GO_ON: None,
                wire.HOLD: ("hold", self.finished),
                wire.FINISH: ("hold", max(calls, self.finished)),
                wire.ASK_CALLS: ("stop", None),
                wire.STOP: ("stop", calls),
            }[what]
            self.stopped = self.stopped and what in (wire.ASK_CALLS, wire.STOP)
        self._update(now)
        self.next_position = now

    def silence(self, now):
        """For how long it has waited for another word, while it holds or has stopped (P43)."""
        return now - self.asked_at if self.stopped or self._holds() else 0
