//! The randomized Hadamard transform, (1/√d)·H·D·x, and its inverse (P30; paper, section 5.1).
//!
//! H is the Hadamard matrix in natural (Sylvester) order, D the diagonal of signs that
//! [`SignKey`] names. The order of operations is part of the definition, so that every processor
//! computes the same bits:
//!
//! - forward: every coordinate is multiplied by `scale`, then its sign is flipped where D says so,
//!   then come the butterfly stages (a, b) → (a + b, a − b) with strides d/2, d/4, .., 1;
//! - inverse: every coordinate is multiplied by `scale`, then come the stages with strides 1, 2, ..,
//!   d/2, then the sign flips;
//! - `scale` is 1/√d computed in `f64` and rounded to `f32`; every operation is a single IEEE `f32`
//!   operation, rounded to nearest even.
//!
//! Scaling comes first so that no intermediate value exceeds ‖x‖: whenever the norm is a finite
//! `f32`, the transform does not overflow.

use crate::arch;
use crate::error::CodecError;
use crate::isa::Isa;
use crate::signs::SignKey;

/// Longest vector that can be transformed, in coordinates.
pub(crate) const MAX_LEN: usize = 1 << 22;

/// 1/√d as the transform multiplies by it.
#[must_use]
pub fn scale(d: usize) -> f32 {
    (1.0 / (d as f64).sqrt()) as f32
}

pub(crate) fn check(len: usize) -> Result<(), CodecError> {
    if len.is_power_of_two() && len <= MAX_LEN {
        Ok(())
    } else {
        Err(CodecError::TransformLength { len, max: MAX_LEN })
    }
}

/// A vector to be padded fits its output.
pub(crate) fn check_fits(x: &[f32], out: &[f32]) -> Result<(), CodecError> {
    if x.len() <= out.len() {
        return Ok(());
    }
    Err(CodecError::Length {
        what: "output of the transform",
        expected: x.len().next_power_of_two(),
        actual: out.len(),
    })
}

/// Replaces `x` with (1/√d)·H·D·x. `x.len()` must be a power of two from 1 to 2^22.
pub fn forward(x: &mut [f32], key: SignKey) -> Result<(), CodecError> {
    check(x.len())?;
    let scale = scale(x.len());
    arch::rht::forward(Isa::current(), x, scale, key.signs());
    Ok(())
}

/// Writes the forward transform of `x + e` to `out`.
///
/// `x` and `e` (gradient and error feedback) have equal lengths, at most `out.len()`; the rest
/// counts as zeros, which is how a padded partition is transformed. `out.len()` must be a power of
/// two from 1 to 2^22.
pub fn forward_sum(x: &[f32], e: &[f32], out: &mut [f32], key: SignKey) -> Result<(), CodecError> {
    check(out.len())?;
    CodecError::check_len("error feedback", x.len(), e.len())?;
    check_fits(x, out)?;
    let scale = scale(out.len());
    arch::rht::forward_sum(Isa::current(), x, e, out, scale, key.signs());
    Ok(())
}

/// Writes the forward transform of `x` to `out`; the rest counts as zeros, as for [`forward_sum`].
pub fn forward_into(x: &[f32], out: &mut [f32], key: SignKey) -> Result<(), CodecError> {
    check(out.len())?;
    check_fits(x, out)?;
    let scale = scale(out.len());
    arch::rht::forward_into(Isa::current(), x, out, scale, key.signs());
    Ok(())
}

/// Replaces `x` with (1/√d)·D·H·x, which undoes [`forward`] up to rounding. `x.len()` must be a
/// power of two from 1 to 2^22.
pub fn inverse(x: &mut [f32], key: SignKey) -> Result<(), CodecError> {
    check(x.len())?;
    let scale = scale(x.len());
    arch::rht::inverse(Isa::current(), x, scale, key.signs());
    Ok(())
}

/// Writes the first `out.len()` coordinates of the inverse transform of `x` to `out`.
///
/// `x` is used as working memory: its contents afterwards are unspecified. This spares a copy
/// when the result belongs elsewhere, or when the last partition is padded (`out` shorter).
pub fn inverse_into(x: &mut [f32], out: &mut [f32], key: SignKey) -> Result<(), CodecError> {
    check(x.len())?;
    if out.len() > x.len() {
        return Err(CodecError::Length {
            what: "output of the inverse transform",
            expected: x.len(),
            actual: out.len(),
        });
    }
    let scale = scale(x.len());
    arch::rht::inverse_into(Isa::current(), x, out, scale, key.signs());
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(seed: u64) -> SignKey {
        SignKey { job_seed: seed, call: 5, partition: 1 }
    }

    fn norm(x: &[f32]) -> f64 {
        x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn is_the_matrix_product() {
        let d = 64;
        let x: Vec<f32> = (0..d).map(|i| (i as f32 * 0.7).sin() + 0.1).collect();
        let mut y = x.clone();
        forward(&mut y, key(3)).unwrap();
        for (row, got) in y.iter().enumerate() {
            let want: f64 = (0..d)
                .map(|col| {
                    let h = if (row & col).count_ones() % 2 == 0 { 1.0 } else { -1.0 };
                    let s = if key(3).signs().is_negative(col as u64) { -1.0 } else { 1.0 };
                    h * s * f64::from(x[col])
                })
                .sum::<f64>()
                / (d as f64).sqrt();
            assert!((want - f64::from(*got)).abs() < 1e-6, "row {row}");
        }
    }

    #[test]
    fn bad_lengths_are_errors() {
        for len in [0, 3, 1000] {
            let mut x = vec![0.0; len];
            assert!(matches!(forward(&mut x, key(0)), Err(CodecError::TransformLength { .. })));
            assert!(matches!(inverse(&mut x, key(0)), Err(CodecError::TransformLength { .. })));
        }
        assert!(forward_sum(&[0.0; 5], &[0.0; 5], &mut [0.0; 4], key(0)).is_err());
        assert!(forward_sum(&[0.0; 3], &[0.0; 2], &mut [0.0; 4], key(0)).is_err());
        assert!(forward_into(&[0.0; 5], &mut [0.0; 4], key(0)).is_err());
        assert!(forward_into(&[0.0; 2], &mut [0.0; 3], key(0)).is_err());
        assert!(inverse_into(&mut [0.0; 4], &mut [0.0; 5], key(0)).is_err());
    }

    #[test]
    fn a_finite_norm_never_overflows() {
        let d = 1 << 12;
        let mut x = vec![3.0e38 / 64.0; d];
        forward(&mut x, key(1)).unwrap();
        assert!(x.iter().all(|v| v.is_finite()));
        inverse(&mut x, key(1)).unwrap();
        assert!(x.iter().all(|v| (v / (3.0e38 / 64.0) - 1.0).abs() < 1e-5));
    }

    #[test]
    fn one_large_coordinate_is_spread_evenly() {
        let mut x = vec![0.0; 1 << 14];
        x[77] = 128.0;
        forward(&mut x, key(9)).unwrap();
        assert!(x.iter().all(|v| v.abs() == 1.0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn round_trip_and_norm(log in 0usize..15, seed: u64, amplitude in -30i32..30) {
            let d = 1 << log;
            let a = 2f32.powi(amplitude);
            let x: Vec<f32> = (0..d as u64)
                .map(|i| a * (crate::signs::mix(seed ^ i) as f32 / 1.8e19 - 0.5))
                .collect();
            let mut y = x.clone();
            forward(&mut y, key(seed)).unwrap();
            prop_assert!((norm(&y) / norm(&x) - 1.0).abs() < 1e-5);
            let mut z = vec![0.0; d - d / 3];
            inverse_into(&mut y.clone(), &mut z, key(seed)).unwrap();
            inverse(&mut y, key(seed)).unwrap();
            for (u, v) in x.iter().zip(&y) {
                prop_assert!((u - v).abs() <= 4e-6 * a * (1.0 + log as f32));
            }
            prop_assert!(y.iter().zip(&z).all(|(u, v)| u.to_bits() == v.to_bits()));
        }

        #[test]
        fn forward_sum_is_forward_of_the_padded_sum(log in 0usize..12, cut in 0usize..4096, seed: u64) {
            let d = 1 << log;
            let n = d - cut % d;
            let x: Vec<f32> = (0..n).map(|i| (i as f32 + seed as f32 * 1e-19).sin()).collect();
            let e: Vec<f32> = (0..n).map(|i| (i as f32).cos()).collect();
            let mut want: Vec<f32> = x.iter().zip(&e).map(|(a, b)| a + b).collect();
            want.resize(d, 0.0);
            forward(&mut want, key(seed)).unwrap();
            let mut got = vec![f32::NAN; d];
            forward_sum(&x, &e, &mut got, key(seed)).unwrap();
            prop_assert!(want.iter().zip(&got).all(|(u, v)| u.to_bits() == v.to_bits()));
        }
    }
}
