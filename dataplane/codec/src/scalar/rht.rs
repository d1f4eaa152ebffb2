//! Scalar randomized Hadamard transform.
//!
//! A stage with stride h replaces each pair (a, b) = (x[i], x[i + h]) with (a + b, a - b). The
//! result of a stage does not depend on the order of its butterflies, so any blocking that keeps
//! the order of the stages for every element gives the same bits. Depth-first recursion here is
//! such a blocking, and keeps the work in cache.

use crate::signs::Signs;

/// One stage that pairs the first half of `x` with the second.
fn butterflies(x: &mut [f32]) {
    let (low, high) = x.split_at_mut(x.len() / 2);
    for (a, b) in low.iter_mut().zip(high) {
        (*a, *b) = (*a + *b, *a - *b);
    }
}

/// Stages with strides len/2, len/4, .., 1.
fn descending_stages(x: &mut [f32]) {
    if x.len() > 1 {
        butterflies(x);
        let (low, high) = x.split_at_mut(x.len() / 2);
        descending_stages(low);
        descending_stages(high);
    }
}

/// Stages with strides 1, 2, .., len/2.
fn ascending_stages(x: &mut [f32]) {
    if x.len() > 1 {
        let (low, high) = x.split_at_mut(x.len() / 2);
        ascending_stages(low);
        ascending_stages(high);
        butterflies(x);
    }
}

/// `x` with the sign of coordinate `i` applied to its sign bit.
fn flip(x: f32, signs: Signs, i: usize) -> f32 {
    f32::from_bits(x.to_bits() ^ (u32::from(signs.is_negative(i as u64)) << 31))
}

/// Scale, flip signs, then strides d/2 down to 1.
pub(crate) fn forward(x: &mut [f32], scale: f32, signs: Signs) {
    for (i, v) in x.iter_mut().enumerate() {
        *v = flip(*v * scale, signs, i);
    }
    descending_stages(x);
}

/// `out` = `x`, then zeros. `out` is at least as long as `x`.
pub(crate) fn pad(x: &[f32], out: &mut [f32]) {
    let (copy, zeros) = out.split_at_mut(x.len());
    copy.copy_from_slice(x);
    zeros.fill(0.0);
}

/// `out` = forward transform of `x`, padded.
pub(crate) fn forward_into(x: &[f32], out: &mut [f32], scale: f32, signs: Signs) {
    pad(x, out);
    forward(out, scale, signs);
}

/// `out` = `x + e`, then zeros. `x` and `e` are equally long, `out` at least as long.
pub(crate) fn pad_sum(x: &[f32], e: &[f32], out: &mut [f32]) {
    for ((o, a), b) in out.iter_mut().zip(x).zip(e) {
        *o = a + b;
    }
    out[x.len()..].fill(0.0);
}

/// `out` = forward transform of `x + e`, padded.
pub(crate) fn forward_sum(x: &[f32], e: &[f32], out: &mut [f32], scale: f32, signs: Signs) {
    pad_sum(x, e, out);
    forward(out, scale, signs);
}

/// Scale, strides 1 up to d/2, then flip signs.
pub(crate) fn inverse(x: &mut [f32], scale: f32, signs: Signs) {
    for v in x.iter_mut() {
        *v *= scale;
    }
    ascending_stages(x);
    for (i, v) in x.iter_mut().enumerate() {
        *v = flip(*v, signs, i);
    }
}

/// Inverse transform of `x`, whose first coordinates go to `out`.
pub(crate) fn inverse_into(x: &mut [f32], out: &mut [f32], scale: f32, signs: Signs) {
    inverse(x, scale, signs);
    out.copy_from_slice(&x[..out.len()]);
}
