//! Schemes on the gradients of real architectures: errors, and choices by tensor.

use thc_codec::signs::mix;

use super::choice::{Family, Policy};
use super::gradients::{Gradient, Gradients};
use super::schemes::Scheme;
use super::sheet::Sheet;
use crate::error::Result;

/// Bytes below which tensors are averaged exactly: biases and normalizations.
const SMALL: usize = 1500;

/// The NMSE of the mean of workers' gradients by a scheme for each tensor: ‖estimate − mean‖² / ‖mean‖².
fn nmse(schemes: &[Scheme], workers: &[Gradient], seed: u64) -> Result<f64> {
    let (mut lost, mut square) = (0.0, 0.0);
    let mut tensors: Vec<_> = workers.iter().map(Gradient::tensors).collect();
    for (number, scheme) in schemes.iter().enumerate() {
        let pieces: Vec<&[f32]> = tensors.iter_mut().filter_map(Iterator::next).collect();
        let estimate = scheme.mean(&pieces, mix(seed.wrapping_add(number as u64)))?;
        for (i, found) in estimate.into_iter().enumerate() {
            let mean = pieces.iter().map(|piece| f64::from(piece[i])).sum::<f64>() / pieces.len() as f64;
            lost += (f64::from(found) - mean).powi(2);
            square += mean * mean;
        }
    }
    Ok(lost / square)
}

/// L-GreCo's parameters by tensor, beside uniform ones.
pub fn choices(gradients: &Gradients, seed: u64) -> Result<Sheet> {
    let mut rows = Vec::new();
    for model in &gradients.models {
        let (seen, workers) = (gradients.seen_gradient(model)?, gradients.workers(model)?);
        let large: Vec<&[f32]> = seen.tensors().filter(|tensor| 4 * tensor.len() >= SMALL).collect();
        for family in [Family::Qsgd, Family::TopK] {
            let mut usual = None;
            for policy in [Policy::Uniform, Policy::LGreco] {
                let mut choices = policy.choose(family, &large, seed)?.into_iter();
                let choice = |length: &usize| match 4 * length >= SMALL {
                    true => choices.next().unwrap_or(family.usual()),
                    false => Scheme::Exact,
                };
                let schemes: Vec<Scheme> = seen.lengths.iter().map(choice).collect();
                let bits = schemes.iter().zip(&seen.lengths).map(|(scheme, length)| scheme.bits(*length));
                let found = (bits.sum::<u64>() as f64, nmse(&schemes, &workers, seed)?);
                let beside = *usual.get_or_insert(found);
                let label = format!("{}, {}, {}", model.name, family.name(), policy.label());
                rows.push((label, vec![found.1, beside.0 / found.0, found.1 / beside.1]));
            }
        }
    }
    Ok(Sheet {
        name: "choices",
        title: "parameters by tensor",
        columns: &["NMSE", "times fewer bits than uniform", "its NMSE over uniform's"],
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
        let of = |scheme| nmse(&vec![scheme; tensors], &workers, seed);
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::gradients::tests::write;
    use super::*;

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
            assert_eq!((value(0, 1), value(0, 2)), (1.0, 1.0), "{two:?}");
            // There is one tensor to choose for, so that there is nothing to gain without a loss.
            assert!(value(1, 1) >= 1.0 && value(1, 0) > 0.0, "{two:?}");
        }
        let of = |row: &(String, Vec<f64>), column: usize| row.1[column];
        let found = errors(&gradients, 1).unwrap().rows;
        assert!(of(&found[0], 1) < of(&found[0], 0), "{found:?}");
    }
}
