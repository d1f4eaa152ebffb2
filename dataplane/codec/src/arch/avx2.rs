//! AVX2 with FMA (Haswell and later, Zen).

use std::arch::asm;
use std::arch::x86_64::*;

use super::groups::{SWAPPED, drawn};
use super::vector::{Quarter, Vector};
use crate::grid::{Bounds, Grid, ONE};
use crate::rounding::MULTIPLIERS;
use crate::scalar::norm::PARTIAL_SUMS;

mod cells;

use cells::{Cells, bytes, entries, entry, sixteen};

#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256);

/// The halves of a vector in the opposite order, by the instruction that is one step on all processors. (The compiler would
/// choose one that is two on Zen.)
#[target_feature(enable = "avx2,fma")]
#[inline]
fn halves_swapped(x: __m256) -> __m256 {
    let swapped;
    // SAFETY: the instruction changes no memory and no flag, and the caller has AVX.
    unsafe {
        asm!("vperm2f128 {y}, {x}, {x}, 1", x = in(ymm_reg) x, y = lateout(ymm_reg) swapped,
            options(pure, nomem, nostack, preserves_flags));
    }
    swapped
}

// SAFETY: `Sums` are 32 doubles.
unsafe impl Vector for Avx2 {
    type Bits = __m256i;
    type Sums = [__m256d; 8];
    type Cells = Cells;
    type Half = __m256i;

    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    const SMALL_BELOW: u8 = 64;
    const TAKES_LARGE: bool = true;
    const BY_BYTES: bool = true;

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's memory has a vector.
        Self(unsafe { _mm256_loadu_ps(from) })
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: as above, and it is aligned.
        unsafe { _mm256_stream_ps(to, self.0) }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn splat(v: f32) -> Self {
        Self(_mm256_set1_ps(v))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn add(self, other: Self) -> Self {
        Self(_mm256_add_ps(self.0, other.0))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn sub(self, other: Self) -> Self {
        Self(_mm256_sub_ps(self.0, other.0))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn mul(self, other: Self) -> Self {
        Self(_mm256_mul_ps(self.0, other.0))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn mul_add(self, factor: Self, other: Self) -> Self {
        Self(_mm256_fmadd_ps(self.0, factor.0, other.0))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn flip(self, word: &u64, at: usize) -> Self {
        // Bit i moves to the sign position of lane i.
        let up = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
        let up = _mm256_sub_epi32(up, _mm256_set1_epi32((at & 24) as i32));
        let signs = _mm256_sllv_epi32(_mm256_set1_epi32((word >> (at & 32)) as i32), up);
        let signs = _mm256_and_ps(_mm256_castsi256_ps(signs), _mm256_set1_ps(-0.0));
        Self(_mm256_xor_ps(self.0, signs))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn signed(positive: Self, negative: Self, words: *const u64, at: usize) -> Self {
        // SAFETY: these are 8 bits of the word of bit `at`, and at most 24 more of the next.
        let bits = unsafe { words.cast::<u8>().add(at / 8).cast::<i32>().read_unaligned() };
        let up = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
        let signs = _mm256_sllv_epi32(_mm256_set1_epi32(bits), up);
        // This looks at the sign position alone.
        Self(_mm256_blendv_ps(positive.0, negative.0, _mm256_castsi256_ps(signs)))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn transform_lanes(self, descending: bool) -> Self {
        let by4 = _mm256_setr_ps(1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0);
        let by2 = _mm256_setr_ps(1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0);
        let by1 = _mm256_setr_ps(1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0);
        let mut x = self.0;
        // A fused multiply-add with ±1 rounds once, so it is exactly the addition or subtraction.
        if descending {
            x = _mm256_fmadd_ps(x, by4, halves_swapped(x));
            x = _mm256_fmadd_ps(x, by2, _mm256_permute_ps::<0b01_00_11_10>(x));
            x = _mm256_fmadd_ps(x, by1, _mm256_permute_ps::<0b10_11_00_01>(x));
        } else {
            x = _mm256_fmadd_ps(x, by1, _mm256_permute_ps::<0b10_11_00_01>(x));
            x = _mm256_fmadd_ps(x, by2, _mm256_permute_ps::<0b01_00_11_10>(x));
            x = _mm256_fmadd_ps(x, by4, halves_swapped(x));
        }
        Self(x)
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn add_squares(sums: &mut Self::Sums, x: &[f32; PARTIAL_SUMS], e: Option<&[f32; PARTIAL_SUMS]>) {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: both have eight times four floats.
            let v = unsafe {
                let v = _mm_loadu_ps(x.as_ptr().add(4 * i));
                match e {
                    None => v,
                    Some(e) => _mm_add_ps(v, _mm_loadu_ps(e.as_ptr().add(4 * i))),
                }
            };
            let v = _mm256_cvtps_pd(v);
            // The square is exact in double precision, so fusing it changes nothing.
            *sum = _mm256_fmadd_pd(v, v, *sum);
        }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn splat_bits(v: u32) -> __m256i {
        _mm256_set1_epi32(v as i32)
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn count_from(first: u32) -> __m256i {
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first as i32))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn add_bits(a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi32(a, b)
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn words(x: __m256i, k1: __m256i, stratum: __m256i) -> __m256i {
        let x = _mm256_xor_si256(x, _mm256_srli_epi32::<17>(x));
        let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MULTIPLIERS[0] as i32));
        let x = _mm256_xor_si256(x, _mm256_srli_epi32::<11>(x));
        let x = _mm256_mullo_epi32(_mm256_add_epi32(x, k1), _mm256_set1_epi32(MULTIPLIERS[1] as i32));
        let x = _mm256_xor_si256(x, _mm256_srli_epi32::<15>(x));
        let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(MULTIPLIERS[2] as i32));
        _mm256_xor_si256(_mm256_xor_si256(x, stratum), _mm256_srli_epi32::<14>(x))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn draws<const BYTES: usize>(words: __m256i) -> Self {
        let draw = _mm256_shuffle_epi8(words, sixteen(const { &drawn(BYTES) }));
        // This sets bit 23, too, which is no part of the draw.
        Self(_mm256_castsi256_ps(_mm256_or_si256(draw, _mm256_set1_epi32(ONE as i32))))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn clamp<const KIND: u8>(self, end: Self) -> Self {
        // max returns its second operand for NaN, as the definition does.
        Self(_mm256_min_ps(_mm256_max_ps(self.0, _mm256_setzero_ps()), end.0))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn floor(self) -> __m256i {
        _mm256_cvttps_epi32(self.0)
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn floats(numbers: __m256i) -> Self {
        Self(_mm256_cvtepi32_ps(numbers))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn cells(grid: &Grid, span: &Bounds) -> Cells {
        Cells::new(grid, span)
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn look_up<const KIND: u8>(cells: &Cells, cell: __m256i) -> (__m256i, Self, Self) {
        let (lower, slope, start) = cells.look_up(cell);
        (lower, Self(slope), Self(start))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn value(cells: &Cells, index: __m256i) -> Self {
        Self(entry(cells.value, index))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn round_up(_: &Self::Cells, index: __m256i, draw: Self, threshold: Self) -> __m256i {
        // True is −1 in every lane.
        let up = _mm256_cmp_ps::<_CMP_LT_OQ>(draw.0, threshold.0);
        _mm256_sub_epi32(index, _mm256_castps_si256(up))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn half_by_bytes(cells: &Cells, q: &[Self; 4], draws: &[Self; 4]) -> (__m256i, [Self; 4]) {
        let cell = bytes(q.map(|q| _mm256_cvttps_epi32(q.0)));
        let [first, second, third, fourth] = cells.lower_bytes.map(|bytes| _mm256_shuffle_epi8(bytes, cell));
        // Bit 4 of a cell, then bit 5, moves to where the choice between bytes looks.
        let odd = _mm256_slli_epi32::<3>(cell);
        let mut lower = _mm256_blendv_epi8(first, second, odd);
        if !cells.few {
            let upper = _mm256_blendv_epi8(third, fourth, odd);
            lower = _mm256_blendv_epi8(lower, upper, _mm256_slli_epi32::<2>(cell));
        }
        let slope = entries(&cells.slope_bytes, lower);
        let start = entries(&cells.start_bytes, lower);
        let up = |i: usize| {
            let threshold = _mm256_fmadd_ps(q[i].0, slope[i], start[i]);
            _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LT_OQ>(draws[i].0, threshold))
        };
        // True is −1, and stays so when it gets narrower.
        let ups = _mm256_packs_epi16(_mm256_packs_epi32(up(0), up(1)), _mm256_packs_epi32(up(2), up(3)));
        let index = _mm256_sub_epi8(lower, ups);
        (index, entries(&cells.value_bytes, index).map(Self))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn half(first: &Quarter<Self>, second: &Quarter<Self>) -> __m256i {
        bytes([first[0], first[1], second[0], second[1]])
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn store_indices(halves: [__m256i; 2], out: &mut [u8; 64]) {
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let to = out.as_mut_ptr().cast::<__m256i>();
        // SAFETY: `out` has 64 bytes.
        unsafe {
            _mm256_storeu_si256(to, _mm256_permutevar8x32_epi32(halves[0], order));
            _mm256_storeu_si256(to.add(1), _mm256_permutevar8x32_epi32(halves[1], order));
        }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn store_packed4(halves: [__m256i; 2], out: &mut [u8; 32]) {
        // Each pair of bytes becomes 16 times the first plus the second.
        let [first, second] = halves.map(|half| _mm256_maddubs_epi16(half, _mm256_set1_epi16(1 << 8 | 16)));
        // Quarters of a half are 8 bytes, in pairs of 2: those of 4l + i beside those of 4l + i of another vector.
        let pairs = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(first, second));
        let order = sixteen(&[0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]);
        // SAFETY: `out` has 32 bytes.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_shuffle_epi8(pairs, order)) };
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn load_bits(from: *const u8) -> __m256i {
        // SAFETY: the caller's memory has a vector.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn store_bits(v: __m256i, to: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn broadcast(table: &[u8; 16]) -> __m256i {
        sixteen(table)
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn values(table: __m256i, packed: *const u8) -> [__m256i; 2] {
        let values = |at| {
            // SAFETY: the caller's memory has 32 bytes.
            let w = _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(packed.add(at).cast()) });
            // 0x00HL becomes 0x0L0H: in memory order the high nibble, which is the first lane, then the low.
            let w = _mm256_or_si256(_mm256_srli_epi16::<4>(w), _mm256_slli_epi16::<8>(w));
            _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_set1_epi8(15), w))
        };
        [values(0), values(16)]
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn values_wide(table: __m256i, packed: *const u8) -> [__m256i; 4] {
        let values = |at| {
            // SAFETY: the caller's memory has 32 bytes.
            let w = _mm256_cvtepu8_epi32(unsafe { _mm_loadl_epi64(packed.add(at).cast()) });
            // 0x000000HL becomes 0x800L800H: a set top bit makes the shuffle give 0.
            let w = _mm256_or_si256(_mm256_srli_epi32::<4>(w), _mm256_slli_epi32::<16>(w));
            let w = _mm256_and_si256(_mm256_set1_epi32(0x000F_000F), w);
            _mm256_shuffle_epi8(table, _mm256_or_si256(w, _mm256_set1_epi16(i16::MIN)))
        };
        [values(0), values(8), values(16), values(24)]
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn values_half(tables: [__m256i; 2], packed: *const u8) -> __m256i {
        // SAFETY: the caller's memory has 32 bytes.
        let (w, low) = (unsafe { _mm256_loadu_si256(packed.cast()) }, _mm256_set1_epi8(15));
        let upper = _mm256_shuffle_epi8(tables[0], _mm256_and_si256(_mm256_srli_epi16::<4>(w), low));
        _mm256_add_epi8(upper, _mm256_shuffle_epi8(tables[1], _mm256_and_si256(w, low)))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn to_wire16(values: __m256i) -> __m256i {
        // A value of one byte in big endian sits in the upper byte of the host's word.
        _mm256_slli_epi16::<8>(values)
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn add8(lanes: __m256i, values: __m256i) -> __m256i {
        _mm256_add_epi8(lanes, values)
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn add16(lanes: __m256i, values: __m256i) -> __m256i {
        let swap = sixteen(&SWAPPED);
        _mm256_shuffle_epi8(_mm256_add_epi16(_mm256_shuffle_epi8(lanes, swap), values), swap)
    }
}
