//! Stochastic quantization, four coordinates at a time, for tables of up to 16 values and
//! granularities below 64 (what four byte tables hold); others take the scalar code.

use std::arch::aarch64::*;

use crate::arch::groups::{GROUP, split, word};
use crate::grid::{Bounds, DRAW, Grid, ONE};
use crate::rounding::{MUL, Rounding};
use crate::scalar::quantize as scalar;

/// Coordinates per vector.
const LANES: usize = 4;

/// Sums per step of the inverse.
const STEP: usize = 8;

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

fn supported(grid: &Grid) -> bool {
    grid.narrow() && grid.granularity < 64
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
    let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<17>(x)), MUL[0]);
    let x = vaddq_u32(veorq_u32(x, vshrq_n_u32::<11>(x)), c.k1);
    let x = vmulq_n_u32(x, MUL[1]);
    let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<15>(x)), MUL[2]);
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
fn rotated<const BITS: i32, const LEFT: i32>(v: uint32x4_t) -> uint32x4_t {
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
        words.map(|w| rotated::<8, 24>(w)),
        words.map(|w| rotated::<16, 16>(w)),
        words.map(|w| rotated::<24, 8>(w)),
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

#[target_feature(enable = "neon")]
pub(crate) fn indices(
    grid: &Grid,
    span: &Bounds,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    if !supported(grid) {
        return scalar::indices(grid, span, x, rounding, first, out);
    }
    let [(x0, out0, first), (x1, out1, at), (x2, out2, rest)] = split(x, out, 1, first, GROUP);
    scalar::indices(grid, span, x0, rounding, first, out0);
    let (c, mut at) = (constants(grid, span, rounding), counter(at, rounding));
    for (x, out) in x1.chunks_exact_mut(GROUP).zip(out1.chunks_exact_mut(GROUP)) {
        let bytes = step(&c, x, &mut at);
        for (bytes, out) in bytes.into_iter().zip(out.chunks_exact_mut(16)) {
            // SAFETY: the chunk has 16 bytes.
            unsafe { vst1q_u8(out.as_mut_ptr(), bytes) };
        }
    }
    scalar::indices(grid, span, x2, rounding, rest, out2);
}

#[target_feature(enable = "neon")]
pub(crate) fn packed4(
    grid: &Grid,
    span: &Bounds,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    if !supported(grid) {
        return scalar::packed4(grid, span, x, rounding, first, out);
    }
    let [(x0, out0, first), (x1, out1, at), (x2, out2, rest)] = split(x, out, 2, first, GROUP);
    scalar::packed4(grid, span, x0, rounding, first, out0);
    let (c, mut at) = (constants(grid, span, rounding), counter(at, rounding));
    for (x, out) in x1.chunks_exact_mut(GROUP).zip(out1.chunks_exact_mut(GROUP / 2)) {
        let [a, b, c, d] = step(&c, x, &mut at);
        for ((low, high), out) in [(a, b), (c, d)].into_iter().zip(out.chunks_exact_mut(GROUP / 4)) {
            let (first, second) = (vuzp1q_u8(low, high), vuzp2q_u8(low, high));
            // SAFETY: the chunk has 16 bytes.
            unsafe { vst1q_u8(out.as_mut_ptr(), vorrq_u8(vshlq_n_u8::<4>(first), second)) };
        }
    }
    scalar::packed4(grid, span, x2, rounding, rest, out2);
}

/// `sum * step + lo` of eight sums.
#[target_feature(enable = "neon")]
#[inline]
fn dequantize(sums: uint16x8_t, step: float32x4_t, lo: float32x4_t, out: &mut [f32]) {
    assert!(out.len() == STEP);
    let low = vcvtq_f32_u32(vmovl_u16(vget_low_u16(sums)));
    let high = vcvtq_f32_u32(vmovl_high_u16(sums));
    // SAFETY: out has eight floats.
    unsafe {
        vst1q_f32(out.as_mut_ptr(), vaddq_f32(vmulq_f32(low, step), lo));
        vst1q_f32(out.as_mut_ptr().add(4), vaddq_f32(vmulq_f32(high, step), lo));
    }
}

#[target_feature(enable = "neon")]
pub(crate) fn dequantize8(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    let (step_v, lo_v) = (vdupq_n_f32(step), vdupq_n_f32(lo));
    let (mut outs, ins) = (out.chunks_exact_mut(STEP), sums.chunks_exact(STEP));
    let tail = ins.remainder();
    for (out, sums) in outs.by_ref().zip(ins) {
        // SAFETY: the chunk has eight bytes.
        let sums = vmovl_u8(unsafe { vld1_u8(sums.as_ptr()) });
        dequantize(sums, step_v, lo_v, out);
    }
    scalar::dequantize8(tail, step, lo, outs.into_remainder());
}

#[target_feature(enable = "neon")]
pub(crate) fn dequantize16(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    let (step_v, lo_v) = (vdupq_n_f32(step), vdupq_n_f32(lo));
    let (mut outs, ins) = (out.chunks_exact_mut(STEP), sums.chunks_exact(2 * STEP));
    let tail = ins.remainder();
    for (out, sums) in outs.by_ref().zip(ins) {
        // SAFETY: the chunk has 16 bytes.
        let sums = vrev16q_u8(unsafe { vld1q_u8(sums.as_ptr()) });
        dequantize(vreinterpretq_u16_u8(sums), step_v, lo_v, out);
    }
    scalar::dequantize16(tail, step, lo, outs.into_remainder());
}
