"""What a group has done so far."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from thc import _native

_LATEST = {"device", "why", *(name for name, _, kind, _ in _native.group_metrics() if kind == "gauge")}
"""Fields of :class:`Stats` that are no totals."""


@dataclass(frozen=True)
class Stats:
    """Totals since the group was joined. Differences of two are what happened in between."""

    calls: int
    """All-reduces that succeeded."""
    failed: int
    """All-reduces that failed on all workers alike."""
    coordinates: int
    """Coordinates of the successful ones."""
    bytes_up: int
    """Bytes sent, IP headers and up included."""
    bytes_down: int
    """Bytes received, likewise."""
    packets_up: int
    """Packets sent."""
    packets_down: int
    """Packets received."""
    retransmissions: int
    """Packets sent again because a result did not come."""
    timeouts: int
    """Time-outs of packets."""
    nudged: int
    """Packets sent again because another worker waited for them."""
    stragglers: int
    """How often this worker came after a quorum had gone on."""
    lost: int
    """Packets whose coordinates counted as zero (best-effort)."""
    lost_coordinates: int
    """Coordinates of successful calls that counted as zero: divided by ``coordinates``, the part of the means that was given up."""
    compression: float
    """Seconds in norms, transforms, quantization, dequantization."""
    network: float
    """Seconds in system calls that send and receive."""
    waiting: float
    """Seconds waiting for packets with nothing else to do."""
    round_trip: float
    """Smoothed round-trip time of data packets in seconds."""
    shortest_round_trip: float
    """The shortest of the recent ones."""
    window: int
    """Data packets that may be outstanding now."""
    decreases: int
    """How often congestion has made them fewer."""
    marks: int
    """Results with a congestion mark (ECN): packets of their sums met a full queue, or they themselves did."""
    device: str = "cpu"
    """What compresses: ``"cpu"``, the library; or on the gradients' device, ``"triton"``, whose time is in none of
    these numbers."""
    why: str = ""
    """Why that."""
    computing: float = 0.0
    """Seconds of training steps that were not spent waiting for gradients. This and what follows are of hooks of
    :mod:`thc.torch`."""
    waited: float = 0.0
    """Seconds that steps waited for gradients."""

    @classmethod
    def without_packets(cls, **known: Any) -> Stats:
        """Totals of a group without packets: what is not given is 0."""
        return cls(**{**{each.name: 0 for each in fields(cls) if each.default is MISSING}, **known})

    @property
    def communication(self) -> float:
        """Seconds in the network or waiting for it."""
        return self.network + self.waiting

    @property
    def bytes(self) -> int:
        """Bytes in both directions."""
        return self.bytes_up + self.bytes_down

    def saved_bytes(self, workers: int) -> int:
        """Bytes that a ring all-reduce of the same coordinates in f32 would have moved beyond these,
        at this worker and in both directions: 2·(n − 1)/n · 4 bytes per coordinate, each way."""
        ring = 2 * 2 * (workers - 1) / max(workers, 1) * 4 * self.coordinates
        return round(ring) - self.bytes

    def summary(self, workers: int) -> str:
        """All that matters, in a few lines for people."""
        ring = self.saved_bytes(workers) + self.bytes
        rings = [("of f32", ring), ("of bf16", ring / 2)] if ring > 0 else []
        compared = "".join(
            f"\n  a ring all-reduce {of} moves {moved / 1e6:.1f} MB: {(moved - self.bytes) / 1e6:.1f} MB saved ({100 - 100 * self.bytes / moved:.0f} %)"
            for of, moved in rings
        )
        return (
            f"THC: {self.calls} calls, {self.coordinates / 1e6:.2f} M coordinates, {self.failed} failed\n"
            f"  moved here {self.bytes / 1e6:.1f} MB (up {self.bytes_up / 1e6:.1f}, down {self.bytes_down / 1e6:.1f}){compared}\n"
            f"  compression {self.compression:.2f} s, sending and receiving {self.network:.2f} s, "
            f"waiting {self.waiting:.2f} s, round trip {1e3 * self.round_trip:.2f} ms\n"
            f"  packets sent again {self.retransmissions}, lost {self.lost}; compressed by {self.device}: {self.why}"
            f"{self._training_text()}"
        )

    def _training_text(self) -> str:
        if not self.computing:
            return ""
        return f"\n  steps computed {self.computing:.2f} s and waited for gradients {self.waited:.2f} s"

    def __sub__(self, earlier: Stats) -> Stats:
        """What happened since ``earlier``; what is no total, such as ``round_trip``, is the later one's."""
        values = ((each.name, getattr(self, each.name), getattr(earlier, each.name)) for each in fields(self))
        return Stats(**{name: later if name in _LATEST else later - before for name, later, before in values})


@dataclass(frozen=True)
class Table:
    """A lookup table of the job, and how indices of it and their sums travel."""

    id: int
    """Its number, as plans name it."""
    bits: int
    """Its bit budget b: it has 2^b values."""
    width: int
    """Bits per coordinate on the way up."""
    lane: int
    """Bits in which a coordinate's sum is added."""
    down: int
    """Bits per sum on the way down: those of the lane, or fewer where sums need fewer."""
    granularity: int
    """Its largest value."""
    fraction: float
    """The share of coordinates that is truncated."""
    values: list[int]
    """T."""


@dataclass(frozen=True)
class Job:
    """What the parameter server said about the job when the group was joined."""

    workers: int
    """How many there are."""
    quorum: int
    """How many complete a sum."""
    policy: str
    """``"reliable"`` or ``"best-effort"``."""
    deadline: float
    """Seconds after which best-effort gives a packet up."""
    bits: int
    """Bits per coordinate on the way up."""
    granularity: int
    """The largest table value."""
    lane: int
    """Bits in which a coordinate's sum is added."""
    down: int
    """Bits per sum on the way down: those of the lane, or fewer where sums need fewer."""
    slots: int
    """Slots for coordinates; half as many packets may be under way."""
    norm_slots: int
    """Slots for norms."""
    block: int
    """log2 of the coordinates that are transformed together."""
    shards: int
    """Ports that share the slots."""

    @classmethod
    def without_server(cls, workers: int, *, bits: int, granularity: int, lane: int, block: int = 13) -> Job:
        """What a group without a server has in place of a job."""
        return cls(workers, workers, "reliable", 0.0, bits, granularity, lane, lane, slots=0, norm_slots=0, block=block, shards=1)


class Training:
    """Totals over the steps of all models whose gradients a group averages."""

    def __init__(self) -> None:
        self.steps = 0
        self.computing = 0.0
        """Seconds of everything but waiting: forward and backward passes, the optimizer, and what a program does between."""
        self.waited = 0.0
        """Seconds of waiting for gradients."""

    def add_step(self, computing: float, waited: float) -> None:
        """A step is over on this worker."""
        self.steps += 1
        self.computing += computing
        self.waited += waited

    def totals(self) -> dict[str, Any]:
        """As fields of :class:`thc.Stats`."""
        return {"computing": self.computing, "waited": self.waited}
