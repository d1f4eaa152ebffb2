//! Rounding onto a lattice, 8 coordinates at a time.

use std::arch::x86_64::*;

use thc_codec::norm::{PARTIAL_SUMS, reduce};
use thc_codec::rounding::{MULTIPLIERS, Rounding};

use crate::domain::{Lattice, UNIFORMS};
use crate::scalar;

/// Coordinates per vector.
const LANES: usize = 8;

/// What stays in registers over a slice.
struct Constants {
    per: __m256,
    lo: __m256,
    hi: __m256,
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn constants(lattice: &Lattice) -> Constants {
    Constants {
        per: _mm256_set1_ps(lattice.per),
        lo: _mm256_set1_ps(lattice.lo),
        hi: _mm256_set1_ps(lattice.hi),
    }
}

/// Index + k0 of the first eight coordinates, from `first`.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn counter(first: u32, rounding: Rounding) -> __m256i {
    _mm256_add_epi32(
        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        _mm256_set1_epi32(first.wrapping_add(rounding.key()[0]) as i32),
    )
}

/// The top 24 bits of `Rounding::word` of eight coordinates whose index + k0 is given, as floats.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn uniforms(rounding: Rounding, x: __m256i) -> __m256 {
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<17>(x));
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MULTIPLIERS[0] as i32));
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<11>(x));
    let x = _mm256_add_epi32(x, _mm256_set1_epi32(rounding.key()[1] as i32));
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MULTIPLIERS[1] as i32));
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<15>(x));
    let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MULTIPLIERS[2] as i32));
    let x = _mm256_xor_si256(x, _mm256_srli_epi32::<14>(x));
    _mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(x))
}

/// The multiple below, and how far `x` is above it.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn place(c: &Constants, x: __m256) -> (__m256, __m256) {
    // max and min return their second operand for NaN, as the definition does.
    let q = _mm256_min_ps(_mm256_max_ps(_mm256_mul_ps(x, c.per), c.lo), c.hi);
    let below = _mm256_floor_ps(q);
    (below, _mm256_sub_ps(q, below))
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn codes(lattice: &Lattice, x: &[f32], rounding: Rounding, first: u64, out: &mut [u16]) {
    let done = x.len() / LANES * LANES;
    let (xs, x_tail) = x.split_at(done);
    let (outs, out_tail) = out.split_at_mut(done);
    let (c, mut at) = (constants(lattice), counter(first as u32, rounding));
    let half = _mm256_set1_epi32(lattice.half);
    for (x, out) in xs.chunks_exact(LANES).zip(outs.chunks_exact_mut(LANES)) {
        // SAFETY: the chunk has eight floats.
        let (below, above) = place(&c, unsafe { _mm256_loadu_ps(x.as_ptr()) });
        let threshold = _mm256_mul_ps(above, _mm256_set1_ps(UNIFORMS));
        let up = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LT_OQ>(uniforms(rounding, at), threshold));
        // True is −1 in every lane.
        let code = _mm256_sub_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(below), half), up);
        let code = _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256::<1>(code));
        // SAFETY: the chunk has eight words.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), code) };
        at = _mm256_add_epi32(at, _mm256_set1_epi32(LANES as i32));
    }
    scalar::codes(lattice, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn values(lattice: &Lattice, codes: &[u16], out: &mut [f32]) {
    let (half, delta) = (_mm256_set1_epi32(lattice.half), _mm256_set1_ps(lattice.delta));
    let (mut outs, ins) = (out.chunks_exact_mut(LANES), codes.chunks_exact(LANES));
    let tail = ins.remainder();
    for (out, codes) in outs.by_ref().zip(ins) {
        // SAFETY: the chunks have eight floats and eight words.
        unsafe {
            let code = _mm256_cvtepu16_epi32(_mm_loadu_si128(codes.as_ptr().cast()));
            let steps = _mm256_cvtepi32_ps(_mm256_sub_epi32(code, half));
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_mul_ps(steps, delta));
        }
    }
    scalar::values(lattice, tail, outs.into_remainder());
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn spread(lattice: &Lattice, x: &[f32]) -> f64 {
    let (c, one) = (constants(lattice), _mm256_set1_ps(1.0));
    let mut sums = [_mm256_setzero_pd(); PARTIAL_SUMS / 4];
    let chunks = x.chunks_exact(PARTIAL_SUMS);
    let tail = chunks.remainder();
    for chunk in chunks {
        for (sums, x) in sums.chunks_exact_mut(2).zip(chunk.chunks_exact(LANES)) {
            // SAFETY: the chunk has eight floats.
            let (_, above) = place(&c, unsafe { _mm256_loadu_ps(x.as_ptr()) });
            let term = _mm256_mul_ps(above, _mm256_sub_ps(one, above));
            sums[0] = _mm256_add_pd(sums[0], _mm256_cvtps_pd(_mm256_castps256_ps128(term)));
            sums[1] = _mm256_add_pd(sums[1], _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(term)));
        }
    }
    let mut lanes = [0.0; PARTIAL_SUMS];
    for (lanes, sum) in lanes.chunks_exact_mut(4).zip(sums) {
        // SAFETY: the chunk has four doubles.
        unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), sum) };
    }
    scalar::add_spread(&mut lanes, lattice, tail);
    reduce(lanes)
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn draw(x: &[f32], scale: f32, rounding: Rounding, first: u32, out: &mut Vec<u32>) {
    let done = x.len() / LANES * LANES;
    let (xs, tail) = x.split_at(done);
    let (mut at, scale_v) = (counter(first, rounding), _mm256_set1_ps(scale));
    let magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(i32::MAX));
    for (i, x) in xs.chunks_exact(LANES).enumerate() {
        // SAFETY: the chunk has eight floats.
        let x = _mm256_and_ps(unsafe { _mm256_loadu_ps(x.as_ptr()) }, magnitude);
        let chance = _mm256_mul_ps(x, scale_v);
        let drawn = _mm256_cmp_ps::<_CMP_LT_OQ>(uniforms(rounding, at), chance);
        let mut drawn = _mm256_movemask_ps(drawn) as u32;
        let base = first.wrapping_add((i * LANES) as u32);
        while drawn != 0 {
            out.push(base.wrapping_add(drawn.trailing_zeros()));
            drawn &= drawn - 1;
        }
        at = _mm256_add_epi32(at, _mm256_set1_epi32(LANES as i32));
    }
    scalar::draw(tail, scale, rounding, first.wrapping_add(done as u32), out);
}
