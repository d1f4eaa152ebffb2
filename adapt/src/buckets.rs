//! What a byte costs in time (L-GreCo, section 4, "Optimizing for time"): the first buckets' communication hides behind
//! the backward pass, the last one's does not, so the same byte costs more there.
//!
//! For each bucket a line is fitted to the seconds from the start of the first synchronisation to the end of the last, over the
//! bucket's bytes; its slope is T(b), and cost(ℓ, c) = bytes(ℓ, c) · T(bucket of ℓ).

use crate::error::{AdaptError, check};

/// A line through measured points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Seconds per byte, at least 0.
    pub slope: f64,
    /// Seconds without any byte.
    pub intercept: f64,
}

/// The line of least squares through (bytes, seconds). Measurements of one size only give no slope: the line then goes
/// through the origin, which is the best guess. A slope below zero, which only noise can give, becomes zero.
///
/// # Errors
/// [`AdaptError::Count`] without points, [`AdaptError::Value`] for one that is negative or not finite.
pub fn fit(points: &[(f64, f64)]) -> Result<Line, AdaptError> {
    if points.is_empty() {
        return Err(AdaptError::Count { what: "measurements of a bucket", actual: 0, expected: 1 });
    }
    for (number, &(bytes, seconds)) in points.iter().enumerate() {
        check("the size", || format!("measurement {number}"), bytes)?;
        check("the time", || format!("measurement {number}"), seconds)?;
    }
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (bytes, seconds) = (mean(|p| p.0), mean(|p| p.1));
    let (mut spread, mut together) = (0.0, 0.0);
    for point in points {
        spread += (point.0 - bytes) * (point.0 - bytes);
        together += (point.0 - bytes) * (point.1 - seconds);
    }
    if spread <= 1e-18 * bytes * bytes {
        let slope = if bytes > 0.0 { seconds / bytes } else { 0.0 };
        return Ok(Line { slope, intercept: if bytes > 0.0 { 0.0 } else { seconds } });
    }
    let slope = (together / spread).max(0.0);
    Ok(Line { slope, intercept: seconds - slope * bytes })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_also_under_noise() {
        let noisy =
            |i: u32| (f64::from(i) * 1e6, 0.002 + 8e-9 * f64::from(i) * 1e6 + 1e-5 * f64::from(i % 3));
        let line = fit(&(0..100).map(noisy).collect::<Vec<_>>()).unwrap();
        assert!((line.slope / 8e-9 - 1.0).abs() < 0.01 && (line.intercept - 0.002).abs() < 1e-4, "{line:?}");
    }

    #[test]
    fn few_or_bad_points_do_no_harm() {
        assert_eq!(fit(&[(1e6, 0.5); 3]).unwrap(), Line { slope: 5e-7, intercept: 0.0 });
        assert_eq!(fit(&[(0.0, 0.5)]).unwrap(), Line { slope: 0.0, intercept: 0.5 });
        assert_eq!(fit(&[(1.0, 2.0), (2.0, 1.0)]).unwrap(), Line { slope: 0.0, intercept: 1.5 });
        assert!(fit(&[]).is_err() && fit(&[(1.0, f64::NAN)]).is_err() && fit(&[(-1.0, 1.0)]).is_err());
    }
}
