//! The choice of a compression for each layer, with the least cost at a bounded error (L-GreCo, sections 3 and 4).
//!
//! The problem is to minimise Σ cost(ℓ, c_ℓ) subject to Σ error(ℓ, c_ℓ) ≤ E. Costs are bytes or seconds. The error of a layer is
//! the squared L2 norm of what compression loses of it, which adds up over layers. [`discrete`] is the paper's dynamic
//! program over D steps of error. [`exact`] needs no steps, and says how far its answer can be from the best one.

mod discrete;
mod exact;
mod frontier;

pub use discrete::{MOST_STEPS, STEPS, discrete};
pub use exact::exact;

use crate::error::{AdaptError, check};

/// The largest number of choices of a layer, since solvers keep a choice in 16 bits.
const MOST_CHOICES: usize = 1 << 15;

/// Costs and errors of all choices of all layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    choices: usize,
    costs: Vec<f64>,
    errors: Vec<f64>,
}

/// A choice for each layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// For each layer, an index into its choices.
    pub choices: Vec<usize>,
    /// Sum of the costs.
    pub cost: f64,
    /// Sum of the errors.
    pub error: f64,
    /// A lower bound of the cost of all assignments within the bound. If it equals `cost`, the assignment is the best one.
    pub least_cost: f64,
}

impl Problem {
    /// Creates a problem from one row per layer, with the cost and the error of each choice. All layers have equally many.
    ///
    /// # Errors
    /// [`AdaptError::Count`] without layers or choices, for more than 2^15 choices or for rows of different lengths;
    /// [`AdaptError::Value`] for a number that is negative or not finite.
    pub fn new(costs: &[Vec<f64>], errors: &[Vec<f64>]) -> Result<Self, AdaptError> {
        let count = |what, actual, expected| {
            if actual == expected { Ok(()) } else { Err(AdaptError::Count { what, actual, expected }) }
        };
        count("layers with errors", errors.len(), costs.len())?;
        let choices = costs.first().map_or(0, Vec::len);
        if !(1..=MOST_CHOICES).contains(&choices) {
            let expected = choices.clamp(1, MOST_CHOICES);
            return Err(AdaptError::Count { what: "choices of a layer", actual: choices, expected });
        }
        let mut problem = Self { choices, costs: Vec::new(), errors: Vec::new() };
        for (layer, (costs, errors)) in costs.iter().zip(errors).enumerate() {
            count("costs of a layer", costs.len(), choices)?;
            count("errors of a layer", errors.len(), choices)?;
            for (choice, (&cost, &error)) in costs.iter().zip(errors).enumerate() {
                let whose = || format!("choice {choice} of layer {layer}");
                problem.costs.push(check("the cost", whose, cost)?);
                problem.errors.push(check("the error", whose, error)?);
            }
        }
        Ok(problem)
    }

    /// The number of layers.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.costs.len() / self.choices
    }

    /// The number of choices of each layer.
    #[must_use]
    pub fn choices(&self) -> usize {
        self.choices
    }

    /// The costs of one layer's choices.
    #[must_use]
    pub fn costs(&self, layer: usize) -> &[f64] {
        &self.costs[layer * self.choices..(layer + 1) * self.choices]
    }

    /// The errors of one layer's choices.
    #[must_use]
    pub fn errors(&self, layer: usize) -> &[f64] {
        &self.errors[layer * self.choices..(layer + 1) * self.choices]
    }

    /// Computes the cost and error of an assignment. The error of the default choices is the bound E (Algorithm 1, line 2).
    ///
    /// # Errors
    /// [`AdaptError::Count`] for another number of layers, [`AdaptError::Choice`] for a choice that does not exist.
    pub fn price(&self, choices: &[usize]) -> Result<Assignment, AdaptError> {
        if choices.len() != self.layers() {
            let (actual, expected) = (choices.len(), self.layers());
            return Err(AdaptError::Count { what: "choices, one for each layer", actual, expected });
        }
        if let Some(layer) = choices.iter().position(|&choice| choice >= self.choices) {
            return Err(AdaptError::Choice { layer, choice: choices[layer], choices: self.choices });
        }
        Ok(self.assignment(choices.to_vec(), 0.0))
    }

    fn assignment(&self, choices: Vec<usize>, least_cost: f64) -> Assignment {
        let sum = |row: fn(&Self, usize) -> &[f64]| {
            choices.iter().enumerate().map(|(layer, &choice)| row(self, layer)[choice]).sum()
        };
        Assignment { cost: sum(Self::costs), error: sum(Self::errors), choices, least_cost }
    }

    /// Checks that some assignment stays within the bound.
    fn feasible(&self, bound: f64) -> Result<(), AdaptError> {
        check("the bound", || "all errors".to_owned(), bound)?;
        let least = (0..self.layers())
            .map(|layer| self.errors(layer).iter().copied().fold(f64::INFINITY, f64::min))
            .sum();
        if least <= bound { Ok(()) } else { Err(AdaptError::Infeasible { least, bound }) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The least cost, by trying all assignments.
    fn brute_force(problem: &Problem, bound: f64) -> Option<f64> {
        let (layers, choices) = (problem.layers(), problem.choices());
        let mut best: Option<f64> = None;
        for number in 0..choices.pow(layers as u32) {
            let assigned: Vec<usize> =
                (0..layers).map(|layer| number / choices.pow(layer as u32) % choices).collect();
            let assignment = problem.price(&assigned).unwrap();
            if assignment.error <= bound && best.is_none_or(|best| assignment.cost < best) {
                best = Some(assignment.cost);
            }
        }
        best
    }

    fn problems() -> impl Strategy<Value = Problem> {
        (1usize..6, 1usize..5).prop_flat_map(|(layers, choices)| {
            let row =
                proptest::collection::vec(prop_oneof![0.0f64..10.0, (0u8..5).prop_map(f64::from)], choices);
            let rows = proptest::collection::vec(row, layers);
            (rows.clone(), rows).prop_map(|(costs, errors)| Problem::new(&costs, &errors).unwrap())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn exact_is_what_trying_all_finds(problem in problems(), bound in 0.0f64..30.0) {
            match (brute_force(&problem, bound), exact(&problem, bound)) {
                (Some(best), Ok(found)) => {
                    prop_assert!((found.cost - best).abs() <= 1e-9 * best.max(1.0), "{} {best}", found.cost);
                    prop_assert!(found.error <= bound * (1.0 + 1e-12));
                    prop_assert!((found.least_cost - found.cost).abs() <= 1e-9 * best.max(1.0));
                }
                (None, Err(AdaptError::Infeasible { .. })) => {}
                (best, found) => prop_assert!(false, "{best:?} {found:?}"),
            }
        }

        #[test]
        fn steps_lose_little_and_never_break_the_bound(problem in problems(), bound in 0.1f64..30.0) {
            let (best, found) = (brute_force(&problem, bound), discrete(&problem, bound, STEPS));
            if let Ok(found) = &found {
                prop_assert!(found.error <= bound);
                prop_assert!(found.cost >= best.unwrap() - 1e-9);
                prop_assert!(found.least_cost <= best.unwrap() + 1e-9);
            }
            // An assignment that leaves a step of error for each layer is found.
            let spare = bound * (1.0 - (problem.layers() + 1) as f64 / STEPS as f64);
            if let Some(within) = brute_force(&problem, spare) {
                prop_assert!(found.unwrap().cost <= within + 1e-9);
            }
        }
    }

    #[test]
    fn bad_tables_are_errors() {
        assert!(matches!(Problem::new(&[], &[]), Err(AdaptError::Count { .. })));
        assert!(matches!(Problem::new(&[vec![]], &[vec![]]), Err(AdaptError::Count { .. })));
        assert!(matches!(Problem::new(&[vec![1.0]], &[]), Err(AdaptError::Count { .. })));
        let rows = [vec![1.0, 2.0], vec![1.0]];
        assert!(matches!(Problem::new(&rows, &rows), Err(AdaptError::Count { .. })));
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            let error = Problem::new(&[vec![1.0, 2.0]], &[vec![1.0, value]]).unwrap_err();
            assert!(error.to_string().contains("choice 1 of layer 0"), "{error}");
        }
        let problem = Problem::new(&[vec![1.0, 2.0]], &[vec![1.0, 0.5]]).unwrap();
        assert!(matches!(problem.price(&[2]), Err(AdaptError::Choice { .. })));
        assert!(matches!(problem.price(&[0, 0]), Err(AdaptError::Count { .. })));
        for solved in [exact(&problem, 0.4), discrete(&problem, 0.4, STEPS)] {
            assert!(matches!(solved, Err(AdaptError::Infeasible { .. })));
        }
        assert!(matches!(exact(&problem, f64::NAN), Err(AdaptError::Value { .. })));
        for steps in [0, MOST_STEPS + 1, usize::MAX] {
            assert!(matches!(discrete(&problem, 1.0, steps), Err(AdaptError::Parameter { .. })));
        }
        let many = [vec![1.0; MOST_CHOICES + 1]];
        assert!(matches!(Problem::new(&many, &many), Err(AdaptError::Count { .. })));
    }

    #[test]
    fn a_bound_that_all_meet_takes_the_cheapest() {
        let problem =
            Problem::new(&[vec![8.0, 4.0, 2.0], vec![80.0, 40.0, 20.0]], &vec![vec![0.0; 3]; 2]).unwrap();
        for solved in [exact(&problem, 0.0), discrete(&problem, 0.0, STEPS)] {
            let solved = solved.unwrap();
            assert_eq!((solved.choices.as_slice(), solved.cost), (&[2, 2][..], 22.0));
        }
    }
}
