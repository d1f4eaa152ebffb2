//! Which parameters of a scheme each tensor of a model gets: the same for all, by L-GreCo, or by CGX's k-means.

use thc_baselines::SchemeGroup;
use thc_codec::signs::mix;
use thc_policy::layerwise::{Problem, exact};

use super::schemes::Named;
use crate::error::{Error, Result};

/// A scheme whose parameters are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// QSGD of 2 to 8 bits each way.
    Qsgd,
    /// TopK of 1/100 to 1/3.
    TopK,
    /// THC of 2 to 5 bits up; sums have 8 bits whatever is chosen.
    Thc,
}

/// Who chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nobody: all tensors have the usual parameters.
    Uniform,
    /// The fewest bits whose error is no more than with the usual parameters (L-GreCo).
    LGreco,
    /// Groups of tensors by size and error, of which large ones that lose little get the strongest compression (CGX).
    KMeans,
}

/// Groups of tensors of CGX; the paper has six, for a hundred tensors.
const GROUPS: usize = 3;
/// Rounds of k-means, more than enough for so few points.
const ROUNDS: usize = 50;

impl Family {
    /// As figures write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qsgd => "QSGD",
            Self::TopK => "TopK",
            Self::Thc => "THC",
        }
    }

    /// All choices, the strongest first.
    pub fn choices(self) -> Vec<Named> {
        let thc = |bits, granularity| Named::Thc { bits, granularity, inverse: 32 };
        match self {
            Self::Qsgd => (2..=8).map(|bits| Named::Qsgd { up: bits, down: bits }).collect(),
            Self::TopK => [100, 50, 20, 10, 5, 3].map(|inverse| Named::TopK { inverse }).to_vec(),
            Self::Thc => vec![thc(2, 10), thc(3, 20), thc(4, 30), thc(5, 60)],
        }
    }

    /// What all tensors have where nobody chooses.
    pub fn usual(self) -> Named {
        match self {
            Self::Qsgd => Named::Qsgd { up: 4, down: 4 },
            Self::TopK => Named::TopK { inverse: 10 },
            Self::Thc => Named::THC,
        }
    }

    fn usual_number(self) -> usize {
        self.choices().iter().position(|choice| *choice == self.usual()).unwrap_or(0)
    }
}

impl Policy {
    /// As tables write it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::LGreco => "L-GreCo",
            Self::KMeans => "k-means",
        }
    }

    /// A choice for each of these pieces of a gradient that was summed up for a while.
    pub fn choose(self, family: Family, pieces: &[&[f32]], workers: u8, seed: u64) -> Result<Vec<Named>> {
        let choices = family.choices();
        let usual = family.usual_number();
        if self == Self::Uniform || pieces.is_empty() {
            return Ok(vec![family.usual(); pieces.len()]);
        }
        let (mut costs, mut errors) = (Vec::new(), Vec::new());
        for (number, piece) in pieces.iter().enumerate() {
            let (mut cost, mut error) = (Vec::new(), Vec::new());
            for choice in &choices {
                let scheme = choice.scheme()?;
                let bits = scheme.bits(piece.len(), workers.into())?;
                let mut alone = SchemeGroup::new(scheme.as_ref(), piece.len(), 1, mix(seed ^ number as u64))?;
                let mean = alone.allreduce(&[piece])?.mean;
                cost.push((bits.up + bits.down) as f64);
                error.push(mean.iter().zip(*piece).map(|(a, b)| f64::from(a - b).powi(2)).sum());
            }
            costs.push(cost);
            errors.push(error);
        }
        let measured = |error: thc_policy::AdaptError| Error::Failure(error.to_string());
        let chosen = match self {
            Self::Uniform => vec![usual; pieces.len()],
            Self::LGreco => {
                let bound = errors.iter().map(|error| error[usual]).sum();
                let problem = Problem::new(&costs, &errors).map_err(measured)?;
                exact(&problem, bound).map_err(measured)?.choices
            }
            Self::KMeans => {
                let lost: Vec<f64> = errors.iter().map(|error| error[usual]).collect();
                let sizes: Vec<f64> = pieces.iter().map(|piece| piece.len() as f64).collect();
                group_choices(&sizes, &lost, choices.len())
            }
        };
        Ok(chosen.into_iter().map(|number| choices[number]).collect())
    }
}

/// Numbers of choices by group: groups are ordered from large tensors that lose little to small ones that lose much, and spread over the
/// choices from the strongest to the weakest.
fn group_choices(sizes: &[f64], errors: &[f64], choices: usize) -> Vec<usize> {
    let scaled = |values: &[f64]| -> Vec<f64> {
        let logs: Vec<f64> = values.iter().map(|value| value.max(1e-30).ln()).collect();
        let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
        let span = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max) - low;
        logs.iter().map(|log| if span > 0.0 { (log - low) / span } else { 0.0 }).collect()
    };
    let points: Vec<[f64; 2]> = scaled(sizes).into_iter().zip(scaled(errors)).map(|(s, e)| [s, e]).collect();
    let groups = GROUPS.min(points.len());
    // Begins with points that are spread over the order that is wanted in the end.
    let order = |point: &[f64; 2]| point[1] - point[0];
    let mut sorted: Vec<usize> = (0..points.len()).collect();
    sorted.sort_by(|a, b| order(&points[*a]).total_cmp(&order(&points[*b])).then(a.cmp(b)));
    let spread = |group: usize, of: usize| if groups < 2 { 0 } else { group * (of - 1) / (groups - 1) };
    let mut centres: Vec<[f64; 2]> =
        (0..groups).map(|group| points[sorted[spread(group, points.len())]]).collect();
    let mut belongs = vec![0; points.len()];
    for _ in 0..ROUNDS {
        for (belongs, point) in belongs.iter_mut().zip(&points) {
            let distance = |group: usize| {
                let centre = &centres[group];
                (centre[0] - point[0]).powi(2) + (centre[1] - point[1]).powi(2)
            };
            *belongs = (0..groups).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(0);
        }
        for (group, centre) in centres.iter_mut().enumerate() {
            let own = || points.iter().zip(&belongs).filter(|(_, of)| **of == group).map(|(point, _)| point);
            let count = own().count();
            if count > 0 {
                *centre = [0, 1].map(|axis| own().map(|point| point[axis]).sum::<f64>() / count as f64);
            }
        }
    }
    let mut ranked: Vec<usize> = (0..groups).collect();
    ranked.sort_by(|a, b| order(&centres[*a]).total_cmp(&order(&centres[*b])));
    let rank = |group: usize| ranked.iter().position(|other| *other == group).unwrap_or(0);
    belongs.into_iter().map(|group| spread(rank(group), choices)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A large tensor that is nearly a constant, a small one with everything in it.
    fn pieces() -> Vec<Vec<f32>> {
        let wave = |length: usize, size: f32| (0..length).map(|i| size * (i as f32 * 0.7).sin()).collect();
        vec![wave(4096, 0.01), wave(1024, 0.1), wave(256, 3.0)]
    }

    #[test]
    fn chosen_parameters_lose_no_more_and_cost_less() {
        let pieces = pieces();
        let views: Vec<&[f32]> = pieces.iter().map(Vec::as_slice).collect();
        let bits = |family: Family, policy: Policy| -> u64 {
            let chosen = policy.choose(family, &views, 4, 1).unwrap();
            chosen
                .iter()
                .zip(&views)
                .map(|(choice, piece)| {
                    let bits = choice.scheme().unwrap().bits(piece.len(), 4).unwrap();
                    bits.up + bits.down
                })
                .sum()
        };
        for family in [Family::Qsgd, Family::TopK, Family::Thc] {
            let [uniform, chosen] = [Policy::Uniform, Policy::LGreco].map(|policy| bits(family, policy));
            assert!(chosen <= uniform, "{family:?}: {chosen} {uniform}");
        }
        assert!(bits(Family::Qsgd, Policy::LGreco) < bits(Family::Qsgd, Policy::Uniform));
    }

    #[test]
    fn groups_give_the_strongest_to_large_tensors_that_lose_little() {
        assert_eq!(group_choices(&[1e6, 9e5, 1e3, 10.0], &[0.1, 0.1, 1.0, 9.0], 7), [0, 3, 6, 6]);
        assert_eq!(group_choices(&[5.0], &[1.0], 4), [0]);
    }
}
