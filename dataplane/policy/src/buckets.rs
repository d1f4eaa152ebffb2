//! The time that a byte costs (L-GreCo, section 4, "Optimizing for time"). The communication of the first buckets hides
//! behind the backward pass and that of the last one does not, so a byte of the last bucket costs more time.
//!
//! The seconds of a step last from the start of its first synchronisation to the end of its last one. A linear model
//! explains these seconds by the bytes of all buckets. Its coefficient of a bucket is T(b), and
//! cost(ℓ, c) = bytes(ℓ, c) · T(bucket of ℓ).

use crate::error::{AdaptError, check};

/// A linear model of a step's seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// T(b), by bucket: seconds per byte, at least 0.
    pub slopes: Vec<f64>,
    /// Seconds of a step without any bytes.
    pub intercept: f64,
    /// R²: the share of the variance of seconds that the model explains, up to 1.
    pub score: f64,
}

/// The share of its variance that regularizes a column, so that two buckets whose bytes always change together share
/// their cost.
const RIDGE: f64 = 1e-9;

/// Fits the model to steps by least squares. Each step has the bytes of all its buckets and its seconds. The model leaves
/// out coefficients below zero, which only noise causes, and buckets whose bytes never changed. If no bucket's bytes ever
/// changed, all bytes cost the same and a step without any takes no time, which is the best guess.
///
/// # Errors
/// [`AdaptError::Count`] without steps or for steps of different numbers of buckets, [`AdaptError::Value`] for a number that is negative or
/// not finite.
pub fn fit(steps: &[(Vec<f64>, f64)]) -> Result<Fit, AdaptError> {
    let Some((first, _)) = steps.first() else {
        return Err(AdaptError::Count { what: "measurements of a step", actual: 0, expected: 1 });
    };
    let buckets = first.len();
    for (number, (bytes, seconds)) in steps.iter().enumerate() {
        if bytes.len() != buckets {
            return Err(AdaptError::Count {
                what: "buckets of a step",
                actual: bytes.len(),
                expected: buckets,
            });
        }
        for each in bytes {
            check("the size", || format!("measurement {number}"), *each)?;
        }
        check("the time", || format!("measurement {number}"), *seconds)?;
    }
    let n = steps.len() as f64;
    let means: Vec<f64> =
        (0..buckets).map(|b| steps.iter().map(|(bytes, _)| bytes[b]).sum::<f64>() / n).collect();
    let mean = steps.iter().map(|(_, seconds)| seconds).sum::<f64>() / n;
    let spreads: Vec<f64> = (0..buckets)
        .map(|b| steps.iter().map(|(bytes, _)| (bytes[b] - means[b]).powi(2)).sum::<f64>().sqrt())
        .collect();
    let mut varied: Vec<usize> = (0..buckets).filter(|&b| spreads[b] > 1e-9 * means[b] * n.sqrt()).collect();
    if varied.is_empty() {
        let all: f64 = means.iter().sum();
        let slope = if all > 0.0 { mean / all } else { 0.0 };
        return Ok(Fit {
            slopes: vec![slope; buckets],
            intercept: if all > 0.0 { 0.0 } else { mean },
            score: 0.0,
        });
    }
    // Columns of length 1, centered on their means.
    let column = |b: usize, bytes: &[f64]| (bytes[b] - means[b]) / spreads[b];
    let mut slopes = vec![0.0; buckets];
    while !varied.is_empty() {
        let dot = |a: usize, b: usize| steps.iter().map(|(x, _)| column(a, x) * column(b, x)).sum::<f64>();
        let matrix = varied
            .iter()
            .map(|&a| varied.iter().map(|&b| dot(a, b) + if a == b { RIDGE } else { 0.0 }).collect())
            .collect();
        let with_seconds = varied
            .iter()
            .map(|&b| steps.iter().map(|(x, seconds)| column(b, x) * (seconds - mean)).sum())
            .collect();
        let found = solve(matrix, with_seconds);
        let least = found.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
        match least {
            Some((at, coefficient)) if *coefficient < 0.0 => {
                varied.remove(at);
            }
            _ => {
                for (&b, coefficient) in varied.iter().zip(&found) {
                    slopes[b] = coefficient / spreads[b];
                }
                break;
            }
        }
    }
    let intercept = mean - slopes.iter().zip(&means).map(|(slope, mean)| slope * mean).sum::<f64>();
    let said =
        |bytes: &[f64]| intercept + slopes.iter().zip(bytes).map(|(slope, bytes)| slope * bytes).sum::<f64>();
    let left: f64 = steps.iter().map(|(bytes, seconds)| (seconds - said(bytes)).powi(2)).sum();
    let all: f64 = steps.iter().map(|(_, seconds)| (seconds - mean).powi(2)).sum();
    Ok(Fit { slopes, intercept, score: if all > 0.0 { 1.0 - left / all } else { 1.0 } })
}

/// Solves a symmetric, positive definite system by Cholesky's decomposition.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let n = right.len();
    for i in 0..n {
        for j in 0..=i {
            let sum = matrix[i][j] - (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum::<f64>();
            matrix[i][j] = if i == j { sum.max(RIDGE * RIDGE).sqrt() } else { sum / matrix[j][j] };
        }
        right[i] = (right[i] - (0..i).map(|k| matrix[i][k] * right[k]).sum::<f64>()) / matrix[i][i];
    }
    for i in (0..n).rev() {
        right[i] = (right[i] - (i + 1..n).map(|k| matrix[k][i] * right[k]).sum::<f64>()) / matrix[i][i];
    }
    right
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Steps of four buckets, whose bytes vary without a pattern.
    fn steps(number: u32, seconds: impl Fn(&[f64], u32) -> f64) -> Vec<(Vec<f64>, f64)> {
        let bytes =
            |i: u32, b: u32| 1e6 * (1.0 + f64::from((i * 7919 + b * 104_729 + i * i * 31 * (b + 1)) % 17));
        (0..number)
            .map(|i| {
                let bytes: Vec<f64> = (0..4).map(|b| bytes(i, b)).collect();
                let seconds = seconds(&bytes, i);
                (bytes, seconds)
            })
            .collect()
    }

    #[test]
    fn each_buckets_cost_is_found_also_under_noise() {
        let truth = [1e-10, 1e-10, 3e-9, 8e-9];
        let time = |bytes: &[f64], i: u32| {
            0.002 + bytes.iter().zip(truth).map(|(b, t)| b * t).sum::<f64>() + 1e-4 * f64::from(i % 3)
        };
        let found = fit(&steps(200, time)).unwrap();
        for (slope, truth) in found.slopes.iter().zip(truth) {
            assert!((slope - truth).abs() < 1e-11, "{found:?}");
        }
        assert!((found.intercept - 0.0021).abs() < 1e-4 && found.score > 0.999, "{found:?}");
    }

    #[test]
    fn what_hides_costs_nothing() {
        // The first three end before the last one begins.
        let found = fit(&steps(60, |bytes, i| 0.01 + 8e-9 * bytes[3] + 1e-6 * f64::from(i % 5))).unwrap();
        assert!((found.slopes[3] / 8e-9 - 1.0).abs() < 1e-3, "{found:?}");
        assert!(found.slopes[..3].iter().all(|slope| (0.0..1e-12).contains(slope)), "{found:?}");
    }

    #[test]
    fn what_cannot_be_told_apart_is_shared() {
        let twins: Vec<_> =
            (0..20).map(|i| f64::from(1 + i % 5) * 1e6).map(|x| (vec![x, x], 4e-9 * x)).collect();
        let found = fit(&twins).unwrap();
        assert!(found.slopes.iter().all(|slope| (slope / 2e-9 - 1.0).abs() < 1e-3), "{found:?}");
        // Fewer steps than buckets.
        let few = fit(&steps(3, |bytes, _| 1e-9 * bytes.iter().sum::<f64>())).unwrap();
        assert!(few.slopes.iter().all(|slope| slope.is_finite() && *slope >= 0.0), "{few:?}");
    }

    #[test]
    fn one_bucket_is_a_line_and_few_or_bad_points_do_no_harm() {
        let of = |points: &[(f64, f64)]| fit(&points.iter().map(|&(x, y)| (vec![x], y)).collect::<Vec<_>>());
        let line = of(&[(1e6, 0.010), (2e6, 0.018), (3e6, 0.026)]).unwrap();
        assert!(
            (line.slopes[0] / 8e-9 - 1.0).abs() < 1e-6 && (line.intercept - 0.002).abs() < 1e-8,
            "{line:?}"
        );
        assert_eq!(of(&[(1e6, 0.5); 3]).unwrap(), Fit { slopes: vec![5e-7], intercept: 0.0, score: 0.0 });
        assert_eq!(of(&[(0.0, 0.5)]).unwrap(), Fit { slopes: vec![0.0], intercept: 0.5, score: 0.0 });
        assert_eq!(
            of(&[(1.0, 2.0), (2.0, 1.0)]).unwrap(),
            Fit { slopes: vec![0.0], intercept: 1.5, score: 0.0 }
        );
        assert!(fit(&[]).is_err() && of(&[(1.0, f64::NAN)]).is_err() && of(&[(-1.0, 1.0)]).is_err());
        assert!(fit(&[(vec![1.0], 1.0), (vec![1.0, 2.0], 1.0)]).is_err());
    }
}
