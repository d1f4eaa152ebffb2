//! Norms, 32 partial sums in four vectors of doubles.

use std::arch::x86_64::*;

use crate::arch::norms;
use crate::scalar::norm::{self as scalar, PARTIAL_SUMS};

/// The partial sums as vectors.
type Sums = [__m512d; 4];

/// 32 floats.
type Chunk = [__m256; 4];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn add_squares(sums: &mut Sums, v: Chunk) {
    for (sum, v) in sums.iter_mut().zip(v) {
        let v = _mm512_cvtps_pd(v);
        // The square is exact in double precision, so fusing it changes nothing.
        *sum = _mm512_fmadd_pd(v, v, *sum);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn load(x: &[f32]) -> Chunk {
    assert!(x.len() == PARTIAL_SUMS);
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
fn add(mut v: Chunk, e: Chunk) -> Chunk {
    for (v, e) in v.iter_mut().zip(e) {
        *v = _mm256_add_ps(*v, e);
    }
    v
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn zero() -> Sums {
    [_mm512_setzero_pd(); 4]
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn store(sums: Sums) -> [f64; PARTIAL_SUMS] {
    let mut lanes = [0.0; PARTIAL_SUMS];
    for (lanes, sum) in lanes.chunks_exact_mut(8).zip(sums) {
        // SAFETY: the chunk has eight doubles.
        unsafe { _mm512_storeu_pd(lanes.as_mut_ptr(), sum) };
    }
    lanes
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

norms::kernels!("avx512f,avx512bw,avx512dq,avx512vl");
