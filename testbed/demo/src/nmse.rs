//! `thc nmse`: the error of the mean of n workers, measured and predicted (paper, Appendix D.4).

use std::fmt;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::Serialize;
use thc_codec::quantizer::Quantizer;
use thc_codec::rounding::Rounding;
use thc_codec::signs::{GOLDEN_GAMMA, SignKey, mix};
use thc_codec::table::LookupTable;
use thc_codec::{norm, partition, rht};
use thc_ps::Fraction;

use crate::error::{Error, Result};

/// One experiment. All workers hold the same vector of log-normal coordinates, as in the paper.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Experiment {
    /// Bit budget b.
    pub bits: u8,
    /// Granularity g.
    pub granularity: u16,
    /// Truncated fraction p.
    pub fraction: f64,
    /// Workers n.
    pub workers: u8,
    /// Coordinates d of a vector.
    pub dimension: usize,
    /// Repetitions, each with new vectors, signs and roundings.
    pub trials: u32,
    /// Seed of everything random.
    pub seed: u64,
}

/// The results of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// The experiment.
    #[serde(flatten)]
    pub experiment: Experiment,
    /// Bits of a summed coordinate on the wire.
    pub lane: u8,
    /// Mean over the trials of ‖estimate − mean‖² / ‖mean‖².
    pub nmse: f64,
    /// Standard error of that mean; `None` for a single trial.
    pub standard_error: Option<f64>,
    /// The prediction: roundings are independent and average out, truncations are common to all.
    pub theory: f64,
    /// The table's error from rounding.
    pub quantization_error: f64,
    /// The table's error from truncation.
    pub truncation_error: f64,
}

impl Experiment {
    /// Runs the trials.
    pub fn run(&self) -> Result<Findings> {
        let table = LookupTable::solve(self.bits, self.granularity, self.fraction)?;
        let errors = (0..self.trials).map(|trial| self.trial(&table, trial)).collect::<Result<Vec<_>>>()?;
        let count = errors.len() as f64;
        let nmse = errors.iter().sum::<f64>() / count;
        let variance = errors.iter().map(|e| (e - nmse).powi(2)).sum::<f64>() / (count - 1.0);
        Ok(Findings {
            experiment: *self,
            lane: if table.granularity() * u16::from(self.workers) <= 0xFF { 8 } else { 16 },
            nmse,
            standard_error: (errors.len() > 1).then(|| (variance / count).sqrt()),
            theory: table.quantization_error() / f64::from(self.workers) + table.truncation_error(),
            quantization_error: table.quantization_error(),
            truncation_error: table.truncation_error(),
        })
    }

    fn trial(&self, table: &LookupTable, trial: u32) -> Result<f64> {
        let vector = log_normal(self.dimension, self.seed, u64::from(trial) << 8);
        let vectors = vec![&vector[..]; self.workers.into()];
        let estimate = average(table, &vectors, mix(self.seed ^ mix(trial.into())))?;
        Ok(error(&estimate, &[&vector]))
    }
}

/// A vector whose coordinates e^N(0, 1) depend only on `seed` and `stream`.
#[must_use]
pub fn log_normal(length: usize, seed: u64, stream: u64) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    (0..length).map(|_| f32::exp(StandardNormal.sample(&mut random))).collect()
}

/// ‖estimate − mean‖² / ‖mean‖² of the vectors' mean.
#[must_use]
pub fn error(estimate: &[f32], vectors: &[&[f32]]) -> f64 {
    let (mut lost, mut square) = (0.0, 0.0);
    for (i, estimate) in estimate.iter().enumerate() {
        let mean = vectors.iter().map(|vector| f64::from(vector[i])).sum::<f64>() / vectors.len() as f64;
        lost += (f64::from(*estimate) - mean).powi(2);
        square += mean * mean;
    }
    lost / square
}

/// The seed of a worker's own random numbers.
#[must_use]
pub fn private_seed(seed: u64, worker: u64) -> u64 {
    mix(seed.wrapping_add(GOLDEN_GAMMA.wrapping_mul(worker + 2)))
}

/// The seed of a server's random numbers.
#[must_use]
pub fn server_seed(seed: u64) -> u64 {
    mix(seed.wrapping_add(GOLDEN_GAMMA))
}

/// The estimate of the mean of vectors of the same length by THC, without error feedback. The workers' kernels are those of
/// thc-worker; the aggregator's sums are computed here.
pub fn average(table: &LookupTable, vectors: &[&[f32]], seed: u64) -> Result<Vec<f32>> {
    let units = f64::from(table.granularity()) * vectors.len() as f64;
    if units > f64::from(u16::MAX) {
        return Err(Error::Usage(format!("sums of {} workers do not fit 16 bits", vectors.len())));
    }
    let quantizer = Quantizer::new(table);
    let mut mean = vec![0.0; vectors[0].len()];
    for part in partition::split(mean.len(), *partition::BLOCKS.end()) {
        let range = part.offset..part.offset + part.len;
        let norms = vectors.iter().map(|vector| norm::l2(&vector[range.clone()]));
        let limit = table.t_p() / (part.padded as f64).sqrt() * f64::from(norms.fold(0.0, f32::max));
        let limit = limit as f32;
        // The numbers of all workers are zeros, or too small for a range.
        if limit == 0.0 {
            continue;
        }
        let key = SignKey { job_seed: seed, call: 0, partition: part.index };
        let mut rotated = vec![0.0; part.padded];
        let (mut indices, mut sums) = (vec![0; part.padded], vec![0_u32; part.padded]);
        for (worker, vector) in (0..).zip(vectors) {
            rotated[..part.len].copy_from_slice(&vector[range.clone()]);
            rotated[part.len..].fill(0.0);
            rht::forward(&mut rotated, key)?;
            let rounding = Rounding::new(private_seed(seed, worker), 0, part.index);
            quantizer.quantize(&mut rotated, limit, &rounding, 0, &mut indices)?;
            let values = indices.iter().map(|index| u32::from(table.values()[usize::from(*index)]));
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        let limit = f64::from(limit);
        for (x, sum) in rotated.iter_mut().zip(sums) {
            *x = (f64::from(sum) * 2.0 * limit / units - limit) as f32;
        }
        rht::inverse_into(&mut rotated, &mut mean[range], key)?;
    }
    Ok(mean)
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Experiment { bits, granularity, fraction, workers, dimension, trials, .. } = self.experiment;
        writeln!(
            f,
            "b = {bits}, g = {granularity}, p = {:.6}, {workers} workers, {dimension} coordinates, {trials} trials, {}-bit lanes",
            Fraction(fraction),
            self.lane
        )?;
        write!(f, "NMSE    {:.6}", self.nmse)?;
        if let Some(error) = self.standard_error {
            write!(f, " ± {error:.6}")?;
        }
        write!(
            f,
            "\ntheory  {:.6}   ({:+.2} %; quantization {:.6} / {workers}, truncation {:.6})",
            self.theory,
            100.0 * (self.nmse / self.theory - 1.0),
            self.quantization_error,
            self.truncation_error
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn experiment((bits, granularity, fraction): (u8, u16, f64), workers: u8) -> Experiment {
        Experiment { bits, granularity, fraction, workers, dimension: 1 << 16, trials: 12, seed: 5 }
    }

    const PARAMETERS: [(u8, u16, f64); 5] = [
        (4, 30, 1.0 / 32.0),
        (4, 20, 1.0 / 512.0),
        (3, 16, 1.0 / 32.0),
        (2, 34, 1.0 / 512.0),
        (8, 255, 1.0 / 32.0),
    ];

    #[test]
    fn the_mean_is_estimated_whatever_the_length() {
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        for length in [1usize, 1000, 1025, 7000] {
            let vectors: Vec<Vec<f32>> = (0..4).map(|w| log_normal(length, 9, w)).collect();
            let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
            // Apart from truncation, the mean of many all-reduces is close to the exact mean.
            let trials = 400;
            let mut found = vec![0.0f64; length];
            for seed in 0..trials {
                for (sum, x) in found.iter_mut().zip(average(&table, &vectors, seed).unwrap()) {
                    *sum += f64::from(x) / trials as f64;
                }
            }
            let found: Vec<f32> = found.into_iter().map(|x| x as f32).collect();
            assert!(error(&found, &vectors) < 0.01, "length {length}: {}", error(&found, &vectors));
        }
        assert_eq!(average(&table, &[&[0.0; 5000][..]; 2], 1).unwrap(), [0.0; 5000]);
    }

    #[test]
    fn copies_agree_with_theory_within_three_percent() {
        for parameters in PARAMETERS {
            for workers in [1, 4, 8] {
                let found = experiment(parameters, workers).run().unwrap();
                let ratio = found.nmse / found.theory;
                assert!((ratio - 1.0).abs() < 0.03, "{parameters:?}, {workers} workers: {ratio}");
            }
        }
    }
}
