//! Optimal lookup tables (paper, section 5.2 and Appendix B), by shortest path instead of
//! enumeration.
//!
//! A table with 2^b values is a path of exactly 2^b − 1 edges through the grid nodes 0 to g. The
//! edge from u to v costs c(u, v) = ∫ (v − a)(a − u)·φ(a) da over the interval between them, the
//! variance that stochastic rounding to its ends adds; it is the least possible for unbiased
//! rounding, so the cheapest path is the optimal table.
//!
//! The costs satisfy the quadrangle inequality: ∂²c/∂u∂v = −∫φ ≤ 0, hence for u ≤ u' ≤ v ≤ v'
//! c(u, v) + c(u', v') ≤ c(u, v') + c(u', v). So the best next node never moves down as the
//! node moves up, and each layer of the dynamic programme takes g·log g steps by divide and
//! conquer. Rounding noise can make near ties resolve either way there; that changes a layer's
//! minimum by no more than the noise itself.

use super::normal::{density, quadrature};

/// Relative difference of total costs below which two tables count as equally good.
pub(crate) const TIE: f64 = 1e-12;

/// Edge costs on a grid, and room for the dynamic programme.
pub(crate) struct Solver {
    /// Granularity of the current grid.
    g: usize,
    /// c(u, v) at u * (g + 1) + v, for u < v.
    cost: Vec<f64>,
    /// rest[k * (g + 1) + u]: least cost of k + 1 edges from u to g.
    rest: Vec<f64>,
    /// Moments of the density in each unit cell.
    cells: Vec<Cell>,
}

/// Integrals over one grid cell of width h, with τ the distance from its lower end.
#[derive(Clone, Copy, Default)]
struct Cell {
    /// ∫ φ
    mass: f64,
    /// ∫ τ φ
    from_low: f64,
    /// ∫ (h − τ) φ
    from_high: f64,
    /// ∫ τ (h − τ) φ
    spread: f64,
}

impl Solver {
    pub(crate) fn new() -> Self {
        Self { g: 0, cost: Vec::new(), rest: Vec::new(), cells: Vec::new() }
    }

    /// Computes all edge costs for granularity `g` on [−t, t].
    pub(crate) fn grid(&mut self, g: usize, t: f64) {
        self.g = g;
        let h = 2.0 * t / g as f64;
        self.cells.clear();
        self.cells.resize(g, Cell::default());
        // Further out than six standard deviations the density falls faster, so finer steps there.
        let finer = (t / 6.0).max(1.0);
        for i in 0..g.div_ceil(2) {
            let low = -t + h * i as f64;
            let mut cell = Cell::default();
            quadrature(h * finer, |tau, weight| {
                let tau = tau / finer;
                let mass = weight / finer * density(low + tau);
                cell.mass += mass;
                cell.from_low += mass * tau;
                cell.from_high += mass * (h - tau);
                cell.spread += mass * tau * (h - tau);
            });
            self.cells[i] = cell;
            // The density is even.
            self.cells[g - 1 - i] = Cell { from_low: cell.from_high, from_high: cell.from_low, ..cell };
        }
        self.cost.clear();
        self.cost.resize((g + 1) * (g + 1), 0.0);
        for u in 0..g {
            let row = &mut self.cost[u * (g + 1)..(u + 1) * (g + 1)];
            // ∫ (a − u) φ from u to v, and the cost up to v: only positive terms, no cancellation.
            let (mut lever, mut cost) = (0.0, 0.0);
            for v in u..g {
                let cell = &self.cells[v];
                let below = h * (v - u) as f64;
                cost += h * lever + below * cell.from_high + cell.spread;
                lever += below * cell.mass + cell.from_low;
                row[v + 1] = cost;
            }
        }
    }

    /// c(u, v), u < v.
    pub(crate) fn cost(&self, u: usize, v: usize) -> f64 {
        self.cost[u * (self.g + 1) + v]
    }

    /// The cost of a table: that of the path through its values.
    pub(crate) fn total(&self, values: &[u8]) -> f64 {
        values.windows(2).map(|pair| self.cost(usize::from(pair[0]), usize::from(pair[1]))).sum()
    }

    /// Least cost of a path of `edges` edges from 0 to g, 1 ≤ `edges` ≤ g.
    pub(crate) fn least(&mut self, edges: usize) -> f64 {
        let (g, n) = (self.g, self.g + 1);
        self.rest.clear();
        self.rest.resize(edges * n, f64::INFINITY);
        for u in 0..g {
            self.rest[u] = self.cost[u * n + g];
        }
        for k in 1..edges {
            let (done, layer) = self.rest.split_at_mut(k * n);
            let next = &done[(k - 1) * n..];
            // k + 1 edges to go from u, k from the next node v; the other edges came before u.
            layer_minima(
                &self.cost,
                n,
                next,
                &mut layer[..n],
                (edges - 1 - k, g - k),
                (edges - k, g - k + 1),
            );
        }
        self.rest[(edges - 1) * n]
    }

    /// The lexicographically smallest path of `edges` edges whose cost is within [`TIE`] of the
    /// least. To be called after [`least`](Self::least) with the same `edges`.
    pub(crate) fn path(&self, edges: usize) -> Vec<u8> {
        let n = self.g + 1;
        let limit = self.rest[(edges - 1) * n] * (1.0 + TIE);
        let mut path = vec![0_u8];
        let (mut u, mut spent) = (0, 0.0);
        for k in (1..edges).rev() {
            let rest = &self.rest[(k - 1) * n..k * n];
            let total = |v: usize| spent + self.cost[u * n + v] + rest[v];
            let nodes = u + 1..=self.g - k;
            let v = nodes
                .clone()
                .find(|&v| total(v) <= limit)
                // Only rounding noise above TIE could leave none; then the least is right.
                .or_else(|| nodes.min_by(|&a, &b| total(a).total_cmp(&total(b))))
                .unwrap_or(u + 1);
            spent += self.cost[u * n + v];
            u = v;
            path.push(u as u8);
        }
        path.push(self.g as u8);
        path
    }
}

/// layer[u] = min over v > u of cost(u, v) + next[v], for u in `nodes`, v in `targets` (bounds
/// included), knowing that the best v does not decrease with u.
fn layer_minima(
    cost: &[f64],
    n: usize,
    next: &[f64],
    layer: &mut [f64],
    nodes: (usize, usize),
    targets: (usize, usize),
) {
    let (low, high) = nodes;
    if low > high {
        return;
    }
    let u = low.midpoint(high);
    let (first, last) = targets;
    let first_here = first.max(u + 1);
    let row = &cost[u * n..(u + 1) * n];
    let (mut best, mut at) = (f64::INFINITY, first_here);
    for v in first_here..=last {
        let total = row[v] + next[v];
        if total < best {
            (best, at) = (total, v);
        }
    }
    layer[u] = best;
    if u > low {
        layer_minima(cost, n, next, layer, (low, u - 1), (first, at));
    }
    layer_minima(cost, n, next, layer, (u + 1, high), (at, last));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// c(u, v) straight from its definition, by midpoint sums fine enough for six digits.
    fn reference(g: usize, t: f64, u: usize, v: usize) -> f64 {
        let at = |i: usize| -t + 2.0 * t * i as f64 / g as f64;
        let (low, high) = (at(u), at(v));
        let n = 20_000;
        let h = (high - low) / f64::from(n);
        (0..n)
            .map(|i| {
                let a = low + h * (f64::from(i) + 0.5);
                (high - a) * (a - low) * density(a) * h
            })
            .sum()
    }

    /// Least cost over all paths, by trying them.
    fn enumerate(solver: &Solver, u: usize, edges: usize) -> f64 {
        if edges == 1 {
            return solver.cost(u, solver.g);
        }
        (u + 1..=solver.g + 1 - edges)
            .map(|v| solver.cost(u, v) + enumerate(solver, v, edges - 1))
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn costs_are_the_integrals() {
        let mut solver = Solver::new();
        for (g, t) in [(3, 2.0), (30, 2.15), (51, 3.2), (4, 6.0)] {
            solver.grid(g, t);
            for u in 0..g {
                for v in u + 1..=g {
                    let want = reference(g, t, u, v);
                    let got = solver.cost(u, v);
                    assert!((got - want).abs() < 1e-6 * want, "{g} {u} {v}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn costs_do_not_depend_on_the_quadrature() {
        // The same integrals from a grid twice as fine: other points, other sums.
        let (mut coarse, mut fine) = (Solver::new(), Solver::new());
        for t in [0.01, 0.5, 1.3, 2.153_87, 3.5, 5.0, 7.0, 12.0, 37.0] {
            for g in [1, 3, 8, 15, 30, 51, 100] {
                coarse.grid(g, t);
                fine.grid(2 * g, t);
                for u in 0..g {
                    for v in u + 1..=g {
                        let (a, b) = (coarse.cost(u, v), fine.cost(2 * u, 2 * v));
                        // exp(−a²/2) is only as exact as its argument.
                        let exact = 1e-15 * (10.0 + t * t);
                        assert!((a - b).abs() <= exact * b, "t={t} g={g} {u} {v}: {a} {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_small_grid_is_solved_optimally() {
        let mut solver = Solver::new();
        for g in 1..=14 {
            for t in [0.8, 2.153_87, 3.5] {
                solver.grid(g, t);
                for edges in 1..=g {
                    let want = enumerate(&solver, 0, edges);
                    let got = solver.least(edges);
                    assert!((got - want).abs() <= 1e-14 * want, "{g} {edges}");
                    let path = solver.path(edges);
                    assert_eq!(path.len(), edges + 1);
                    assert!(path.windows(2).all(|w| w[0] < w[1]));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn quadrangle_inequality(g in 3usize..80, t in 0.3f64..6.0) {
            let mut solver = Solver::new();
            solver.grid(g, t);
            // Adjacent quadruples imply all others.
            for u in 0..g - 2 {
                for v in u + 2..g {
                    let crossing = solver.cost(u, v) + solver.cost(u + 1, v + 1);
                    let nested = solver.cost(u, v + 1) + solver.cost(u + 1, v);
                    prop_assert!(crossing <= nested * (1.0 + 1e-14));
                }
            }
        }
    }
}
