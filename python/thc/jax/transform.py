"""The randomized Hadamard transform and random roundings (docs/protocol.md, P29 and P30), on rows of partitions."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from thc.jax.cut import Run
from thc.jax.floats import bits, from_bits, round_product
from thc.jax.pairs import GAMMA, Pair, derive, mix

__all__ = ["Keys", "draws", "forward", "inverse"]

_DOMAIN = 0x524F_554E_4449_4E47
"""Keeps roundings apart from signs."""

_MUL = (0xED5A_D4BB, 0xAC4C_1B51, 0x3184_8BAB)


class Keys:
    """What signs and roundings of a call derive from. Signs are the same on all ranks; roundings are in a stratum for each rank (P31)."""

    def __init__(self, seed: int, call: Pair, rank: jax.Array) -> None:
        self._signs = derive(mix(Pair.split(seed + GAMMA)), call)
        # thc-worker's seed of roundings: seed + (⌊rank / 256⌋ + 1) · G.
        own = Pair.from_low(rank // 256 + 1).times(Pair.split(GAMMA)).plus(Pair.split(seed)).xor(Pair.split(_DOMAIN))
        self._roundings = derive(mix(own.plus(Pair.split(GAMMA))), call)
        self.stratum = _stratum(rank)
        """By which words of roundings are changed."""

    def signs(self, run: Run) -> Pair:
        """The key of each partition's signs."""
        return derive(self._signs, _partitions(run))

    def roundings(self, run: Run) -> Pair:
        """The key of each partition's roundings."""
        return derive(self._roundings, _partitions(run))


def _stratum(rank: jax.Array) -> jax.Array:
    """P31, of ranks up to 255; further ones have other keys."""
    place = jnp.asarray(rank, jnp.uint32) & 0xFF
    pair = place & 0xFE
    reverse = sum(((pair >> bit) & 1) << (7 - bit) for bit in range(8))
    leading = jnp.where((place & 1) == 1, ~reverse, reverse) & 0xFF
    byte = (leading >> 1) | ((leading & 1) << 7)
    return byte * jnp.uint32(0x0101_0101)


def _partitions(run: Run) -> Pair:
    return Pair.from_low(lax.iota(jnp.uint32, run.count) + np.uint32(run.first))


def _column(key: Pair) -> Pair:
    return Pair(key.high[:, None], key.low[:, None])


def _flip(key: Pair, x: jax.Array) -> jax.Array:
    """Negates the coordinates that signs say."""
    rows, size = x.shape
    steps = Pair.from_low(lax.iota(jnp.uint32, -(-size // 64)) + 1).times(Pair.split(GAMMA))
    # Compiled by itself, or a compiler has a word computed for each of its coordinates.
    words = lax.optimization_barrier(mix(_column(key).plus(steps)))
    halves = jnp.stack([words.low, words.high], axis=2)[..., None]
    flips = (halves >> lax.iota(jnp.uint32, 32)) << 31
    return from_bits(bits(x) ^ flips.reshape(rows, -1)[:, :size])


def draws(key: Pair, size: int, stratum: jax.Array | int) -> jax.Array:
    """The 23 random bits that round each coordinate, a row for each partition; the size is a multiple of 64."""
    x = lax.iota(jnp.uint32, size // 4) + key.low[:, None]
    x = (x ^ (x >> 17)) * np.uint32(_MUL[0])
    x = ((x ^ (x >> 11)) + key.high[:, None]) * np.uint32(_MUL[1])
    x = (x ^ (x >> 15)) * np.uint32(_MUL[2])
    x = (x ^ (x >> 14) ^ jnp.asarray(stratum, jnp.uint32)).reshape(x.shape[0], -1, 1, 16)
    by = 8 * lax.iota(jnp.uint32, 4)[:, None]
    # To the left by 32 - by, which is 32 where nothing is rotated.
    return (((x >> by) | ((x << (31 - by)) << 1)) & jnp.uint32(0x7F_FFFF)).reshape(x.shape[0], size)


def _scale(x: jax.Array) -> jax.Array:
    return round_product(x * np.float32(1 / math.sqrt(x.shape[1])))


def forward(key: Pair, x: jax.Array) -> jax.Array:
    """Transforms rows. A stage pairs the halves of its input and lays sums and differences side by side, so that the next one has in its
    own halves what is half as far apart; after all stages every coordinate is where it was. Partitions are columns meanwhile, so that what
    lies side by side is long."""
    rows, size = x.shape

    def stage(_: jax.Array, x: jax.Array) -> jax.Array:
        a, b = x[: size // 2], x[size // 2 :]
        return jnp.stack([a + b, a - b], axis=1).reshape(size, rows)

    return lax.fori_loop(0, size.bit_length() - 1, stage, _flip(key, _scale(x)).T).T


def inverse(key: Pair, x: jax.Array) -> jax.Array:
    """Transforms rows back: the same stages, from the other end."""
    rows, size = x.shape

    def stage(_: jax.Array, x: jax.Array) -> jax.Array:
        pairs = x.reshape(size // 2, 2, rows)
        a, b = pairs[:, 0], pairs[:, 1]
        return jnp.concatenate([a + b, a - b])

    return _flip(key, lax.fori_loop(0, size.bit_length() - 1, stage, _scale(x).T).T)
