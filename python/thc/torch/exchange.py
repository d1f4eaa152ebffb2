"""What ranks tell each other through the job itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thc.group import Group

__all__ = ["exchange", "tells"]


def tells(group: Group) -> bool:
    """Whether ranks can tell each other something that way: the job loses nothing, and waits for all."""
    job = group.job
    return job.policy == "reliable" and job.quorum >= job.workers


def exchange(group: Group, rank: int, mine: Sequence[int]) -> list[list[int]]:
    """Every rank's numbers, of 32 bits each, and as many on each rank: as halves, which the mean of an all-reduce in 32-bit
    integers keeps exactly. It is a call in the order of calls: lost, repeated and given up like any other, and all ranks that have it
    have the same. Raises what a call raises."""
    size, width = group.workers, 2 * len(mine)
    box = np.zeros((size, width), dtype=np.float32)
    for at, number in enumerate(mine):
        box[rank, 2 * at : 2 * at + 2] = number >> 16, number & 0xFFFF
    flat = box.reshape(-1)
    group.allreduce(flat, mode="raw")
    halves = np.rint(flat.astype(np.float64) * size).astype(np.int64).reshape(size, -1, 2)
    return [[int(high) << 16 | int(low) for high, low in row] for row in halves]
