"""Lanes of an all-reduce of integers: as many bits for each coordinate as its sum over all ranks may need.

A lane of k bits holds what n ranks with values of 0 to g add up to: k = ⌈log2(n · g + 1)⌉, at least 4 and at most 16, so
n · g < 2^k. Lanes of 8 bits are bytes, in the order of the coordinates. All others are in words of 32 bits, m = ⌊32 / k⌋ to a word,
planar within a partition: of d coordinates, in W = ⌈d / m⌉ words, coordinate j · W + w has the bits k · j to k · j + k - 1 of word w,
counted from the least significant; bits of coordinates that do not exist are 0.

No carry crosses from one lane into the next. The sum of the words of any of the ranks is Σ_j 2^(k · j) · S_j, where S_j, a sum of at
most n values of at most g, is at most n · g < 2^k: so lane j of it is S_j, whatever the order of adding, and the whole is less than
2^(k · m) ≤ 2^32, so nothing is lost at the top either.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

__all__ = ["lane_bits", "pack", "packed_length", "unpack"]


def lane_bits(ranks: int, granularity: int) -> int:
    """Bits of a lane for so many ranks and a table of that granularity."""
    bits = (ranks * granularity).bit_length()
    if bits > 16:
        raise ValueError(
            f"{ranks} ranks with a table of granularity {granularity} need lanes of {bits} bits, and the widest have 16: "
            f"take a table of granularity {0xFFFF // ranks} or less, or of fewer bits"
        )
    return max(bits, 4)


def pack(rows: jax.Array, lane: int) -> jax.Array:
    """The lanes of values, uint32 and a row for each partition, as a vector: of uint8 if they have 8 bits, of uint32 otherwise."""
    if lane == 8:
        return rows.astype(jnp.uint8).reshape(-1)
    count, size = rows.shape
    parts = 32 // lane
    words = -(-size // parts)
    planes = jnp.pad(rows, ((0, 0), (0, parts * words - size))).reshape(count, parts, words)
    shifted = (planes[:, j] << (lane * j) for j in range(parts))
    return functools.reduce(jnp.bitwise_or, shifted).reshape(-1)


def packed_length(count: int, size: int, lane: int) -> int:
    """Elements of the vector that :func:`pack` makes of so many partitions of that size."""
    return count * size if lane == 8 else count * -(-size // (32 // lane))


def unpack(packed: jax.Array, count: int, size: int, lane: int) -> jax.Array:
    """Sums in lanes, as :func:`pack` has placed values, to a row for each partition, uint32."""
    if lane == 8:
        return packed.reshape(count, size).astype(jnp.uint32)
    words = packed.reshape(count, -1)
    planes = [(words >> (lane * j)) & ((1 << lane) - 1) for j in range(32 // lane)]
    return jnp.concatenate(planes, axis=1)[:, :size]
