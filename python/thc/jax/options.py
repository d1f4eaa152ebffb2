"""How a tree is compressed, the same on all ranks."""

from __future__ import annotations

from dataclasses import dataclass

from thc.jax.grid import Grid
from thc.jax.lanes import lane_bits

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """The keywords of :func:`thc.jax.pmean` and :func:`thc.jax.average`."""

    bits: int | None = None
    """Bits b of an index, 1 to 4 or 8: values are one of 2^b, as a server's job has them. By default every point of the grid is a value: since it is sums
    that travel, more of them cost nothing."""
    lane: int = 8
    """Bits, 4 to 16, that the sum of a coordinate may take: granularity and fraction are the best for it and the number of ranks."""
    granularity: int | None = None
    """The largest table value; with it comes ``fraction``, and ``lane`` says nothing."""
    fraction: float | None = None
    """The share of coordinates that is truncated."""
    block: int = 13
    """log2 of the coordinates that are transformed together, 10 to 20."""
    seed: int = 1
    """The seed of signs and roundings, 64 bits: a job's seed."""
    min_size: int = 1024
    """Arrays of fewer coordinates are averaged without compression."""

    def __post_init__(self) -> None:
        if self.bits not in (None, 1, 2, 3, 4, 8):
            raise ValueError(f"bits is {self.bits}: an index has 1 to 4 or 8")
        if not 10 <= self.block <= 20:
            raise ValueError(f"block is {self.block}: it must be 10 to 20")
        if (self.granularity is None) != (self.fraction is None):
            raise ValueError("granularity and fraction go together: give both, or neither for the best ones")
        if self.bits is None and self.granularity is not None:
            raise ValueError("granularity and fraction are those of a table with so many bits: give bits, too")
        if self.granularity is None and not 4 <= self.lane <= 16:
            raise ValueError(f"lane is {self.lane}: it must be 4 to 16")
        if self.bits == 8 and self.granularity not in (None, 255):
            raise ValueError(f"granularity is {self.granularity}: with 8 bits an index is its own value, and granularity is 255")

    def grid(self, ranks: int) -> Grid:
        """The table for so many ranks, whose sums fit a lane."""
        least = 1 if self.bits is None else (1 << self.bits) - 1
        if self.granularity is None and ranks * least >= 1 << self.lane:
            needed = lane_bits(ranks, least)
            raise ValueError(
                f"sums of {ranks} ranks{'' if self.bits is None else f' with tables of {self.bits} bits'} need lanes of {needed} bits or more, and lane is {self.lane}: "
                f"give lane={needed} or more; 8, 10 and 16 fill words best"
            )
        grid = Grid.solve(self.bits, self.granularity, self.fraction, ranks, self.lane)
        lane_bits(ranks, grid.granularity)
        return grid
