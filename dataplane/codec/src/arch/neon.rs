//! NEON of 64-bit ARM.

use std::arch::aarch64::*;

use super::groups::drawn;
use super::vector::{Quarter, Vector};
use crate::grid::{Bounds, Grid, ONE};
use crate::rounding::MULTIPLIERS;
use crate::scalar::norm::PARTIAL_SUMS;

#[derive(Clone, Copy)]
pub(super) struct Neon(float32x4_t);

/// The arrays of a [`Grid`] in registers.
pub(super) struct Cells {
    /// The index of each of 64 cells, bytes.
    lower: uint8x16x4_t,
    /// The bytes of 16 floats each.
    slope: uint8x16x4_t,
    start: uint8x16x4_t,
    value: uint8x16x4_t,
}

/// The entries of indices of up to 15.
#[target_feature(enable = "neon")]
#[inline]
fn entry(entries: uint8x16x4_t, index: uint32x4_t) -> Neon {
    // The four bytes of float number `index`.
    let at = vmlaq_n_u32(vdupq_n_u32(0x0302_0100), index, 0x0404_0404);
    Neon(vreinterpretq_f32_u8(vqtbl4q_u8(entries, vreinterpretq_u8_u32(at))))
}

/// Indices of a quarter of a group, one per byte.
#[target_feature(enable = "neon")]
#[inline]
fn bytes(indices: &[uint32x4_t; 4]) -> uint8x16_t {
    let [a, b, c, d] = indices.map(|v| vmovn_u32(v));
    vcombine_u8(vmovn_u16(vcombine_u16(a, b)), vmovn_u16(vcombine_u16(c, d)))
}

/// Table values of 16 packed bytes, in the order of the coordinates.
#[target_feature(enable = "neon")]
#[inline]
fn lanes(table: uint8x16_t, packed: uint8x16_t) -> [uint8x16_t; 2] {
    let first = vqtbl1q_u8(table, vshrq_n_u8::<4>(packed));
    let second = vqtbl1q_u8(table, vandq_u8(packed, vdupq_n_u8(15)));
    [vzip1q_u8(first, second), vzip2q_u8(first, second)]
}

// SAFETY: `Sums` are 32 doubles.
unsafe impl Vector for Neon {
    type Bits = uint32x4_t;
    type Sums = [float64x2_t; 16];
    type Cells = Cells;
    /// Bytes of two quarters.
    type Half = [uint8x16_t; 2];

    const LANES: usize = 4;
    const REGISTERS: usize = 32;
    const SMALL_BELOW: u8 = 64;
    const TAKES_LARGE: bool = false;

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's memory has a vector.
        Self(unsafe { vld1q_f32(from) })
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { vst1q_f32(to, self.0) }
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn splat(v: f32) -> Self {
        Self(vdupq_n_f32(v))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn add(self, other: Self) -> Self {
        Self(vaddq_f32(self.0, other.0))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn sub(self, other: Self) -> Self {
        Self(vsubq_f32(self.0, other.0))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn mul(self, other: Self) -> Self {
        Self(vmulq_f32(self.0, other.0))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn mul_add(self, factor: Self, other: Self) -> Self {
        Self(vfmaq_f32(other.0, self.0, factor.0))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn flip(self, word: &u64, at: usize) -> Self {
        // Bit i moves to the sign position of lane i.
        // SAFETY: the array has four words.
        let up = unsafe { vld1q_s32([31, 30, 29, 28].as_ptr()) };
        let signs = vshlq_u32(vdupq_n_u32((word >> at) as u32), up);
        let signs = vandq_u32(signs, vdupq_n_u32(1 << 31));
        Self(vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(self.0), signs)))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn transform_lanes(self, descending: bool) -> Self {
        // −1 in the lanes that get the difference. A fused multiply-add with ±1 rounds once, so it is exactly the addition or
        // subtraction.
        // SAFETY: the arrays have four floats.
        let (by2, by1) = unsafe {
            (vld1q_f32([1.0, 1.0, -1.0, -1.0].as_ptr()), vld1q_f32([1.0, -1.0, 1.0, -1.0].as_ptr()))
        };
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

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn add_squares(sums: &mut Self::Sums, x: &[f32; PARTIAL_SUMS], e: Option<&[f32; PARTIAL_SUMS]>) {
        for (i, [first, second]) in sums.as_chunks_mut().0.iter_mut().enumerate() {
            // SAFETY: both have eight times four floats.
            let v = unsafe {
                let v = vld1q_f32(x.as_ptr().add(4 * i));
                match e {
                    None => v,
                    Some(e) => vaddq_f32(v, vld1q_f32(e.as_ptr().add(4 * i))),
                }
            };
            let (low, high) = (vcvt_f64_f32(vget_low_f32(v)), vcvt_high_f64_f32(v));
            // The square is exact in double precision, so fusing it changes nothing.
            *first = vfmaq_f64(*first, low, low);
            *second = vfmaq_f64(*second, high, high);
        }
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn splat_bits(v: u32) -> uint32x4_t {
        vdupq_n_u32(v)
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn count_from(first: u32) -> uint32x4_t {
        // SAFETY: the array has four words.
        vaddq_u32(unsafe { vld1q_u32([0, 1, 2, 3].as_ptr()) }, vdupq_n_u32(first))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn add_bits(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        vaddq_u32(a, b)
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn words(x: uint32x4_t, k1: uint32x4_t, stratum: uint32x4_t) -> uint32x4_t {
        let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<17>(x)), MULTIPLIERS[0]);
        let x = vaddq_u32(veorq_u32(x, vshrq_n_u32::<11>(x)), k1);
        let x = vmulq_n_u32(x, MULTIPLIERS[1]);
        let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<15>(x)), MULTIPLIERS[2]);
        veorq_u32(veorq_u32(x, stratum), vshrq_n_u32::<14>(x))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn draws<const BYTES: usize>(words: uint32x4_t) -> Self {
        // SAFETY: the array has 16 bytes.
        let from = unsafe { vld1q_u8(const { &drawn(BYTES) }.as_ptr()) };
        let draw = vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(words), from));
        // This sets bit 23, too, which is no part of the draw.
        Self(vreinterpretq_f32_u32(vorrq_u32(draw, vdupq_n_u32(ONE))))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn clamp<const KIND: u8>(self, end: Self) -> Self {
        // maxnm prefers a number to NaN, as the definition does.
        Self(vminnmq_f32(vmaxnmq_f32(self.0, vdupq_n_f32(0.0)), end.0))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn floor(self) -> uint32x4_t {
        vcvtq_u32_f32(self.0)
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn floats(numbers: uint32x4_t) -> Self {
        Self(vcvtq_f32_u32(numbers))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn cells(grid: &Grid, span: &Bounds) -> Cells {
        let mut value = [0.0; 16];
        for (value, point) in value.iter_mut().zip(grid.point) {
            *value = point * span.step + span.lo;
        }
        // SAFETY: lower has 256 bytes, slope and start 256 floats, value 16.
        unsafe {
            Cells {
                lower: vld1q_u8_x4(grid.lower.as_ptr()),
                slope: vld1q_u8_x4(grid.slope.as_ptr().cast()),
                start: vld1q_u8_x4(grid.start.as_ptr().cast()),
                value: vld1q_u8_x4(value.as_ptr().cast()),
            }
        }
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn look_up<const KIND: u8>(cells: &Cells, cell: uint32x4_t) -> (uint32x4_t, Self, Self) {
        // Zero bytes of the cell look up the first entry, which is 0.
        let lower = vreinterpretq_u32_u8(vqtbl4q_u8(cells.lower, vreinterpretq_u8_u32(cell)));
        (lower, entry(cells.slope, lower), entry(cells.start, lower))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn value(cells: &Cells, index: uint32x4_t) -> Self {
        entry(cells.value, index)
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn round_up(_: &Self::Cells, index: uint32x4_t, draw: Self, threshold: Self) -> uint32x4_t {
        // True is −1 in every lane.
        vsubq_u32(index, vcltq_f32(draw.0, threshold.0))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn half(first: &Quarter<Self>, second: &Quarter<Self>) -> [uint8x16_t; 2] {
        [bytes(first), bytes(second)]
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn store_indices(halves: [[uint8x16_t; 2]; 2], out: &mut [u8; 64]) {
        for (bytes, out) in halves.into_iter().flatten().zip(out.as_chunks_mut::<16>().0) {
            // SAFETY: `out` has 16 bytes.
            unsafe { vst1q_u8(out.as_mut_ptr(), bytes) };
        }
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn store_packed4(halves: [[uint8x16_t; 2]; 2], out: &mut [u8; 32]) {
        for ([low, high], out) in halves.into_iter().zip(out.as_chunks_mut::<16>().0) {
            let (first, second) = (vuzp1q_u8(low, high), vuzp2q_u8(low, high));
            // SAFETY: `out` has 16 bytes.
            unsafe { vst1q_u8(out.as_mut_ptr(), vorrq_u8(vshlq_n_u8::<4>(first), second)) };
        }
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn load_bits(from: *const u8) -> uint32x4_t {
        // SAFETY: the caller's memory has a vector.
        vreinterpretq_u32_u8(unsafe { vld1q_u8(from) })
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn store_bits(v: uint32x4_t, to: *mut u8) {
        // SAFETY: as above.
        unsafe { vst1q_u8(to, vreinterpretq_u8_u32(v)) }
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn broadcast(table: &[u8; 16]) -> uint32x4_t {
        // SAFETY: the table has 16 bytes.
        vreinterpretq_u32_u8(unsafe { vld1q_u8(table.as_ptr()) })
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn values(table: uint32x4_t, packed: *const u8) -> [uint32x4_t; 2] {
        // SAFETY: the caller's memory has 16 bytes.
        let [a, b] = lanes(vreinterpretq_u8_u32(table), unsafe { vld1q_u8(packed) });
        [vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)]
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn values_wide(table: uint32x4_t, packed: *const u8) -> [uint32x4_t; 4] {
        // SAFETY: the caller's memory has 16 bytes.
        let [a, b] = lanes(vreinterpretq_u8_u32(table), unsafe { vld1q_u8(packed) });
        let zero = vdupq_n_u8(0);
        let wide = [vzip1q_u8(zero, a), vzip2q_u8(zero, a), vzip1q_u8(zero, b), vzip2q_u8(zero, b)];
        wide.map(|v| vreinterpretq_u32_u8(v))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn values_half(tables: [uint32x4_t; 2], packed: *const u8) -> uint32x4_t {
        let [upper, lower] = tables.map(|t| vreinterpretq_u8_u32(t));
        // SAFETY: the caller's memory has 16 bytes.
        let w = unsafe { vld1q_u8(packed) };
        let upper = vqtbl1q_u8(upper, vshrq_n_u8::<4>(w));
        vreinterpretq_u32_u8(vaddq_u8(upper, vqtbl1q_u8(lower, vandq_u8(w, vdupq_n_u8(15)))))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn to_wire16(values: uint32x4_t) -> uint32x4_t {
        // They are in wire order already.
        values
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn add8(lanes: uint32x4_t, values: uint32x4_t) -> uint32x4_t {
        vreinterpretq_u32_u8(vaddq_u8(vreinterpretq_u8_u32(lanes), vreinterpretq_u8_u32(values)))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    unsafe fn add16(lanes: uint32x4_t, values: uint32x4_t) -> uint32x4_t {
        let numbers = |v| vreinterpretq_u16_u8(vrev16q_u8(vreinterpretq_u8_u32(v)));
        let sum = vaddq_u16(numbers(lanes), numbers(values));
        vreinterpretq_u32_u8(vrev16q_u8(vreinterpretq_u8_u16(sum)))
    }
}
