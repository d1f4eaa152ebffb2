//! Norms, 32 partial sums in eight vectors of doubles.

use std::arch::x86_64::*;

use crate::arch::norms;
use crate::scalar::norm::{self as scalar, PARTIAL_SUMS};

/// The partial sums as vectors.
type Sums = [__m256d; 8];

/// 32 floats.
type Chunk = [__m128; 8];

#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_squares(sums: &mut Sums, v: Chunk) {
    for (sum, v) in sums.iter_mut().zip(v) {
        let v = _mm256_cvtps_pd(v);
        // The square is exact in double precision, so fusing it changes nothing.
        *sum = _mm256_fmadd_pd(v, v, *sum);
    }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn load(x: &[f32]) -> Chunk {
    let mut v = [_mm_setzero_ps(); 8];
    for (v, x) in v.iter_mut().zip(x.chunks_exact(4)) {
        // SAFETY: the chunk has four floats.
        *v = unsafe { _mm_loadu_ps(x.as_ptr()) };
    }
    v
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn add(mut v: Chunk, e: Chunk) -> Chunk {
    for (v, e) in v.iter_mut().zip(e) {
        *v = _mm_add_ps(*v, e);
    }
    v
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn zero() -> Sums {
    [_mm256_setzero_pd(); 8]
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn store(sums: Sums) -> [f64; PARTIAL_SUMS] {
    let mut lanes = [0.0; PARTIAL_SUMS];
    for (lanes, sum) in lanes.chunks_exact_mut(4).zip(sums) {
        // SAFETY: the chunk has four doubles.
        unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), sum) };
    }
    lanes
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn max_abs_bits(x: &[f32]) -> u32 {
    let mut max = [_mm256_setzero_si256(); 2];
    let chunks = x.chunks_exact(16);
    let tail = chunks.remainder();
    for x in chunks {
        for (max, x) in max.iter_mut().zip(x.chunks_exact(8)) {
            // SAFETY: the chunk has eight floats.
            let v = unsafe { _mm256_loadu_si256(x.as_ptr().cast()) };
            let v = _mm256_and_si256(v, _mm256_set1_epi32(i32::MAX));
            *max = _mm256_max_epu32(*max, v);
        }
    }
    let mut lanes = [0; 8];
    // SAFETY: lanes has eight words.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), _mm256_max_epu32(max[0], max[1])) };
    lanes.into_iter().fold(scalar::max_abs_bits(tail), u32::max)
}

norms::kernels!("avx2,fma");
