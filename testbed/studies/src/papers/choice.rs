//! Which parameters of a scheme each tensor of a model gets: the same for all, or by L-GreCo.

use thc_codec::signs::mix;
use thc_policy::layerwise::{Problem, exact};

use super::schemes::Scheme;
use crate::error::{Error, Result};

/// A scheme whose parameters are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// QSGD of 2 to 8 bits each way.
    Qsgd,
    /// TopK of 1/100 to 1/3.
    TopK,
}

/// A way to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All tensors have the usual parameters.
    Uniform,
    /// The fewest bits whose error is no more than with the usual parameters (L-GreCo).
    LGreco,
}

impl Family {
    /// The name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qsgd => "QSGD",
            Self::TopK => "TopK",
        }
    }

    /// All choices, the strongest first.
    pub fn choices(self) -> Vec<Scheme> {
        match self {
            Self::Qsgd => (2..=8).map(|bits| Scheme::Qsgd { up: bits, down: bits }).collect(),
            Self::TopK => [100, 50, 20, 10, 5, 3].map(|inverse| Scheme::TopK { inverse }).to_vec(),
        }
    }

    /// The parameters of all tensors if nothing is chosen.
    pub fn usual(self) -> Scheme {
        match self {
            Self::Qsgd => Scheme::Qsgd { up: 4, down: 4 },
            Self::TopK => Scheme::TopK { inverse: 10 },
        }
    }

    fn usual_number(self) -> usize {
        self.choices().iter().position(|choice| *choice == self.usual()).unwrap_or(0)
    }
}

impl Policy {
    /// The name in tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::LGreco => "L-GreCo",
        }
    }

    /// A choice for each of these pieces of a gradient that was summed up for a while.
    pub fn choose(self, family: Family, pieces: &[&[f32]], seed: u64) -> Result<Vec<Scheme>> {
        let choices = family.choices();
        let usual = family.usual_number();
        if self == Self::Uniform || pieces.is_empty() {
            return Ok(vec![family.usual(); pieces.len()]);
        }
        let (mut costs, mut errors) = (Vec::new(), Vec::new());
        for (number, piece) in pieces.iter().enumerate() {
            let (mut cost, mut error) = (Vec::new(), Vec::new());
            for choice in &choices {
                let mean = choice.mean(&[piece], mix(seed ^ number as u64))?;
                cost.push(choice.bits(piece.len()) as f64);
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
        };
        Ok(chosen.into_iter().map(|number| choices[number]).collect())
    }
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
            let chosen = policy.choose(family, &views, 1).unwrap();
            chosen.iter().zip(&views).map(|(choice, piece)| choice.bits(piece.len())).sum()
        };
        for family in [Family::Qsgd, Family::TopK] {
            let [uniform, chosen] = [Policy::Uniform, Policy::LGreco].map(|policy| bits(family, policy));
            assert!(chosen <= uniform, "{family:?}: {chosen} {uniform}");
        }
        assert!(bits(Family::Qsgd, Policy::LGreco) < bits(Family::Qsgd, Policy::Uniform));
    }
}
