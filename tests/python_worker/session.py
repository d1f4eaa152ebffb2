"""A worker's session: JOIN, all-reduces, answers to those who wait, LEAVE, by docs/protocol.md."""

import random
import select
import socket
import time
from dataclasses import dataclass

import numpy as np

import numerics
import wire
from member import Member, SessionError

KEEP_ALIVE = 2.0  # after which a worker that waits for nothing introduces itself again (P24)
FIRST_TIMEOUT, LAST_TIMEOUT = 0.03, 0.5
NUDGE_AFTER = 3  # repetitions of a packet (P20)
OUTSTANDING = 128  # packets whose results fit the socket's buffer; a job's credit may be less (P23)
RESULT_OF = {wire.NORM: wire.NORM_RESULT, wire.DATA: wire.RESULT, wire.RAW: wire.RAW_RESULT}
LENGTHS = {
    wire.NORM_RESULT: 20,
    wire.RAW_RESULT: 1024,
    wire.NUDGE: 12,
    wire.MISMATCH: 40,
    wire.STRAGGLER: 8,
}
THRESHOLDS = (2.0**-16, 38.0)  # t_p from, to (P5)


def milliseconds():
    """The clock of control packets."""
    return time.monotonic_ns() // 1_000_000


class CallError(Exception):
    """An all-reduce failed on every worker; the session goes on (P19)."""

    def __init__(self, said, worker=None):
        super().__init__(said)
        self.worker = worker


@dataclass
class Sent:
    """A packet that is kept until its slot's next (P18)."""

    seq: int
    kind: int
    packet: bytes
    place: object
    at: float
    transmissions: int = 1
    doubted: int | None = None


class Stream:
    """The numbered packets to one class of slots (P8)."""

    def __init__(self, slots, credit=0):
        self.slots, self.limit = slots, min(credit or OUTSTANDING, OUTSTANDING)
        self.next = 0
        self.kept = {}
        self.outstanding = {}

    def is_open(self):
        base = min(self.outstanding, default=self.next)
        return self.next < base + self.slots // 2 and len(self.outstanding) < self.limit

    def find(self, header):
        """What was sent to the slot and round of a packet, if it is still kept."""
        sent = self.kept.get(header.slot)
        return sent if sent and sent.seq // self.slots % (1 << 32) == header.round else None


class Worker:
    """One worker of a job."""

    def __init__(self, ps, job, seat, cookie, seed=None):
        self.ps, self.job = ps, job
        system = random.SystemRandom()
        nonce, attempt = system.getrandbits(64), system.getrandbits(32)
        self.member = Member(job, seat, cookie, nonce, attempt, milliseconds())
        self.rng = np.random.default_rng([seat, seed] if seed is not None else None)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind(("", 0))
        self.heard = 0.0
        self.calls = self.repeated = self.answered = 0

    @property
    def welcome(self):
        return self.member.welcome

    @property
    def workers(self):
        return self.member.workers

    # ---- beginning and end

    def join(self, patience=60):
        """P22, P23: returns when all workers are there."""
        end = time.monotonic() + patience
        while self.welcome is None:
            joined = self.member.joined
            if time.monotonic() > end:
                said = "no parameter server answers" if joined is None else f"workers {joined:#b} are here alone"
                raise SessionError(said)
            for header, payload in self._receive(LAST_TIMEOUT):
                if header.kind & wire.CONTROL:
                    self.member.take(milliseconds(), header, payload)
        self._begin_session()

    def _begin_session(self):
        """A session begins, with nothing in it yet."""
        w = self.welcome
        if w.features:
            raise SessionError("this worker knows no features")
        if w.rack:
            raise SessionError("this worker knows no racks")
        if w.shares:
            raise SessionError("this worker knows one server, not shares")
        if w.policy != 0 or w.quorum != self.workers:
            raise SessionError("this worker does reliable jobs with full quorum only")
        t_p = w.tables[0].t_p
        if not THRESHOLDS[0] <= t_p <= THRESHOLDS[1]:
            raise SessionError(f"t_p = {t_p} leads out of the range of P5")
        self.number = self.member.seat
        self.told = w.tables[0]
        self.table = numerics.Table(self.told.all_values(), self.told.t_p)
        self.norms, self.data = Stream(w.norm_slots), Stream(w.data_slots, w.credit)
        self.heard = time.monotonic()

    def leave(self):
        """P25; answers those who still wait."""
        self.member.leave(milliseconds())
        while not self.member.left:
            for header, payload in self._receive(LAST_TIMEOUT):
                if header.kind & wire.CONTROL:
                    self.member.take(milliseconds(), header, payload)
                elif header.kind == wire.NUDGE and header.cookie == self.welcome.session:
                    self._answer(header, payload)
                    self.member.stay(milliseconds())

    # ---- packets

    def _send(self, packet, slot):
        shards = self.welcome.shards if self.welcome else 1
        self.socket.sendto(packet, (self.ps[0], self.ps[1] + slot // 64 % shards))

    def _receive(self, patience):
        """Sends the control packets that are due. Then the packets of this job that come within some seconds, as many
        as are there."""
        now = milliseconds()
        for packet in self.member.poll(now):
            self._send(packet, 0)
        if self.member.left:
            return
        due = self.member.deadline()
        patience = patience if due is None else min(patience, (due - now) / 1000)
        ready, _, _ = select.select([self.socket], [], [], max(0.0, patience))
        while ready:
            try:
                packet, source = self.socket.recvfrom(2048, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            shards = self.welcome.shards if self.welcome else 1
            if source[0] != self.ps[0] or not 0 <= source[1] - self.ps[1] < shards:
                continue
            parsed = wire.parse(packet)
            if not parsed or parsed[0].job != self.job:
                continue
            # The control plane is at the base port (P21).
            if not parsed[0].kind & wire.CONTROL or source[1] == self.ps[1]:
                yield parsed

    def _header(self, kind, seq, slots, table):
        return wire.Header(
            kind,
            self.job,
            self.number,
            self.welcome.session,
            num_workers=self.workers,
            table=table,
            round=seq // slots % (1 << 32),
            slot=seq % slots,
        )

    def _exchange(self, stream, packets, take, patience):
        """Sends packets (kind, table, payload, place) and repeats them until `take` has had all results."""
        packets = iter(packets)
        more = True
        progress = time.monotonic()
        while True:
            while more and stream.is_open():
                following = next(packets, None)
                more = following is not None
                if more:
                    kind, table, payload, place = following
                    header = self._header(kind, stream.next, stream.slots, table)
                    sent = Sent(stream.next, kind, header.packet(payload), place, time.monotonic())
                    stream.outstanding[sent.seq] = stream.kept[header.slot] = sent
                    stream.next += 1
                    self._send(sent.packet, header.slot)
            if not more and not stream.outstanding:
                return
            now = time.monotonic()
            if now - progress > patience:
                raise SessionError(f"nothing has moved for {patience} s")
            due = self._repeat(stream, now)
            for header, payload in self._receive(due - now):
                self.heard = time.monotonic()
                sent = self._handle(stream, header, payload)
                if sent:
                    progress = self.heard
                    del stream.outstanding[sent.seq]
                    take(sent.place, header, payload)

    def _repeat(self, stream, now):
        """Repeats what is due (P20); returns when something is."""
        soonest = now + LAST_TIMEOUT
        for sent in stream.outstanding.values():
            wait = min(FIRST_TIMEOUT * 2 ** (sent.transmissions - 1), LAST_TIMEOUT)
            if sent.at + wait <= now:
                nudging = sent.transmissions >= NUDGE_AFTER
                self._send(wire.with_flags(sent.packet, wire.FLAG_NUDGE if nudging else 0), sent.seq % stream.slots)
                sent.at, sent.transmissions = now, sent.transmissions + 1
                self.repeated += 1
                if nudging and now - self.heard > 2 * LAST_TIMEOUT:
                    # The server may have lost its state (P20, P24).
                    self.member.claim(milliseconds())
            soonest = min(soonest, sent.at + wait)
        return soonest

    def _handle(self, stream, header, payload):
        """Takes one packet; returns what was sent if it is the first result of that."""
        if header.kind & wire.CONTROL:
            self.member.take(milliseconds(), header, payload)
            return None
        if header.cookie != self.welcome.session:
            return None
        if len(payload) != (self.told.result_length() if header.kind == wire.RESULT else LENGTHS.get(header.kind)):
            return None
        if not self._expects(header):
            return None
        if header.kind == wire.NUDGE:
            self._answer(header, payload)
        elif header.kind == wire.STRAGGLER:
            # With full quorum the others wait for this worker before they go on (P18).
            kind, _ = wire.parse_straggler(payload)
            of_kind = self.norms if kind == wire.NORM else self.data
            late = of_kind.find(header)
            if late and late.seq in of_kind.outstanding:
                raise SessionError("the slot of a packet without a result has gone on: packets were changed or forged")
        elif header.kind == wire.MISMATCH:
            raise SessionError(f"worker {header.worker} called {wire.Norm.parse(payload[20:])}, "
                               f"others {wire.Norm.parse(payload[:20])}")
        else:
            sent = stream.find(header)
            if sent and RESULT_OF[sent.kind] == header.kind and sent.seq in stream.outstanding:
                return sent if self._believes(sent, header, payload) else None
        return None

    def _expects(self, header):
        """P47: there are no racks."""
        if header.kind == wire.STRAGGLER:
            named = header.worker == self.number
        elif header.kind in (wire.NUDGE, wire.MISMATCH):
            named = header.worker < self.workers
        else:
            named = header.worker == 255
        return named and header.num_workers == self.workers and not header.flags & wire.FLAG_ROOT

    def _believes(self, sent, header, payload):
        """P19: what cannot be is asked for again, and believed when it comes again."""
        if sent.kind != wire.NORM:
            return True
        value, own = wire.Norm.parse(payload).value, wire.Norm.parse(sent.packet[20:]).value
        if (wire.is_value(value, self.workers) and value >= own) or sent.doubted == value:
            return True
        sent.doubted = value
        self._send(wire.with_flags(sent.packet, 0), header.slot)
        return False

    def _answer(self, header, payload):
        """P20: somebody waits for this slot. Sends again what this worker keeps of it, if that is not in."""
        kind, seen = wire.parse_nudge(payload)
        sent = (self.norms if kind == wire.NORM else self.data).find(header)
        if sent and not seen >> self.number & 1:
            self._send(wire.with_flags(sent.packet, 0), header.slot)
            self.answered += 1

    # ---- all-reduces

    def all_reduce(self, x, mode=wire.COMPRESSED, key=0, patience=30):
        """The mean of x (f32) over all workers."""
        self.calls += 1
        return self._reduce(np.ascontiguousarray(x, np.float32), self.calls - 1, mode, key, patience)

    def _reduce(self, x, call, mode, key, patience):
        parts = numerics.cut(len(x), self.welcome.block)
        maxima = self._maxima(x, parts, call, mode, key, patience)
        packets = self._raw if mode == wire.UNCOMPRESSED else self._compress
        mean = np.zeros(len(x), np.float32)
        send, take = packets(x, parts, maxima, call, mean)
        self._exchange(self.data, send, take, patience)
        return mean

    def _maxima(self, x, parts, call, mode, key, patience):
        """The norm stage: ℓ for each partition (P4, P5)."""
        maxima = [0.0] * len(parts)
        own, culprits, damaged = [0] * len(parts), [], []
        table = self.told.table if mode == wire.COMPRESSED else 0

        def norms():
            for index, (offset, length, _) in enumerate(parts):
                part = x[offset : offset + length]
                value = numerics.norm(part) if mode == wire.COMPRESSED else np.max(np.abs(part))
                own[index] = bits = wire.value_of(value, self.number)
                norm = wire.Norm(bits, len(x) - offset, call % (1 << 16), table, mode, key)
                yield wire.NORM, 0, norm.payload(len(parts)), index

        def take(index, _header, payload):
            value = wire.Norm.parse(payload).value
            worker = wire.worker_of_nan(value)
            if not wire.is_value(value, self.workers):
                damaged.append((index, value))
            elif value < own[index]:
                raise SessionError(f"partition {index} came back as {value:#010x}, below the own {own[index]:#010x}")
            elif worker is None:
                maxima[index] = numerics.float_of(value)
            else:
                culprits.append((index, worker))

        self._exchange(self.norms, norms(), take, patience)
        if damaged:
            index, value = min(damaged)
            raise CallError(f"the norm of partition {index} is {value:#010x}, which no worker may send")
        if culprits:
            worker = min(culprits)[1]
            raise CallError(f"worker {worker} has a NaN or an infinity in its gradient", worker)
        return maxima

    def _compress(self, x, parts, maxima, call, mean):
        per_packet = self.told.coordinates()
        keys = [numerics.sign_key(self.welcome.job_seed, call, index) for index in range(len(parts))]
        estimates, missing = {}, {}

        def send():
            for index, (offset, length, d) in enumerate(parts):
                if maxima[index] == 0:
                    continue
                m = self.table.range(maxima[index], d)
                y = numerics.forward(x[offset : offset + length], d, keys[index])
                indices = self.table.indices(y, m, self.rng.integers(0, 1 << 23, d))
                estimates[index], missing[index] = np.zeros(d, np.float32), d // per_packet
                for first in range(0, d, per_packet):
                    payload = numerics.pack(indices[first : first + per_packet], self.told.width)
                    yield wire.DATA, self.told.table, payload, (index, first)

        def take(place, header, payload):
            index, first = place
            offset, length, d = parts[index]
            m = self.table.range(maxima[index], d)
            sums = numerics.unpack(payload, self.told.lane)
            estimates[index][first : first + per_packet] = self.table.estimates(sums, m, header.count)
            missing[index] -= 1
            if missing[index] == 0:
                mean[offset : offset + length] = numerics.inverse(estimates.pop(index), keys[index])[:length]

        return send(), take

    def _raw(self, x, parts, maxima, _call, mean):
        def send():
            for index, (offset, length, d) in enumerate(parts):
                if maxima[index] == 0:
                    continue
                padded = np.zeros(d, np.float32)
                padded[:length] = x[offset : offset + length]
                s = numerics.raw_exponent(maxima[index], self.workers)
                for first in range(0, d, 256):
                    yield wire.RAW, 0, numerics.raw_words(padded[first : first + 256], s, self.workers), (index, first)

        def take(place, header, payload):
            index, first = place
            offset, length, _ = parts[index]
            s = numerics.raw_exponent(maxima[index], self.workers)
            values = numerics.raw_mean(payload, s, header.count)[: max(0, length - first)]
            mean[offset + first : offset + first + len(values)] = values

        return send(), take
