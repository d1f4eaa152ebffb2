//! The efficient choices of each layer, and the relaxed problem, in which choices may be mixed and whose answer is a bound.

use super::Problem;

/// The choices of one layer to which no other choice is superior in both cost and error, by increasing error.
pub fn efficient(problem: &Problem, layer: usize) -> Vec<usize> {
    let (costs, errors) = (problem.costs(layer), problem.errors(layer));
    let mut order: Vec<usize> = (0..problem.choices()).collect();
    order.sort_by(|&a, &b| errors[a].total_cmp(&errors[b]).then(costs[a].total_cmp(&costs[b])));
    let mut kept: Vec<usize> = Vec::new();
    for choice in order {
        if kept.last().is_none_or(|&last| costs[choice] < costs[last]) {
            kept.push(choice);
        }
    }
    kept
}

/// The efficient choices on the lower convex hull of cost over error.
fn hull(problem: &Problem, layer: usize) -> Vec<usize> {
    let (costs, errors) = (problem.costs(layer), problem.errors(layer));
    let mut kept: Vec<usize> = Vec::new();
    for choice in efficient(problem, layer) {
        while let [.., a, b] = kept[..] {
            let over = (costs[b] - costs[a]) * (errors[choice] - errors[a]);
            let under = (costs[choice] - costs[a]) * (errors[b] - errors[a]);
            if over < under {
                break;
            }
            kept.pop();
        }
        kept.push(choice);
    }
    kept
}

/// The answer of the relaxed problem.
pub struct Relaxed {
    /// The multiplier of the bound: the cost that a unit of error saves.
    pub price: f64,
    /// A lower bound of the cost of all assignments.
    pub least_cost: f64,
    /// An assignment within the bound.
    pub choices: Vec<usize>,
}

/// Solves the relaxed problem. Beginning with the least errors, it takes the steps along the hulls that save the most cost
/// per error first, as long as the bound allows.
pub fn relax(problem: &Problem, bound: f64) -> Relaxed {
    struct Step {
        layer: usize,
        from: usize,
        to: usize,
        error: f64,
        saved: f64,
    }
    let hulls: Vec<Vec<usize>> = (0..problem.layers()).map(|layer| hull(problem, layer)).collect();
    let mut steps = Vec::new();
    let (mut error, mut cost) = (0.0, 0.0);
    for (layer, hull) in hulls.iter().enumerate() {
        let (costs, errors) = (problem.costs(layer), problem.errors(layer));
        error += errors[hull[0]];
        cost += costs[hull[0]];
        for pair in hull.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            steps.push(Step {
                layer,
                from,
                to,
                error: errors[to] - errors[from],
                saved: costs[from] - costs[to],
            });
        }
    }
    // Ratios fall along a hull, so the order keeps its steps in sequence. Layers break ties.
    steps.sort_by(|a, b| (b.saved * a.error).total_cmp(&(a.saved * b.error)));
    let mut choices: Vec<usize> = hulls.iter().map(|hull| hull[0]).collect();
    let (mut price, mut least_cost, mut open) = (0.0, None, error);
    for step in steps {
        let room = bound - open;
        if least_cost.is_none() && step.error <= room {
            open += step.error;
            cost -= step.saved;
        } else if least_cost.is_none() {
            price = step.saved / step.error;
            least_cost = Some(cost - price * room.max(0.0));
        }
        // A step that does not fit is left out with the steps beyond it. Cheaper steps of other layers may still fit.
        if error + step.error <= bound && choices[step.layer] == step.from {
            error += step.error;
            choices[step.layer] = step.to;
        }
    }
    Relaxed { price, least_cost: least_cost.unwrap_or(cost), choices }
}
