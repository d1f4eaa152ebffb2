//! AVX-512 F, BW, DQ and VL with BMI2, and with or without VBMI.

mod cells;

use std::arch::x86_64::*;

use super::groups::{SMALL, SWAPPED};
use super::vector::{Quarter, Vector};
use crate::grid::{Bounds, DRAW, Grid, ONE};
use crate::rounding::MULTIPLIERS;
use crate::scalar::norm::PARTIAL_SUMS;
use cells::{Cells, SMALL_BELOW};

#[derive(Clone, Copy)]
pub(super) struct Avx512<const VBMI: bool>(__m512);

/// Indices of both halves of a group, one per byte: byte 16l + 4v + i belongs to coordinate 16v + 4l + i.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn bytes([first, second]: [__m512i; 2]) -> __m512i {
    _mm512_packus_epi16(first, second)
}

/// 16 bytes in each quarter.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn sixteen(bytes: &[u8; 16]) -> __m512i {
    // SAFETY: there are 16 bytes.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

/// The values of 32 packed bytes in lanes of 8 bits.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
#[inline]
fn values_vbmi(table: __m512i, packed: __m256i) -> __m512i {
    // Four packed bytes for each eight lanes. Each lane takes the eight bits from where its nibble begins: the high one
    // of each byte, which is the first lane, then the low one.
    let begins = _mm512_set1_epi64(0x181C_1014_080C_0004);
    let nibbles = _mm512_multishift_epi64_epi8(begins, _mm512_cvtepu32_epi64(packed));
    // The bits above the nibble choose one of the table's four copies.
    _mm512_permutexvar_epi8(nibbles, table)
}

/// The low bytes of numbers of 16 bits: the first two of each quarter, then the next two, and so on.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
#[inline]
fn low_bytes_vbmi(pairs: __m512i) -> __m256i {
    const ORDER: [u8; 64] = {
        let (mut order, mut i) = ([0; 64], 0);
        while i < 32 {
            order[i] = (i / 2 % 4 * 16 + i / 8 * 4 + i % 2 * 2) as u8;
            i += 1;
        }
        order
    };
    // SAFETY: there are 64 bytes.
    let order = unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) };
    _mm512_castsi512_si256(_mm512_permutexvar_epi8(order, pairs))
}

/// Butterflies inside a vector: `swapped` has each lane's partner, and `upper` the lanes that get the difference. A fused
/// multiply-add with ±1 rounds once, so it is exactly the addition or subtraction.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn within(x: __m512, upper: __mmask16, swapped: __m512) -> __m512 {
    let sign = _mm512_mask_blend_ps(upper, _mm512_set1_ps(1.0), _mm512_set1_ps(-1.0));
    _mm512_fmadd_ps(x, sign, swapped)
}

// SAFETY: `Sums` are 32 doubles.
unsafe impl<const VBMI: bool> Vector for Avx512<VBMI> {
    type Bits = __m512i;
    type Sums = [__m512d; 4];
    type Cells = Cells;
    /// Numbers of 16 bits.
    type Half = __m512i;

    const LANES: usize = 16;
    const REGISTERS: usize = 32;
    const SMALL_BELOW: u8 = SMALL_BELOW;
    const TAKES_LARGE: bool = true;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's memory has a vector.
        Self(unsafe { _mm512_loadu_ps(from) })
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: as above, and it is aligned.
        unsafe { _mm512_stream_ps(to, self.0) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn splat(v: f32) -> Self {
        Self(_mm512_set1_ps(v))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn add(self, other: Self) -> Self {
        Self(_mm512_add_ps(self.0, other.0))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn sub(self, other: Self) -> Self {
        Self(_mm512_sub_ps(self.0, other.0))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn mul(self, other: Self) -> Self {
        Self(_mm512_mul_ps(self.0, other.0))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn mul_add(self, factor: Self, other: Self) -> Self {
        Self(_mm512_fmadd_ps(self.0, factor.0, other.0))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn flip(self, word: &u64, at: usize) -> Self {
        // SAFETY: `at` is a multiple of 16 below 64, so its 16 bits lie in the word.
        let bits = unsafe { std::ptr::from_ref(word).cast::<u16>().add(at / 16).read() };
        Self(_mm512_mask_xor_ps(self.0, bits, self.0, _mm512_set1_ps(-0.0)))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn transform_lanes(self, descending: bool) -> Self {
        let mut x = self.0;
        if descending {
            x = within(x, 0xFF00, _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x));
            x = within(x, 0xF0F0, _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x));
            x = within(x, 0xCCCC, _mm512_permute_ps::<0b01_00_11_10>(x));
            x = within(x, 0xAAAA, _mm512_permute_ps::<0b10_11_00_01>(x));
        } else {
            x = within(x, 0xAAAA, _mm512_permute_ps::<0b10_11_00_01>(x));
            x = within(x, 0xCCCC, _mm512_permute_ps::<0b01_00_11_10>(x));
            x = within(x, 0xF0F0, _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x));
            x = within(x, 0xFF00, _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x));
        }
        Self(x)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn add_squares(sums: &mut Self::Sums, x: &[f32; PARTIAL_SUMS], e: Option<&[f32; PARTIAL_SUMS]>) {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: both have four times eight floats.
            let v = unsafe {
                let v = _mm256_loadu_ps(x.as_ptr().add(8 * i));
                match e {
                    None => v,
                    Some(e) => _mm256_add_ps(v, _mm256_loadu_ps(e.as_ptr().add(8 * i))),
                }
            };
            let v = _mm512_cvtps_pd(v);
            // The square is exact in double precision, so fusing it changes nothing.
            *sum = _mm512_fmadd_pd(v, v, *sum);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn splat_bits(v: u32) -> __m512i {
        _mm512_set1_epi32(v as i32)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn count_from(first: u32) -> __m512i {
        let numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        _mm512_add_epi32(numbers, _mm512_set1_epi32(first as i32))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn add_bits(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(a, b)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn words(x: __m512i, k1: __m512i, stratum: __m512i) -> __m512i {
        let x = _mm512_xor_si512(x, _mm512_srli_epi32::<17>(x));
        let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(MULTIPLIERS[0] as i32));
        let x = _mm512_xor_si512(x, _mm512_srli_epi32::<11>(x));
        let x = _mm512_mullo_epi32(_mm512_add_epi32(x, k1), _mm512_set1_epi32(MULTIPLIERS[1] as i32));
        let x = _mm512_xor_si512(x, _mm512_srli_epi32::<15>(x));
        let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(MULTIPLIERS[2] as i32));
        // The XOR of all three.
        _mm512_ternarylogic_epi32::<0x96>(x, _mm512_srli_epi32::<14>(x), stratum)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn draws<const BYTES: usize>(words: __m512i) -> Self {
        let rotated = match BYTES {
            0 => words,
            1 => _mm512_ror_epi32::<8>(words),
            2 => _mm512_ror_epi32::<16>(words),
            _ => _mm512_ror_epi32::<24>(words),
        };
        let (draw, one) = (_mm512_set1_epi32(DRAW as i32), _mm512_set1_epi32(ONE as i32));
        // (rotated AND draw) OR one.
        Self(_mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xEA>(rotated, draw, one)))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn clamp<const KIND: u8>(self, end: Self) -> Self {
        // Both return their second operand for NaN.
        if KIND == SMALL {
            return Self(_mm512_min_ps(end.0, self.0));
        }
        Self(_mm512_min_ps(_mm512_max_ps(self.0, _mm512_setzero_ps()), end.0))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn floor(self) -> __m512i {
        // All bits of a number are set for NaN and from −1 on.
        _mm512_cvttps_epu32(self.0)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn floats(numbers: __m512i) -> Self {
        Self(_mm512_cvtepi32_ps(numbers))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn cells(grid: &Grid, span: &Bounds) -> Cells {
        Cells::new(grid, span)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn look_up<const KIND: u8>(cells: &Cells, cell: __m512i) -> (__m512i, Self, Self) {
        let (lower, slope, start) =
            if KIND == SMALL { cells.look_up_small(cell) } else { cells.look_up_large(cell) };
        (lower, Self(slope), Self(start))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn value(cells: &Cells, index: __m512i) -> Self {
        Self(_mm512_permutexvar_ps(index, cells.value))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn round_up(cells: &Cells, index: __m512i, draw: Self, threshold: Self) -> __m512i {
        let up = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(draw.0, threshold.0);
        _mm512_mask_add_epi32(index, up, index, cells.one)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn half(first: &Quarter<Self>, second: &Quarter<Self>) -> __m512i {
        _mm512_packus_epi32(first[0], second[0])
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn store_indices(halves: [__m512i; 2], out: &mut [u8; 64]) {
        let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        // SAFETY: `out` has 64 bytes.
        unsafe {
            _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_permutexvar_epi32(order, bytes(halves)));
        };
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn store_packed4(halves: [__m512i; 2], out: &mut [u8; 32]) {
        // Each pair of bytes becomes 16 times the first plus the second.
        let pairs = _mm512_maddubs_epi16(bytes(halves), _mm512_set1_epi16(1 << 8 | 16));
        let packed = if VBMI {
            // SAFETY: the caller has VBMI if this type does.
            unsafe { low_bytes_vbmi(pairs) }
        } else {
            let order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm256_permutexvar_epi16(order, _mm512_cvtepi16_epi8(pairs))
        };
        // SAFETY: `out` has 32 bytes.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), packed) };
    }

    #[target_feature(enable = "bmi2")]
    #[inline]
    unsafe fn open<const WIDTH: u32>(closed: u64) -> u64 {
        // The bits of 16 indices that have room for 4 bits each.
        _pdep_u64(closed, const { u64::MAX / 15 * ((1 << WIDTH) - 1) })
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn load_bits(from: *const u8) -> __m512i {
        // SAFETY: the caller's memory has a vector.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn store_bits(v: __m512i, to: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn broadcast(table: &[u8; 16]) -> __m512i {
        sixteen(table)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn values(table: __m512i, packed: *const u8) -> [__m512i; 2] {
        let values = |at| {
            // SAFETY: the caller's memory has 64 bytes.
            let w = unsafe { _mm256_loadu_si256(packed.add(at).cast()) };
            if VBMI {
                // SAFETY: the caller has VBMI if this type does.
                return unsafe { values_vbmi(table, w) };
            }
            let w = _mm512_cvtepu8_epi16(w);
            // 0x00HL becomes 0x0L0H: in memory order the high nibble, which is the first lane, then the low.
            let (high, low) = (_mm512_srli_epi16::<4>(w), _mm512_slli_epi16::<8>(w));
            let nibbles = _mm512_ternarylogic_epi32::<0xE0>(_mm512_set1_epi8(15), high, low);
            _mm512_shuffle_epi8(table, nibbles)
        };
        [values(0), values(32)]
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn values_wide(table: __m512i, packed: *const u8) -> [__m512i; 4] {
        let values = |at| {
            // SAFETY: the caller's memory has 64 bytes.
            let w = _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(packed.add(at).cast()) });
            // 0x000000HL becomes 0x800L800H: a set top bit makes the shuffle give 0.
            let (high, low) = (_mm512_srli_epi32::<4>(w), _mm512_slli_epi32::<16>(w));
            let nibbles = _mm512_ternarylogic_epi32::<0xE0>(_mm512_set1_epi32(0x000F_000F), high, low);
            _mm512_shuffle_epi8(table, _mm512_or_si512(nibbles, _mm512_set1_epi16(i16::MIN)))
        };
        [values(0), values(16), values(32), values(48)]
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn values_half(tables: [__m512i; 2], packed: *const u8) -> __m512i {
        // SAFETY: the caller's memory has 64 bytes.
        let (w, low) = (unsafe { _mm512_loadu_si512(packed.cast()) }, _mm512_set1_epi8(15));
        let upper = _mm512_shuffle_epi8(tables[0], _mm512_and_si512(_mm512_srli_epi16::<4>(w), low));
        _mm512_add_epi8(upper, _mm512_shuffle_epi8(tables[1], _mm512_and_si512(w, low)))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn to_wire16(values: __m512i) -> __m512i {
        // A value of one byte in big endian sits in the upper byte of the host's word.
        _mm512_slli_epi16::<8>(values)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn add8(lanes: __m512i, values: __m512i) -> __m512i {
        _mm512_add_epi8(lanes, values)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn add16(lanes: __m512i, values: __m512i) -> __m512i {
        let swap = sixteen(&SWAPPED);
        _mm512_shuffle_epi8(_mm512_add_epi16(_mm512_shuffle_epi8(lanes, swap), values), swap)
    }
}
