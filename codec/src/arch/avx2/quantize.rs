//! Stochastic quantization, 8 coordinates at a time, for tables of up to 16 values.

use std::arch::x86_64::*;

use crate::quantizer::{Grid, Span};
use crate::rounding::{MUL, Rounding};
use crate::scalar::quantize as scalar;

/// Coordinates per vector.
const LANES: usize = 8;

/// What is looked up or used over a whole slice.
struct Constants {
    lo: __m256,
    hi: __m256,
    scale: __m256,
    step: __m256,
    /// The table's values as bytes, in both halves.
    point: __m256i,
    /// Entries 0 to 7 and 8 to 15.
    per_gap: [__m256; 2],
    lower: [__m256i; 4],
    k1: __m256i,
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn constants(grid: &Grid, span: &Span, rounding: Rounding) -> Constants {
    let mut bytes = [0_u8; 16];
    for (byte, point) in bytes.iter_mut().zip(grid.point) {
        *byte = point as u8;
    }
    let nibbles = grid.lower_nibbles.as_ptr();
    // SAFETY: bytes has 16 bytes, per_gap 256 floats, lower_nibbles 32 words.
    unsafe {
        Constants {
            lo: _mm256_set1_ps(span.lo),
            hi: _mm256_set1_ps(span.hi),
            scale: _mm256_set1_ps(span.scale),
            step: _mm256_set1_ps(span.step),
            point: _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast())),
            per_gap: [_mm256_loadu_ps(grid.per_gap.as_ptr()), _mm256_loadu_ps(grid.per_gap.as_ptr().add(8))],
            lower: [
                _mm256_loadu_si256(nibbles.cast()),
                _mm256_loadu_si256(nibbles.add(8).cast()),
                _mm256_loadu_si256(nibbles.add(16).cast()),
                _mm256_loadu_si256(nibbles.add(24).cast()),
            ],
            k1: _mm256_set1_epi32(rounding.k1 as i32),
        }
    }
}

/// Index + k0 of the first eight coordinates, from `first`.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn counter(first: u64, rounding: Rounding) -> __m256i {
    _mm256_add_epi32(
        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        _mm256_set1_epi32((first as u32).wrapping_add(rounding.k0) as i32),
    )
}

/// `Rounding::word` of eight coordinates whose index + k0 is given.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn words(c: &Constants, x: __m256i) -> __m256i {
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<17>(x));
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MUL[0] as i32));
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<11>(x));
    let x = _mm256_add_epi32(x, c.k1);
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MUL[1] as i32));
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<15>(x));
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MUL[2] as i32));
    _mm256_xor_si256(x, _mm256_srli_epi32::<14>(x))
}

/// `if_set` in the lanes where bit `BIT` of `index` is set, else `if_clear`. `UP` is 31 − BIT.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn select<const UP: i32>(index: __m256i, if_clear: __m256i, if_set: __m256i) -> __m256i {
    _mm256_castps_si256(_mm256_blendv_ps(
        _mm256_castsi256_ps(if_clear),
        _mm256_castsi256_ps(if_set),
        _mm256_castsi256_ps(_mm256_slli_epi32::<UP>(index)),
    ))
}

/// The word of `lower` that holds a cell's entry: entry `cell / 8` of eight (up to 64 cells) or 32.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn lower_word<const SMALL: bool>(c: &Constants, cell: __m256i) -> __m256i {
    // The permutation looks at three bits of the index.
    let at = _mm256_srli_epi32::<3>(cell);
    let first = _mm256_permutevar8x32_epi32(c.lower[0], at);
    if SMALL {
        return first;
    }
    let second = _mm256_permutevar8x32_epi32(c.lower[1], at);
    let third = _mm256_permutevar8x32_epi32(c.lower[2], at);
    let fourth = _mm256_permutevar8x32_epi32(c.lower[3], at);
    select::<27>(at, select::<28>(at, first, second), select::<28>(at, third, fourth))
}

/// The table's values for indices of up to 15.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn points(c: &Constants, index: __m256i) -> __m256 {
    // The three zero bytes of each index look up the first value, which is 0.
    _mm256_cvtepi32_ps(_mm256_shuffle_epi8(c.point, index))
}

/// Indices and residuals of eight coordinates. `SMALL`: the granularity is below 64.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn quantize<const SMALL: bool>(c: &Constants, x: __m256, counter: __m256i) -> (__m256i, __m256) {
    // max and min return their second operand for NaN, as the definition does.
    let clamped = _mm256_min_ps(_mm256_max_ps(x, c.lo), c.hi);
    let position = _mm256_mul_ps(_mm256_sub_ps(clamped, c.lo), c.scale);
    let cell = _mm256_cvttps_epi32(position);
    // Eight cells share a word of `lower`.
    let shift = _mm256_and_si256(_mm256_slli_epi32::<2>(cell), _mm256_set1_epi32(28));
    let lower = _mm256_srlv_epi32(lower_word::<SMALL>(c, cell), shift);
    let lower = _mm256_and_si256(lower, _mm256_set1_epi32(15));
    let per_gap = _mm256_castsi256_ps(select::<28>(
        lower,
        _mm256_castps_si256(_mm256_permutevar8x32_ps(c.per_gap[0], lower)),
        _mm256_castps_si256(_mm256_permutevar8x32_ps(c.per_gap[1], lower)),
    ));
    let threshold = _mm256_mul_ps(_mm256_sub_ps(position, points(c, lower)), per_gap);
    let uniform = _mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(words(c, counter)));
    let up = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LT_OQ>(uniform, threshold));
    // True is −1 in every lane.
    let index = _mm256_sub_epi32(lower, up);
    let value = _mm256_add_ps(_mm256_mul_ps(points(c, index), c.step), c.lo);
    (index, _mm256_sub_ps(x, value))
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn indices(
    grid: &Grid,
    span: &Span,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    let done = x.len() / LANES * LANES;
    let (xs, x_tail) = x.split_at_mut(done);
    let (outs, out_tail) = out.split_at_mut(done);
    let (c, at) = (constants(grid, span, rounding), counter(first, rounding));
    match (grid.narrow(), grid.granularity) {
        (false, _) => scalar::indices(grid, span, xs, rounding, first, outs),
        (true, ..64) => indices_of::<true>(&c, xs, at, outs),
        (true, 64..) => indices_of::<false>(&c, xs, at, outs),
    }
    scalar::indices(grid, span, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
}

/// `indices` of whole vectors.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn indices_of<const SMALL: bool>(c: &Constants, x: &mut [f32], mut at: __m256i, out: &mut [u8]) {
    for (x, out) in x.chunks_exact_mut(LANES).zip(out.chunks_exact_mut(LANES)) {
        // SAFETY: the chunks have eight floats and eight bytes.
        unsafe {
            let (index, residual) = quantize::<SMALL>(c, _mm256_loadu_ps(x.as_ptr()), at);
            _mm256_storeu_ps(x.as_mut_ptr(), residual);
            let index = narrow(index);
            _mm_storel_epi64(out.as_mut_ptr().cast(), _mm_packus_epi16(index, index));
        }
        at = _mm256_add_epi32(at, _mm256_set1_epi32(LANES as i32));
    }
}

/// Eight 32-bit indices as 16-bit words.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn narrow(index: __m256i) -> __m128i {
    _mm_packus_epi32(_mm256_castsi256_si128(index), _mm256_extracti128_si256::<1>(index))
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn packed4(
    grid: &Grid,
    span: &Span,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    let done = x.len() / LANES * LANES;
    let (xs, x_tail) = x.split_at_mut(done);
    let (outs, out_tail) = out.split_at_mut(done / 2);
    let (c, at) = (constants(grid, span, rounding), counter(first, rounding));
    match (grid.narrow(), grid.granularity) {
        (false, _) => scalar::packed4(grid, span, xs, rounding, first, outs),
        (true, ..64) => packed4_of::<true>(&c, xs, at, outs),
        (true, 64..) => packed4_of::<false>(&c, xs, at, outs),
    }
    scalar::packed4(grid, span, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
}

/// `packed4` of whole vectors.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn packed4_of<const SMALL: bool>(c: &Constants, x: &mut [f32], mut at: __m256i, out: &mut [u8]) {
    for (x, out) in x.chunks_exact_mut(LANES).zip(out.chunks_exact_mut(LANES / 2)) {
        // SAFETY: the chunk has eight floats.
        let index = unsafe {
            let (index, residual) = quantize::<SMALL>(c, _mm256_loadu_ps(x.as_ptr()), at);
            _mm256_storeu_ps(x.as_mut_ptr(), residual);
            narrow(index)
        };
        // Each pair of 16-bit words becomes 16 times the first plus the second.
        let pairs = _mm_madd_epi16(index, _mm_set1_epi32(1 << 16 | 16));
        let bytes = _mm_packus_epi16(_mm_packs_epi32(pairs, pairs), pairs);
        out.copy_from_slice(&_mm_cvtsi128_si32(bytes).to_le_bytes());
        at = _mm256_add_epi32(at, _mm256_set1_epi32(LANES as i32));
    }
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn dequantize8(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    let (step_v, lo_v) = (_mm256_set1_ps(step), _mm256_set1_ps(lo));
    let (mut outs, ins) = (out.chunks_exact_mut(LANES), sums.chunks_exact(LANES));
    let tail = ins.remainder();
    for (out, sums) in outs.by_ref().zip(ins) {
        // SAFETY: the chunks have eight floats and eight bytes.
        unsafe {
            let sums = _mm256_cvtepu8_epi32(_mm_loadl_epi64(sums.as_ptr().cast()));
            let v = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), step_v), lo_v);
            _mm256_storeu_ps(out.as_mut_ptr(), v);
        }
    }
    scalar::dequantize8(tail, step, lo, outs.into_remainder());
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn dequantize16(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    let (step_v, lo_v) = (_mm256_set1_ps(step), _mm256_set1_ps(lo));
    let swap = _mm_set_epi64x(0x0E0F_0C0D_0A0B_0809, 0x0607_0405_0203_0001);
    let (mut outs, ins) = (out.chunks_exact_mut(LANES), sums.chunks_exact(2 * LANES));
    let tail = ins.remainder();
    for (out, sums) in outs.by_ref().zip(ins) {
        // SAFETY: the chunks have eight floats and 16 bytes.
        unsafe {
            let sums = _mm_shuffle_epi8(_mm_loadu_si128(sums.as_ptr().cast()), swap);
            let sums = _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(sums));
            let v = _mm256_add_ps(_mm256_mul_ps(sums, step_v), lo_v);
            _mm256_storeu_ps(out.as_mut_ptr(), v);
        }
    }
    scalar::dequantize16(tail, step, lo, outs.into_remainder());
}
