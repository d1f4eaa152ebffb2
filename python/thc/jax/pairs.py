"""Integers of 64 bits as pairs of 32, which is all that JAX has unless it is told otherwise (docs/protocol.md, P28 and P29)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["GAMMA", "Pair", "derive", "mix", "product"]

_MASK = (1 << 64) - 1


class Pair(NamedTuple):
    """A number, or an array of them: two arrays of uint32 of equal shape. Sums and products wrap."""

    high: jax.Array
    low: jax.Array

    @classmethod
    def split(cls, number: int) -> Pair:
        """Makes a pair of a constant number, modulo 2^64."""
        number &= _MASK
        return cls(jnp.uint32(np.uint32(number >> 32)), jnp.uint32(np.uint32(number & 0xFFFF_FFFF)))

    @classmethod
    def from_low(cls, low: jax.Array) -> Pair:
        """Makes pairs of numbers below 2^32."""
        low = low.astype(jnp.uint32)
        return cls(jnp.zeros_like(low), low)

    def plus(self, other: Pair) -> Pair:
        """The sum."""
        low = self.low + other.low
        return Pair(self.high + other.high + (low < other.low).astype(jnp.uint32), low)

    def xor(self, other: Pair) -> Pair:
        """The exclusive or."""
        return Pair(self.high ^ other.high, self.low ^ other.low)

    def shift_right(self, by: int) -> Pair:
        """Shifts right by 1 to 31 bits, and fills with zeros."""
        return Pair(self.high >> by, (self.low >> by) | (self.high << (32 - by)))

    def times(self, other: Pair) -> Pair:
        """The product."""
        whole = product(self.low, other.low)
        return Pair(whole.high + self.high * other.low + self.low * other.high, whole.low)


def product(a: jax.Array, b: jax.Array) -> Pair:
    """All 64 bits of products of uint32, from those of their halves."""
    a1, a0, b1, b0 = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    low = a0 * b0
    # At most (2^16 - 1)^2 + 2^16 - 1 < 2^32, twice.
    middle = a1 * b0 + (low >> 16)
    other = a0 * b1 + (middle & 0xFFFF)
    return Pair(a1 * b1 + (middle >> 16) + (other >> 16), (other << 16) | (low & 0xFFFF))


GAMMA = 0x9E37_79B9_7F4A_7C15
"""By which SplitMix64 steps: G of P29."""

_MUL = (0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB)


def mix(z: Pair) -> Pair:
    """P29's, of SplitMix64."""
    z = z.xor(z.shift_right(30)).times(Pair.split(_MUL[0]))
    z = z.xor(z.shift_right(27)).times(Pair.split(_MUL[1]))
    return z.xor(z.shift_right(31))


def derive(seed: Pair, number: Pair) -> Pair:
    """A step of P29's keys: of a seed and a call, then of that and a partition, when the seed has been mixed."""
    return mix(seed.xor(number).plus(Pair.split(GAMMA)))
