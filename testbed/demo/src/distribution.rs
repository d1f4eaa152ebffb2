//! Synthetic gradients.

use clap::ValueEnum;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, LogNormal, StandardNormal, Uniform};
use serde::Serialize;

/// The distribution from which coordinates are drawn independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// e^N(0, 1), as the paper's Appendix D.4.
    Lognormal,
    /// N(0, 1).
    Normal,
    /// Uniform on [-1, 1).
    Uniform,
}

impl Distribution {
    /// Draws a vector of `length` coordinates, which depends only on `seed` and `stream`.
    pub fn sample(self, length: usize, seed: u64, stream: u64) -> Vec<f32> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        let mut draw: Box<dyn FnMut() -> f32> = match self {
            Self::Lognormal => {
                let normal = LogNormal::new(0.0f32, 1.0).expect("1 is a valid deviation");
                Box::new(move || normal.sample(&mut random))
            }
            Self::Normal => Box::new(move || StandardNormal.sample(&mut random)),
            Self::Uniform => {
                let uniform = Uniform::new(-1.0f32, 1.0).expect("-1 is less than 1");
                Box::new(move || uniform.sample(&mut random))
            }
        };
        (0..length).map(|_| draw()).collect()
    }

    /// The cosine between two long independent vectors: E[x]² / E[x²].
    pub fn cosine(self) -> f64 {
        match self {
            // Mean e^(1/2), second moment e^2.
            Self::Lognormal => (-1.0f64).exp(),
            Self::Normal | Self::Uniform => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_the_cosine_that_is_claimed() {
        for distribution in [Distribution::Lognormal, Distribution::Normal, Distribution::Uniform] {
            let x = distribution.sample(1 << 20, 1, 0);
            let y = distribution.sample(1 << 20, 1, 1);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            let cosine = dot(&x, &y) / (dot(&x, &x) * dot(&y, &y)).sqrt();
            assert!((cosine - distribution.cosine()).abs() < 0.01, "{distribution:?}: {cosine}");
            assert_eq!(x, distribution.sample(1 << 20, 1, 0));
        }
    }
}
