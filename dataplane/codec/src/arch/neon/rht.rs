//! Randomized Hadamard transform, 4 lanes.

use std::arch::aarch64::*;

use crate::arch::hadamard::Vector;
use crate::arch::transforms;

/// Vectors in a leaf: half of the registers.
pub(in crate::arch) const LEAF: usize = 16;

#[derive(Clone, Copy)]
pub(in crate::arch) struct Floats(float32x4_t);

impl Vector for Floats {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has NEON and `from` is valid for 4 floats.
        Self(unsafe { vld1q_f32(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has NEON and `to` is valid for 4 floats.
        unsafe { vst1q_f32(to, self.0) }
    }

    #[inline(always)]
    unsafe fn splat(v: f32) -> Self {
        // SAFETY: the caller has NEON.
        Self(unsafe { vdupq_n_f32(v) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        Self(unsafe { vaddq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        Self(unsafe { vsubq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        Self(unsafe { vmulq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        Self(unsafe { vfmaq_f32(other.0, self.0, factor.0) })
    }

    #[inline(always)]
    unsafe fn flip(self, word: &u64, at: usize) -> Self {
        // SAFETY: the caller has NEON; the array has four words.
        Self(unsafe {
            // Bit i moves to the sign position of lane i.
            let up = vld1q_s32([31, 30, 29, 28].as_ptr());
            let signs = vshlq_u32(vdupq_n_u32((word >> at) as u32), up);
            let signs = vandq_u32(signs, vdupq_n_u32(1 << 31));
            vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(self.0), signs))
        })
    }

    #[inline(always)]
    unsafe fn transform_lanes(self, descending: bool) -> Self {
        // SAFETY: the caller has NEON; the arrays have four floats.
        unsafe {
            // −1 in the lanes that get the difference. A fused multiply-add with ±1 rounds once, so
            // it is exactly the addition or subtraction.
            let by2 = vld1q_f32([1.0, 1.0, -1.0, -1.0].as_ptr());
            let by1 = vld1q_f32([1.0, -1.0, 1.0, -1.0].as_ptr());
            let mut x = self.0;
            if descending {
                x = vfmaq_f32(vextq_f32::<2>(x, x), x, by2);
                x = vfmaq_f32(vrev64q_f32(x), x, by1);
            } else {
                x = vfmaq_f32(vrev64q_f32(x), x, by1);
                x = vfmaq_f32(vextq_f32::<2>(x, x), x, by2);
            }
            Self(x)
        }
    }
}

transforms::kernels!(true, "neon");
