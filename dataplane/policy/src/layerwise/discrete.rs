//! The paper's dynamic program (Algorithm 1), which divides the bound into D steps and counts errors in these.
//!
//! Errors are rounded up to whole steps, so the assignment stays within the bound. The program takes time proportional to
//! layers · D · choices, and 2 · layers · D bytes.

use super::{Assignment, Problem, frontier};
use crate::error::AdaptError;

/// The paper's D.
pub const STEPS: usize = 10_000;
/// The largest number of steps. More would take memory, 2 bytes for each layer and step, and gain nothing.
pub const MOST_STEPS: usize = 1_000_000;

/// Finds the assignment of the least cost whose errors, each rounded up to a multiple of `bound` / `steps`, sum up to at
/// most `bound`.
///
/// # Errors
/// [`AdaptError::Infeasible`] if there is none, for which rounding may be the cause if `bound` is less than one step for each
/// layer above the least possible error; [`AdaptError::Parameter`] for no steps or more than [`MOST_STEPS`].
pub fn discrete(problem: &Problem, bound: f64, steps: usize) -> Result<Assignment, AdaptError> {
    if !(1..=MOST_STEPS).contains(&steps) {
        let value = steps as f64;
        return Err(AdaptError::Parameter { what: "the number of steps", value, range: "1 to 1,000,000" });
    }
    problem.feasible(bound)?;
    let (layers, width) = (problem.layers(), steps + 1);
    let in_steps = |error: f64| -> usize {
        if error == 0.0 {
            return 0;
        }
        // A choice that takes more than all steps is never made.
        let whole = (error / bound * steps as f64).ceil();
        if whole.is_finite() && whole <= steps as f64 { whole as usize } else { width }
    };
    // The least cost of the layers so far, by the exact number of steps that they take, and the choice that led to it.
    let mut cost = vec![f64::INFINITY; width];
    cost[0] = 0.0;
    let mut next = vec![f64::INFINITY; width];
    let mut taken = vec![u16::MAX; layers * width];
    for layer in 0..layers {
        next.fill(f64::INFINITY);
        let taken = &mut taken[layer * width..(layer + 1) * width];
        for (choice, (&price, &error)) in problem.costs(layer).iter().zip(problem.errors(layer)).enumerate() {
            let error = in_steps(error);
            if error >= width {
                continue;
            }
            let from = &cost[..width - error];
            for ((to, taken), from) in next[error..].iter_mut().zip(&mut taken[error..]).zip(from) {
                let total = from + price;
                let less = total < *to;
                *to = if less { total } else { *to };
                *taken = if less { choice as u16 } else { *taken };
            }
        }
        std::mem::swap(&mut cost, &mut next);
    }
    let best = (0..width).min_by(|&a, &b| cost[a].total_cmp(&cost[b])).filter(|&best| cost[best].is_finite());
    let Some(mut at) = best else {
        let least =
            (0..layers).map(|l| problem.errors(l).iter().copied().fold(f64::INFINITY, f64::min)).sum();
        return Err(AdaptError::Infeasible { least, bound });
    };
    let mut choices = vec![0; layers];
    for layer in (0..layers).rev() {
        choices[layer] = usize::from(taken[layer * width + at]);
        at -= in_steps(problem.errors(layer)[choices[layer]]);
    }
    let least_cost = frontier::relax(problem, bound).least_cost;
    Ok(problem.assignment(choices, least_cost))
}
