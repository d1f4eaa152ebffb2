"""What ranks tell each other through the job itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thc.base_group import BaseGroup

__all__ = ["LastCall", "exchange", "exchange_halves", "join_halves", "tells"]


def tells(group: BaseGroup) -> bool:
    """Whether ranks can tell each other something that way: the job loses nothing, and waits for all."""
    job = group.job
    return job.policy == "reliable" and job.quorum >= job.workers


def exchange(group: BaseGroup, rank: int, mine: Sequence[int]) -> list[list[int]]:
    """Every rank's numbers, of 32 bits each, and as many on each rank. It is a call in the order of calls: lost, repeated and given up like
    any other, and all ranks that have it have the same. Raises what a call raises."""
    halves = [half for number in mine for half in (number >> 16, number & 0xFFFF)]
    return [join_halves(row) for row in exchange_halves(group, rank, halves)]


def exchange_halves(group: BaseGroup, rank: int, mine: Sequence[int]) -> list[list[int]]:
    """The same with numbers of 16 bits, which the mean of an all-reduce in 32-bit integers keeps exactly."""
    size = group.workers
    box = np.zeros((size, len(mine)), dtype=np.float32)
    box[rank] = mine
    flat = box.reshape(-1)
    group.allreduce(flat, mode="raw")
    found: list[list[int]] = np.rint(flat.astype(np.float64) * size).astype(np.int64).reshape(size, -1).tolist()
    return found


def join_halves(halves: Sequence[int]) -> list[int]:
    """Numbers of 32 bits from their halves."""
    return [high << 16 | low for high, low in zip(halves[::2], halves[1::2])]


class LastCall:
    """The call that ends a step, in which ranks tell each other which step it is."""

    def __init__(self, group: BaseGroup, rank: int) -> None:
        self._group, self._rank = group, rank
        self.tells = tells(group)
        """Whether it can tell anything: otherwise an empty call ends a step."""

    def make(self, step: int) -> list[int] | None:
        """Makes the call. Returns all ranks' counts of steps, modulo 65536, if they differ. Raises what a call raises."""
        steps = [told for (told,) in exchange_halves(self._group, self._rank, [step & 0xFFFF])]
        return None if len(set(steps)) == 1 else steps
