//! `thc nmse`: the error of the mean of n workers, measured and predicted (paper, Appendix D.4).

use std::f64::consts::PI;
use std::fmt;

use serde::Serialize;
use thc_codec::table::LookupTable;
use thc_ps::Fraction;

use crate::distribution::Distribution;
use crate::error::Result;
use crate::loopback::Loopback;

/// The relation between the workers' vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Vectors {
    /// All workers hold the same vector, as in the paper.
    Copies,
    /// Each worker holds its own vector.
    Independent,
}

/// One experiment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Experiment {
    /// Bit budget b, at most 4.
    pub bits: u8,
    /// Granularity g.
    pub granularity: u16,
    /// Truncated fraction p.
    pub fraction: f64,
    /// Workers n.
    pub workers: u8,
    /// Coordinates d of a vector.
    pub dimension: usize,
    /// The distribution of the coordinates.
    pub distribution: Distribution,
    /// The relation between the workers' vectors.
    pub vectors: Vectors,
    /// Repetitions, each with new vectors, signs and roundings.
    pub trials: u32,
    /// log₂ of the coordinates that are transformed together.
    pub block: u8,
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
    /// The prediction of [`theory`].
    pub theory: f64,
    /// The table's error from rounding.
    pub quantization_error: f64,
    /// The table's error from truncation.
    pub truncation_error: f64,
}

impl Experiment {
    /// Runs the trials with the codec and the aggregator model.
    pub fn run(&self) -> Result<Findings> {
        let table = LookupTable::solve(self.bits, self.granularity, self.fraction)?;
        let mut loopback = Loopback::new(&table, self.workers, self.seed)?.with_block(self.block);
        let mut errors = Vec::new();
        for trial in 0..self.trials {
            errors.push(self.trial(&mut loopback, trial)?);
        }
        let count = errors.len() as f64;
        let nmse = errors.iter().sum::<f64>() / count;
        let variance = errors.iter().map(|e| (e - nmse).powi(2)).sum::<f64>() / (count - 1.0);
        let cosine = match self.vectors {
            Vectors::Copies => 1.0,
            Vectors::Independent => self.distribution.cosine(),
        };
        Ok(Findings {
            experiment: *self,
            lane: loopback.lane().bits(),
            nmse,
            standard_error: (errors.len() > 1).then(|| (variance / count).sqrt()),
            theory: theory(&table, self.workers, cosine),
            quantization_error: table.quantization_error(),
            truncation_error: table.truncation_error(),
        })
    }

    fn trial(&self, loopback: &mut Loopback, trial: u32) -> Result<f64> {
        let workers = usize::from(self.workers);
        let own = |worker: usize| {
            let stream = u64::from(trial) << 8 | worker as u64;
            self.distribution.sample(self.dimension, self.seed, stream)
        };
        let vectors: Vec<Vec<f32>> = match self.vectors {
            Vectors::Copies => vec![own(0)],
            Vectors::Independent => (0..workers).map(own).collect(),
        };
        let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).cycle().take(workers).collect();
        let estimate = loopback.allreduce(&vectors)?;
        let (mut error, mut norm) = (0.0, 0.0);
        for (i, &estimate) in estimate.iter().enumerate() {
            let mean = vectors.iter().map(|v| f64::from(v[i])).sum::<f64>() / workers as f64;
            error += (f64::from(estimate) - mean).powi(2);
            norm += mean * mean;
        }
        Ok(error / norm)
    }
}

/// The expected NMSE of the mean of `workers` long vectors of equal norm with the same `cosine`
/// between any two, from 0 to 1.
///
/// The transform makes two workers' values of one coordinate jointly normal with that
/// correlation. Roundings are independent, so they average out; truncations average out only as far
/// as they are uncorrelated:
///
/// (q + t + (n − 1)·C) / (1 + (n − 1)·cosine), with q and t the table's quantization and truncation
/// errors, C the covariance of two workers' truncations. For copies C = t, which gives q/n + t.
pub fn theory(table: &LookupTable, workers: u8, cosine: f64) -> f64 {
    let others = f64::from(workers) - 1.0;
    let covariance = truncation_covariance(table, cosine);
    (table.quantization_error() + table.truncation_error() + others * covariance) / (1.0 + others * cosine)
}

/// E[τ(A)·τ(B)] for unit normal A and B with correlation `cosine`, τ what truncation to
/// [−t_p, t_p] cuts off: by Mehler's formula Σ cₖ²·cosineᵏ, cₖ the coefficients of τ in normalised
/// Hermite polynomials. τ is odd, so even ones vanish.
fn truncation_covariance(table: &LookupTable, cosine: f64) -> f64 {
    // The exact value, where the series would converge slowly.
    if cosine == 1.0 {
        return table.truncation_error();
    }
    const DEGREES: usize = 200;
    const STEPS: usize = 20_000;
    let threshold = table.t_p();
    // Beyond 12 more standard deviations the rest is negligible.
    let step = 12.0 / STEPS as f64;
    let mut coefficients = [0.0f64; DEGREES];
    for i in 0..STEPS {
        let a = threshold + (i as f64 + 0.5) * step;
        let weight = 2.0 * (a - threshold) * (-a * a / 2.0).exp() / (2.0 * PI).sqrt() * step;
        let (mut before, mut polynomial) = (0.0, 1.0);
        for (k, coefficient) in coefficients.iter_mut().enumerate() {
            if k % 2 == 1 {
                *coefficient += weight * polynomial;
            }
            let k = k as f64;
            (before, polynomial) = (polynomial, (a * polynomial - k.sqrt() * before) / (k + 1.0).sqrt());
        }
    }
    coefficients.iter().enumerate().map(|(k, c)| c * c * cosine.powi(k as i32)).sum()
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
            "\ntheory  {:.6}   ({:+.2} %; quantization {:.6}, truncation {:.6})",
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

    fn experiment(parameters: (u8, u16, f64), workers: u8, vectors: Vectors) -> Experiment {
        let (bits, granularity, fraction) = parameters;
        Experiment {
            bits,
            granularity,
            fraction,
            workers,
            dimension: 1 << 16,
            distribution: Distribution::Lognormal,
            vectors,
            trials: 12,
            block: 20,
            seed: 5,
        }
    }

    const PARAMETERS: [(u8, u16, f64); 4] =
        [(4, 30, 1.0 / 32.0), (4, 20, 1.0 / 512.0), (3, 16, 1.0 / 32.0), (2, 34, 1.0 / 512.0)];

    #[test]
    fn copies_agree_with_theory_within_three_percent() {
        for parameters in PARAMETERS {
            for workers in [1, 4, 8] {
                let found = experiment(parameters, workers, Vectors::Copies).run().unwrap();
                let sum = found.quantization_error / f64::from(workers) + found.truncation_error;
                assert!((found.theory / sum - 1.0).abs() < 1e-12);
                let ratio = found.nmse / sum;
                assert!((ratio - 1.0).abs() < 0.03, "{parameters:?}, {workers} workers: {ratio}");
            }
        }
    }

    #[test]
    fn independent_vectors_agree_with_theory_within_three_percent() {
        for distribution in [Distribution::Lognormal, Distribution::Normal, Distribution::Uniform] {
            for workers in [4, 10] {
                let mut experiment = experiment(PARAMETERS[0], workers, Vectors::Independent);
                experiment.distribution = distribution;
                // Norms of short log-normal vectors differ much, while the theory assumes equal norms.
                if distribution == Distribution::Lognormal {
                    experiment.dimension = 1 << 19;
                    experiment.trials = 4;
                }
                let found = experiment.run().unwrap();
                assert_eq!(found.lane, if workers == 4 { 8 } else { 16 });
                let ratio = found.nmse / found.theory;
                assert!((ratio - 1.0).abs() < 0.03, "{distribution:?}, {workers} workers: {ratio}");
            }
        }
    }

    #[test]
    fn covariance_tends_to_the_variance() {
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        let full = table.truncation_error();
        assert_eq!(truncation_covariance(&table, 0.0), 0.0);
        let near = truncation_covariance(&table, 0.99);
        assert!(near < full && near > 0.9 * full, "{near} {full}");
        let quarter = truncation_covariance(&table, 0.25);
        assert!(quarter > 0.0 && quarter < 0.25 * full, "{quarter}");
    }
}
