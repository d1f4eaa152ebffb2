//! The best assignment without steps, from the Pareto frontier of cost and error, layer by layer.
//!
//! A partial assignment is dropped if another one of the same layers has no larger cost and error, or if it cannot lead to a
//! lower cost than the best known assignment. A lower bound of the cost to which it leads follows from its cost and error,
//! the multiplier of the mixed problem ([`frontier::relax`]), and the least cost of the remaining layers. For models of many
//! layers these bounds are so tight that few partial assignments remain. If too many remain, those with the worst bounds
//! are dropped, and the answer says how far it may be from the best one.

use super::{Assignment, Problem, frontier};
use crate::error::AdaptError;

/// Partial assignments that are kept at a time: first a few, which give a good assignment as a bound for the others.
const MOST: [usize; 2] = [32, 512];

#[derive(Clone, Copy)]
struct State {
    error: f64,
    cost: f64,
    /// The state of the layer before that this state extends by `choice`.
    parent: u32,
    choice: u16,
}

/// Finds the assignment of the least cost whose errors sum up to at most `bound`. [`Assignment::least_cost`] bounds how far
/// the assignment may be from the best one. The sum of the errors may exceed `bound` in the last digits, by rounding.
///
/// # Errors
/// [`AdaptError::Infeasible`] if there is none, [`AdaptError::Value`] for a bound that is negative or not finite.
pub fn exact(problem: &Problem, bound: f64) -> Result<Assignment, AdaptError> {
    problem.feasible(bound)?;
    let relaxed = frontier::relax(problem, bound);
    let search = Search::new(problem, bound, relaxed.price);
    let mut best = problem.assignment(relaxed.choices, 0.0);
    let mut given_up = f64::INFINITY;
    for most in MOST {
        let (found, worst) = search.run(most, best.cost);
        given_up = worst;
        if let Some(choices) = found {
            best = problem.assignment(choices, 0.0);
        }
        if given_up >= best.cost {
            break;
        }
    }
    best.least_cost = given_up.max(relaxed.least_cost).min(best.cost);
    Ok(best)
}

/// The data that all partial assignments have in common.
struct Search<'a> {
    problem: &'a Problem,
    bound: f64,
    price: f64,
    /// Layers in the order in which they are added, beginning with those that can cost the most.
    order: Vec<usize>,
    /// The efficient choices of each layer.
    efficient: Vec<Vec<usize>>,
    /// For the layers from each position of the order on, the least cost + price · error, and the least error.
    to_come: Vec<f64>,
    least_error: Vec<f64>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, bound: f64, price: f64) -> Self {
        let layers = problem.layers();
        let efficient: Vec<Vec<usize>> =
            (0..layers).map(|layer| frontier::efficient(problem, layer)).collect();
        let range = |layer: usize| {
            let costs = problem.costs(layer);
            let ends = efficient[layer].first().zip(efficient[layer].last());
            ends.map_or(0.0, |(&first, &last)| costs[first] - costs[last])
        };
        let mut order: Vec<usize> = (0..layers).collect();
        order.sort_by(|&a, &b| range(b).total_cmp(&range(a)));
        let (mut to_come, mut least_error) = (vec![0.0; layers + 1], vec![0.0; layers + 1]);
        for (at, &layer) in order.iter().enumerate().rev() {
            let (costs, errors) = (problem.costs(layer), problem.errors(layer));
            let least = |of: &dyn Fn(usize) -> f64| {
                efficient[layer].iter().map(|&c| of(c)).fold(f64::INFINITY, f64::min)
            };
            to_come[at] = to_come[at + 1] + least(&|c| costs[c] + price * errors[c]);
            least_error[at] = least_error[at + 1] + least(&|c| errors[c]);
        }
        Self { problem, bound, price, order, efficient, to_come, least_error }
    }

    /// Finds the best assignment that costs less than `known`, with at most `most` partial assignments at a time. Also returns
    /// the least cost to which the dropped partial assignments may lead, which is infinite if none was dropped.
    fn run(&self, most: usize, known: f64) -> (Option<Vec<usize>>, f64) {
        let slack = 1e-12 * known.abs();
        let room = self.bound * (1.0 + 1e-12);
        let mut given_up = f64::INFINITY;
        let mut states = vec![vec![State { error: 0.0, cost: 0.0, parent: 0, choice: 0 }]];
        for (at, &layer) in self.order.iter().enumerate() {
            let (costs, errors) = (self.problem.costs(layer), self.problem.errors(layer));
            let leads_to = |s: &State| s.cost + self.price * (s.error - self.bound) + self.to_come[at + 1];
            let mut after = Vec::with_capacity(states[at].len() * self.efficient[layer].len());
            for (parent, state) in states[at].iter().enumerate() {
                for &choice in &self.efficient[layer] {
                    let next = State {
                        error: state.error + errors[choice],
                        cost: state.cost + costs[choice],
                        parent: parent as u32,
                        choice: choice as u16,
                    };
                    if next.error + self.least_error[at + 1] <= room && leads_to(&next) < known + slack {
                        after.push(next);
                    }
                }
            }
            after.sort_unstable_by(|a, b| a.error.total_cmp(&b.error).then(a.cost.total_cmp(&b.cost)));
            let mut least = f64::INFINITY;
            after.retain(|state| {
                let kept = state.cost < least;
                least = least.min(state.cost);
                kept
            });
            if after.len() > most {
                after.select_nth_unstable_by(most, |a, b| leads_to(a).total_cmp(&leads_to(b)));
                given_up = after[most..].iter().map(leads_to).fold(given_up, f64::min);
                after.truncate(most);
            }
            states.push(after);
        }
        let last = states[self.order.len()].iter().enumerate().min_by(|a, b| a.1.cost.total_cmp(&b.1.cost));
        let Some((mut at, _)) = last.filter(|(_, state)| state.cost < known) else { return (None, given_up) };
        let mut choices = vec![0; self.order.len()];
        for (place, &layer) in self.order.iter().enumerate().rev() {
            let state = states[place + 1][at];
            choices[layer] = usize::from(state.choice);
            at = state.parent as usize;
        }
        (Some(choices), given_up)
    }
}
