//! Rounding onto a lattice, 16 coordinates at a time.

use std::arch::x86_64::*;

use thc_codec::norm::{PARTIAL_SUMS, reduce};
use thc_codec::rounding::{MULTIPLIERS, Rounding};

use crate::domain::{Lattice, UNIFORMS};
use crate::scalar;

/// Coordinates per vector.
const LANES: usize = 16;
/// Rounding towards minus infinity, without exceptions.
const FLOOR: i32 = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;

/// What stays in registers over a slice.
struct Constants {
    per: __m512,
    lo: __m512,
    hi: __m512,
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn constants(lattice: &Lattice) -> Constants {
    Constants {
        per: _mm512_set1_ps(lattice.per),
        lo: _mm512_set1_ps(lattice.lo),
        hi: _mm512_set1_ps(lattice.hi),
    }
}

/// Index + k0 of the first 16 coordinates, from `first`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn counter(first: u32, rounding: Rounding) -> __m512i {
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_add_epi32(iota, _mm512_set1_epi32(first.wrapping_add(rounding.key()[0]) as i32))
}

/// The top 24 bits of `Rounding::word` of 16 coordinates whose index + k0 is given, as floats.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn uniforms(rounding: Rounding, x: __m512i) -> __m512 {
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<17>(x));
    let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(MULTIPLIERS[0] as i32));
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<11>(x));
    let x = _mm512_add_epi32(x, _mm512_set1_epi32(rounding.key()[1] as i32));
    let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(MULTIPLIERS[1] as i32));
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<15>(x));
    let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(MULTIPLIERS[2] as i32));
    let x = _mm512_xor_si512(x, _mm512_srli_epi32::<14>(x));
    _mm512_cvtepi32_ps(_mm512_srli_epi32::<8>(x))
}

/// The multiple below, and how far `x` is above it.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn place(c: &Constants, x: __m512) -> (__m512, __m512) {
    // max and min return their second operand for NaN, as the definition does.
    let q = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(x, c.per), c.lo), c.hi);
    let below = _mm512_roundscale_ps::<FLOOR>(q);
    (below, _mm512_sub_ps(q, below))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn codes(lattice: &Lattice, x: &[f32], rounding: Rounding, first: u64, out: &mut [u16]) {
    let done = x.len() / LANES * LANES;
    let (xs, x_tail) = x.split_at(done);
    let (outs, out_tail) = out.split_at_mut(done);
    let (c, mut at) = (constants(lattice), counter(first as u32, rounding));
    let (half, one) = (_mm512_set1_epi32(lattice.half), _mm512_set1_epi32(1));
    for (x, out) in xs.chunks_exact(LANES).zip(outs.chunks_exact_mut(LANES)) {
        // SAFETY: the chunk has 16 floats.
        let (below, above) = place(&c, unsafe { _mm512_loadu_ps(x.as_ptr()) });
        let threshold = _mm512_mul_ps(above, _mm512_set1_ps(UNIFORMS));
        let up = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(uniforms(rounding, at), threshold);
        let code = _mm512_add_epi32(_mm512_cvttps_epi32(below), half);
        let code = _mm512_mask_add_epi32(code, up, code, one);
        // SAFETY: the chunk has 16 words.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(code)) };
        at = _mm512_add_epi32(at, _mm512_set1_epi32(LANES as i32));
    }
    scalar::codes(lattice, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn values(lattice: &Lattice, codes: &[u16], out: &mut [f32]) {
    let (half, delta) = (_mm512_set1_epi32(lattice.half), _mm512_set1_ps(lattice.delta));
    let (mut outs, ins) = (out.chunks_exact_mut(LANES), codes.chunks_exact(LANES));
    let tail = ins.remainder();
    for (out, codes) in outs.by_ref().zip(ins) {
        // SAFETY: the chunks have 16 floats and 16 words.
        unsafe {
            let code = _mm512_cvtepu16_epi32(_mm256_loadu_si256(codes.as_ptr().cast()));
            let steps = _mm512_cvtepi32_ps(_mm512_sub_epi32(code, half));
            _mm512_storeu_ps(out.as_mut_ptr(), _mm512_mul_ps(steps, delta));
        }
    }
    scalar::values(lattice, tail, outs.into_remainder());
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn spread(lattice: &Lattice, x: &[f32]) -> f64 {
    let (c, one) = (constants(lattice), _mm512_set1_ps(1.0));
    let mut sums = [_mm512_setzero_pd(); PARTIAL_SUMS / 8];
    let chunks = x.chunks_exact(PARTIAL_SUMS);
    let tail = chunks.remainder();
    for chunk in chunks {
        for (sums, x) in sums.chunks_exact_mut(2).zip(chunk.chunks_exact(LANES)) {
            // SAFETY: the chunk has 16 floats.
            let (_, above) = place(&c, unsafe { _mm512_loadu_ps(x.as_ptr()) });
            let term = _mm512_mul_ps(above, _mm512_sub_ps(one, above));
            sums[0] = _mm512_add_pd(sums[0], _mm512_cvtps_pd(_mm512_castps512_ps256(term)));
            sums[1] = _mm512_add_pd(sums[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(term)));
        }
    }
    let mut lanes = [0.0; PARTIAL_SUMS];
    for (lanes, sum) in lanes.chunks_exact_mut(8).zip(sums) {
        // SAFETY: the chunk has eight doubles.
        unsafe { _mm512_storeu_pd(lanes.as_mut_ptr(), sum) };
    }
    scalar::add_spread(&mut lanes, lattice, tail);
    reduce(lanes)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn draw(x: &[f32], scale: f32, rounding: Rounding, first: u32, out: &mut Vec<u32>) {
    let done = x.len() / LANES * LANES;
    let (xs, tail) = x.split_at(done);
    let (mut at, scale_v) = (counter(first, rounding), _mm512_set1_ps(scale));
    for (i, x) in xs.chunks_exact(LANES).enumerate() {
        // SAFETY: the chunk has 16 floats.
        let x = _mm512_abs_ps(unsafe { _mm512_loadu_ps(x.as_ptr()) });
        let chance = _mm512_mul_ps(x, scale_v);
        let mut drawn = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(uniforms(rounding, at), chance);
        let base = first.wrapping_add((i * LANES) as u32);
        while drawn != 0 {
            out.push(base.wrapping_add(drawn.trailing_zeros()));
            drawn &= drawn - 1;
        }
        at = _mm512_add_epi32(at, _mm512_set1_epi32(LANES as i32));
    }
    scalar::draw(tail, scale, rounding, first.wrapping_add(done as u32), out);
}
