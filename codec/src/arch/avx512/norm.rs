//! Norms, 32 partial sums in four vectors of doubles.

use std::arch::x86_64::*;

use crate::scalar::norm::{self as scalar, LANES};

/// The partial sums as vectors.
type Sums = [__m512d; 4];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn add_squares(sums: &mut Sums, v: [__m256; 4]) {
    for (sum, v) in sums.iter_mut().zip(v) {
        let v = _mm512_cvtps_pd(v);
        // The square is exact in double precision, so fusing it changes nothing.
        *sum = _mm512_fmadd_pd(v, v, *sum);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn load(x: &[f32]) -> [__m256; 4] {
    assert!(x.len() == LANES);
    let p = x.as_ptr();
    // SAFETY: x has 32 floats.
    unsafe {
        [
            _mm256_loadu_ps(p),
            _mm256_loadu_ps(p.add(8)),
            _mm256_loadu_ps(p.add(16)),
            _mm256_loadu_ps(p.add(24)),
        ]
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn store(sums: Sums) -> [f64; LANES] {
    let mut lanes = [0.0; LANES];
    for (lanes, sum) in lanes.chunks_exact_mut(8).zip(sums) {
        // SAFETY: the chunk has eight doubles.
        unsafe { _mm512_storeu_pd(lanes.as_mut_ptr(), sum) };
    }
    lanes
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn squares(x: &[f32]) -> f64 {
    let mut sums = [_mm512_setzero_pd(); 4];
    let chunks = x.chunks_exact(LANES);
    let tail = chunks.remainder();
    for x in chunks {
        add_squares(&mut sums, load(x));
    }
    let mut lanes = store(sums);
    scalar::add_squares(&mut lanes, tail);
    scalar::reduce(lanes)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn squares_sum(x: &[f32], e: &[f32]) -> f64 {
    let mut sums = [_mm512_setzero_pd(); 4];
    let (xs, es) = (x.chunks_exact(LANES), e.chunks_exact(LANES));
    let (x_tail, e_tail) = (xs.remainder(), es.remainder());
    for (x, e) in xs.zip(es) {
        let (mut v, e) = (load(x), load(e));
        for (v, e) in v.iter_mut().zip(e) {
            *v = _mm256_add_ps(*v, e);
        }
        add_squares(&mut sums, v);
    }
    let mut lanes = store(sums);
    scalar::add_squares_sum(&mut lanes, x_tail, e_tail);
    scalar::reduce(lanes)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn max_abs_bits(x: &[f32]) -> u32 {
    let mut max = [_mm512_setzero_si512(); 2];
    let chunks = x.chunks_exact(32);
    let tail = chunks.remainder();
    for x in chunks {
        for (max, x) in max.iter_mut().zip(x.chunks_exact(16)) {
            // SAFETY: the chunk has 16 floats.
            let v = unsafe { _mm512_loadu_si512(x.as_ptr().cast()) };
            let v = _mm512_and_si512(v, _mm512_set1_epi32(i32::MAX));
            *max = _mm512_max_epu32(*max, v);
        }
    }
    _mm512_reduce_max_epu32(_mm512_max_epu32(max[0], max[1])).max(scalar::max_abs_bits(tail))
}
