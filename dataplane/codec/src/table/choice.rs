//! Choosing granularity and truncation for a number of workers.

use super::{LookupTable, min_granularity, normal, solver::Solver};
use crate::error::CodecError;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Earlier choices: a search can take as long as solving hundreds of tables, and programs ask for the same
/// few again and again.
static CHOSEN: Mutex<BTreeMap<(u8, u8, u32), ChosenTable>> = Mutex::new(BTreeMap::new());
/// How many of those are kept.
const MOST_CHOSEN: usize = 256;

/// Natural logarithms of the largest and smallest fraction that is considered.
const LOG_RANGE: (f64, f64) = (-0.7, -14.0);
/// Points of the first search over the logarithm of the fraction.
const COARSE: u32 = 20;
/// Width of the last bracket around the logarithm of the best fraction while comparing
/// granularities. The error is flat there: it changes by about one part in 10^6.
const WIDTH: f64 = 1e-2;
/// Width of the last bracket for the chosen granularity.
const FINAL_WIDTH: f64 = 1e-4;
/// Up to this granularity the best fraction jumps from one granularity to the next; beyond, it
/// moves so little that the search starts from the previous one.
const JUMPY: u32 = 64;
/// How far around its starting point the second search looks: a step of the first.
const NEAR: f64 = 0.7;

/// A table chosen by [`choose`].
#[derive(Debug, Clone, PartialEq)]
pub struct ChosenTable {
    /// The optimal table for the chosen granularity and fraction.
    pub table: LookupTable,
    /// Expected squared error of the mean over all workers relative to the squared norm, before
    /// error feedback, if all workers have equally large, independently rounded gradients. Stratified
    /// rounding ([`Source::for_worker`](crate::rounding::Source::for_worker)) reduces the rounding's part by up
    /// to half.
    pub expected_nmse: f64,
}

/// Chooses the granularity g and fraction p that minimise quantization error / `workers` +
/// truncation error, among those whose sums fit: g · `workers` < 2^`lane_bits`, g ≤ 255. A larger g
/// is not always better: how well the cells divide among the indices matters as much.
///
/// `bits` is 1 to 8 and `lane_bits` 4 to 16. For each g, p is found by a grid over log p, or
/// from the previous g's, and golden section around its best point. Results are kept for the life of the
/// process.
pub fn choose(bits: u8, lane_bits: u8, workers: u32) -> Result<ChosenTable, CodecError> {
    let key = (bits, lane_bits, workers);
    let chosen = || CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(choice) = chosen().get(&key) {
        return Ok(choice.clone());
    }
    // Without the lock, so that other choices do not wait for this search.
    let choice = search(bits, lane_bits, workers)?;
    let mut chosen = chosen();
    if chosen.len() >= MOST_CHOSEN {
        chosen.clear();
    }
    chosen.insert(key, choice.clone());
    Ok(choice)
}

fn search(bits: u8, lane_bits: u8, workers: u32) -> Result<ChosenTable, CodecError> {
    let min = u32::from(min_granularity(bits)?);
    let max = largest_granularity(lane_bits, workers)?;
    let mut search = Search::new((1 << bits) - 1, workers);
    let mut best: Option<(u32, Point)> = None;
    let mut previous = None;
    for g in min..=max {
        let start = match previous {
            Some(log) if g > JUMPY => Point { log, error: f64::INFINITY },
            _ => search.coarse(g),
        };
        let point = search.golden(g, start, NEAR, WIDTH);
        previous = Some(point.log);
        if best.is_none_or(|(_, b)| point.error < b.error) {
            best = Some((g, point));
        }
    }
    let Some((g, point)) = best else {
        return Err(CodecError::LaneTooNarrow { bits, lane_bits, workers });
    };
    let point = search.golden(g, point, WIDTH, FINAL_WIDTH);
    Ok(ChosenTable {
        table: LookupTable::solve(bits, g as u16, point.log.exp())?,
        expected_nmse: point.error,
    })
}

/// The table of all points of the finest grid whose sums over `workers` fit a lane of `lane_bits`, of granularity at most
/// 255, with the fraction that makes its error least. It suits packets of values: more values cost nothing there.
///
/// # Errors
/// [`CodecError::LaneBits`], [`CodecError::EmptySum`]; [`CodecError::LaneTooNarrow`] if not even 0 and 1 fit.
pub fn choose_complete(lane_bits: u8, workers: u32) -> Result<ChosenTable, CodecError> {
    let g = largest_granularity(lane_bits, workers)?;
    if g == 0 {
        return Err(CodecError::LaneTooNarrow { bits: 1, lane_bits, workers });
    }
    let mut search = Search::new(g as usize, workers);
    let start = search.coarse(g);
    let near = search.golden(g, start, NEAR, WIDTH);
    let point = search.golden(g, near, WIDTH, FINAL_WIDTH);
    let table = LookupTable::complete(g as u8, point.log.exp())?;
    Ok(ChosenTable { table, expected_nmse: point.error })
}

/// The table of these values, which are as [`LookupTable::from_values`] takes them, with the fraction that makes quantization error /
/// `workers` + truncation error least.
///
/// # Errors
/// [`CodecError::TableValues`], [`CodecError::EmptySum`].
pub fn choose_fraction(values: &[u8], workers: u32) -> Result<ChosenTable, CodecError> {
    let checked = LookupTable::from_values(values, 0.5)?;
    if workers == 0 {
        return Err(CodecError::EmptySum);
    }
    let mut search = Search { values: values.to_vec(), ..Search::new(values.len() - 1, workers) };
    let g = u32::from(checked.granularity());
    let start = search.coarse(g);
    let near = search.golden(g, start, NEAR, WIDTH);
    let point = search.golden(g, near, WIDTH, FINAL_WIDTH);
    let table = LookupTable::from_values(values, point.log.exp())?;
    Ok(ChosenTable { table, expected_nmse: point.error })
}

/// The largest granularity with which sums over `workers` workers fit a lane.
fn largest_granularity(lane_bits: u8, workers: u32) -> Result<u32, CodecError> {
    let largest_sum: u32 = match lane_bits {
        4..=16 => (1 << lane_bits) - 1,
        _ => return Err(CodecError::LaneBits { lane_bits }),
    };
    Ok(largest_sum.checked_div(workers).ok_or(CodecError::EmptySum)?.min(255))
}

/// An error and the log fraction at which it is reached.
#[derive(Clone, Copy)]
struct Point {
    log: f64,
    error: f64,
}

struct Search {
    solver: Solver,
    edges: usize,
    workers: f64,
    /// The values of a given table; empty for the best table of so many edges.
    values: Vec<u8>,
}

impl Search {
    fn new(edges: usize, workers: u32) -> Self {
        Self { solver: Solver::new(), edges, workers: f64::from(workers), values: Vec::new() }
    }

    fn evaluate(&mut self, g: u32, log: f64) -> Point {
        let t = normal::threshold(log.exp());
        self.solver.grid(g as usize, t);
        let rounding = match self.values.as_slice() {
            [] => self.solver.least(self.edges),
            values => self.solver.total(values),
        };
        Point { log, error: rounding / self.workers + normal::truncation(t) }
    }

    /// The best of a grid of log fractions for granularity `g`.
    fn coarse(&mut self, g: u32) -> Point {
        let (from, to) = LOG_RANGE;
        let step = (to - from) / f64::from(COARSE - 1);
        let mut best = self.evaluate(g, from);
        for i in 1..COARSE {
            let point = self.evaluate(g, from + step * f64::from(i));
            if point.error < best.error {
                best = point;
            }
        }
        best
    }

    /// Golden section for granularity `g` within `radius` of `start`, down to a bracket of `width`.
    fn golden(&mut self, g: u32, start: Point, radius: f64, width: f64) -> Point {
        let ratio = 0.5 * (5.0_f64.sqrt() - 1.0);
        let mut low = (start.log - radius).max(LOG_RANGE.1);
        let mut high = (start.log + radius).min(LOG_RANGE.0);
        let mut left = self.evaluate(g, high - ratio * (high - low));
        let mut right = self.evaluate(g, low + ratio * (high - low));
        while high - low > width {
            if left.error < right.error {
                high = right.log;
                right = left;
                left = self.evaluate(g, high - ratio * (high - low));
            } else {
                low = left.log;
                left = right;
                right = self.evaluate(g, low + ratio * (high - low));
            }
        }
        // The error has kinks where the optimal table changes, so the start may still be better.
        [left, right].into_iter().fold(start, |best, p| if p.error < best.error { p } else { best })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn fits_the_lane_and_beats_the_papers_setting() {
        for workers in [1, 2, 4, 8, 17] {
            let choice = choose(4, 8, workers).unwrap();
            let table = &choice.table;
            assert!(u32::from(table.granularity()) * workers <= 255);
            let error = table.quantization_error() / f64::from(workers) + table.truncation_error();
            assert!((error / choice.expected_nmse - 1.0).abs() < 1e-9);
            if workers <= 8 {
                let paper = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
                let paper = paper.quantization_error() / f64::from(workers) + paper.truncation_error();
                assert!(error <= paper, "{workers}: {error} {paper}");
            }
        }
    }

    #[test]
    fn no_fraction_on_a_fine_grid_is_better() {
        for (bits, workers) in [(2, 60), (3, 20), (4, 16), (4, 8), (2, 2)] {
            let choice = choose(bits, 8, workers).unwrap();
            let n = f64::from(workers);
            for g in (1_u16 << bits) - 1..=(255 / workers) as u16 {
                for i in 0..200 {
                    let p = (-0.7 - 13.0 * f64::from(i) / 200.0_f64).exp();
                    let table = LookupTable::solve(bits, g, p).unwrap();
                    let error = table.quantization_error() / n + table.truncation_error();
                    assert!(error > choice.expected_nmse * (1.0 - 1e-5), "{bits} {g} {p}");
                }
            }
        }
    }

    #[test]
    fn a_wider_lane_is_never_worse() {
        for workers in [5, 17, 200] {
            let wide = choose(4, 16, workers).unwrap();
            assert!(u32::from(wide.table.granularity()) * workers <= 65_535);
            if let Ok(narrow) = choose(4, 8, workers) {
                assert!(wide.expected_nmse <= narrow.expected_nmse);
            }
        }
    }

    #[test]
    fn all_points_of_the_finest_grid_beat_16_of_them() {
        for (lane, workers) in [(8, 2), (8, 3), (8, 4), (8, 8), (6, 2), (16, 64)] {
            let choice = choose_complete(lane, workers).unwrap();
            let table = &choice.table;
            assert!(u32::from(table.granularity()) * workers < 1 << lane);
            assert_eq!(table.values().len(), usize::from(table.granularity()) + 1);
            let error = table.quantization_error() / f64::from(workers) + table.truncation_error();
            assert!((error / choice.expected_nmse - 1.0).abs() < 1e-9);
            let sixteen = choose(4, lane, workers).unwrap();
            assert!(choice.expected_nmse <= sixteen.expected_nmse, "{lane} {workers}");
        }
        assert_eq!(choose_complete(8, 255).unwrap().table.values(), [0, 1]);
        assert!(matches!(choose_complete(8, 256), Err(CodecError::LaneTooNarrow { .. })));
        assert!(matches!(choose_complete(3, 2), Err(CodecError::LaneBits { .. })));
        assert!(matches!(choose_complete(8, 0), Err(CodecError::EmptySum)));
    }

    #[test]
    fn the_fraction_of_a_given_table_is_the_best_one() {
        let published = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        for (values, workers) in [(&[0, 1, 2, 9][..], 3), (published.values(), 4), (&[0, 255], 1)] {
            let choice = choose_fraction(values, workers).unwrap();
            assert_eq!(choice.table.values(), values);
            let error = |table: &LookupTable| {
                table.quantization_error() / f64::from(workers) + table.truncation_error()
            };
            assert!((error(&choice.table) / choice.expected_nmse - 1.0).abs() < 1e-9);
            for i in 0..200 {
                let p = (-0.7 - 13.0 * f64::from(i) / 200.0_f64).exp();
                let other = error(&LookupTable::from_values(values, p).unwrap());
                assert!(other > choice.expected_nmse * (1.0 - 1e-5), "{values:?} {p}");
            }
        }
        assert!(matches!(choose_fraction(&[1, 2], 2), Err(CodecError::TableValues { .. })));
        assert!(matches!(choose_fraction(&[0, 2], 0), Err(CodecError::EmptySum)));
    }

    #[test]
    fn impossible_choices_are_errors() {
        assert!(matches!(choose(4, 8, 18), Err(CodecError::LaneTooNarrow { workers: 18, .. })));
        assert!(matches!(choose(4, 17, 2), Err(CodecError::LaneBits { lane_bits: 17 })));
        assert!(choose(4, 17, 2).unwrap_err().to_string().contains("use 4 to 16"));
        assert!(matches!(choose(9, 8, 2), Err(CodecError::Bits { bits: 9, .. })));
        assert!(matches!(choose(4, 8, 0), Err(CodecError::EmptySum)));
        assert!(choose(4, 16, u32::MAX).is_err());
    }
}
