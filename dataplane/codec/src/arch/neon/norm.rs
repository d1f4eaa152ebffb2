//! Norms, 32 partial sums in 16 vectors of doubles.

use std::arch::aarch64::*;

use crate::arch::norms;
use crate::scalar::norm::{self as scalar, PARTIAL_SUMS};

/// The partial sums as vectors.
type Sums = [float64x2_t; 16];

/// 32 floats.
type Chunk = [float32x4_t; 8];

#[target_feature(enable = "neon")]
#[inline]
fn add_squares(sums: &mut Sums, v: Chunk) {
    for (sums, v) in sums.chunks_exact_mut(2).zip(v) {
        let (low, high) = (vcvt_f64_f32(vget_low_f32(v)), vcvt_high_f64_f32(v));
        // The square is exact in double precision, so fusing it changes nothing.
        sums[0] = vfmaq_f64(sums[0], low, low);
        sums[1] = vfmaq_f64(sums[1], high, high);
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn load(x: &[f32]) -> Chunk {
    let mut v = [vdupq_n_f32(0.0); 8];
    for (v, x) in v.iter_mut().zip(x.chunks_exact(4)) {
        // SAFETY: the chunk has four floats.
        *v = unsafe { vld1q_f32(x.as_ptr()) };
    }
    v
}

#[target_feature(enable = "neon")]
#[inline]
fn add(mut v: Chunk, e: Chunk) -> Chunk {
    for (v, e) in v.iter_mut().zip(e) {
        *v = vaddq_f32(*v, e);
    }
    v
}

#[target_feature(enable = "neon")]
#[inline]
fn zero() -> Sums {
    [vdupq_n_f64(0.0); 16]
}

#[target_feature(enable = "neon")]
#[inline]
fn store(sums: Sums) -> [f64; PARTIAL_SUMS] {
    let mut lanes = [0.0; PARTIAL_SUMS];
    for (lanes, sum) in lanes.chunks_exact_mut(2).zip(sums) {
        // SAFETY: the chunk has two doubles.
        unsafe { vst1q_f64(lanes.as_mut_ptr(), sum) };
    }
    lanes
}

#[target_feature(enable = "neon")]
pub(crate) fn max_abs_bits(x: &[f32]) -> u32 {
    let mut max = vdupq_n_u32(0);
    let chunks = x.chunks_exact(4);
    let tail = chunks.remainder();
    for x in chunks {
        // SAFETY: the chunk has four floats.
        let v = vreinterpretq_u32_f32(unsafe { vld1q_f32(x.as_ptr()) });
        max = vmaxq_u32(max, vandq_u32(v, vdupq_n_u32(0x7FFF_FFFF)));
    }
    vmaxvq_u32(max).max(scalar::max_abs_bits(tail))
}

norms::kernels!("neon");
