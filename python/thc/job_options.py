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
    """Number of workers that complete a sum [default: all]"""

    racks: Sequence[str] | None
    """Workers of each rack, such as 8,8, or 7/8,7/8 for a quorum of 7 in each; the same at the root and at every
    rack. Without --rack this server is the root"""

    method: str | None
    """Named values for the keys below: thc-paper is THC as published, and fixes bits, granularity, fraction and
    block; give the workers the same method: default or thc-paper"""

    bits: int | None
    """Bit budget b: bits per coordinate sent up, 1 to 4 or 8 [default: 4]"""

    granularity: int | None
    """Granularity g, the largest table value [default: the best for the number of workers]"""

    fraction: float | str | None
    """Share p of the coordinates that is truncated, such as 1/32 [default: the best for the number of workers]"""

    table: Sequence[int] | None
    """A lookup table of your own: 2, 4, 8 or 16 values that increase from 0 to the granularity, such as 0,3,5,9;
    fraction is optional [default: the best for bits, granularity and fraction]"""

    table_id: int | None
    """Number of the lookup table on the wire, 1 to 255 [default: derived from the job's number]"""

    lane: int | None
    """Bits per summed coordinate sent down, 4 to 16; workers × granularity must fit [default: 8, or 16 with bits =
    8 or more workers than 8 bits hold; with shares the fewest, but at least 5 or 9, that workers × granularity
    fits]"""

    tables: Sequence[str] | None
    """A further lookup table that workers may choose for a tensor, such as bits=2 or
    bits=2,lane=4,granularity=5,fraction=1/32; may be repeated"""

    data_slots: int | None
    """Slots for coordinates; workers may have half as many packets in flight [default: 1024]"""

    norm_slots: int | None
    """Slots for norms [default: 64 to 1024, more for smaller blocks]"""

    block: int | None
    """Log2 of the number of coordinates that are transformed together, with a norm of their own: 10 to 20 [default:
    13]"""

    policy: str | None
    """Treatment of lost packets [default: reliable]: reliable or best-effort"""

    deadline: float | str | None
    """Time after which best-effort gives a packet up [default: 200ms]"""

    seed: int | str | None
    """Seed of the random signs, 64 bits [default: derived from cookie and job]"""
