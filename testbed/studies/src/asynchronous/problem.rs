//! What is trained: losses and gradients of samples.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thc_model::Prox;

use super::data::{Digits, RCV1, REAL_SIM, Sparse};
use super::network;
use thc_demo::error::Result;

/// A problem of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Logistic regression on generated data of the shape of real-sim: 72309 rows, 20958 columns, 51 entries in a row
    RealSim,
    /// Logistic regression on generated data of the shape of rcv1: 20242 rows, 47236 columns, 74 entries in a row
    Rcv1,
    /// A network with 100 hidden units on the 1797 handwritten digits of scikit-learn
    Digits,
}

impl Source {
    /// Samples of a step.
    pub fn batch(self) -> usize {
        if self == Self::Digits { 20 } else { 200 }
    }

    /// The nonsmooth part: L1 1e-5 and L2 1e-4 (rcv1: both 1e-4), L2 1e-4 for the network.
    pub fn prox(self) -> Prox {
        let l1 = match self {
            Self::RealSim => 1e-5,
            Self::Rcv1 => 1e-4,
            Self::Digits => 0.0,
        };
        Prox { l1, l2: 1e-4, bounds: None }
    }

    /// Bits of a gradient's coordinate; a model's have 8.
    pub fn bits(self) -> u8 {
        if self == Self::Digits { 4 } else { 8 }
    }

    /// The loss that transmitted bits are counted to.
    pub fn target(self) -> f64 {
        match self {
            Self::RealSim => 0.5,
            Self::Rcv1 => 0.4,
            Self::Digits => 0.05,
        }
    }
}

/// What a worker needs to have the same data as all others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    pub source: Source,
    /// Share of rows and columns.
    pub scale: f64,
    pub seed: u64,
    /// Where the digits are.
    pub digits: Option<PathBuf>,
}

/// Samples, and their losses as functions of the model.
pub enum Problem {
    Logistic(Sparse),
    Network(Digits),
}

impl Problem {
    pub fn load(setting: &Setting) -> Result<Self> {
        let shape = match setting.source {
            Source::RealSim => REAL_SIM,
            Source::Rcv1 => RCV1,
            Source::Digits => {
                let path = setting.digits.clone().unwrap_or_default();
                return Ok(Self::Network(Digits::read(&path)?));
            }
        };
        Ok(Self::Logistic(Sparse::generate(shape.with_scale(setting.scale), setting.seed)))
    }

    pub fn samples(&self) -> usize {
        match self {
            Self::Logistic(data) => data.labels.len(),
            Self::Network(data) => data.labels.len(),
        }
    }

    pub fn coordinates(&self) -> usize {
        match self {
            Self::Logistic(data) => data.columns,
            Self::Network(_) => network::COORDINATES,
        }
    }

    /// m: pushes of an epoch, ⌈n/B⌉, which are the paper's 500 for 10,000 digits.
    pub fn epoch(&self, source: Source) -> NonZeroU32 {
        NonZeroU32::new(self.samples().div_ceil(source.batch()) as u32).unwrap_or(NonZeroU32::MIN)
    }

    /// x⁰.
    pub fn start(&self, seed: u64) -> Vec<f32> {
        match self {
            Self::Logistic(data) => vec![0.0; data.columns],
            Self::Network(_) => network::start(seed),
        }
    }

    /// Adds the gradients of samples to `out`, and returns the sum of their losses.
    pub fn accumulate(&self, samples: impl Iterator<Item = usize>, x: &[f32], out: &mut [f32]) -> f64 {
        let mut loss = 0.0;
        for i in samples {
            loss += match self {
                Self::Network(digits) => network::accumulate(digits, i, x, out),
                Self::Logistic(data) => {
                    let (positions, values) = data.row(i);
                    let inner: f32 = positions.iter().zip(values).map(|(j, a)| a * x[*j as usize]).sum();
                    let margin = f64::from(inner * data.labels[i]);
                    // −y·σ(−margin)
                    let factor = -data.labels[i] * (1.0 / (1.0 + margin.exp())) as f32;
                    for (j, a) in positions.iter().zip(values) {
                        out[*j as usize] += factor * a;
                    }
                    (-margin).exp().ln_1p()
                }
            };
        }
        loss
    }
}

/// h(x).
pub fn nonsmooth(prox: &Prox, x: &[f32]) -> f64 {
    x.iter()
        .map(|v| f64::from(*v))
        .map(|v| f64::from(prox.l1) * v.abs() + 0.5 * f64::from(prox.l2) * v * v)
        .sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Gradients against differences of the loss.
    #[test]
    fn gradients_are_those_of_the_losses() {
        let sparse = Problem::Logistic(Sparse::generate(REAL_SIM.with_scale(0.01), 3));
        let network = Problem::Network(Digits::generate(30, 3));
        for problem in [sparse, network] {
            let x: Vec<f32> =
                problem.start(1).iter().enumerate().map(|(i, v)| v + 0.1 * (i as f32).sin()).collect();
            let mut gradient = vec![0.0; x.len()];
            problem.accumulate(0..20, &x, &mut gradient);
            // The coordinates that matter most.
            let mut order: Vec<usize> = (0..x.len()).collect();
            order.sort_by(|a, b| gradient[*b].abs().total_cmp(&gradient[*a].abs()));
            for i in &order[..10] {
                let at = |step: f32| {
                    let mut moved = x.clone();
                    moved[*i] += step;
                    problem.accumulate(0..20, &moved, &mut vec![0.0; x.len()])
                };
                let wanted = (at(1e-2) - at(-1e-2)) / 2e-2;
                let got = f64::from(gradient[*i]);
                assert!((got - wanted).abs() < 0.05 * wanted.abs() + 1e-3, "{got} for {wanted}");
            }
        }
    }
}
