"""The keys of a job, as :class:`thc.Server` takes them.

Written by `THC_WRITE=1 cargo test -p thc-config --test python` from `dataplane/config/src/job/options.rs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

__all__ = ["JobOptions"]


class JobOptions(TypedDict, total=False):
    """Keys of a job besides its number, its cookie and its workers. ``None`` leaves a key out."""

    quorum: int | None
    """How many workers complete a sum [default: all]"""

    racks: Sequence[str] | None
    """Workers of each rack, such as 8,8, or 7/8,7/8 for a quorum of 7 in each; the same at the root and at every
    rack. Without --rack this server is the root"""

    method: str | None
    """Named values for the keys below: thc-paper is THC as published, and fixes bits, granularity, fraction and
    block; its workers are given the same method: default or thc-paper"""

    bits: int | None
    """Bit budget b: bits per coordinate sent up, 1 to 4 or 8 [default: 4]"""

    granularity: int | None
    """Granularity g, the largest table value [default: the best for the number of workers]"""

    fraction: float | str | None
    """Share p of the coordinates that is truncated, such as 1/32 [default: the best for the number of workers]"""

    table: Sequence[int] | None
    """A lookup table of your own: 2, 4, 8 or 16 values, such as 0,3,5,9, which increase from 0 to the granularity;
    fraction may be given [default: the best for bits, granularity and fraction]"""

    table_id: int | None
    """Number of the lookup table on the wire, 1 to 255 [default: derived from the job's number]"""

    lane: int | None
    """Bits per summed coordinate sent down, 4 to 16; workers × granularity must fit [default: 8, or 16 with bits =
    8 or more workers than 8 bits hold; with shares the fewest, but at least 5 or 9, that workers × granularity
    fits]"""

    tables: Sequence[str] | None
    """A further lookup table that workers may choose for a tensor, such as bits=2 or
    bits=2,lane=4,granularity=5,fraction=1/32, with its number as table_id=7; may be repeated"""

    slots: int | None
    """Slots for coordinates; workers may have half as many packets in flight [default: 1024; under a controller 256
    or more]"""

    norm_slots: int | None
    """Slots for norms [default: 64 to 1024, more for smaller blocks; under a controller at most 256]"""

    block: int | None
    """Coordinates that are transformed together and have a norm of their own, as a power of two: 10 to 20, for 2^10
    to 2^20 [default: 13]"""

    policy: str | None
    """What workers do about lost packets [default: reliable]: reliable or best-effort"""

    deadline: float | str | None
    """How long best-effort waits for a packet before it gives it up [default: 200ms]"""

    seed: int | str | None
    """Seed of the signs that all workers share, 64 bits [default: derived from cookie and job]"""
