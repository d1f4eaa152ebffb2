"""Packet forms, as docs/protocol.md has them (P1 to P3, P22 to P27)."""

import ipaddress
import struct
from dataclasses import dataclass

VERSION = 3
HEADER = struct.Struct(">BBBBHBBIIHBB")  # the last two are one number, its upper byte second
NORM_PAYLOAD = struct.Struct(">IIIHBBI")

NORM, DATA, RAW = 0x01, 0x02, 0x03
NORM_RESULT, RESULT, RAW_RESULT, STRAGGLER, MISMATCH, NUDGE = 0x11, 0x12, 0x13, 0x14, 0x15, 0x16
JOIN, LEAVE = 0x21, 0x22
WELCOME, PENDING, REFUSED, BYE = 0x31, 0x32, 0x33, 0x34
DESCRIPTION, ASK = 0x35, 0x36
CONTROL = 0x20  # the bit of a kind that the control plane answers
FLAG_NUDGE, FLAG_ROOT = 1, 2
IN_USE, REFORMING = 4, 5  # reasons of REFUSED (P24)
COMPRESSED, UNCOMPRESSED = 0, 1
SMALLEST, LARGEST = 0x0D800000, 0x7C800000  # P5: bits of 2^-100 and 2^122

MASK64 = (1 << 64) - 1


def mix(z):
    """The SplitMix64 finalizer (P29)."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK64
    return z ^ (z >> 31)


@dataclass(frozen=True)
class Header:
    """P1."""

    kind: int
    job: int
    worker: int
    cookie: int
    flags: int = 0
    num_workers: int = 0
    table: int = 0
    round: int = 0
    slot: int = 0
    count: int = 0

    def packet(self, payload):
        return (
            HEADER.pack(
                VERSION,
                self.kind,
                self.flags,
                self.num_workers,
                self.job,
                self.worker,
                self.table,
                self.cookie,
                self.round,
                self.slot,
                self.count & 0xFF,
                self.count >> 8,
            )
            + payload
        )


def parse(packet):
    """Header and payload; None for what is no packet of this version."""
    if len(packet) < HEADER.size:
        return None
    version, kind, flags, n, job, worker, table, cookie, round_, slot, count, upper = HEADER.unpack_from(packet)
    if version != VERSION:
        return None
    return Header(kind, job, worker, cookie, flags, n, table, round_, slot, upper << 8 | count), packet[HEADER.size :]


@dataclass(frozen=True)
class Norm:
    """P3."""

    value: int
    length: int
    call: int
    table: int
    mode: int
    key: int

    def tag(self, partitions):
        fields = self.length << 32 | self.call << 16 | self.table << 8 | self.mode
        return (mix(fields) ^ mix((partitions << 33) + self.key + 1)) >> 32

    def payload(self, partitions):
        """Of a tensor that is cut into so many."""
        return NORM_PAYLOAD.pack(
            self.tag(partitions), self.value, self.length, self.call, self.table, self.mode, self.key
        )

    @staticmethod
    def parse(payload):
        _, value, length, call, table, mode, key = NORM_PAYLOAD.unpack(payload)
        return Norm(value, length, call, table, mode, key)


def nan_of(worker):
    """P19: says that this worker's gradient is not finite."""
    return 0x7FC00000 | worker


def worker_of_nan(value):
    """P19 read back: the worker, or None for a number."""
    return value & 0xFF if value >> 8 == 0x7FC000 else None


def value_of(norm, worker):
    """What NORM says of a partition (P5, P19)."""
    bits = struct.unpack(">I", struct.pack(">f", norm))[0]
    if not bits <= LARGEST:  # the bits of infinities and NaNs are larger
        return nan_of(worker)
    return bits if bits >= SMALLEST else 0


def is_value(value, workers):
    """Whether a worker may send this (P5, P19)."""
    worker = worker_of_nan(value)
    if worker is not None:
        return worker < workers
    return value == 0 or SMALLEST <= value <= LARGEST


@dataclass(frozen=True)
class Table:
    """A lookup table of a job (P6, P23)."""

    table: int
    bits: int
    width: int
    lane: int
    granularity: int
    fraction: float
    t_p: float
    values: bytes

    ROW = struct.Struct(">BBBBHxxdd16s")

    def row(self):
        return self.ROW.pack(*(getattr(self, name) for name in self.__dataclass_fields__))

    def all_values(self):
        """T for all 2^b indices."""
        return bytes(range(256)) if self.width == 8 else self.values[: 1 << self.bits]

    def coordinates(self):
        """Of one packet (P2)."""
        return 512 if self.lane > 8 else 1024

    def result_length(self):
        """Of a RESULT's payload (P2, P44)."""
        return self.coordinates() * self.lane // 8


@dataclass(frozen=True)
class Welcome:
    """P23."""

    session: int
    data_slots: int
    norm_slots: int
    quorum: int
    policy: int
    shards: int
    deadline: int
    job_seed: int
    nonce: int
    fingerprint: int
    block: int
    workers: int
    credit: int
    features: int
    tables: tuple  # the first is what calls take that name none
    shares: tuple = ()  # of address and base port
    rack: tuple = ()  # with features bit 1, which is not in `features`: racks, this one, workers, quorum of all, rank of the first, layout (P38)
    marks: int = 0  # bit 0: the aggregator tells marks (P46)

    FORM = struct.Struct(">IIIBBBBIBBHd16sQQdQBxBBIIBBBBHHHQ8xB9x")
    SHARE = struct.Struct(">4sHxx")
    SHARE_V6 = struct.Struct(">16sH")  # with features bit 5, which is not in `features`

    @staticmethod
    def parse(payload):
        """None for a payload that does not bear its own fingerprint."""
        if len(payload) < Welcome.FORM.size:
            return None
        fixed, lists = payload[: Welcome.FORM.size], payload[Welcome.FORM.size :]
        (
            *begins, lane, policy, shards, deadline, table, bits, granularity, fraction, values, job_seed, nonce, t_p,
            own, block, in_all, width, credit, features, shares, tables, racks, number, workers,
            all_quorums, rank, layout, marks,
        ) = Welcome.FORM.unpack(fixed)  # fmt: skip
        row = Welcome.SHARE_V6 if features & 32 else Welcome.SHARE
        at = -(-shares * row.size // 8) * 8
        if len(lists) != at + tables * Table.ROW.size:
            return None
        first = Table(table, bits, width, lane, granularity, fraction, t_p, values)
        welcome = Welcome(
            *begins, policy, shards, deadline, job_seed, nonce, own, block, in_all, credit, features & ~34,
            (first, *(Table(*row) for row in Table.ROW.iter_unpack(lists[at:]))),
            tuple((str(ipaddress.ip_address(ip)), port) for ip, port in row.iter_unpack(lists[: shares * row.size])),
            (racks, number, workers, all_quorums, rank, layout) if features & 2 else (),
            marks,
        )  # fmt: skip
        return welcome if welcome.fingerprint == fingerprint(payload) else None

    def payload(self):
        v6 = any(":" in ip for ip, _ in self.shares)
        row = self.SHARE_V6 if v6 else self.SHARE
        shares = b"".join(row.pack(ipaddress.ip_address(ip).packed, port) for ip, port in self.shares)
        shares += bytes(-len(shares) % 8)
        first, *more = self.tables
        fixed = self.FORM.pack(
            self.session, self.data_slots, self.norm_slots, self.quorum, first.lane, self.policy, self.shards,
            self.deadline, first.table, first.bits, first.granularity, first.fraction, first.values, self.job_seed,
            self.nonce, first.t_p, self.fingerprint, self.block, self.workers, first.width,
            self.credit, self.features | (2 if self.rack else 0) | (32 if v6 else 0),
            len(self.shares), len(more),
            *(self.rack or (0,) * 6), self.marks,
        )  # fmt: skip
        return fixed + shares + b"".join(table.row() for table in more)


def fingerprint(welcome):
    """P23, of a payload."""
    shared = bytes(4) + welcome[4:56] + bytes(8) + welcome[64:72] + bytes(8) + welcome[80:84] + bytes(4) + welcome[88:118] + bytes(1) + welcome[119:]
    hashed = 0
    for (word,) in struct.iter_unpack(">Q", shared):
        hashed = (mix(hashed ^ word) + 1) % (1 << 64)
    return hashed


def join_payload(nonce, session, fingerprint=0, definitions=0):
    """P22; no definitions: they are not compared (P26)."""
    return struct.pack(">QI4xQQ", nonce, session, fingerprint, definitions)


def parse_ask(payload):
    """The nonce of the incarnation asked (P24)."""
    return int.from_bytes(payload, "big")


def leave_payload(nonce):
    """P25."""
    return struct.pack(">Q", nonce)


def parse_pending(payload):
    """The bitmap of the workers that have joined (P2)."""
    return int.from_bytes(payload, "big")


def parse_refused(payload):
    """Reason and worker (P2)."""
    return payload[0], payload[1]


def parse_nudge(payload):
    """Kind and `seen` (P17)."""
    return payload[0], int.from_bytes(payload[4:], "big")


def parse_straggler(payload):
    """Kind and the slot's round (P15)."""
    return payload[0], int.from_bytes(payload[4:], "big")


def with_flags(packet, flags):
    """The same packet with other flags."""
    return packet[:2] + bytes([flags]) + packet[3:]

