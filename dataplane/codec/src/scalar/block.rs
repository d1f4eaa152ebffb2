//! Whole blocks, one step after the other. `crate::block` defines them.

use super::{quantize, rht};
use crate::arguments::{Compressing, Estimating, Feedback};

/// Transform, indices, and the residual transformed back.
pub(crate) fn compress(
    how: &Compressing<'_>,
    x: &[f32],
    fed: Feedback<'_>,
    _: [&[f32]; 2],
    work: &mut [f32],
    out: &mut [u8],
) {
    match &fed {
        None => rht::forward_into(x, work, how.scale, how.signs),
        Some((kept, _)) => rht::forward_sum(x, kept, work, how.scale, how.signs),
    }
    quantize::indices::<true>(how.grid, &how.span, work, how.rounding, 0, out);
    if let Some((_, left)) = fed {
        rht::inverse_into(work, left, how.scale, how.signs);
    }
}

/// Estimates, transformed back.
pub(crate) fn decompress(how: &Estimating<'_>, _: &[f32], _: &mut [f32], out: &mut [f32]) {
    let mut at = 0;
    while at < out.len() {
        let (count, sums) = how.together(at, out.len() - at);
        let out = &mut out[at..at + count];
        if how.wide {
            quantize::dequantize16(sums, how.step, how.lo, out);
        } else {
            quantize::dequantize8(sums, how.step, how.lo, out);
        }
        at += count;
    }
    rht::inverse(out, how.scale, how.signs);
}
