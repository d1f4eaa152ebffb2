//! Stochastic quantization, 16 coordinates at a time, for tables of up to 16 values.

use std::arch::x86_64::*;

use crate::arch::groups::{COMPLETE, GROUP, LARGE, SMALL, split, word};
use crate::arch::quantizers;
use crate::grid::{Bounds, DRAW, FEW, Grid, ONE};
use crate::rounding::{MULTIPLIERS, Rounding};
use crate::scalar::quantize as scalar;

/// Coordinates per vector.
const LANES: usize = 16;

/// Sums per step of the inverse.
const STEP: usize = LANES;

const SMALL_BELOW: u8 = FEW;
const HAS_ALL: bool = true;

/// Everything that stays in registers over a slice.
struct Constants {
    end: __m512,
    scale: __m512,
    bias: __m512,
    /// By index, or with `FEW` cells by cell: entries 0 to 15 and 16 to 31.
    slope: [__m512; 2],
    start: [__m512; 2],
    value: __m512,
    /// Cell to index: with `FEW` cells one per word, else eight per word, 4 bits each.
    lower: [__m512i; 2],
    k1: __m512i,
    stratum: __m512i,
    mul: [__m512i; 3],
    step: __m512,
    lo: __m512,
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn constants(grid: &Grid, span: &Bounds, rounding: Rounding) -> Constants {
    let few = grid.granularity < FEW;
    // SAFETY: point, slope and start have 256 floats, those by cell 32, lower 256 bytes, lower_nibbles 32 words.
    let (point, slope, start, lower) = unsafe {
        let (cells, nibbles) = (grid.lower.as_ptr(), grid.lower_nibbles.as_ptr());
        let lower = if few {
            [
                _mm512_cvtepu8_epi32(_mm_loadu_si128(cells.cast())),
                _mm512_cvtepu8_epi32(_mm_loadu_si128(cells.add(16).cast())),
            ]
        } else {
            [_mm512_loadu_si512(nibbles.cast()), _mm512_loadu_si512(nibbles.add(16).cast())]
        };
        let (slope, start) = if few {
            (grid.slope_of_cell.as_ptr(), grid.start_of_cell.as_ptr())
        } else {
            (grid.slope.as_ptr(), grid.start.as_ptr())
        };
        let pair = |p: *const f32| [_mm512_loadu_ps(p), _mm512_loadu_ps(p.add(16))];
        (_mm512_loadu_ps(grid.point.as_ptr()), pair(slope), pair(start), lower)
    };
    let (step, lo) = (_mm512_set1_ps(span.step), _mm512_set1_ps(span.lo));
    Constants {
        end: _mm512_set1_ps(span.end),
        scale: _mm512_set1_ps(span.scale),
        bias: _mm512_set1_ps(span.bias),
        slope,
        start,
        value: _mm512_add_ps(_mm512_mul_ps(point, step), lo),
        lower,
        k1: _mm512_set1_epi32(rounding.k1 as i32),
        stratum: _mm512_set1_epi32(rounding.stratum as i32),
        mul: MULTIPLIERS.map(|m| _mm512_set1_epi32(m as i32)),
        step,
        lo,
    }
}

/// Number + k0 of the 16 words of the group from coordinate `at`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn counter(at: u64, rounding: Rounding) -> __m512i {
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_add_epi32(iota, _mm512_set1_epi32(word(at).wrapping_add(rounding.k0) as i32))
}

/// `Rounding::word` XOR stratum of 16 words whose number + k0 is given.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn words(c: &Constants, x: __m512i) -> __m512i {
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<17>(x));
    let x = _mm512_mullo_epi32(x, c.mul[0]);
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<11>(x));
    let x = _mm512_mullo_epi32(_mm512_add_epi32(x, c.k1), c.mul[1]);
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<15>(x));
    let x = _mm512_mullo_epi32(x, c.mul[2]);
    // The XOR of all three.
    _mm512_ternarylogic_epi32::<0x96>(x, _mm512_srli_epi32::<14>(x), c.stratum)
}

/// 1 + draws of the 64 coordinates of a group.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn draws(c: &Constants, counter: __m512i) -> [__m512; 4] {
    let words = words(c, counter);
    let (draw, one) = (_mm512_set1_epi32(DRAW as i32), _mm512_set1_epi32(ONE as i32));
    let rotated =
        [words, _mm512_ror_epi32::<8>(words), _mm512_ror_epi32::<16>(words), _mm512_ror_epi32::<24>(words)];
    // (rotated AND draw) OR one.
    rotated.map(|r| _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xEA>(r, draw, one)))
}

/// Indices and residuals of 16 coordinates. `KIND`: [`COMPLETE`], [`SMALL`] for granularities below `FEW`, or [`LARGE`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn quantize<const KIND: u8>(c: &Constants, x: __m512, draw: __m512) -> (__m512i, __m512) {
    let q = _mm512_fmadd_ps(x, c.scale, c.bias);
    // max returns its second operand for NaN, as the definition does.
    let q = _mm512_min_ps(_mm512_max_ps(q, _mm512_setzero_ps()), c.end);
    let cell = _mm512_cvttps_epi32(q);
    if KIND == COMPLETE {
        // Slope 1, and start 1 − T[z], which is exact; at the last index the sum is 1, which no draw is below.
        let threshold = _mm512_add_ps(q, _mm512_sub_ps(_mm512_set1_ps(1.0), _mm512_cvtepi32_ps(cell)));
        let up = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(draw, threshold);
        let index = _mm512_mask_add_epi32(cell, up, cell, _mm512_set1_epi32(1));
        let value = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(index), c.step), c.lo);
        return (index, _mm512_sub_ps(x, value));
    }
    let (lower, slope, start) = if KIND == SMALL {
        (
            _mm512_permutex2var_epi32(c.lower[0], cell, c.lower[1]),
            _mm512_permutex2var_ps(c.slope[0], cell, c.slope[1]),
            _mm512_permutex2var_ps(c.start[0], cell, c.start[1]),
        )
    } else {
        let word = _mm512_permutex2var_epi32(c.lower[0], _mm512_srli_epi32::<3>(cell), c.lower[1]);
        // Rotation takes its count modulo 32.
        let lower = _mm512_rorv_epi32(word, _mm512_slli_epi32::<2>(cell));
        let lower = _mm512_and_si512(lower, _mm512_set1_epi32(15));
        (lower, _mm512_permutexvar_ps(lower, c.slope[0]), _mm512_permutexvar_ps(lower, c.start[0]))
    };
    let threshold = _mm512_fmadd_ps(q, slope, start);
    let up = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(draw, threshold);
    let index = _mm512_mask_add_epi32(lower, up, lower, _mm512_set1_epi32(1));
    (index, _mm512_sub_ps(x, _mm512_permutexvar_ps(index, c.value)))
}

/// Indices of 64 coordinates, which become the residual: byte 16l + 4v + i belongs to coordinate 16v + 4l + i.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn step<const KIND: u8>(c: &Constants, x: &mut [f32], at: &mut __m512i) -> __m512i {
    assert!(x.len() == GROUP);
    let mut index = [_mm512_setzero_si512(); 4];
    let draws = draws(c, *at);
    *at = _mm512_add_epi32(*at, _mm512_set1_epi32(LANES as i32));
    for ((index, x), draw) in index.iter_mut().zip(x.chunks_exact_mut(LANES)).zip(draws) {
        // SAFETY: the chunk has 16 floats.
        unsafe {
            let residual;
            (*index, residual) = quantize::<KIND>(c, _mm512_loadu_ps(x.as_ptr()), draw);
            _mm512_storeu_ps(x.as_mut_ptr(), residual);
        }
    }
    _mm512_packus_epi16(_mm512_packus_epi32(index[0], index[1]), _mm512_packus_epi32(index[2], index[3]))
}

/// `indices` of whole steps.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn indices_of<const KIND: u8>(c: &Constants, x: &mut [f32], mut at: __m512i, out: &mut [u8]) {
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (x, out) in x.chunks_exact_mut(GROUP).zip(out.chunks_exact_mut(GROUP)) {
        let index = _mm512_permutexvar_epi32(order, step::<KIND>(c, x, &mut at));
        // SAFETY: the chunk has 64 bytes.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), index) };
    }
}

/// `packed4` of whole steps.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn packed4_of<const KIND: u8>(c: &Constants, x: &mut [f32], mut at: __m512i, out: &mut [u8]) {
    let order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (x, out) in x.chunks_exact_mut(GROUP).zip(out.chunks_exact_mut(GROUP / 2)) {
        let index = step::<KIND>(c, x, &mut at);
        // Each pair of bytes becomes 16 times the first plus the second.
        let pairs = _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(index, _mm512_set1_epi16(1 << 8 | 16)));
        // SAFETY: the chunk has 32 bytes.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_permutexvar_epi16(order, pairs)) };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn splat(v: f32) -> __m512 {
    _mm512_set1_ps(v)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn sums8(sums: &[u8]) -> __m512i {
    assert!(sums.len() == STEP);
    // SAFETY: sums has 16 bytes.
    unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(sums.as_ptr().cast())) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn sums16(sums: &[u8]) -> __m512i {
    assert!(sums.len() == 2 * STEP);
    let swap = _mm256_set_epi64x(
        0x0E0F_0C0D_0A0B_0809,
        0x0607_0405_0203_0001,
        0x0E0F_0C0D_0A0B_0809,
        0x0607_0405_0203_0001,
    );
    // SAFETY: sums has 32 bytes.
    unsafe { _mm512_cvtepu16_epi32(_mm256_shuffle_epi8(_mm256_loadu_si256(sums.as_ptr().cast()), swap)) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn estimate(sums: __m512i, step: __m512, lo: __m512, out: &mut [f32]) {
    assert!(out.len() == STEP);
    let v = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), step), lo);
    // SAFETY: out has 16 floats.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
}

quantizers::kernels!("avx512f,avx512bw,avx512dq,avx512vl");
