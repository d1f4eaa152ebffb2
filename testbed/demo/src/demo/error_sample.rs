//! The error of a step's averaged gradient relative to the exact mean of the workers' gradients.

use std::path::Path;

use serde::Serialize;

use super::gradient_file;
use crate::error::Result;

/// Errors measured in one step.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ErrorSample {
    /// The step.
    pub step: u32,
    /// NMSE of the gradient that was applied. It includes error feedback, which is what earlier steps
    /// lost, so its distance from this step's mean is larger than that of compression alone.
    pub applied: f64,
    /// NMSE of an all-reduce of the same gradients without error feedback.
    pub without_feedback: f64,
}

impl ErrorSample {
    /// Measures the files that `workers` workers wrote in `step`, and removes them.
    pub fn measure(folder: &Path, step: u32, workers: u8) -> Result<Self> {
        let own: Vec<_> =
            (0..workers).map(|worker| gradient_file::worker_path(folder, step, worker)).collect();
        let applied = gradient_file::applied_path(folder, step);
        let alone = gradient_file::uncorrected_path(folder, step);
        let mut mean: Vec<f64> = Vec::new();
        for path in &own {
            let gradient = gradient_file::read(path)?;
            mean.resize(gradient.len(), 0.0);
            for (sum, coordinate) in mean.iter_mut().zip(gradient) {
                *sum += f64::from(coordinate) / f64::from(workers);
            }
        }
        let sample = Self {
            step,
            applied: nmse(&mean, &gradient_file::read(&applied)?),
            without_feedback: nmse(&mean, &gradient_file::read(&alone)?),
        };
        for path in own.iter().chain([&applied, &alone]) {
            // The temporary folder's removal takes remaining files with it.
            let _ = std::fs::remove_file(path);
        }
        Ok(sample)
    }
}

/// ‖estimate − mean‖² / ‖mean‖².
pub fn nmse(mean: &[f64], estimate: &[f32]) -> f64 {
    let mut error = 0.0;
    let mut norm = 0.0;
    for (&mean, &estimate) in mean.iter().zip(estimate) {
        error += (f64::from(estimate) - mean).powi(2);
        norm += mean * mean;
    }
    error / norm
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_mean() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        gradient_file::write(&gradient_file::worker_path(at, 2, 0), &[3.0, 0.0]).unwrap();
        gradient_file::write(&gradient_file::worker_path(at, 2, 1), &[5.0, 2.0]).unwrap();
        gradient_file::write(&gradient_file::applied_path(at, 2), &[4.0, 2.0]).unwrap();
        gradient_file::write(&gradient_file::uncorrected_path(at, 2), &[4.0, 1.0]).unwrap();
        let sample = ErrorSample::measure(at, 2, 2).unwrap();
        assert_eq!((sample.applied, sample.without_feedback), (1.0 / 17.0, 0.0));
        assert_eq!(std::fs::read_dir(at).unwrap().count(), 0);
        assert!(ErrorSample::measure(at, 2, 2).is_err());
    }
}
