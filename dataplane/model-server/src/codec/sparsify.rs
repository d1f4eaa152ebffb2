//! Unbiased sparsification (double quantization, section 4.2 and Lemma 2).
//!
//! Coordinate i of α is kept with probability p_i = |α_i| · φ / ‖α‖₁, and a kept one becomes α_i / p_i. So
//! the mean is right, and no other way to keep φ coordinates on average has less variance. All kept
//! coordinates have one magnitude, ‖α‖₁ / φ, so a message needs that number, positions and signs.
//!
//! ```text
//! scale = φ · 2^24 / ‖α‖₁          in f64, rounded to f32
//! kept  = the top 24 bits of the coordinate's random word are below |α_i| · scale
//! value = ± ‖α‖₁ / φ               in f64, rounded to f32
//! ```

use thc_codec::CodecError;
use thc_codec::isa::Isa;
use thc_codec::norm::{self, PARTIAL_SUMS, reduce};
use thc_codec::rounding::Rounding;

use crate::codec::kernels::{self, UNIFORMS};

/// The part of a vector that is left: β of Lemma 2.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sparse {
    /// Magnitude of every coordinate that was kept.
    pub magnitude: f32,
    /// Which were kept, in ascending order.
    pub positions: Vec<u32>,
    /// Which of those are negative.
    pub negative: Vec<bool>,
}

/// ‖x‖₁, added up as [`norm`] adds squares.
#[must_use]
pub fn l1(x: &[f32]) -> f64 {
    let mut lanes = [0.0; PARTIAL_SUMS];
    for chunk in x.chunks(PARTIAL_SUMS) {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(x.abs());
        }
    }
    reduce(lanes)
}

/// Keeps coordinates of `x` at random. `budget` is φ, the average number kept; `None`, or a larger one, means
/// ‖α‖₁ / ‖α‖∞, the most that Lemma 2 allows.
///
/// # Errors
/// [`CodecError::Parameter`] for a coordinate that is infinite or NaN, and for a budget that is not above 0.
pub fn sparsify(x: &[f32], budget: Option<f32>, rounding: Rounding) -> Result<Sparse, CodecError> {
    let max = norm::max_abs(x);
    if !max.is_finite() {
        let what = "the largest magnitude of a vector to sparsify";
        return Err(CodecError::Parameter { what, value: f64::from(max), allowed: "finite numbers" });
    }
    if let Some(budget) = budget.filter(|budget| budget.is_nan() || *budget <= 0.0) {
        let value = f64::from(budget);
        return Err(CodecError::Parameter { what: "the sparsity budget", value, allowed: "above 0" });
    }
    // Nothing, or so little that no reciprocal of it is a float.
    if max < f32::MIN_POSITIVE {
        return Ok(Sparse::default());
    }
    let sum = l1(x);
    let most = sum / f64::from(max);
    let budget = budget.map_or(most, |budget| f64::from(budget).min(most));
    let scale = (budget * f64::from(UNIFORMS) / sum).min(f64::from(f32::MAX)) as f32;
    let mut positions = Vec::with_capacity((1.2 * budget) as usize + 16);
    kernels::draw(Isa::current(), x, scale, rounding, &mut positions);
    let negative = positions.iter().map(|i| x[*i as usize].is_sign_negative()).collect();
    let magnitude = (sum / budget).min(f64::from(f32::MAX)) as f32;
    Ok(Sparse { magnitude, positions, negative })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thc_codec::signs::mix;

    fn vector(len: usize, seed: u64) -> Vec<f32> {
        // Magnitudes over some decades, as gradients have.
        let one = |i: u64| {
            let w = mix(seed ^ mix(i));
            let v = (w >> 40) as f32 / (1 << 23) as f32 - 1.0;
            v * v * v
        };
        (0..len as u64).map(one).collect()
    }

    #[test]
    fn is_unbiased_and_has_the_least_variance() {
        let x = vector(200, 1);
        let (sum, max) = (l1(&x), f64::from(norm::max_abs(&x)));
        for budget in [None, Some(10.0), Some(3.0)] {
            let rounds = 40_000;
            let (mut mean, mut square, mut kept) = (vec![0.0; 200], 0.0, 0.0);
            for round in 0..rounds {
                let sparse = sparsify(&x, budget, Rounding::new(2, round, 0)).unwrap();
                kept += sparse.positions.len() as f64 / rounds as f64;
                square += sparse.positions.len() as f64 * f64::from(sparse.magnitude).powi(2) / rounds as f64;
                for (&i, &negative) in sparse.positions.iter().zip(&sparse.negative) {
                    let sign = if negative { -1.0 } else { 1.0 };
                    mean[i as usize] += sign * f64::from(sparse.magnitude) / rounds as f64;
                }
            }
            let phi = budget.map_or(sum / max, f64::from);
            assert!((kept / phi - 1.0).abs() < 0.02, "{kept} kept, {phi} wanted");
            // Lemma 2 with equality.
            assert!((square / (sum * sum / phi) - 1.0).abs() < 0.02);
            for (mean, x) in mean.iter().zip(&x) {
                let x = f64::from(*x);
                let sigma = (x.abs() * sum / phi / rounds as f64).sqrt();
                assert!((mean - x).abs() < 5.0 * sigma + 1e-7, "{mean} for {x}");
            }
        }
    }

    #[test]
    fn the_largest_is_always_kept() {
        for seed in 0..50 {
            let mut x = vector(100, seed);
            x[37] = -4.0;
            let sparse = sparsify(&x, None, Rounding::new(seed, 0, 0)).unwrap();
            let at = sparse.positions.iter().position(|i| *i == 37).unwrap();
            assert!(sparse.negative[at]);
            assert_eq!(sparse.magnitude, 4.0);
        }
    }

    #[test]
    fn wrong_vectors_are_errors_and_empty_ones_are_not() {
        let rounding = Rounding::new(0, 0, 0);
        for bad in [f32::NAN, f32::INFINITY] {
            assert!(sparsify(&[1.0, bad], None, rounding).is_err());
        }
        for budget in [0.0, -1.0, f32::NAN] {
            assert!(sparsify(&[1.0], Some(budget), rounding).is_err());
        }
        for x in [&[][..], &[0.0; 3], &[1e-44; 3]] {
            assert_eq!(sparsify(x, None, rounding).unwrap(), Sparse::default());
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_is_there(
            x in prop::collection::vec(-1e20f32..1e20, 1..300),
            budget in prop::option::of(0.1f32..400.0),
            seed: u64,
        ) {
            let sparse = sparsify(&x, budget, Rounding::new(seed, 0, 0)).unwrap();
            prop_assert!(sparse.positions.windows(2).all(|w| w[0] < w[1]));
            for (&i, &negative) in sparse.positions.iter().zip(&sparse.negative) {
                prop_assert!(x[i as usize] != 0.0);
                prop_assert_eq!(x[i as usize] < 0.0, negative);
                prop_assert!(sparse.magnitude >= x[i as usize].abs() * 0.999_999);
            }
            prop_assert!(sparse.magnitude != 0.0 || sparse.positions.is_empty());
            prop_assert_eq!(sparse.negative.len(), sparse.positions.len());
        }
    }
}
