//! The randomized Hadamard transform by itself: forward or inverse, in place or not.

use super::hadamard::{Target, leaf_len, transform};
use super::passes::Source;
use crate::arch::vector::Vector;
use crate::scalar::rht as scalar;
use crate::signs::Signs;

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn forward<V: Vector>(x: &mut [f32], scale: f32, signs: Signs) {
    let (p, len) = (x.as_mut_ptr(), x.len());
    assert!(len.is_power_of_two());
    if len < leaf_len::<V, ()>() {
        return scalar::forward(x, scale, signs);
    }
    // SAFETY: the length is a power of two of at least the minimum; the caller has V's features.
    unsafe { transform::<V, ()>(Some(Source::One(p)), p, None, len, (scale, signs), [&[]; 2], ()) };
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn forward_into<V: Vector>(x: &[f32], out: &mut [f32], scale: f32, signs: Signs) {
    let len = out.len();
    assert!(len.is_power_of_two() && x.len() <= len);
    if len < leaf_len::<V, ()>() {
        return scalar::forward_into(x, out, scale, signs);
    }
    if x.len() < len {
        scalar::pad(x, out);
    }
    let p = out.as_mut_ptr();
    let from = if x.len() < len { p } else { x.as_ptr() };
    // SAFETY: as in `forward`; x is as long as out if it is the source.
    unsafe { transform::<V, ()>(Some(Source::One(from)), p, None, len, (scale, signs), [&[]; 2], ()) };
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn forward_sum<V: Vector>(
    x: &[f32],
    e: &[f32],
    out: &mut [f32],
    scale: f32,
    signs: Signs,
) {
    let (source, p, len) = (Source::Sum(x.as_ptr(), e.as_ptr()), out.as_mut_ptr(), out.len());
    assert!(len.is_power_of_two());
    // SAFETY: as in `forward`; x and e are as long as out if they are the source.
    unsafe {
        if x.len() != len || e.len() != len || len < leaf_len::<V, ()>() {
            scalar::pad_sum(x, e, out);
            return forward::<V>(out, scale, signs);
        }
        transform::<V, ()>(Some(source), p, None, len, (scale, signs), [&[]; 2], ());
    }
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn inverse<V: Vector>(x: &mut [f32], scale: f32, signs: Signs) {
    let (p, len) = (x.as_mut_ptr(), x.len());
    assert!(len.is_power_of_two());
    if len < leaf_len::<V, ()>() {
        return scalar::inverse(x, scale, signs);
    }
    let target = Some(Target { to: p, far: false });
    // SAFETY: as in `forward`.
    unsafe { transform::<V, ()>(None, p, target, len, (scale, signs), [&[]; 2], ()) };
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn inverse_into<V: Vector>(
    x: &mut [f32],
    out: &mut [f32],
    scale: f32,
    signs: Signs,
) {
    let len = x.len();
    assert!(len.is_power_of_two() && out.len() <= len);
    if len < leaf_len::<V, ()>() {
        return scalar::inverse_into(x, out, scale, signs);
    }
    let p = x.as_mut_ptr();
    let target = Target { to: if out.len() == len { out.as_mut_ptr() } else { p }, far: false };
    // SAFETY: as in `forward`; out is as long as x if it is the target.
    unsafe { transform::<V, ()>(None, p, Some(target), len, (scale, signs), [&[]; 2], ()) };
    if out.len() < len {
        out.copy_from_slice(&x[..out.len()]);
    }
}
