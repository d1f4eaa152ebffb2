"""What ranks tell each other through the job itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thc.base_group import BaseGroup


def tells(group: BaseGroup) -> bool:
    """Whether ranks can tell each other something that way: the job loses nothing, and waits for all."""
    job = group.job
    return job.policy == "reliable" and job.quorum >= job.workers


def exchange(group: BaseGroup, rank: int, mine: Sequence[int]) -> list[list[int]]:
    """Every rank's numbers, of 32 bits each, and as many on each rank. It is a call in the order of calls: lost, repeated and given up like
    any other, and all ranks that have it have the same. Raises what a call raises."""
    rows = exchange_halves(group, rank, [half for number in mine for half in (number >> 16, number & 0xFFFF)])
    return [[high << 16 | low for high, low in zip(row[::2], row[1::2])] for row in rows]


def exchange_halves(group: BaseGroup, rank: int, mine: Sequence[int]) -> list[list[int]]:
    """The same with numbers of 16 bits, which the mean of an all-reduce in 32-bit integers keeps exactly."""
    size = group.workers
    box = np.zeros((size, len(mine)), dtype=np.float32)
    box[rank] = mine
    flat = box.reshape(-1)
    group.allreduce(flat, mode="raw")
    found: list[list[int]] = np.rint(flat.astype(np.float64) * size).astype(np.int64).reshape(size, -1).tolist()
    return found
