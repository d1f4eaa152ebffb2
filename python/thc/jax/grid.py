"""A lookup table, and quantizing on it (docs/protocol.md, P31)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from thc import _native
from thc.jax.floats import fma, from_bits, quotient, ranges, round_product

__all__ = ["Affine", "Grid"]

_LARGEST = np.float32(np.finfo(np.float32).max)


class Affine(NamedTuple):
    """What a run's partitions are quantized with: f32, a number for each."""

    lo: jax.Array
    """-M."""
    scale: jax.Array
    """g / 2M."""
    bias: jax.Array
    """M · scale."""
    step: jax.Array
    """2M / g."""
    step_of_sums: jax.Array
    """2M / (g · n)."""


@dataclass(frozen=True)
class Grid:
    """A table for so many ranks."""

    values: tuple[int, ...]
    """T."""
    t_p: float
    """Where a standard normal is cut off."""
    ranks: int

    @classmethod
    @functools.lru_cache
    def solve(cls, bits: int | None, granularity: int | None, fraction: float | None, ranks: int, lane: int) -> Grid:
        """The optimal table of so many bits for a granularity and a fraction; without them, for those that are best for so many ranks
        and a lane; without bits, all points of the finest grid whose sums fit the lane."""
        values, t_p = _native.lookup_table(bits, granularity, fraction, ranks, lane)
        return cls(tuple(values), t_p, ranks)

    @property
    def granularity(self) -> int:
        """g, the largest value."""
        return self.values[-1]

    def affine(self, norms: jax.Array, size: int) -> Affine:
        """For partitions with these largest norms."""
        m = ranges(norms, self.t_p, size)
        # f32 divided by f32 is the same whether it is rounded to f64 before or not.
        width = m + m
        g = self.granularity
        scale = lax.min(np.float32(g) / width, _LARGEST)
        return Affine(-m, scale, round_product(m * scale), quotient(width, g), quotient(width, g * self.ranks))

    def _cell_bounds(self, q: jax.Array) -> tuple[jax.Array, ...]:
        """T[z] and T[z + 1], slope and start of the greatest z with T[z] ≤ ⌊q⌋, which is that with T[z] ≤ q."""
        values = self.values
        if len(values) == values[-1] + 1:
            # All points of the grid: indices are values.
            low = jnp.floor(q)
            last = low >= values[-1]
            return low, low + 1, jnp.where(last, np.float32(0), np.float32(1)), jnp.where(last, np.float32(0), 1 - low)
        found: tuple[jax.Array, ...] = tuple(jnp.full_like(q, c) for c in _cell(values, 0))
        for z in range(1, len(values)):
            reached = q >= values[z]
            found = tuple(jnp.where(reached, c, before) for c, before in zip(_cell(values, z), found))
        return found

    def quantize(self, v: jax.Array, affine: Affine, draws: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Values of transformed coordinates, uint32 from 0 to g whatever these are, and what is lost of them."""
        lo, scale, bias, step, _ = (x[:, None] for x in affine)
        q = fma(v, scale, bias)
        # Comparisons send NaN to the lower end.
        q = jnp.where(q > 0, q, np.float32(0))
        q = jnp.where(q < self.granularity, q, np.float32(self.granularity))
        low, high, slope, start = self._cell_bounds(q)
        up = from_bits(draws | jnp.uint32(0x3F80_0000)) < fma(q, slope, start)
        value = jnp.where(up, high, low)
        return value.astype(jnp.uint32), v - (round_product(value * step) + lo)

    def estimate(self, sums: jax.Array, affine: Affine) -> jax.Array:
        """Transformed coordinates of the mean, from sums of values."""
        return round_product(sums.astype(jnp.float32) * affine.step_of_sums[:, None]) + affine.lo[:, None]


def _cell(values: tuple[int, ...], z: int) -> tuple[np.float32, ...]:
    """What :meth:`Grid._cell_bounds` finds for an index."""
    if z == len(values) - 1:
        return np.float32(values[z]), np.float32(0), np.float32(0), np.float32(0)
    slope = np.float32(1 / (values[z + 1] - values[z]))
    start = np.float32(1 - values[z] * float(slope))
    return np.float32(values[z]), np.float32(values[z + 1]), slope, start
