"""The control packets of one worker (P22 to P25), without a socket or a clock: times are milliseconds."""

from dataclasses import dataclass

import wire

RETRY = 200  # between JOINs (P22)
IN_USE_RETRY, IN_USE_FOR = 60, 4000  # while the number is in use, by one who may be gone (P22, P24)
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
    served: int | None = None  # when the server last said that it has the session
    lost: bool = False  # the server has lost the session, and with it the sums
    claim: int | None = None
    claimed: int = -RETRY

    def is_over(self, now):
        served = not self.lost and self.served is not None and now - self.served < SERVED_FOR
        return now >= (self.began + LEAVE_FOR if served else self.end)


class Member:
    """One worker's place in a job."""

    def __init__(self, job, seat, cookie, nonce, attempt, now):
        self.job, self.seat, self.cookie, self.nonce = job, seat, cookie, nonce
        self.attempt = attempt
        self.welcome, self.workers = None, 0
        self.joining, self.began, self.next_join = True, now, now
        self.joined = None  # who is there, by the last PENDING
        self.leaving, self.left = None, False

    # ---- what the program does

    def claim(self, now):
        """The server may have lost the session: introduces this worker again (P24)."""
        if not self.joining and self.leaving is None:
            self.joining, self.attempt = True, (self.attempt + 1) % (1 << 32)
            self.began = self.next_join = now

    def leave(self, now):
        """Begins to leave (P25)."""
        self.leaving = Leaving(now, now + STAY_FOR, now)

    def stay(self, now):
        """Somebody needed what this leaving worker has sent."""
        self.leaving.end = now + STAY_FOR

    # ---- packets

    def deadline(self):
        """When something is to be sent; None if nothing is."""
        times = []
        if self.leaving is not None:
            times += [self.leaving.next] + ([self.leaving.claim] if self.leaving.claim is not None else [])
        elif self.joining:
            times.append(self.next_join)
        return None if self.left else min(times, default=None)

    def poll(self, now):
        """The packets that are due."""
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
            yield self._header(wire.LEAVE, self.welcome.session).packet(wire.leave_payload(self.nonce))

    def _header(self, kind, cookie, **fields):
        return wire.Header(kind, self.job, self.seat, cookie, **fields)

    def _join(self):
        claim = (self.welcome.session, self.welcome.fingerprint) if self.welcome else (0, 0)
        header = self._header(wire.JOIN, self.cookie, round=self.attempt)
        return header.packet(wire.join_payload(self.nonce, *claim))

    def take(self, now, header, payload):
        """Takes a control packet (P27)."""
        session = self.welcome.session if self.welcome else 0
        own = session != 0 and header.cookie == session
        if header.kind == wire.WELCOME:
            self._take_welcome(header, payload)
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
                self.leaving.lost = True
                self.leaving.claim = max(now, self.leaving.claimed + RETRY)
            else:
                self.claim(now)
        elif header.kind == wire.BYE and own and self.leaving is not None:
            self.left = True

    def _take_welcome(self, header, payload):
        welcome, before = wire.Welcome.parse(payload), self.welcome
        if welcome is None or welcome.nonce != self.nonce or self.leaving is not None or not self.joining:
            return
        if welcome.quorum > header.num_workers or self.seat >= header.num_workers:
            return
        if before and welcome.session != before.session:
            raise SessionError("the session has ended: all workers must join anew")
        if before:
            self._compare(welcome)
        self.joining = False
        self.welcome, self.workers = welcome, header.num_workers

    def _compare(self, now):
        """P24: the session is over if the job is configured otherwise than it was."""
        own = ("session", "nonce", "fingerprint", "credit", "marks")
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
