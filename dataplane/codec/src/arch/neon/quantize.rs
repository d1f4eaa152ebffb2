//! Stochastic quantization, four coordinates at a time, for tables of up to 16 values and
//! granularities below 64 (what four byte tables hold); others take the scalar code.

use std::arch::aarch64::*;

use crate::arch::groups::{COMPLETE, GROUP, LARGE, SMALL, split, word};
use crate::arch::quantizers;
use crate::grid::{Bounds, DRAW, Grid, ONE};
use crate::rounding::{MULTIPLIERS, Rounding};
use crate::scalar::quantize as scalar;

/// Coordinates per vector.
const LANES: usize = 4;

/// Sums per step of the inverse.
const STEP: usize = 8;

const SMALL_BELOW: u8 = 64;
const HAS_ALL: bool = false;

/// Everything that stays in registers over a slice.
struct Constants {
    end: float32x4_t,
    scale: float32x4_t,
    bias: float32x4_t,
    /// Cell to index, bytes.
    lower: uint8x16x4_t,
    /// The bytes of 16 floats each.
    slope: uint8x16x4_t,
    start: uint8x16x4_t,
    value: uint8x16x4_t,
    k1: uint32x4_t,
    stratum: uint32x4_t,
}

#[target_feature(enable = "neon")]
#[inline]
fn constants(grid: &Grid, span: &Bounds, rounding: Rounding) -> Constants {
    let mut value = [0.0; 16];
    for (value, point) in value.iter_mut().zip(grid.point) {
        *value = point * span.step + span.lo;
    }
    // SAFETY: lower has 256 bytes, slope and start 256 floats, value 16.
    unsafe {
        Constants {
            end: vdupq_n_f32(span.end),
            scale: vdupq_n_f32(span.scale),
            bias: vdupq_n_f32(span.bias),
            lower: vld1q_u8_x4(grid.lower.as_ptr()),
            slope: vld1q_u8_x4(grid.slope.as_ptr().cast()),
            start: vld1q_u8_x4(grid.start.as_ptr().cast()),
            value: vld1q_u8_x4(value.as_ptr().cast()),
            k1: vdupq_n_u32(rounding.k1),
            stratum: vdupq_n_u32(rounding.stratum),
        }
    }
}

/// Number + k0 of the first four words of the group from coordinate `at`.
#[target_feature(enable = "neon")]
#[inline]
fn counter(at: u64, rounding: Rounding) -> uint32x4_t {
    // SAFETY: the array has four words.
    let iota = unsafe { vld1q_u32([0, 1, 2, 3].as_ptr()) };
    vaddq_u32(iota, vdupq_n_u32(word(at).wrapping_add(rounding.k0)))
}

/// `Rounding::word` XOR stratum of four words whose number + k0 is given.
#[target_feature(enable = "neon")]
#[inline]
fn words(c: &Constants, x: uint32x4_t) -> uint32x4_t {
    let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<17>(x)), MULTIPLIERS[0]);
    let x = vaddq_u32(veorq_u32(x, vshrq_n_u32::<11>(x)), c.k1);
    let x = vmulq_n_u32(x, MULTIPLIERS[1]);
    let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<15>(x)), MULTIPLIERS[2]);
    veorq_u32(veorq_u32(x, c.stratum), vshrq_n_u32::<14>(x))
}

/// The entries of indices of up to 15.
#[target_feature(enable = "neon")]
#[inline]
fn look_up(entries: uint8x16x4_t, index: uint32x4_t) -> float32x4_t {
    // The four bytes of float number `index`.
    let at = vmlaq_n_u32(vdupq_n_u32(0x0302_0100), index, 0x0404_0404);
    vreinterpretq_f32_u8(vqtbl4q_u8(entries, vreinterpretq_u8_u32(at)))
}

/// Indices and residuals of four coordinates; `draw` is 1 + their draws.
#[target_feature(enable = "neon")]
#[inline]
fn quantize(c: &Constants, x: float32x4_t, draw: float32x4_t) -> (uint32x4_t, float32x4_t) {
    let q = vfmaq_f32(c.bias, x, c.scale);
    // maxnm prefers a number to NaN, as the definition does.
    let q = vminnmq_f32(vmaxnmq_f32(q, vdupq_n_f32(0.0)), c.end);
    // Zero bytes of the cell look up the first entry, which is 0.
    let cell = vreinterpretq_u8_u32(vcvtq_u32_f32(q));
    let lower = vreinterpretq_u32_u8(vqtbl4q_u8(c.lower, cell));
    let threshold = vfmaq_f32(look_up(c.start, lower), q, look_up(c.slope, lower));
    // True is −1 in every lane.
    let index = vsubq_u32(lower, vcltq_f32(draw, threshold));
    (index, vsubq_f32(x, look_up(c.value, index)))
}

/// `v` with each word rotated right by `BITS`; `LEFT` is 32 less that.
#[target_feature(enable = "neon")]
#[inline]
fn rotate<const BITS: i32, const LEFT: i32>(v: uint32x4_t) -> uint32x4_t {
    vsriq_n_u32::<BITS>(vshlq_n_u32::<LEFT>(v), v)
}

/// Indices of a group, which becomes the residual, one per byte.
#[target_feature(enable = "neon")]
#[inline]
fn step(c: &Constants, x: &mut [f32], at: &mut uint32x4_t) -> [uint8x16_t; 4] {
    assert!(x.len() == GROUP);
    let mut words = [vdupq_n_u32(0); 4];
    for words in &mut words {
        *words = self::words(c, *at);
        *at = vaddq_u32(*at, vdupq_n_u32(LANES as u32));
    }
    let (draw_bits, one) = (vdupq_n_u32(DRAW), vdupq_n_u32(ONE));
    let draws = [
        words,
        words.map(|w| rotate::<8, 24>(w)),
        words.map(|w| rotate::<16, 16>(w)),
        words.map(|w| rotate::<24, 8>(w)),
    ];
    let mut bytes = [vdupq_n_u8(0); 4];
    for ((bytes, x), draws) in bytes.iter_mut().zip(x.chunks_exact_mut(GROUP / 4)).zip(draws) {
        let mut index = [vdupq_n_u32(0); 4];
        for ((index, x), draw) in index.iter_mut().zip(x.chunks_exact_mut(LANES)).zip(draws) {
            // SAFETY: the chunk has four floats.
            unsafe {
                let residual;
                let draw = vreinterpretq_f32_u32(vorrq_u32(vandq_u32(draw, draw_bits), one));
                (*index, residual) = quantize(c, vld1q_f32(x.as_ptr()), draw);
                vst1q_f32(x.as_mut_ptr(), residual);
            }
        }
        let [a, b, c, d] = index.map(|v| vmovn_u32(v));
        *bytes = vcombine_u8(vmovn_u16(vcombine_u16(a, b)), vmovn_u16(vcombine_u16(c, d)));
    }
    bytes
}

/// `indices` of whole groups, of small tables alone.
#[target_feature(enable = "neon")]
#[inline]
fn indices_of<const KIND: u8>(c: &Constants, x: &mut [f32], mut at: uint32x4_t, out: &mut [u8]) {
    for (x, out) in x.chunks_exact_mut(GROUP).zip(out.chunks_exact_mut(GROUP)) {
        let bytes = step(c, x, &mut at);
        for (bytes, out) in bytes.into_iter().zip(out.chunks_exact_mut(16)) {
            // SAFETY: the chunk has 16 bytes.
            unsafe { vst1q_u8(out.as_mut_ptr(), bytes) };
        }
    }
}

/// `packed4` of whole groups, of small tables alone.
#[target_feature(enable = "neon")]
#[inline]
fn packed4_of<const KIND: u8>(c: &Constants, x: &mut [f32], mut at: uint32x4_t, out: &mut [u8]) {
    for (x, out) in x.chunks_exact_mut(GROUP).zip(out.chunks_exact_mut(GROUP / 2)) {
        let [a, b, c, d] = step(c, x, &mut at);
        for ((low, high), out) in [(a, b), (c, d)].into_iter().zip(out.chunks_exact_mut(GROUP / 4)) {
            let (first, second) = (vuzp1q_u8(low, high), vuzp2q_u8(low, high));
            // SAFETY: the chunk has 16 bytes.
            unsafe { vst1q_u8(out.as_mut_ptr(), vorrq_u8(vshlq_n_u8::<4>(first), second)) };
        }
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn splat(v: f32) -> float32x4_t {
    vdupq_n_f32(v)
}

#[target_feature(enable = "neon")]
#[inline]
fn sums8(sums: &[u8]) -> uint16x8_t {
    assert!(sums.len() == STEP);
    // SAFETY: sums has eight bytes.
    vmovl_u8(unsafe { vld1_u8(sums.as_ptr()) })
}

#[target_feature(enable = "neon")]
#[inline]
fn sums16(sums: &[u8]) -> uint16x8_t {
    assert!(sums.len() == 2 * STEP);
    // SAFETY: sums has 16 bytes.
    vreinterpretq_u16_u8(vrev16q_u8(unsafe { vld1q_u8(sums.as_ptr()) }))
}

#[target_feature(enable = "neon")]
#[inline]
fn estimate(sums: uint16x8_t, step: float32x4_t, lo: float32x4_t, out: &mut [f32]) {
    assert!(out.len() == STEP);
    let low = vcvtq_f32_u32(vmovl_u16(vget_low_u16(sums)));
    let high = vcvtq_f32_u32(vmovl_high_u16(sums));
    // SAFETY: out has eight floats.
    unsafe {
        vst1q_f32(out.as_mut_ptr(), vaddq_f32(vmulq_f32(low, step), lo));
        vst1q_f32(out.as_mut_ptr().add(4), vaddq_f32(vmulq_f32(high, step), lo));
    }
}

quantizers::kernels!("neon");
