//! Randomized Hadamard transform, 8 lanes.

use std::arch::x86_64::*;

use crate::arch::hadamard::Vector;
use crate::arch::transforms;

/// Vectors in a leaf: half of the registers.
pub(in crate::arch) const LEAF: usize = 8;

#[derive(Clone, Copy)]
pub(in crate::arch) struct Floats(__m256);

/// One set of butterflies inside a vector: `$swap` exchanges the partners, `$sign` is −1 in the
/// lanes that get the difference. A fused multiply-add with ±1 rounds once, so it is exactly the
/// addition or subtraction.
macro_rules! within {
    ($x:expr, $sign:expr, $swap:expr) => {
        _mm256_fmadd_ps($x, $sign, $swap)
    };
}

impl Vector for Floats {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has AVX2 and `from` is valid for 8 floats.
        Self(unsafe { _mm256_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has AVX2 and `to` is valid for 8 floats.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn splat(v: f32) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_set1_ps(v) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_fmadd_ps(self.0, factor.0, other.0) })
    }

    #[inline(always)]
    unsafe fn flip(self, word: &u64, at: usize) -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe {
            // Bit i moves to the sign position of lane i.
            let up = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
            let signs = _mm256_sllv_epi32(_mm256_set1_epi32((word >> at) as i32), up);
            let signs = _mm256_and_ps(_mm256_castsi256_ps(signs), _mm256_set1_ps(-0.0));
            _mm256_xor_ps(self.0, signs)
        })
    }

    #[inline(always)]
    unsafe fn transform_lanes(self, descending: bool) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe {
            let by4 = _mm256_setr_ps(1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0);
            let by2 = _mm256_setr_ps(1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0);
            let by1 = _mm256_setr_ps(1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0);
            let mut x = self.0;
            if descending {
                x = within!(x, by4, _mm256_permute2f128_ps::<0x01>(x, x));
                x = within!(x, by2, _mm256_permute_ps::<0b01_00_11_10>(x));
                x = within!(x, by1, _mm256_permute_ps::<0b10_11_00_01>(x));
            } else {
                x = within!(x, by1, _mm256_permute_ps::<0b10_11_00_01>(x));
                x = within!(x, by2, _mm256_permute_ps::<0b01_00_11_10>(x));
                x = within!(x, by4, _mm256_permute2f128_ps::<0x01>(x, x));
            }
            Self(x)
        }
    }
}

transforms::kernels!(false, "avx2,fma");
