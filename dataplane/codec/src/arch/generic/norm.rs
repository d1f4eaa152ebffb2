//! Norms.

use crate::arch::prefetch::prefetch_ahead;
use crate::arch::vector::Vector;
use crate::scalar::norm::{self as scalar, PARTIAL_SUMS};

/// 32 sums of nothing.
#[inline(always)]
fn zero<V: Vector>() -> V::Sums {
    const { assert!(size_of::<V::Sums>() == size_of::<[f64; PARTIAL_SUMS]>()) };
    // SAFETY: they are doubles, and zero bits are zeros.
    unsafe { std::mem::zeroed() }
}

#[inline(always)]
fn partial_sums<V: Vector>(sums: &V::Sums) -> [f64; PARTIAL_SUMS] {
    // SAFETY: they are 32 doubles, as `zero` checks and the trait demands.
    unsafe { std::ptr::from_ref(sums).cast::<[f64; PARTIAL_SUMS]>().read() }
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn squares<V: Vector>(x: &[f32]) -> f64 {
    let mut sums = zero::<V>();
    let (chunks, tail) = x.as_chunks::<PARTIAL_SUMS>();
    for x in chunks {
        prefetch_ahead::<PARTIAL_SUMS>(x.as_ptr());
        // SAFETY: the caller has V's features.
        unsafe { V::add_squares(&mut sums, x, None) };
    }
    let mut lanes = partial_sums::<V>(&sums);
    scalar::add_squares(&mut lanes, tail);
    scalar::reduce(lanes)
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn squares_sum<V: Vector>(x: &[f32], e: &[f32]) -> f64 {
    let mut sums = zero::<V>();
    let ((xs, x_tail), (es, e_tail)) = (x.as_chunks::<PARTIAL_SUMS>(), e.as_chunks::<PARTIAL_SUMS>());
    for (x, e) in xs.iter().zip(es) {
        prefetch_ahead::<PARTIAL_SUMS>(x.as_ptr());
        prefetch_ahead::<PARTIAL_SUMS>(e.as_ptr());
        // SAFETY: the caller has V's features.
        unsafe { V::add_squares(&mut sums, x, Some(e)) };
    }
    let mut lanes = partial_sums::<V>(&sums);
    scalar::add_squares_sum(&mut lanes, x_tail, e_tail);
    scalar::reduce(lanes)
}
