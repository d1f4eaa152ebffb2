//! Stochastic quantization, 8 coordinates at a time, for tables of up to 16 values.

use std::arch::x86_64::*;

use crate::arch::groups::{COMPLETE, GROUP, LARGE, SMALL, split, word};
use crate::arch::quantizers;
use crate::grid::{Bounds, DRAW, Grid, ONE};
use crate::rounding::{MULTIPLIERS, Rounding};
use crate::scalar::quantize as scalar;

/// Coordinates per vector.
const LANES: usize = 8;

/// Sums per step of the inverse.
const STEP: usize = LANES;

const SMALL_BELOW: u8 = 64;
const HAS_ALL: bool = true;

/// 16 floats, one for each index: entries 0 to 7 and 8 to 15.
type Entries = [__m256; 2];

/// What is looked up or used over a whole slice.
struct Constants {
    end: __m256,
    scale: __m256,
    bias: __m256,
    slope: Entries,
    start: Entries,
    value: Entries,
    lower: [__m256i; 4],
    k1: __m256i,
    stratum: __m256i,
    step: __m256,
    lo: __m256,
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn constants(grid: &Grid, span: &Bounds, rounding: Rounding) -> Constants {
    let nibbles = grid.lower_nibbles.as_ptr();
    // SAFETY: the arrays have 256 floats.
    let entries =
        |x: &[f32; 256]| unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] };
    // SAFETY: lower_nibbles has 32 words.
    let lower = unsafe {
        [
            _mm256_loadu_si256(nibbles.cast()),
            _mm256_loadu_si256(nibbles.add(8).cast()),
            _mm256_loadu_si256(nibbles.add(16).cast()),
            _mm256_loadu_si256(nibbles.add(24).cast()),
        ]
    };
    let (step, lo) = (_mm256_set1_ps(span.step), _mm256_set1_ps(span.lo));
    Constants {
        end: _mm256_set1_ps(span.end),
        scale: _mm256_set1_ps(span.scale),
        bias: _mm256_set1_ps(span.bias),
        slope: entries(&grid.slope),
        start: entries(&grid.start),
        value: entries(&grid.point).map(|point| _mm256_add_ps(_mm256_mul_ps(point, step), lo)),
        lower,
        k1: _mm256_set1_epi32(rounding.k1 as i32),
        stratum: _mm256_set1_epi32(rounding.stratum as i32),
        step,
        lo,
    }
}

/// Number + k0 of the first eight words of the group from coordinate `at`.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn counter(at: u64, rounding: Rounding) -> __m256i {
    _mm256_add_epi32(
        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        _mm256_set1_epi32(word(at).wrapping_add(rounding.k0) as i32),
    )
}

/// `Rounding::word` XOR stratum of eight words whose number + k0 is given.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn words(c: &Constants, x: __m256i) -> __m256i {
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<17>(x));
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MULTIPLIERS[0] as i32));
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<11>(x));
    let x = _mm256_add_epi32(x, c.k1);
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MULTIPLIERS[1] as i32));
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<15>(x));
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MULTIPLIERS[2] as i32));
    _mm256_xor_si256(_mm256_xor_si256(x, c.stratum), _mm256_srli_epi32::<14>(x))
}

/// 1 + draws of a group, and the counter of the next.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn draws(c: &Constants, at: __m256i) -> ([__m256; 8], __m256i) {
    let eight = _mm256_set1_epi32(LANES as i32);
    let then = _mm256_add_epi32(at, eight);
    let (a, b) = (words(c, at), words(c, then));
    let (draw, one) = (_mm256_set1_epi32(DRAW as i32), _mm256_set1_epi32(ONE as i32));
    let float = |w| _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(w, draw), one));
    // Rotates words by bytes: the order of those of the first, the others follow it.
    let rotated = |w, order: i32| {
        let order = _mm256_add_epi32(_mm256_set1_epi32(order), words_of_lanes());
        float(_mm256_shuffle_epi8(w, order))
    };
    let draws = [
        float(a),
        float(b),
        rotated(a, 0x0003_0201),
        rotated(b, 0x0003_0201),
        rotated(a, 0x0100_0302),
        rotated(b, 0x0100_0302),
        rotated(a, 0x0201_0003),
        rotated(b, 0x0201_0003),
    ];
    (draws, _mm256_add_epi32(then, eight))
}

/// Where each word of a lane of 16 bytes begins, in each of its bytes.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn words_of_lanes() -> __m256i {
    _mm256_setr_epi32(0, 0x0404_0404, 0x0808_0808, 0x0C0C_0C0C, 0, 0x0404_0404, 0x0808_0808, 0x0C0C_0C0C)
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
fn lower_word<const KIND: u8>(c: &Constants, cell: __m256i) -> __m256i {
    // The permutation looks at three bits of the index.
    let at = _mm256_srli_epi32::<3>(cell);
    let first = _mm256_permutevar8x32_epi32(c.lower[0], at);
    if KIND == SMALL {
        return first;
    }
    let second = _mm256_permutevar8x32_epi32(c.lower[1], at);
    let third = _mm256_permutevar8x32_epi32(c.lower[2], at);
    let fourth = _mm256_permutevar8x32_epi32(c.lower[3], at);
    select::<27>(at, select::<28>(at, first, second), select::<28>(at, third, fourth))
}

/// The entries of indices of up to 15.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn look_up(entries: Entries, index: __m256i) -> __m256 {
    _mm256_castsi256_ps(select::<28>(
        index,
        _mm256_castps_si256(_mm256_permutevar8x32_ps(entries[0], index)),
        _mm256_castps_si256(_mm256_permutevar8x32_ps(entries[1], index)),
    ))
}

/// Indices and residuals of eight coordinates. `KIND`: [`COMPLETE`], [`SMALL`] for granularities below 64, or [`LARGE`].
#[target_feature(enable = "avx2,fma")]
#[inline]
fn quantize<const KIND: u8>(c: &Constants, x: __m256, draw: __m256) -> (__m256i, __m256) {
    let q = _mm256_fmadd_ps(x, c.scale, c.bias);
    // max returns its second operand for NaN, as the definition does.
    let q = _mm256_min_ps(_mm256_max_ps(q, _mm256_setzero_ps()), c.end);
    let cell = _mm256_cvttps_epi32(q);
    if KIND == COMPLETE {
        // Slope 1, and start 1 − T[z], which is exact; at the last index the sum is 1, which no draw is below.
        let threshold = _mm256_add_ps(q, _mm256_sub_ps(_mm256_set1_ps(1.0), _mm256_cvtepi32_ps(cell)));
        let up = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LT_OQ>(draw, threshold));
        let index = _mm256_sub_epi32(cell, up);
        let value = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(index), c.step), c.lo);
        return (index, _mm256_sub_ps(x, value));
    }
    // Eight cells share a word of `lower`.
    let shift = _mm256_and_si256(_mm256_slli_epi32::<2>(cell), _mm256_set1_epi32(28));
    let lower = _mm256_srlv_epi32(lower_word::<KIND>(c, cell), shift);
    let lower = _mm256_and_si256(lower, _mm256_set1_epi32(15));
    let threshold = _mm256_fmadd_ps(q, look_up(c.slope, lower), look_up(c.start, lower));
    let up = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LT_OQ>(draw, threshold));
    // True is −1 in every lane.
    let index = _mm256_sub_epi32(lower, up);
    (index, _mm256_sub_ps(x, look_up(c.value, index)))
}

/// Indices of a group, which becomes the residual, by halves: byte 16l + 4v + i belongs to coordinate 8v + 4l + i.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn step<const KIND: u8>(c: &Constants, x: &mut [f32], at: &mut __m256i) -> [__m256i; 2] {
    assert!(x.len() == GROUP);
    let draws;
    (draws, *at) = self::draws(c, *at);
    let mut index = [_mm256_setzero_si256(); 8];
    for ((index, x), draw) in index.iter_mut().zip(x.chunks_exact_mut(LANES)).zip(draws) {
        // SAFETY: the chunk has eight floats.
        unsafe {
            let residual;
            (*index, residual) = quantize::<KIND>(c, _mm256_loadu_ps(x.as_ptr()), draw);
            _mm256_storeu_ps(x.as_mut_ptr(), residual);
        }
    }
    let [a, b, c, d, e, f, g, h] = index;
    [
        _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d)),
        _mm256_packus_epi16(_mm256_packus_epi32(e, f), _mm256_packus_epi32(g, h)),
    ]
}

/// `indices` of whole groups.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn indices_of<const KIND: u8>(c: &Constants, x: &mut [f32], mut at: __m256i, out: &mut [u8]) {
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (x, out) in x.chunks_exact_mut(GROUP).zip(out.chunks_exact_mut(GROUP)) {
        let indices = step::<KIND>(c, x, &mut at);
        for (index, out) in indices.into_iter().zip(out.chunks_exact_mut(GROUP / 2)) {
            let index = _mm256_permutevar8x32_epi32(index, order);
            // SAFETY: the chunk has 32 bytes.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), index) };
        }
    }
}

/// `packed4` of whole groups.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn packed4_of<const KIND: u8>(c: &Constants, x: &mut [f32], mut at: __m256i, out: &mut [u8]) {
    let order = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    for (x, out) in x.chunks_exact_mut(GROUP).zip(out.chunks_exact_mut(GROUP / 2)) {
        let indices = step::<KIND>(c, x, &mut at);
        for (index, out) in indices.into_iter().zip(out.chunks_exact_mut(GROUP / 4)) {
            // Each pair of bytes becomes 16 times the first plus the second.
            let pairs = _mm256_maddubs_epi16(index, _mm256_set1_epi16(1 << 8 | 16));
            let pairs = _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
            // SAFETY: the chunk has 16 bytes.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), _mm_shuffle_epi8(pairs, order)) };
        }
    }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn splat(v: f32) -> __m256 {
    _mm256_set1_ps(v)
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn sums8(sums: &[u8]) -> __m256i {
    assert!(sums.len() == STEP);
    // SAFETY: sums has eight bytes.
    unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(sums.as_ptr().cast())) }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn sums16(sums: &[u8]) -> __m256i {
    assert!(sums.len() == 2 * STEP);
    let swap = _mm_set_epi64x(0x0E0F_0C0D_0A0B_0809, 0x0607_0405_0203_0001);
    // SAFETY: sums has 16 bytes.
    unsafe { _mm256_cvtepu16_epi32(_mm_shuffle_epi8(_mm_loadu_si128(sums.as_ptr().cast()), swap)) }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn estimate(sums: __m256i, step: __m256, lo: __m256, out: &mut [f32]) {
    assert!(out.len() == STEP);
    let v = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), step), lo);
    // SAFETY: out has eight floats.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) }
}

quantizers::kernels!("avx2,fma");
