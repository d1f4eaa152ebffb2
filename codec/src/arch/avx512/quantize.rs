//! Stochastic quantization, 16 coordinates at a time, for tables of up to 16 values.

use std::arch::x86_64::*;

use crate::quantizer::{Grid, Span};
use crate::rounding::{MUL, Rounding};
use crate::scalar::quantize as scalar;

/// Granularities below this have a faster lookup.
const FEW: u8 = 32;

/// Coordinates per vector.
const LANES: usize = 16;

/// Everything that stays in registers over a slice.
struct Constants {
    lo: __m512,
    hi: __m512,
    scale: __m512,
    point: __m512,
    per_gap: __m512,
    value: __m512,
    /// Cell to index: with `FEW` cells one per word, else eight per word, 4 bits each.
    lower: [__m512i; 2],
    k1: __m512i,
    mul: [__m512i; 3],
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn constants(grid: &Grid, span: &Span, rounding: Rounding) -> Constants {
    // SAFETY: point and per_gap have 256 floats, lower 256 bytes, lower_nibbles 32 words.
    let (point, per_gap, lower) = unsafe {
        let (cells, nibbles) = (grid.lower.as_ptr(), grid.lower_nibbles.as_ptr());
        let lower = if grid.granularity < FEW {
            [
                _mm512_cvtepu8_epi32(_mm_loadu_si128(cells.cast())),
                _mm512_cvtepu8_epi32(_mm_loadu_si128(cells.add(16).cast())),
            ]
        } else {
            [_mm512_loadu_si512(nibbles.cast()), _mm512_loadu_si512(nibbles.add(16).cast())]
        };
        (_mm512_loadu_ps(grid.point.as_ptr()), _mm512_loadu_ps(grid.per_gap.as_ptr()), lower)
    };
    let lo = _mm512_set1_ps(span.lo);
    Constants {
        lo,
        hi: _mm512_set1_ps(span.hi),
        scale: _mm512_set1_ps(span.scale),
        point,
        per_gap,
        value: _mm512_add_ps(_mm512_mul_ps(point, _mm512_set1_ps(span.step)), lo),
        lower,
        k1: _mm512_set1_epi32(rounding.k1 as i32),
        mul: [
            _mm512_set1_epi32(MUL[0] as i32),
            _mm512_set1_epi32(MUL[1] as i32),
            _mm512_set1_epi32(MUL[2] as i32),
        ],
    }
}

/// Index + k0 of the first 16 coordinates, from `first`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn counter(first: u64, rounding: Rounding) -> __m512i {
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_add_epi32(iota, _mm512_set1_epi32((first as u32).wrapping_add(rounding.k0) as i32))
}

/// `Rounding::word` of 16 coordinates whose index + k0 is given.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn words(c: &Constants, x: __m512i) -> __m512i {
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<17>(x));
    let x = _mm512_mullo_epi32(x, c.mul[0]);
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<11>(x));
    let x = _mm512_mullo_epi32(_mm512_add_epi32(x, c.k1), c.mul[1]);
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<15>(x));
    let x = _mm512_mullo_epi32(x, c.mul[2]);
    _mm512_xor_si512(x, _mm512_srli_epi32::<14>(x))
}

/// Indices (in the low four bits; the others are not clean) and residuals of 16 coordinates.
/// `SMALL`: the granularity is below `FEW`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn quantize<const SMALL: bool>(c: &Constants, x: __m512, counter: __m512i) -> (__m512i, __m512) {
    // max and min return their second operand for NaN, as the definition does.
    let clamped = _mm512_min_ps(_mm512_max_ps(x, c.lo), c.hi);
    let position = _mm512_mul_ps(_mm512_sub_ps(clamped, c.lo), c.scale);
    let cell = _mm512_cvttps_epi32(position);
    let lower = if SMALL {
        _mm512_permutex2var_epi32(c.lower[0], cell, c.lower[1])
    } else {
        // Rotation takes its count modulo 32.
        let word = _mm512_permutex2var_epi32(c.lower[0], _mm512_srli_epi32::<3>(cell), c.lower[1]);
        _mm512_rorv_epi32(word, _mm512_slli_epi32::<2>(cell))
    };
    // Permutations look at the low four bits only.
    let point = _mm512_permutexvar_ps(lower, c.point);
    let per_gap = _mm512_permutexvar_ps(lower, c.per_gap);
    let threshold = _mm512_mul_ps(_mm512_sub_ps(position, point), per_gap);
    let uniform = _mm512_cvtepi32_ps(_mm512_srli_epi32::<8>(words(c, counter)));
    let up = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(uniform, threshold);
    let index = _mm512_mask_add_epi32(lower, up, lower, _mm512_set1_epi32(1));
    let value = _mm512_permutexvar_ps(index, c.value);
    (index, _mm512_sub_ps(x, value))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
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
        (true, ..FEW) => indices_of::<true>(&c, xs, at, outs),
        (true, FEW..) => indices_of::<false>(&c, xs, at, outs),
    }
    scalar::indices(grid, span, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
}

/// `indices` of whole vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn indices_of<const SMALL: bool>(c: &Constants, x: &mut [f32], mut at: __m512i, out: &mut [u8]) {
    for (x, out) in x.chunks_exact_mut(LANES).zip(out.chunks_exact_mut(LANES)) {
        // SAFETY: the chunks have 16 floats and 16 bytes.
        unsafe {
            let (index, residual) = quantize::<SMALL>(c, _mm512_loadu_ps(x.as_ptr()), at);
            _mm512_storeu_ps(x.as_mut_ptr(), residual);
            let index = _mm512_cvtepi32_epi8(_mm512_and_si512(index, _mm512_set1_epi32(15)));
            _mm_storeu_si128(out.as_mut_ptr().cast(), index);
        }
        at = _mm512_add_epi32(at, _mm512_set1_epi32(LANES as i32));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
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
        (true, ..FEW) => packed4_of::<true>(&c, xs, at, outs),
        (true, FEW..) => packed4_of::<false>(&c, xs, at, outs),
    }
    scalar::packed4(grid, span, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
}

/// `packed4` of whole vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn packed4_of<const SMALL: bool>(c: &Constants, x: &mut [f32], mut at: __m512i, out: &mut [u8]) {
    for (x, out) in x.chunks_exact_mut(LANES).zip(out.chunks_exact_mut(LANES / 2)) {
        // SAFETY: the chunks have 16 floats and 8 bytes.
        unsafe {
            let (index, residual) = quantize::<SMALL>(c, _mm512_loadu_ps(x.as_ptr()), at);
            _mm512_storeu_ps(x.as_mut_ptr(), residual);
            // As 64-bit words: the even coordinate's index below, the odd one's 32 bits up. Take
            // bits 4..8 from the former, 0..4 from the latter.
            let pair = _mm512_ternarylogic_epi32::<0xCA>(
                _mm512_set1_epi32(0xF0),
                _mm512_slli_epi64::<4>(index),
                _mm512_srli_epi64::<32>(index),
            );
            _mm_storel_epi64(out.as_mut_ptr().cast(), _mm512_cvtepi64_epi8(pair));
        }
        at = _mm512_add_epi32(at, _mm512_set1_epi32(LANES as i32));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn dequantize8(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    let (step_v, lo_v) = (_mm512_set1_ps(step), _mm512_set1_ps(lo));
    let (mut outs, ins) = (out.chunks_exact_mut(LANES), sums.chunks_exact(LANES));
    let tail = ins.remainder();
    for (out, sums) in outs.by_ref().zip(ins) {
        // SAFETY: the chunks have 16 floats and 16 bytes.
        unsafe {
            let sums = _mm512_cvtepu8_epi32(_mm_loadu_si128(sums.as_ptr().cast()));
            let v = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), step_v), lo_v);
            _mm512_storeu_ps(out.as_mut_ptr(), v);
        }
    }
    scalar::dequantize8(tail, step, lo, outs.into_remainder());
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn dequantize16(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    let (step_v, lo_v) = (_mm512_set1_ps(step), _mm512_set1_ps(lo));
    let swap = _mm256_set_epi64x(
        0x0E0F_0C0D_0A0B_0809,
        0x0607_0405_0203_0001,
        0x0E0F_0C0D_0A0B_0809,
        0x0607_0405_0203_0001,
    );
    let (mut outs, ins) = (out.chunks_exact_mut(LANES), sums.chunks_exact(2 * LANES));
    let tail = ins.remainder();
    for (out, sums) in outs.by_ref().zip(ins) {
        // SAFETY: the chunks have 16 floats and 32 bytes.
        unsafe {
            let sums = _mm256_shuffle_epi8(_mm256_loadu_si256(sums.as_ptr().cast()), swap);
            let sums = _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(sums));
            let v = _mm512_add_ps(_mm512_mul_ps(sums, step_v), lo_v);
            _mm512_storeu_ps(out.as_mut_ptr(), v);
        }
    }
    scalar::dequantize16(tail, step, lo, outs.into_remainder());
}
