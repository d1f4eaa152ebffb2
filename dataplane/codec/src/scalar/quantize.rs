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

/// One index per byte, or with `PACKED` two, the first coordinate's in the high half; `x` becomes the residual.
pub(crate) fn indices<const PACKED: bool>(
    grid: &Grid,
    span: &Bounds,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    let index = |i: usize, x: &mut f32| {
        let index;
        (index, *x) = quantize_one(grid, span, *x, rounding.draw(first.wrapping_add(i as u64)));
        index
    };
    if PACKED {
        for (i, ([x0, x1], out)) in x.as_chunks_mut().0.iter_mut().zip(out).enumerate() {
            *out = index(2 * i, x0) << 4 | index(2 * i + 1, x1);
        }
    } else {
        x.iter_mut().zip(out).enumerate().for_each(|(i, (x, out))| *out = index(i, x));
    }
}

/// `sum * step + lo` for 8-bit sums.
#[inline(always)]
pub(crate) fn dequantize8(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    for (out, sum) in out.iter_mut().zip(sums) {
        *out = f32::from(*sum) * step + lo;
    }
}

/// `sum * step + lo` for big-endian 16-bit sums.
#[inline(always)]
pub(crate) fn dequantize16(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
    for (out, sum) in out.iter_mut().zip(sums.as_chunks().0) {
        *out = f32::from(u16::from_be_bytes(*sum)) * step + lo;
    }
}
