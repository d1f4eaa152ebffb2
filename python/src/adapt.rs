//! The policies of [`thc_policy`]: pure functions of measurements.

use crate::errors;
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thc_codec::CodecError;
use thc_codec::table::{LookupTable, choose, choose_complete};
use thc_policy::layerwise::{Problem, STEPS, discrete};
use thc_policy::{AdaptError, thc, threshold};

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

/// L-GreCo's choice for each layer, and what all cost together.
#[pyfunction]
pub fn layerwise(
    py: Python<'_>,
    costs: PyReadonlyArray2<'_, f64>,
    errors: PyReadonlyArray2<'_, f64>,
    bound: f64,
) -> PyResult<(Vec<usize>, f64)> {
    let problem = config_error(py, problem(&costs, &errors))?;
    let solved = py.detach(|| discrete(&problem, bound, STEPS));
    config_error(py, solved).map(|found| (found.choices, found.cost))
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

/// Error of a table's mean over the squared norm of one worker's gradient, and what the table leaves of that to error feedback, of
/// squared norms: from 1 on error feedback grows from step to step. The table is that of (b, g, p), or of the best g and p for the
/// lane; without b it has all points of the grid.
#[pyfunction]
#[pyo3(signature = (bits, granularity, fraction, workers, lane))]
pub fn table_error(
    py: Python<'_>,
    bits: Option<u8>,
    granularity: Option<u16>,
    fraction: Option<f64>,
    workers: u8,
    lane: u8,
) -> PyResult<(f64, f64)> {
    let table = py.detach(|| solve_table(bits, granularity, fraction, workers.into(), lane));
    let table = table.map_err(|error| errors::config(py, &error.to_string()))?;
    Ok((thc::nmse(&table, workers), thc::residual(&table)))
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
pub fn bytes_of(py: Python<'_>, coordinates: usize, bits: Option<u8>, lane: u8, block: u8) -> PyResult<f64> {
    if !(10..=20).contains(&block) {
        return Err(errors::config(py, &format!("block is {block}: it must be 10 to 20")));
    }
    match bits {
        Some(bits) => config_error(py, thc::bytes(coordinates, bits, lane, block)),
        None => Ok(thc::raw_bytes(coordinates, block)),
    }
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

    /// The smallest size from which on compression pays for a group, whose slowest member counts row by row; `None` if it never does.
    #[staticmethod]
    fn common_threshold(tables: Vec<PyRef<'_, ThresholdTable>>) -> Option<u64> {
        let tables: Vec<threshold::Timings> = tables.iter().map(|table| lock(&table.0).clone()).collect();
        threshold::Timings::common_threshold(&tables)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
