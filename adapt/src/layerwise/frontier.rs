//! Each layer's choices that are worth a thought, and the problem with choices mixed at will, whose answer is a bound.

use super::Problem;

/// The choices of one layer that no other beats in both cost and error, by increasing error.
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

/// The answer with choices mixed.
pub struct Relaxed {
    /// What an error is worth there, cost per error: the multiplier of the bound.
    pub price: f64,
    /// No assignment costs less.
    pub least_cost: f64,
    /// An assignment within the bound.
    pub choices: Vec<usize>,
}

/// Solves the mixed problem: from the least errors on, the steps along the hulls that save the most cost per error are taken
/// first, as long as the bound allows.
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
    // Ratios fall along a hull, so its steps come in their order; ties in the order of layers.
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
        // A step that does not fit is left out, and so are those beyond it; cheaper ones may still fit.
        if error + step.error <= bound && choices[step.layer] == step.from {
            error += step.error;
            choices[step.layer] = step.to;
        }
    }
    Relaxed { price, least_cost: least_cost.unwrap_or(cost), choices }
}
