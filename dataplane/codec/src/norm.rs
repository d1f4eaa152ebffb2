//! Norms of gradients, computed in the same order on every processor.
//!
//! Squares are exact in `f64` (two 24-bit factors), so no finite gradient overflows. They go into
//! 32 partial sums, coordinate i into sum i mod 32 in ascending order of i; then the upper half of
//! the sums is added onto the lower half until one is left; the square root is taken in `f64` and
//! rounded to `f32` once. The result is infinite only if the norm itself exceeds `f32::MAX`.

use crate::arch;
use crate::isa::Isa;
pub use crate::scalar::norm::{PARTIAL_SUMS, reduce};

/// Euclidean norm of `x`. Infinite or NaN if any coordinate is.
#[must_use]
pub fn l2(x: &[f32]) -> f32 {
    arch::norm::squares(Isa::current(), x).sqrt() as f32
}

/// Euclidean norm of `x + e` without storing the sum. Infinite or NaN if any coordinate of the
/// sum is. Also NaN if the lengths differ: like any non-finite norm, that makes all workers refuse the call.
#[must_use]
pub fn l2_sum(x: &[f32], e: &[f32]) -> f32 {
    if x.len() != e.len() {
        return f32::NAN;
    }
    arch::norm::squares_sum(Isa::current(), x, e).sqrt() as f32
}

/// Largest absolute value of a coordinate, 0 for none, NaN if any coordinate is NaN.
#[must_use]
pub fn max_abs(x: &[f32]) -> f32 {
    f32::from_bits(arch::norm::max_abs_bits(Isa::current(), x))
}

/// Smallest and largest coordinate (uniform THC, paper Algorithm 1), `None` for an empty slice
/// or if any coordinate is NaN.
#[must_use]
pub fn min_max(x: &[f32]) -> Option<(f32, f32)> {
    let (first, rest) = x.split_first()?;
    let mut nan = first.is_nan();
    let (mut lo, mut hi) = (*first, *first);
    for v in rest {
        nan |= v.is_nan();
        lo = if *v < lo { *v } else { lo };
        hi = if *v > hi { *v } else { hi };
    }
    (!nan).then_some((lo, hi))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn extremes() {
        assert_eq!(l2(&[]), 0.0);
        assert_eq!(l2(&[3.0, 4.0]), 5.0);
        assert_eq!(l2(&[1e30, 1e30]), 1e30 * 2f32.sqrt());
        assert_eq!(l2(&[1e-30; 4]), 2e-30);
        assert_eq!(l2(&[f32::MAX; 2]), f32::INFINITY);
        assert_eq!(l2(&[1.0, f32::INFINITY]), f32::INFINITY);
        assert!(l2(&[1.0, f32::NAN]).is_nan());
        assert!(l2(&[f32::INFINITY, f32::NAN]).is_nan());
        assert_eq!(l2_sum(&[1.0, 2.0], &[2.0, 2.0]), 5.0);
        assert!(!l2_sum(&[f32::MAX], &[f32::MAX]).is_finite());
        assert!(l2_sum(&[1.0], &[]).is_nan());
        assert_eq!(max_abs(&[]), 0.0);
        assert_eq!(max_abs(&[1.0, -3.0, 2.0]), 3.0);
        assert!(max_abs(&[1.0, -f32::NAN, f32::INFINITY]).is_nan());
        assert_eq!(min_max(&[2.0, -1.0, 0.5]), Some((-1.0, 2.0)));
        assert_eq!(min_max(&[]), None);
        assert_eq!(min_max(&[2.0, f32::NAN]), None);
        assert_eq!(min_max(&[f32::NAN, 2.0]), None);
    }

    proptest! {
        #[test]
        fn close_to_the_plain_sum(x in prop::collection::vec(-1e3f32..1e3, 0..300)) {
            let plain: f64 = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            prop_assert!((f64::from(l2(&x)) - plain).abs() <= 1e-7 * plain);
            prop_assert_eq!(l2(&x), l2_sum(&x, &vec![0.0; x.len()]));
            let m = x.iter().fold(0f32, |m, v| m.max(v.abs()));
            prop_assert_eq!(m, max_abs(&x));
        }
    }
}
