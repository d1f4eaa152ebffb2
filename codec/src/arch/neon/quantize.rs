//! Stochastic quantization, eight coordinates at a time, for tables of up to 16 values and
//! granularities below 64 (what four byte tables hold); others take the scalar code.

use std::arch::aarch64::*;

use crate::quantizer::{Grid, Span};
use crate::rounding::{MUL, Rounding};
use crate::scalar::quantize as scalar;

/// Coordinates per step: two vectors.
const STEP: usize = 8;

/// Everything that stays in registers over a slice.
struct Constants {
    lo: float32x4_t,
    hi: float32x4_t,
    scale: float32x4_t,
    step: float32x4_t,
    /// Cell to index, bytes.
    lower: uint8x16x4_t,
    /// Index to value, bytes.
    point: uint8x16_t,
    /// The bytes of 16 floats.
    per_gap: uint8x16x4_t,
    k1: uint32x4_t,
}

fn supported(grid: &Grid) -> bool {
    grid.narrow() && grid.granularity < 64
}

#[target_feature(enable = "neon")]
#[inline]
fn constants(grid: &Grid, span: &Span, rounding: Rounding) -> Constants {
    let mut point = [0_u8; 16];
    for (byte, v) in point.iter_mut().zip(grid.point) {
        *byte = v as u8;
    }
    // SAFETY: lower has 256 bytes, point 16, per_gap 256 floats.
    unsafe {
        Constants {
            lo: vdupq_n_f32(span.lo),
            hi: vdupq_n_f32(span.hi),
            scale: vdupq_n_f32(span.scale),
            step: vdupq_n_f32(span.step),
            lower: vld1q_u8_x4(grid.lower.as_ptr()),
            point: vld1q_u8(point.as_ptr()),
            per_gap: vld1q_u8_x4(grid.per_gap.as_ptr().cast()),
            k1: vdupq_n_u32(rounding.k1),
        }
    }
}

/// Index + k0 of the first four coordinates, from `first`.
#[target_feature(enable = "neon")]
#[inline]
fn counter(first: u64, rounding: Rounding) -> uint32x4_t {
    // SAFETY: the array has four words.
    let iota = unsafe { vld1q_u32([0, 1, 2, 3].as_ptr()) };
    vaddq_u32(iota, vdupq_n_u32((first as u32).wrapping_add(rounding.k0)))
}

/// `Rounding::word` of four coordinates whose index + k0 is given.
#[target_feature(enable = "neon")]
#[inline]
fn words(c: &Constants, x: uint32x4_t) -> uint32x4_t {
    let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<17>(x)), MUL[0]);
    let x = vaddq_u32(veorq_u32(x, vshrq_n_u32::<11>(x)), c.k1);
    let x = vmulq_n_u32(x, MUL[1]);
    let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<15>(x)), MUL[2]);
    veorq_u32(x, vshrq_n_u32::<14>(x))
}

/// The table's values for indices of up to 15.
#[target_feature(enable = "neon")]
#[inline]
fn points(c: &Constants, index: uint32x4_t) -> float32x4_t {
    // The three zero bytes of each index look up the first value, which is 0.
    let bytes = vqtbl1q_u8(c.point, vreinterpretq_u8_u32(index));
    vcvtq_f32_u32(vreinterpretq_u32_u8(bytes))
}

/// Indices and residuals of four coordinates.
#[target_feature(enable = "neon")]
#[inline]
fn quantize(c: &Constants, x: float32x4_t, counter: uint32x4_t) -> (uint32x4_t, float32x4_t) {
    // Comparisons, not vmaxq: they send NaN to the lower end.
    let clamped = vbslq_f32(vcgtq_f32(x, c.lo), x, c.lo);
    let clamped = vbslq_f32(vcltq_f32(clamped, c.hi), clamped, c.hi);
    let position = vmulq_f32(vsubq_f32(clamped, c.lo), c.scale);
    // Zero bytes of the cell look up the first entry, which is 0.
    let cell = vreinterpretq_u8_u32(vcvtq_u32_f32(position));
    let lower = vreinterpretq_u32_u8(vqtbl4q_u8(c.lower, cell));
    // The four bytes of float number `lower`.
    let at = vmlaq_n_u32(vdupq_n_u32(0x0302_0100), lower, 0x0404_0404);
    let per_gap = vqtbl4q_u8(c.per_gap, vreinterpretq_u8_u32(at));
    let threshold = vmulq_f32(vsubq_f32(position, points(c, lower)), vreinterpretq_f32_u8(per_gap));
    let uniform = vcvtq_f32_u32(vshrq_n_u32::<8>(words(c, counter)));
    // True is −1 in every lane.
    let index = vsubq_u32(lower, vcltq_f32(uniform, threshold));
    let value = vaddq_f32(vmulq_f32(points(c, index), c.step), c.lo);
    (index, vsubq_f32(x, value))
}

/// Indices of eight coordinates, one per byte; `x` becomes the residual.
#[target_feature(enable = "neon")]
#[inline]
fn step(c: &Constants, x: &mut [f32], at: uint32x4_t) -> uint8x8_t {
    assert!(x.len() == STEP);
    let p = x.as_mut_ptr();
    // SAFETY: x has eight floats.
    let (a, b) = unsafe {
        let (a, residual) = quantize(c, vld1q_f32(p), at);
        vst1q_f32(p, residual);
        let (b, residual) = quantize(c, vld1q_f32(p.add(4)), vaddq_u32(at, vdupq_n_u32(4)));
        vst1q_f32(p.add(4), residual);
        (a, b)
    };
    vmovn_u16(vcombine_u16(vmovn_u32(a), vmovn_u32(b)))
}

#[target_feature(enable = "neon")]
pub(crate) fn indices(
    grid: &Grid,
    span: &Span,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    if !supported(grid) {
        return scalar::indices(grid, span, x, rounding, first, out);
    }
    let (c, mut at) = (constants(grid, span, rounding), counter(first, rounding));
    let done = x.len() / STEP * STEP;
    let (xs, x_tail) = x.split_at_mut(done);
    let (outs, out_tail) = out.split_at_mut(done);
    for (x, out) in xs.chunks_exact_mut(STEP).zip(outs.chunks_exact_mut(STEP)) {
        // SAFETY: the chunk has eight bytes.
        unsafe { vst1_u8(out.as_mut_ptr(), step(&c, x, at)) };
        at = vaddq_u32(at, vdupq_n_u32(STEP as u32));
    }
    scalar::indices(grid, span, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
}

#[target_feature(enable = "neon")]
pub(crate) fn packed4(
    grid: &Grid,
    span: &Span,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    if !supported(grid) {
        return scalar::packed4(grid, span, x, rounding, first, out);
    }
    let (c, mut at) = (constants(grid, span, rounding), counter(first, rounding));
    let done = x.len() / STEP * STEP;
    let (xs, x_tail) = x.split_at_mut(done);
    let (outs, out_tail) = out.split_at_mut(done / 2);
    for (x, out) in xs.chunks_exact_mut(STEP).zip(outs.chunks_exact_mut(STEP / 2)) {
        // As 16-bit words: the even coordinate's index below, the odd one's above.
        let pair = vreinterpret_u16_u8(step(&c, x, at));
        let pair = vorr_u16(vshl_n_u16::<4>(pair), vshr_n_u16::<8>(pair));
        let bytes = vmovn_u16(vcombine_u16(pair, pair));
        out.copy_from_slice(&vget_lane_u32::<0>(vreinterpret_u32_u8(bytes)).to_le_bytes());
        at = vaddq_u32(at, vdupq_n_u32(STEP as u32));
    }
    scalar::packed4(grid, span, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
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
