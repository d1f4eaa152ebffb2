//! Stochastic quantization, 8 coordinates at a time, for tables of up to 16 values.

use std::arch::x86_64::*;

use crate::quantizer::{Grid, Span};
use crate::rounding::{MUL, Rounding};
use crate::scalar::quantize as scalar;

/// Coordinates per vector.
const LANES: usize = 8;

/// What is looked up or used over a whole slice.
struct Constants<'a> {
    lo: __m256,
    hi: __m256,
    scale: __m256,
    /// Entries 0 to 7 and 8 to 15.
    point: [__m256; 2],
    per_gap: [__m256; 2],
    value: [__m256; 2],
    lower: &'a [u32; 32],
    k1: __m256i,
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn halves(table: &[f32; 256]) -> [__m256; 2] {
    // SAFETY: the table has more than 16 floats.
    unsafe { [_mm256_loadu_ps(table.as_ptr()), _mm256_loadu_ps(table.as_ptr().add(8))] }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn constants<'a>(grid: &'a Grid, span: &Span, rounding: Rounding) -> Constants<'a> {
    let lo = _mm256_set1_ps(span.lo);
    let step = _mm256_set1_ps(span.step);
    let point = halves(&grid.point);
    Constants {
        lo,
        hi: _mm256_set1_ps(span.hi),
        scale: _mm256_set1_ps(span.scale),
        point,
        per_gap: halves(&grid.per_gap),
        value: [
            _mm256_add_ps(_mm256_mul_ps(point[0], step), lo),
            _mm256_add_ps(_mm256_mul_ps(point[1], step), lo),
        ],
        lower: &grid.lower_nibbles,
        k1: _mm256_set1_epi32(rounding.k1 as i32),
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
fn words(c: &Constants<'_>, x: __m256i) -> __m256i {
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<17>(x));
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MUL[0] as i32));
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<11>(x));
    let x = _mm256_add_epi32(x, c.k1);
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MUL[1] as i32));
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<15>(x));
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MUL[2] as i32));
    _mm256_xor_si256(x, _mm256_srli_epi32::<14>(x))
}

/// Entries of a table of 16 by the low four bits of `index`.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn lookup(table: [__m256; 2], index: __m256i) -> __m256 {
    // The permutation looks at three bits; the fourth, moved to the sign, selects the half.
    let select = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
    _mm256_blendv_ps(
        _mm256_permutevar8x32_ps(table[0], index),
        _mm256_permutevar8x32_ps(table[1], index),
        select,
    )
}

/// Indices and residuals of eight coordinates.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn quantize(c: &Constants<'_>, x: __m256, counter: __m256i) -> (__m256i, __m256) {
    // max and min return their second operand for NaN, as the definition does.
    let clamped = _mm256_min_ps(_mm256_max_ps(x, c.lo), c.hi);
    let position = _mm256_mul_ps(_mm256_sub_ps(clamped, c.lo), c.scale);
    let cell = _mm256_cvttps_epi32(position);
    // Eight cells share a word of `lower`. Positions are at most 255 (see `crate::quantizer`), but
    // memory must not depend on arithmetic, so the index is masked.
    let at = _mm256_and_si256(_mm256_srli_epi32::<3>(cell), _mm256_set1_epi32(31));
    // SAFETY: indices are 0 to 31 and `lower` has 32 words.
    let word = unsafe { _mm256_i32gather_epi32::<4>(c.lower.as_ptr().cast(), at) };
    let shift = _mm256_and_si256(_mm256_slli_epi32::<2>(cell), _mm256_set1_epi32(28));
    let lower = _mm256_and_si256(_mm256_srlv_epi32(word, shift), _mm256_set1_epi32(15));
    let threshold = _mm256_mul_ps(_mm256_sub_ps(position, lookup(c.point, lower)), lookup(c.per_gap, lower));
    let uniform = _mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(words(c, counter)));
    let up = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LT_OQ>(uniform, threshold));
    // True is −1 in every lane.
    let index = _mm256_sub_epi32(lower, up);
    (index, _mm256_sub_ps(x, lookup(c.value, index)))
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
    if !grid.narrow() {
        return scalar::indices(grid, span, x, rounding, first, out);
    }
    let c = constants(grid, span, rounding);
    let mut at = counter(first, rounding);
    let done = x.len() / LANES * LANES;
    let (xs, x_tail) = x.split_at_mut(done);
    let (outs, out_tail) = out.split_at_mut(done);
    for (x, out) in xs.chunks_exact_mut(LANES).zip(outs.chunks_exact_mut(LANES)) {
        // SAFETY: the chunks have eight floats and eight bytes.
        unsafe {
            let (index, residual) = quantize(&c, _mm256_loadu_ps(x.as_ptr()), at);
            _mm256_storeu_ps(x.as_mut_ptr(), residual);
            let index = _mm_packus_epi32(_mm256_castsi256_si128(index), _mm256_extracti128_si256::<1>(index));
            _mm_storel_epi64(out.as_mut_ptr().cast(), _mm_packus_epi16(index, index));
        }
        at = _mm256_add_epi32(at, _mm256_set1_epi32(LANES as i32));
    }
    scalar::indices(grid, span, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
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
    if !grid.narrow() {
        return scalar::packed4(grid, span, x, rounding, first, out);
    }
    let c = constants(grid, span, rounding);
    let mut at = counter(first, rounding);
    let done = x.len() / LANES * LANES;
    let (xs, x_tail) = x.split_at_mut(done);
    let (outs, out_tail) = out.split_at_mut(done / 2);
    for (x, out) in xs.chunks_exact_mut(LANES).zip(outs.chunks_exact_mut(LANES / 2)) {
        // SAFETY: the chunk has eight floats.
        let index = unsafe {
            let (index, residual) = quantize(&c, _mm256_loadu_ps(x.as_ptr()), at);
            _mm256_storeu_ps(x.as_mut_ptr(), residual);
            index
        };
        let index = _mm_packus_epi32(_mm256_castsi256_si128(index), _mm256_extracti128_si256::<1>(index));
        // Each pair of 16-bit words becomes 16 times the first plus the second.
        let pairs = _mm_madd_epi16(index, _mm_set1_epi32(1 << 16 | 16));
        let bytes = _mm_packus_epi16(_mm_packs_epi32(pairs, pairs), pairs);
        out.copy_from_slice(&_mm_cvtsi128_si32(bytes).to_le_bytes());
        at = _mm256_add_epi32(at, _mm256_set1_epi32(LANES as i32));
    }
    scalar::packed4(grid, span, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
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
