//! Schemes on the gradients of real architectures: errors, bits, choices by tensor, and how gradients are distributed.

use thc_codec::signs::mix;

use super::choice::{Family, Policy};
use super::gradients::{Gradient, Gradients};
use super::schemes::Scheme;
use super::sheet::Sheet;
use crate::error::Result;

/// Bytes below which tensors are averaged exactly: biases and normalizations.
const SMALL: usize = 1500;

/// The mean of workers' gradients by a scheme, or by one for each tensor, beside the exact one.
struct Averaged {
    up: f64,
    down: f64,
    /// ‖estimate − mean‖² and ‖mean‖².
    lost: f64,
    square: f64,
}

impl Averaged {
    /// One all-reduce of one piece.
    fn measure(scheme: Scheme, pieces: &[&[f32]], seed: u64) -> Result<Self> {
        let length = pieces[0].len();
        let mean =
            |i: usize| pieces.iter().map(|piece| f64::from(piece[i])).sum::<f64>() / pieces.len() as f64;
        let (bits, estimate) = (scheme.bits(length, pieces.len())?, scheme.mean(pieces, seed)?);
        let all = estimate.iter().enumerate();
        let (lost, square) = all.fold((0.0, 0.0), |(lost, square), (i, found)| {
            let mean = mean(i);
            (lost + (f64::from(*found) - mean).powi(2), square + mean * mean)
        });
        Ok(Self { up: bits.up as f64, down: bits.down as f64, lost, square })
    }

    /// All tensors, each by itself.
    fn by_tensor(schemes: &[Scheme], workers: &[Gradient], seed: u64) -> Result<Self> {
        let mut all = Self { up: 0.0, down: 0.0, lost: 0.0, square: 0.0 };
        let mut tensors: Vec<_> = workers.iter().map(Gradient::tensors).collect();
        for (number, scheme) in schemes.iter().enumerate() {
            let pieces: Vec<&[f32]> = tensors.iter_mut().filter_map(Iterator::next).collect();
            let one = Self::measure(*scheme, &pieces, mix(seed.wrapping_add(number as u64)))?;
            all.up += one.up;
            all.down += one.down;
            all.lost += one.lost;
            all.square += one.square;
        }
        Ok(all)
    }

    fn nmse(&self) -> f64 {
        self.lost / self.square
    }
}

/// L-GreCo's parameters by tensor, beside uniform ones.
pub fn choices(gradients: &Gradients, seed: u64) -> Result<Sheet> {
    let mut rows = Vec::new();
    for model in &gradients.models {
        let (seen, workers) = (gradients.seen_gradient(model)?, gradients.workers(model)?);
        let coordinates = seen.coordinates.len() as f64;
        let large: Vec<&[f32]> = seen.tensors().filter(|tensor| 4 * tensor.len() >= SMALL).collect();
        for family in [Family::Qsgd, Family::TopK] {
            let mut usual: Option<Averaged> = None;
            for policy in [Policy::Uniform, Policy::LGreco] {
                let mut choices = policy.choose(family, &large, workers.len() as u8, seed)?.into_iter();
                let schemes: Vec<Scheme> = seen
                    .lengths
                    .iter()
                    .map(|length| {
                        let wide = 4 * length >= SMALL;
                        if wide { choices.next().unwrap_or(family.usual()) } else { Scheme::Exact }
                    })
                    .collect();
                let found = Averaged::by_tensor(&schemes, &workers, seed)?;
                let bits = found.up + found.down;
                let beside = usual.as_ref().unwrap_or(&found);
                let values = [
                    found.up / coordinates,
                    found.down / coordinates,
                    found.nmse(),
                    (beside.up + beside.down) / bits,
                    found.nmse() / beside.nmse(),
                ];
                let label = format!("{}, {}, {}", model.name, family.name(), policy.label());
                rows.push((label, values.to_vec()));
                usual.get_or_insert(found);
            }
        }
    }
    Ok(Sheet {
        name: "choices",
        title: "parameters by tensor",
        columns: &[
            "bits up",
            "bits down",
            "NMSE",
            "times fewer bits than uniform",
            "its NMSE over uniform's",
        ],
        rows,
    })
}

/// The error of the mean, tensor by tensor (THC, Fig. 2b and 14).
pub fn errors(gradients: &Gradients, seed: u64) -> Result<Sheet> {
    let uniform = |rotated| Scheme::Uniform { rotated };
    let schemes = [Scheme::TopK { inverse: 10 }, Scheme::THC, uniform(true), uniform(false)];
    let mut rows = Vec::new();
    for model in &gradients.models {
        let workers = gradients.workers(model)?;
        let tensors = workers[0].lengths.len();
        let of = |scheme| Ok(Averaged::by_tensor(&vec![scheme; tensors], &workers, seed)?.nmse());
        let errors = schemes.into_iter().map(of).collect::<Result<_>>()?;
        rows.push((format!("{}, each tensor by itself", model.name), errors));
    }
    Ok(Sheet {
        name: "errors",
        title: "NMSE of the mean of four workers",
        columns: &["TopK 1/10", "THC", "uniform THC", "not rotated"],
        rows,
    })
}

/// The distribution of the magnitudes of one worker's gradient (SlimGC, Fig. 5).
pub fn values(gradients: &Gradients, _: u64) -> Result<Sheet> {
    let mut rows = Vec::new();
    for model in &gradients.models {
        let worker = gradients.workers(model)?.swap_remove(0);
        // Zeros are those of words and pictures that are not in the batch; the others have a law or none.
        let mut sizes: Vec<f64> =
            worker.coordinates.iter().map(|v| f64::from(v.abs())).filter(|v| *v > 0.0).collect();
        sizes.sort_by(f64::total_cmp);
        rows.push((model.name.clone(), Law::ALL.map(|law| law.distance(&sizes)).to_vec()));
    }
    Ok(Sheet { name: "values", title: "magnitudes", columns: &["from normal", "from log-normal"], rows })
}

/// A law of magnitudes, fitted by its moments.
#[derive(Clone, Copy)]
enum Law {
    Normal,
    LogNormal,
}

impl Law {
    const ALL: [Self; 2] = [Self::Normal, Self::LogNormal];

    /// The largest difference between the share of magnitudes up to a size and what the law says, over all sizes, which are in ascending order
    /// and above 0.
    fn distance(self, sizes: &[f64]) -> f64 {
        let count = sizes.len() as f64;
        let mean = |of: &dyn Fn(f64) -> f64| sizes.iter().map(|v| of(*v)).sum::<f64>() / count;
        let (first, scale) = match self {
            Self::Normal => (0.0, mean(&|v| v * v).sqrt()),
            Self::LogNormal => {
                let middle = mean(&f64::ln);
                (middle, mean(&|v| (v.ln() - middle).powi(2)).sqrt())
            }
        };
        let below = |v: f64| match self {
            Self::Normal => 2.0 * normal(v / scale) - 1.0,
            Self::LogNormal => normal((v.ln() - first) / scale),
        };
        // A thousand places are enough for three digits.
        let step = sizes.len().div_ceil(1000).max(1);
        let places = (0..sizes.len()).step_by(step);
        places.map(|i| (below(sizes[i]) - (i as f64 + 0.5) / count).abs()).fold(0.0, f64::max)
    }
}

/// The share of a standard normal distribution below x (Abramowitz, Stegun 7.1.26; 1.5e-7 off at most).
fn normal(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let sum = t
        * (0.254_829_592
            + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let erf = 1.0 - sum * (-z * z).exp();
    0.5 * (1.0 + if x < 0.0 { -erf } else { erf })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::{Distribution, LogNormal, StandardNormal};

    use super::super::gradients::tests::write;
    use super::*;

    #[test]
    fn every_law_is_nearest_to_its_own_values() {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let log = LogNormal::new(-3.0, 1.5).unwrap();
        let mut draw = |law: usize| -> f64 {
            match law {
                0 => f64::abs(StandardNormal.sample(&mut random)),
                _ => log.sample(&mut random),
            }
        };
        for law in 0..2 {
            let mut sizes: Vec<f64> = (0..50_000).map(|_| draw(law)).collect();
            sizes.sort_by(f64::total_cmp);
            let distances = Law::ALL.map(|law| law.distance(&sizes));
            assert!(distances[law] < 0.02, "{law}: {distances:?}");
            assert!(distances[1 - law] > 0.05, "{law}: {distances:?}");
        }
    }

    #[test]
    fn layers_have_errors_bits_and_choices_that_lose_no_more() {
        let folder = tempfile::tempdir().unwrap();
        // A matrix that is nearly nothing and a bias that is almost everything; workers differ.
        write(folder.path(), |file, i| {
            let size = if i < 2048 { 0.01 } else { 3.0 };
            size * ((i + 7 * file) as f32 * 0.7).sin()
        });
        let gradients = Gradients::open(folder.path()).unwrap();
        let rows = choices(&gradients, 1).unwrap().rows;
        assert_eq!(rows.len(), 4);
        for two in rows.chunks(2) {
            let value = |row: usize, column: usize| two[row].1[column];
            assert_eq!((value(0, 3), value(0, 4)), (1.0, 1.0), "{two:?}");
            // There is one tensor to choose for, so that there is nothing to gain without a loss.
            assert!(value(1, 3) >= 1.0 && value(1, 2) > 0.0, "{two:?}");
        }
        let of = |row: &(String, Vec<f64>), column: usize| row.1[column];
        let found = errors(&gradients, 1).unwrap().rows;
        assert!(of(&found[0], 1) < of(&found[0], 0), "{found:?}");
        let laws = values(&gradients, 1).unwrap().rows;
        assert!(laws[0].1.iter().all(|distance| (0.0..1.0).contains(distance)), "{laws:?}");
    }
}
