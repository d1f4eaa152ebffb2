"""Arithmetic of f32 whose every bit is the protocol's (docs/protocol.md, P28), whatever a compiler makes of it.

XLA has no f64 unless JAX is told so, and may round a product and a sum once where two roundings are asked for. So products are
rounded by :func:`rounded`, and what the protocol computes in f64 is computed in sums of two f32 without error, or in integers.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from thc.jax.pairs import product as whole_product

__all__ = ["LARGEST_NORM", "NOT_FINITE", "bits", "fma", "from_bits", "norm_bits", "quotient", "ranges", "round_product"]

_LARGEST = np.float32(np.finfo(np.float32).max)

NOT_FINITE = 0x7FC0_0000
"""The bits of a norm that is no number, above those of all others."""

LARGEST_NORM = 0x7C80_0000
"""The bits of 2^122 (P5): a larger norm counts as not finite."""

_SMALLEST_NORM = 0x0D80_0000
"""The bits of 2^-100: a smaller norm counts as 0."""


def bits(x: jax.Array) -> jax.Array:
    """The bits of f32."""
    return lax.bitcast_convert_type(x, jnp.uint32)


def from_bits(x: jax.Array) -> jax.Array:
    """The f32 of bits."""
    return lax.bitcast_convert_type(x, jnp.float32)


def round_product(product: jax.Array) -> jax.Array:
    """A product as it is when it has been rounded to f32. A comparison with the largest f32 changes no finite number, but it would
    change an infinite one, so no compiler may take it out, and none makes one operation of the product and a sum that follows."""
    return lax.min(product, _LARGEST)


def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A number as a sum of two with at most 12 bits each."""
    high = from_bits((bits(x) + jnp.uint32(0x800)) & jnp.uint32(0xFFFF_F000))
    return high, x - high


def _product(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A product and what rounding took from it (Dekker). Products of halves are exact, so it is all the same how a compiler rounds them."""
    p = round_product(a * b)
    a1, a0 = _halves(a)
    b1, b0 = _halves(b)
    return p, a0 * b0 - (((p - a1 * b1) - a0 * b1) - a1 * b0)


def quotient(a: jax.Array, divisor: int) -> jax.Array:
    """A quotient by 1 to 2^16, rounded once, though a compiler multiplies by the reciprocal of what it knows: what is left of the
    dividend is exact, and a quotient is never as near to the middle between two f32 as the error of this correction."""
    b = jnp.full_like(a, divisor)
    first = a / b
    high, low = _product(first, b)
    return first + ((a - high) - low) / b


def _sum(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A sum and what rounding took from it (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _odd_sum(a: jax.Array, b: jax.Array) -> jax.Array:
    """A sum rounded to odd: where it is not exact, to the neighbour whose last bit is 1."""
    s, lost = _sum(a, b)
    word = bits(s)
    away = (lost > 0) == (s > 0)
    odd = jnp.where(away, word + 1, word - 1)
    return from_bits(jnp.where((lost != 0) & (word & 1 == 0), odd, word))


def fma(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """a · b + c, rounded once, where nothing underflows: the three parts of the exact sum are added so that the last rounding is of a
    number that was rounded to odd (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008)."""
    high, low = _product(a, b)
    middle, least = _sum(c, low)
    first, rest = _sum(high, middle)
    return first + _odd_sum(least, rest)


def _power(exponent: jax.Array) -> jax.Array:
    """2^e, from -126 to 127."""
    return from_bits(((exponent + 127) << 23).astype(jnp.uint32))


def _add_columns(total: jax.Array, lost: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sums of two f32 by row, added up to a sixteenth as many columns. The barrier has each step compiled by itself: a compiler that
    joins all of them writes out every addition."""
    rows, columns = total.shape
    parts = min(columns, 16)
    total, lost = (x.reshape(rows, parts, -1) for x in (total, lost))
    s, rest = total[:, 0], lost[:, 0]
    for k in range(1, parts):
        s, more = _sum(s, total[:, k])
        rest = rest + lost[:, k] + more
    s, rest = lax.optimization_barrier((s, rest))
    return s, rest


def norm_bits(rows: jax.Array) -> jax.Array:
    """The bits, as int32, of the norm of each row of f32, of a power of two of them, as NORM says them (P5): 0 if it is below
    2^-100, ``NOT_FINITE`` if it is above 2^122 or a coordinate is no number.

    thc-codec adds squares in f64, one after the other; here their sum has two f32, whose error is 2^-40 of it at most, too. The norms,
    rounded to f32, are equal unless one of a million is just between two f32.
    """
    # Of bits, which have the order of magnitudes and NaN above all: a maximum of f32 may lose NaN.
    peak = (bits(rows) & jnp.uint32(0x7FFF_FFFF)).astype(jnp.int32).max(axis=1)
    # Within the square root's and the squares' range, by a power of two.
    exponent = jnp.clip((peak >> 23) - 126, -120, 120)
    x = rows * _power(-exponent)[:, None]
    total, lost = _product(x, x)
    while total.shape[1] > 1:
        total, lost = _add_columns(total, lost)
    total, lost = _sum(total[:, 0], lost[:, 0])
    root = lax.sqrt(total)
    square, rest = _product(root, root)
    # A step of Newton's, of which only the last sum counts.
    root = root + (((total - square) - rest) + lost) / (root + root)
    norm = root * _power(exponent)
    found = bits(norm).astype(jnp.int32)
    found = jnp.where((norm > 0) & (found >= _SMALLEST_NORM), found, 0)
    return jnp.where((peak >= 0x7F80_0000) | (found > LARGEST_NORM), NOT_FINITE, found)


def ranges(norms: jax.Array, t_p: float, size: int) -> jax.Array:
    """M of P31 for largest norms from 2^-100 to 2^122, f32: f32((t_p / √d) · ℓ), in f64 from the left. Of a norm of 0 it is
    something."""
    fraction, power = math.frexp(t_p / math.sqrt(size))
    factor = int(fraction * (1 << 53))
    word = bits(norms)
    mantissa = (word & jnp.uint32(0x7F_FFFF)) | jnp.uint32(0x80_0000)
    # 24 bits by 53, in three words.
    low = whole_product(mantissa, jnp.uint32(np.uint32(factor & 0xFFFF_FFFF)))
    high = whole_product(mantissa, jnp.uint32(factor >> 32))
    w0, w1 = low.low, low.high + high.low
    w2 = high.high + (w1 < low.high).astype(jnp.uint32)
    # The greatest bit is that of 2^75 or of 2^76: of the latter in all cases.
    short = (w2 >> 12) == 0
    w2 = jnp.where(short, (w2 << 1) | (w1 >> 31), w2)
    w1 = jnp.where(short, (w1 << 1) | (w0 >> 31), w1)
    w0 = jnp.where(short, w0 << 1, w0)
    # To 53 bits, the upper 24 of which are in `head`, the lower 29 in `tail`; then to these 24.
    head, tail = (w2 << 11) | (w1 >> 21), ((w1 & jnp.uint32(0x1F_FFFF)) << 8) | (w0 >> 24)
    rest = w0 & jnp.uint32(0xFF_FFFF)
    half = jnp.uint32(0x80_0000)
    tail = tail + ((rest > half) | ((rest == half) & (tail & 1 == 1))).astype(jnp.uint32)
    half = jnp.uint32(1 << 28)
    # A tail that was rounded up to 2^29 is above the half, too, and is the carry.
    head = head + ((tail > half) | ((tail == half) & (head & 1 == 1))).astype(jnp.uint32)
    # ℓ = mantissa · 2^(e - 150), the factor 2^(power - 53) and M = head · 2^53, or 2^52 of a short one; a head of 2^24 carries into
    # the exponent by itself.
    exponent = (word >> 23).astype(jnp.int32) - 150 + (power - 53) + jnp.where(short, 52, 53) + 150
    return from_bits(((exponent - 1) << 23).astype(jnp.uint32) + head)
