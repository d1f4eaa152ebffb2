//! The error of all schemes on the same vectors.

use serde::Serialize;
use thc_baselines::SchemeGroup;
use thc_codec::signs::mix;

use super::catalogue::{self, Entry};
use super::gradients::Source;
use crate::error::Result;
use crate::progress::Progress;
use thc_demo::nmse::Vectors;

/// Who averages what, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Workers n.
    pub workers: u32,
    /// The same vector for all, or one for each.
    pub vectors: Vectors,
    /// Rounds with the same vectors; what counts is the mean of the rounds' estimates. With more
    /// than one, error feedback can make up for what a round lost.
    pub rounds: u32,
}

/// A mean over trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The mean.
    pub mean: f64,
    /// Its standard error; none for a single trial.
    pub standard_error: Option<f64>,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many trials.
    pub trials: usize,
}

impl Summary {
    /// The summary of at least one value.
    pub fn summarize(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Self {
            mean,
            standard_error: (values.len() > 1).then(|| (variance / count).sqrt()),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            trials: values.len(),
        }
    }
}

/// What one scheme did in one setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// ‖estimate − mean‖² / ‖mean‖².
    pub nmse: Summary,
    /// Bits per coordinate from a worker to the server.
    pub bits_up: f64,
    /// Bits per coordinate from the server to a worker.
    pub bits_down: f64,
}

/// The exact mean of `workers` workers that hold `vectors`, all of them once or one for all.
fn exact(vectors: &[Vec<f32>]) -> Vec<f64> {
    let mut mean = vec![0.0; vectors[0].len()];
    for vector in vectors {
        mean.iter_mut().zip(vector).for_each(|(m, v)| *m += f64::from(*v));
    }
    mean.iter_mut().for_each(|m| *m /= vectors.len() as f64);
    mean
}

/// Root mean square of a coordinate of `vectors`.
fn rms(vectors: &[Vec<f32>]) -> f32 {
    let count: usize = vectors.iter().map(Vec::len).sum();
    let squares: f64 = vectors.iter().flatten().map(|v| f64::from(*v).powi(2)).sum();
    (squares / count as f64).sqrt() as f32
}

fn one(entry: &Entry, setting: &Setting, vectors: &[Vec<f32>], truth: &[f64], seed: u64) -> Result<Measured> {
    let all: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).cycle().take(setting.workers as usize).collect();
    let mut group = SchemeGroup::new(entry.scheme.as_ref(), truth.len(), setting.workers, seed)?;
    let mut sum = vec![0.0_f64; truth.len()];
    let (mut bits_up, mut bits_down) = (0.0, 0.0);
    for _ in 0..setting.rounds {
        let estimate = group.allreduce(&all)?;
        sum.iter_mut().zip(&estimate.mean).for_each(|(s, v)| *s += f64::from(*v));
        (bits_up, bits_down) = (estimate.bits_up, estimate.bits_down);
    }
    let rounds = f64::from(setting.rounds);
    let error: f64 = sum.iter().zip(truth).map(|(s, t)| (s / rounds - t).powi(2)).sum();
    let norm: f64 = truth.iter().map(|t| t * t).sum();
    Ok(Measured { nmse: Summary::summarize(&[error / norm]), bits_up, bits_down })
}

/// Measures all schemes of the catalogue in several settings, on the same vectors. `None` is for
/// schemes that the setting does not suit: several rounds, for those whose results are not estimates of
/// the mean of a round.
pub fn measure(
    source: &Source,
    settings: &[Setting],
    trials: u32,
    seed: u64,
    progress: (&Progress, &str),
) -> Result<Vec<Vec<Option<Measured>>>> {
    let trials = source.trials(trials);
    let jobs = settings.len() * trials as usize;
    let job = |number: usize| {
        let (setting, trial) = (&settings[number / trials as usize], (number % trials as usize) as u32);
        let vectors = source.vectors(trial, setting.workers, setting.vectors);
        let truth = exact(&vectors);
        let entries = catalogue::entries(setting.workers, rms(&vectors))?;
        let seed = mix(seed ^ mix(u64::from(trial) << 32 | u64::from(setting.workers)));
        let measure = |entry: &Entry| {
            let suits = setting.rounds == 1 || entry.accumulates;
            suits.then(|| one(entry, setting, &vectors, &truth, seed)).transpose()
        };
        entries.iter().map(measure).collect::<Result<Vec<_>>>()
    };
    let outcomes = progress.0.parallel(progress.1, jobs, job)?;
    Ok(outcomes.chunks(trials as usize).map(merge).collect())
}

/// Puts the trials of one setting together, scheme by scheme.
fn merge(trials: &[Vec<Option<Measured>>]) -> Vec<Option<Measured>> {
    let scheme = |i: usize| {
        let first = trials[0][i]?;
        let values: Vec<f64> = trials.iter().filter_map(|trial| trial[i]).map(|m| m.nmse.mean).collect();
        Some(Measured { nmse: Summary::summarize(&values), ..first })
    };
    (0..trials[0].len()).map(scheme).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_demo::distribution::Distribution;

    #[test]
    fn summaries() {
        let summary = Summary::summarize(&[1.0, 2.0, 6.0]);
        assert_eq!((summary.mean, summary.min, summary.max, summary.trials), (3.0, 1.0, 6.0, 3));
        assert!((summary.standard_error.unwrap() - (7.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Summary::summarize(&[5.0]).standard_error, None);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_in_parallel() {
        let source = Source::Drawn { distribution: Distribution::Lognormal, dimension: 2048, seed: 3 };
        let setting = |workers, rounds| Setting { workers, vectors: Vectors::Independent, rounds };
        let settings = [setting(1, 1), setting(4, 1), setting(4, 5)];
        let measure = || measure(&source, &settings, 3, 1, (&Progress::new(true), "")).unwrap();
        let found = measure();
        assert_eq!(found, measure());
        assert_eq!(found.len(), 3);
        let entries = catalogue::entries(4, 1.0).unwrap();
        let of = |setting: usize, name: &str| {
            found[setting][entries.iter().position(|e| e.label == name).unwrap()]
        };
        assert!(of(1, "no compression").unwrap().nmse.mean < 1e-12);
        // Rounds average rounding out; DGC's momentum adds up instead.
        let (one, five) = (of(1, "TernGrad").unwrap().nmse.mean, of(2, "TernGrad").unwrap().nmse.mean);
        assert!((five * 5.0 / one - 1.0).abs() < 0.2, "{one} {five}");
        assert_eq!(of(2, "DGC 10 %"), None);
    }
}
