//! Randomized Hadamard transform, 16 lanes.

use std::arch::x86_64::*;

use crate::arch::hadamard::Vector;
use crate::arch::transforms;

/// Vectors in a leaf: half of the registers.
pub(in crate::arch) const LEAF: usize = 16;

#[derive(Clone, Copy)]
pub(in crate::arch) struct Floats(__m512);

/// One set of butterflies inside a vector: `$swap` exchanges the partners, `$upper` is the mask of
/// the lanes that get the difference. A fused multiply-add with ±1 rounds once, so it is exactly
/// the addition or subtraction.
macro_rules! within {
    ($x:expr, $upper:expr, $swap:expr) => {{
        let sign = _mm512_mask_blend_ps($upper, _mm512_set1_ps(1.0), _mm512_set1_ps(-1.0));
        _mm512_fmadd_ps($x, sign, $swap)
    }};
}

impl Vector for Floats {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has AVX-512 and `from` is valid for 16 floats.
        Self(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has AVX-512 and `to` is valid for 16 floats.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn splat(v: f32) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_set1_ps(v) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        Self(unsafe { _mm512_fmadd_ps(self.0, factor.0, other.0) })
    }

    #[inline(always)]
    unsafe fn flip(self, word: &u64, at: usize) -> Self {
        // SAFETY: the caller has AVX-512; `at` is a multiple of 16 below 64, so its 16 bits lie in the word.
        Self(unsafe {
            let bits = std::ptr::from_ref(word).cast::<u16>().add(at / 16).read();
            _mm512_mask_xor_ps(self.0, bits, self.0, _mm512_set1_ps(-0.0))
        })
    }

    #[inline(always)]
    unsafe fn transform_lanes(self, descending: bool) -> Self {
        // SAFETY: the caller has AVX-512.
        unsafe {
            let mut x = self.0;
            if descending {
                x = within!(x, 0xFF00, _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x));
                x = within!(x, 0xF0F0, _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x));
                x = within!(x, 0xCCCC, _mm512_permute_ps::<0b01_00_11_10>(x));
                x = within!(x, 0xAAAA, _mm512_permute_ps::<0b10_11_00_01>(x));
            } else {
                x = within!(x, 0xAAAA, _mm512_permute_ps::<0b10_11_00_01>(x));
                x = within!(x, 0xCCCC, _mm512_permute_ps::<0b01_00_11_10>(x));
                x = within!(x, 0xF0F0, _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x));
                x = within!(x, 0xFF00, _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x));
            }
            Self(x)
        }
    }
}

transforms::kernels!(true, "avx512f,avx512bw,avx512dq,avx512vl");
