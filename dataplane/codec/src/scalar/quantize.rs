//! Scalar stochastic quantization and its inverse. `crate::quantizer` documents the arithmetic.

use crate::grid::{Bounds, Grid, ONE};
use crate::rounding::Rounding;

/// Quantizes one coordinate: its index and its value's residual.
#[inline(always)]
fn quantize_one(grid: &Grid, span: &Bounds, x: f32, draw: u32) -> (u8, f32) {
    let q = x.mul_add(span.scale, span.bias);
    // Comparisons, not `clamp`: they send NaN to the lower end.
    let q = if q > 0.0 { q } else { 0.0 };
    let q = if q < span.end { q } else { span.end };
    let lower = grid.lower[usize::from(q as u8)];
    let threshold = q.mul_add(grid.slope[usize::from(lower)], grid.start[usize::from(lower)]);
    let index = lower + u8::from(f32::from_bits(ONE | draw) < threshold);
    let value = grid.point[usize::from(index)] * span.step + span.lo;
    (index, x - value)
}

/// One index per byte; `x` becomes the residual.
pub(crate) fn indices(
    grid: &Grid,
    span: &Bounds,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    for (i, (x, out)) in x.iter_mut().zip(out).enumerate() {
        let draw = rounding.draw(first.wrapping_add(i as u64));
        (*out, *x) = quantize_one(grid, span, *x, draw);
    }
}

/// Two indices per byte, first coordinate in the high nibble; `x` becomes the residual.
pub(crate) fn packed4(
    grid: &Grid,
    span: &Bounds,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    for (i, (pair, out)) in x.chunks_exact_mut(2).zip(out).enumerate() {
        let i = first.wrapping_add(2 * i as u64);
        let (high, r0) = quantize_one(grid, span, pair[0], rounding.draw(i));
        let (low, r1) = quantize_one(grid, span, pair[1], rounding.draw(i.wrapping_add(1)));
        pair.copy_from_slice(&[r0, r1]);
        *out = high << 4 | low;
    }
}

/// `sum * step + lo` for 8-bit sums.
pub(crate) fn dequantize8(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    for (out, sum) in out.iter_mut().zip(sums) {
        *out = f32::from(*sum) * step + lo;
    }
}

/// `sum * step + lo` for big-endian 16-bit sums.
pub(crate) fn dequantize16(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    for (out, sum) in out.iter_mut().zip(sums.chunks_exact(2)) {
        *out = f32::from(u16::from_be_bytes([sum[0], sum[1]])) * step + lo;
    }
}
