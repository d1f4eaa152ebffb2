//! The policies of [`thc_policy`]: pure functions of measurements.

use crate::errors;
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thc_codec::CodecError;
use thc_codec::table::{LookupTable, choose, choose_complete};
use thc_policy::layerwise::{Assignment, Problem, STEPS, discrete, exact};
use thc_policy::{AdaptError, buckets, thc, threshold};

fn config_error<T>(py: Python<'_>, result: Result<T, AdaptError>) -> PyResult<T> {
    result.map_err(|error| errors::config(py, &error.to_string()))
}

fn problem(
    costs: &PyReadonlyArray2<'_, f64>,
    errors: &PyReadonlyArray2<'_, f64>,
) -> Result<Problem, AdaptError> {
    let rows = |table: &PyReadonlyArray2<'_, f64>| -> Vec<Vec<f64>> {
        table.as_array().outer_iter().map(|row| row.to_vec()).collect()
    };
    Problem::new(&rows(costs), &rows(errors))
}

/// Choices, cost, error, least cost.
type Found = (Vec<usize>, f64, f64, f64);

fn describe(assignment: Assignment) -> Found {
    (assignment.choices, assignment.cost, assignment.error, assignment.least_cost)
}

/// L-GreCo's choice: by `steps` of error, or exactly for 0 of them; `None` are the paper's.
#[pyfunction]
#[pyo3(signature = (costs, errors, bound, steps))]
pub fn adapt_solve(
    py: Python<'_>,
    costs: PyReadonlyArray2<'_, f64>,
    errors: PyReadonlyArray2<'_, f64>,
    bound: f64,
    steps: Option<usize>,
) -> PyResult<Found> {
    let problem = config_error(py, problem(&costs, &errors))?;
    let solved = py.detach(|| match steps {
        Some(0) => exact(&problem, bound),
        steps => discrete(&problem, bound, steps.unwrap_or(STEPS)),
    });
    config_error(py, solved).map(describe)
}

/// What given choices cost and lose.
#[pyfunction]
#[pyo3(signature = (costs, errors, choices))]
pub fn adapt_price(
    py: Python<'_>,
    costs: PyReadonlyArray2<'_, f64>,
    errors: PyReadonlyArray2<'_, f64>,
    choices: Vec<usize>,
) -> PyResult<Found> {
    config_error(py, problem(&costs, &errors).and_then(|problem| problem.price(&choices))).map(describe)
}

/// The optimal table of (b, g, p), or of the best g and p for so many workers and a lane of so many bits; without b, of all points of the grid.
pub fn solve_table(
    bits: Option<u8>,
    granularity: Option<u16>,
    fraction: Option<f64>,
    workers: u32,
    lane: u8,
) -> Result<LookupTable, CodecError> {
    match (bits, granularity, fraction) {
        (Some(bits), Some(granularity), Some(fraction)) => LookupTable::solve(bits, granularity, fraction),
        (None, Some(granularity), Some(fraction)) => u8::try_from(granularity)
            .map_err(|_| CodecError::Granularity { bits: 8, granularity: granularity.into(), min: 1 })
            .and_then(|granularity| LookupTable::complete(granularity, fraction)),
        (Some(bits), ..) => choose(bits, lane, workers).map(|choice| choice.table),
        (None, ..) => choose_complete(lane, workers).map(|choice| choice.table),
    }
}

/// Error of a table's mean over the squared norm: of (b, g, p), or of the best g and p for the lane; with them, and what it leaves
/// of a worker's gradient to error feedback. Without b the table has all points of the grid.
#[pyfunction]
#[pyo3(signature = (bits, granularity, fraction, workers, lane))]
pub fn adapt_thc_nmse(
    py: Python<'_>,
    bits: Option<u8>,
    granularity: Option<u16>,
    fraction: Option<f64>,
    workers: u8,
    lane: u8,
) -> PyResult<(f64, u16, f64, f64)> {
    let table = py.detach(|| solve_table(bits, granularity, fraction, workers.into(), lane));
    let table = table.map_err(|error| errors::config(py, &error.to_string()))?;
    Ok((thc::nmse(&table, workers), table.granularity(), table.fraction(), thc::residual(&table)))
}

/// Values and t_p of the optimal table of (b, g, p), or of the best g and p for so many workers and a lane of so many bits; without b,
/// of all points of the finest grid for these.
#[pyfunction]
#[pyo3(signature = (bits, granularity, fraction, workers, lane))]
pub fn lookup_table(
    py: Python<'_>,
    bits: Option<u8>,
    granularity: Option<u16>,
    fraction: Option<f64>,
    workers: u32,
    lane: u8,
) -> PyResult<(Vec<u32>, f64)> {
    let table = py.detach(|| solve_table(bits, granularity, fraction, workers, lane));
    let table = table.map_err(|error| errors::config(py, &error.to_string()))?;
    Ok((table.values().iter().map(|&value| value.into()).collect(), table.t_p()))
}

/// Bytes up and down of a tensor, headers included; RAW for no bits.
#[pyfunction]
#[pyo3(signature = (coordinates, bits, lane, block))]
pub fn adapt_thc_bytes(
    py: Python<'_>,
    coordinates: usize,
    bits: Option<u8>,
    lane: u8,
    block: u8,
) -> PyResult<f64> {
    if !(10..=20).contains(&block) {
        return Err(errors::config(py, &format!("block is {block}: it must be 10 to 20")));
    }
    match bits {
        Some(bits) => config_error(py, thc::bytes(coordinates, bits, lane, block)),
        None => Ok(thc::raw_bytes(coordinates, block)),
    }
}

/// The model of least squares: slopes, intercept, score.
#[pyfunction]
#[pyo3(signature = (steps))]
pub fn adapt_fit(py: Python<'_>, steps: Vec<(Vec<f64>, f64)>) -> PyResult<(Vec<f64>, f64, f64)> {
    config_error(py, buckets::fit(&steps)).map(|fit| (fit.slopes, fit.intercept, fit.score))
}

/// Times of a warm-up, by size of tensor.
#[pyclass(module = "thc._native", frozen)]
pub struct ThresholdTable(Mutex<threshold::Timings>);

#[pymethods]
impl ThresholdTable {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// A tensor of `size` coordinates took so many seconds without compression.
    fn record_raw(&self, py: Python<'_>, size: u64, seconds: f64) -> PyResult<()> {
        config_error(py, lock(&self.0).record_raw(size, seconds))
    }

    /// A compressed tensor took so many seconds on the network, and so many to be compressed and decompressed.
    fn record_compressed(&self, py: Python<'_>, size: u64, seconds: f64, processing: f64) -> PyResult<()> {
        config_error(py, lock(&self.0).record_compressed(size, seconds, processing))
    }

    /// The sizes that were seen both ways, smallest first: size, t_c, t_c^q, t_p^q, medians in seconds.
    fn rows(&self) -> Vec<(u64, f64, f64, f64)> {
        lock(&self.0).rows().map(|row| (row.size, row.raw, row.compressed, row.processing)).collect()
    }

    /// The smallest size from which on compression pays; `None` if it never does. `before` is the threshold known before: a size stays
    /// on its side of that while its gain is near 1.
    #[pyo3(signature = (before=None))]
    fn threshold(&self, before: Option<u64>) -> Option<u64> {
        lock(&self.0).threshold(before)
    }

    /// The threshold of a group: row by row its slowest member's times.
    #[staticmethod]
    #[pyo3(signature = (tables, before=None))]
    fn common_threshold(tables: Vec<PyRef<'_, ThresholdTable>>, before: Option<u64>) -> Option<u64> {
        let tables: Vec<threshold::Timings> = tables.iter().map(|table| lock(&table.0).clone()).collect();
        threshold::Timings::common_threshold(&tables, before)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
