"""The codec in Triton: the bits that thc-codec's scalar code defines (docs/protocol.md, P28 to P32).

Every operation is one of IEEE 754 in the order of the definition: kernels are launched without contraction
(``enable_fp_fusion=False``), and what the definition calls fused is :func:`fused`. A *tile* is what one program transforms:
a whole partition, or of one larger than :data:`TILE` a piece of neighbouring coordinates, its inner strides; then
:func:`outer` and :func:`outer_back` do the outer ones, for a few columns of all its tiles at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

GAMMA = tl.constexpr(0x9E3779B97F4A7C15)
WHOLE_TO_EVEN = tl.constexpr(6755399441055744.0)
"""1.5 · 2^52: adding and subtracting it rounds a number of f64 to whole ones, ties to even."""


@triton.jit
def mix(z):
    """The finalizer of SplitMix64 (P29)."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


INTERPRETED = tl.constexpr(not isinstance(mix, triton.JITFunction))
"""Whether there is no compiler: the interpreter rounds products of fused operations."""


@triton.jit
def key_of(keys, which: tl.constexpr, partition):
    """What a partition's signs (0) or roundings (1) derive from."""
    call = tl.load(keys + which).to(tl.uint64, bitcast=True)
    return mix((call ^ partition.to(tl.uint64)) + GAMMA)


@triton.jit
def negative(key, group):
    """Sign bits of the 32 coordinates from 32 · group on, in a last dimension."""
    group = group.to(tl.uint64)
    word = mix(key + ((group >> 1) + 1) * GAMMA)
    half = (word >> ((group & 1) * 32)).to(tl.uint32)
    return (tl.expand_dims(half, -1) << (31 - tl.arange(0, 32)).to(tl.uint32)) & 0x80000000


@triton.jit
def flip(x, signs):
    """x with its sign bit changed where ``signs`` has it."""
    return (x.to(tl.uint32, bitcast=True) ^ signs).to(tl.float32, bitcast=True)


@triton.jit
def stage(x, N: tl.constexpr, H: tl.constexpr):
    """(x[i], x[i + H]) to (x[i] + x[i + H], x[i] − x[i + H])."""
    y = tl.permute(tl.reshape(x, [N // (2 * H), 2, H]), (0, 2, 1))
    a, b = tl.split(y)
    y = tl.permute(tl.join(a + b, a - b), (0, 2, 1))
    return tl.reshape(y, [N])


@triton.jit
def descending_stages(x, N: tl.constexpr, LOG: tl.constexpr, UNIT: tl.constexpr):
    """Strides 2^(LOG - 1) · UNIT down to UNIT."""
    for s in tl.static_range(LOG):
        x = stage(x, N, UNIT << (LOG - 1 - s))
    return x


@triton.jit
def ascending_stages(x, N: tl.constexpr, LOG: tl.constexpr, UNIT: tl.constexpr):
    """Strides UNIT up to 2^(LOG - 1) · UNIT."""
    for s in tl.static_range(LOG):
        x = stage(x, N, UNIT << s)
    return x


@triton.jit
def fma(a, b, c):
    """a · b + c, rounded once."""
    if INTERPRETED:
        # The product is exact in f64. A sum rounded to odd there is rounded right when it is rounded again to f32.
        p = a.to(tl.float64) * b.to(tl.float64)
        c = c.to(tl.float64)
        s = p + c
        t = s - p
        lost = (p - (s - t)) + (c - t)
        bits = s.to(tl.int64, bitcast=True)
        odd = tl.where((lost > 0) == (s > 0), bits + 1, bits - 1)
        bits = tl.where((lost != 0) & ((bits & 1) == 0), odd, bits)
        return bits.to(tl.float64, bitcast=True).to(tl.float32)
    return tl.fma(a, b, c)


@triton.jit
def round_to(v, to: tl.constexpr):
    """v in another type, ties to even; the interpreter cuts bf16 off."""
    if to == tl.bfloat16:
        bits = v.to(tl.uint32, bitcast=True)
        bits = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
        return bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    return v.to(to)


@triton.jit
def same(number, N: tl.constexpr):
    """N times a number."""
    return tl.zeros([N], dtype=tl.float32) + number.to(tl.float32)


@triton.jit
def draws(key, stratum, first, N: tl.constexpr):
    """The 23 random bits of each of N coordinates from ``first`` on, a multiple of 64, in a stratum."""
    group = first // 64 + tl.arange(0, N // 64)
    x = (16 * tl.expand_dims(group, 1) + tl.expand_dims(tl.arange(0, 16), 0)).to(tl.uint32) + key.to(tl.uint32)
    x = (x ^ (x >> 17)) * 0xED5AD4BB
    x = (x ^ (x >> 11)) + (key >> 32).to(tl.uint32)
    x = x * 0xAC4C1B51
    x = (x ^ (x >> 15)) * 0x31848BAB
    x = tl.expand_dims(x ^ (x >> 14) ^ stratum, 1)
    by = tl.reshape(8 * tl.arange(0, 4), [1, 4, 1]).to(tl.uint32)
    x = (x >> by) | (x << ((32 - by) & 31))
    return tl.reshape(x & 0x7FFFFF, [N])


@triton.jit
def swap_bytes(x):
    """The four bytes of a word in the other order."""
    x = x.to(tl.uint32)
    return ((x >> 24) | ((x >> 8) & 0xFF00) | ((x << 8) & 0xFF0000) | (x << 24)).to(tl.int32, bitcast=True)


@triton.jit
def store_packed(out, z, N: tl.constexpr, WIDTH: tl.constexpr):
    """Indices of WIDTH bits, the first in the most significant bits of the first byte; ``out`` is at bytes."""
    if WIDTH == 8:
        tl.store(out + tl.arange(0, N), z.to(tl.uint8))
    else:
        shift = (7 - tl.arange(0, 8)) * WIDTH
        eight = tl.sum(tl.reshape(z, [N // 8, 8]) << tl.expand_dims(shift, 0), axis=1)
        i = tl.arange(0, N // 8)
        if WIDTH == 4:
            tl.store(out.to(tl.pointer_type(tl.int32)) + i, swap_bytes(eight))
        elif WIDTH == 2:
            tl.store(out.to(tl.pointer_type(tl.int16)) + i, ((eight >> 8) | (eight << 8)).to(tl.int16))
        elif WIDTH == 1:
            tl.store(out + i, eight.to(tl.uint8))
        else:
            tl.store(out + 3 * i, (eight >> 16).to(tl.uint8))
            tl.store(out + 3 * i + 1, (eight >> 8).to(tl.uint8))
            tl.store(out + 3 * i + 2, eight.to(tl.uint8))


@triton.jit
def left_of(valid, before, most: tl.constexpr):
    """How many of so many coordinates are there, of ``valid`` of which a program has passed over some."""
    return tl.minimum(valid - before, most).to(tl.int32)


@triton.jit
def gradient(x, kept, at, inside, FED: tl.constexpr, WHOLE: tl.constexpr):
    """Gradient and error feedback, in f32; zeros where there are none."""
    if WHOLE:
        v = tl.load(x + at).to(tl.float32)
        if FED:
            v = v + tl.load(kept + at)
    else:
        v = tl.load(x + at, inside, 0.0).to(tl.float32)
        if FED:
            v = v + tl.load(kept + at, inside, 0.0)
    return v


@triton.jit(do_not_specialize=["first", "count", "valid"])
def norms(
    x, kept, sums, first, count, valid,
    D: tl.constexpr, ROWS: tl.constexpr, UNROLL: tl.constexpr, FED: tl.constexpr, WHOLE: tl.constexpr,
):
    """Sums of squares of partitions, in f64: coordinate i to partial sum i mod 32 in ascending order, then halves onto halves."""
    before = tl.program_id(0).to(tl.int64) * ROWS
    x, kept, valid = x + before * D, kept + before * D, left_of(valid, before * D, ROWS * D)
    row = tl.arange(0, ROWS)
    start = tl.expand_dims(row * D, 1) + tl.expand_dims(tl.arange(0, 32), 0)
    there = tl.expand_dims(row < count - before, 1)
    total = tl.zeros([ROWS, 32], dtype=tl.float64)
    for k in range(0, D, 32 * UNROLL):
        for u in tl.static_range(UNROLL):
            at = start + (k + 32 * u)
            inside = there if WHOLE else there & (at < valid)
            v = gradient(x, kept, at, inside, FED, False).to(tl.float64)
            total += v * v
    for s in tl.static_range(5):
        a, b = tl.split(tl.permute(tl.reshape(total, [ROWS, 2, 16 >> s]), (0, 2, 1)))
        total = a + b
    tl.store(sums + first + before + row, tl.reshape(total, [ROWS]), row < count - before)


@triton.jit(do_not_specialize=["first", "valid"])
def peaks(x, kept, found, first, valid, D: tl.constexpr, TILE: tl.constexpr, FED: tl.constexpr):
    """The largest magnitude of each partition, as bits: NaN above all."""
    row = tl.program_id(0).to(tl.int64)
    most = tl.zeros([TILE], dtype=tl.int32)
    for k in range(0, D, TILE):
        at = row * D + k + tl.arange(0, TILE)
        v = gradient(x, kept, at, at < valid, FED, False)
        most = tl.maximum(most, v.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    tl.store(found + first + row, tl.max(most, axis=0))


@triton.jit(do_not_specialize=["first", "valid"])
def compress(
    x, kept, left, packed, numbers, keys, cells, slopes, starts, first, valid,
    TILE: tl.constexpr, LOG: tl.constexpr, TILES: tl.constexpr, SCALE: tl.constexpr, END: tl.constexpr, WIDTH: tl.constexpr,
    FED: tl.constexpr, WHOLE: tl.constexpr,
):
    """Tiles to packed indices, and, if it is FED, new error feedback. With several TILES of a partition ``x`` is what
    :func:`outer` made, and ``left`` takes what :func:`outer_back` goes on with. Without a norm ``left`` is ``kept``."""
    pid = tl.program_id(0).to(tl.int64)
    row = pid // TILES
    tile = (pid % TILES).to(tl.int32)
    partition = first + row
    lo = tl.load(numbers + 4 * partition)
    scale = tl.load(numbers + 4 * partition + 1)
    bias = tl.load(numbers + 4 * partition + 2)
    step = tl.load(numbers + 4 * partition + 3)
    x, kept, left, valid = x + pid * TILE, kept + pid * TILE, left + pid * TILE, left_of(valid, pid * TILE, TILE)
    at = tl.arange(0, TILE)
    inside = at < valid
    sign_key = key_of(keys, 0, partition)
    group = tl.arange(0, TILE // 32)
    if TILES == 1:
        v = gradient(x, kept, at, inside, FED, WHOLE) * SCALE
        v = flip(v, tl.reshape(negative(sign_key, group), [TILE]))
    else:
        v = tl.load(x + at)
    v = descending_stages(v, TILE, LOG, 1)

    q = fma(v, same(scale, TILE), same(bias, TILE))
    # Comparisons send NaN to the lower end.
    q = tl.where(q > 0.0, q, 0.0)
    q = tl.where(q < END, q, END)
    cell = q.to(tl.int32)
    found = tl.load(cells + cell)
    threshold = fma(q, tl.load(slopes + cell), tl.load(starts + cell))
    draw = draws(key_of(keys, 1, partition), tl.load(keys + 2).to(tl.uint32), tile * TILE, TILE) | 0x3F800000
    up = draw.to(tl.float32, bitcast=True) < threshold
    store_packed(packed + pid * (TILE * WIDTH // 8), (found & 0xFF) + up.to(tl.int32), TILE, WIDTH)

    if FED:
        point = tl.where(up, (found >> 16) & 0xFF, (found >> 8) & 0xFF).to(tl.float32)
        v = (v - (point * step + lo)) * SCALE
        v = ascending_stages(v, TILE, LOG, 1)
        if TILES == 1:
            v = flip(v, tl.reshape(negative(sign_key, group), [TILE]))
            nothing = same(lo, TILE) == 0.0
            v = tl.where(nothing, tl.load(kept + at, inside & nothing, 0.0), v)
            if WHOLE:
                tl.store(left + at, v)
            else:
                tl.store(left + at, v, inside)
        else:
            tl.store(left + at, v)


@triton.jit(do_not_specialize=["first", "packet", "valid"])
def decompress(
    sums, out, numbers, estimates, keys, first, packet, valid,
    TILE: tl.constexpr, LOG: tl.constexpr, TILES: tl.constexpr, SCALE: tl.constexpr, LANE: tl.constexpr, PER: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Sums to tiles of the mean, or with several TILES to what :func:`outer_back` goes on with. PER coordinates have the
    estimate of one packet."""
    pid = tl.program_id(0).to(tl.int64)
    partition = first + pid // TILES
    out, valid = out + pid * TILE, left_of(valid, pid * TILE, TILE)
    at = tl.arange(0, TILE)
    sums = sums + pid * (TILE * LANE // 8)
    if LANE == 16:
        s = tl.load(sums.to(tl.pointer_type(tl.uint16)) + at).to(tl.int32)
        s = ((s >> 8) | (s << 8)) & 0xFFFF
    elif LANE == 8:
        s = tl.load(sums + at).to(tl.int32)
    else:
        s = (tl.load(sums + at // 2).to(tl.int32) >> (4 - 4 * (at & 1))) & 15
    packets = packet + pid * (TILE // PER) + tl.arange(0, TILE // PER)
    step = tl.expand_dims(tl.load(estimates + 2 * packets), 1)
    lo = tl.expand_dims(tl.load(estimates + 2 * packets + 1), 1)
    v = tl.reshape(tl.reshape(s.to(tl.float32), [TILE // PER, PER]) * step + lo, [TILE]) * SCALE
    v = ascending_stages(v, TILE, LOG, 1)
    if TILES == 1:
        v = flip(v, tl.reshape(negative(key_of(keys, 0, partition), tl.arange(0, TILE // 32)), [TILE]))
        v = round_to(tl.where(tl.load(numbers + 4 * partition) == 0.0, 0.0, v), out.dtype.element_ty)
        if WHOLE:
            tl.store(out + at, v)
        else:
            tl.store(out + at, v, at < valid)
    else:
        tl.store(out + at, v)


@triton.jit
def columns(pid, TILE: tl.constexpr, TILES: tl.constexpr, COLS: tl.constexpr):
    """For some columns of all tiles of a partition: the partition, the places in it, and groups of 32."""
    row = pid // (TILE // COLS)
    column = (pid % (TILE // COLS)).to(tl.int32) * COLS
    tile = tl.expand_dims(tl.arange(0, TILES) * TILE, 1)
    at = tl.reshape(tile + tl.expand_dims(column + tl.arange(0, COLS), 0), [TILES * COLS])
    group = tl.reshape(tile // 32 + tl.expand_dims(column // 32 + tl.arange(0, COLS // 32), 0), [TILES * COLS // 32])
    return row, at, group


@triton.jit(do_not_specialize=["first", "valid"])
def outer(
    x, kept, rotated, keys, first, valid,
    TILE: tl.constexpr, TILES: tl.constexpr, LOG: tl.constexpr, COLS: tl.constexpr, SCALE: tl.constexpr, FED: tl.constexpr,
):
    """Gradient and error feedback through the strides of TILE and above."""
    row, at, group = columns(tl.program_id(0).to(tl.int64), TILE, TILES, COLS)
    N: tl.constexpr = TILES * COLS
    before = row * (TILE * TILES)
    x, kept, rotated = x + before, kept + before, rotated + before
    v = gradient(x, kept, at, at < left_of(valid, before, TILE * TILES), FED, False) * SCALE
    v = flip(v, tl.reshape(negative(key_of(keys, 0, first + row), group), [N]))
    tl.store(rotated + at, descending_stages(v, N, LOG, COLS))


@triton.jit(do_not_specialize=["first", "valid"])
def outer_back(
    rotated, kept, out, numbers, keys, first, valid,
    TILE: tl.constexpr, TILES: tl.constexpr, LOG: tl.constexpr, COLS: tl.constexpr, FED: tl.constexpr,
):
    """The same way back, to error feedback, or to a mean. Without a norm that is ``kept``, or zeros."""
    row, at, group = columns(tl.program_id(0).to(tl.int64), TILE, TILES, COLS)
    N: tl.constexpr = TILES * COLS
    before = row * (TILE * TILES)
    rotated, kept, out = rotated + before, kept + before, out + before
    inside = at < left_of(valid, before, TILE * TILES)
    v = ascending_stages(tl.load(rotated + at), N, LOG, COLS)
    v = flip(v, tl.reshape(negative(key_of(keys, 0, first + row), group), [N]))
    nothing = same(tl.load(numbers + 4 * (first + row)), N) == 0.0
    if FED:
        v = tl.where(nothing, tl.load(kept + at, inside & nothing, 0.0), v)
    else:
        v = tl.where(nothing, 0.0, v)
    tl.store(out + at, round_to(v, out.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["first", "valid", "limit"])
def raw_words(
    x, kept, left, words, scales, first, valid, limit, D: tl.constexpr, TILE: tl.constexpr, FED: tl.constexpr
):
    """Coordinates to big-endian words (P32); error feedback goes along."""
    pid = tl.program_id(0).to(tl.int64)
    scale = tl.load(scales + first + pid // (D // TILE))
    at = pid * TILE + tl.arange(0, TILE)
    inside = at < valid
    v = gradient(x, kept, at, inside, FED, False).to(tl.float64) * scale
    most = tl.zeros([TILE], dtype=tl.float64) + limit
    v = tl.minimum(tl.maximum(v, -most), most)
    v = (v + WHOLE_TO_EVEN) - WHOLE_TO_EVEN
    tl.store(words.to(tl.pointer_type(tl.int32)) + at, swap_bytes(v.to(tl.int32)))
    if FED:
        before = tl.load(kept + at, inside & (same(scale, TILE) == 0.0), 0.0)
        tl.store(left + at, before, inside)


@triton.jit(do_not_specialize=["first", "packet", "valid"])
def raw_means(sums, out, scales, factors, first, packet, valid, D: tl.constexpr, TILE: tl.constexpr):
    """Sums of words to the mean."""
    pid = tl.program_id(0).to(tl.int64)
    nothing = tl.load(scales + first + pid // (D // TILE)) == 0.0
    at = pid * TILE + tl.arange(0, TILE)
    words = swap_bytes(tl.load(sums.to(tl.pointer_type(tl.int32)) + at)).to(tl.float64)
    v = (words * tl.load(factors + packet + at // 256)).to(tl.float32)
    v = tl.where(nothing, 0.0, v)
    tl.store(out + at, round_to(v, out.dtype.element_ty), at < valid)
