//! All-reduces that something else adds up: a process group of PyTorch, say.

use crate::adapt::solve_table;
use crate::errors;
use crate::group::spans;
use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::{Arc, PoisonError, RwLock};
use thc_codec::error::CodecError;
use thc_codec::table::LookupTable;
use thc_protocol::TableId;
use thc_worker::{CollectiveConfig, WorkerError};

/// What a rank computes with.
#[pyclass(module = "thc._native", frozen)]
pub struct Collective {
    inner: Arc<thc_worker::Collective>,
}

/// An all-reduce under way.
#[pyclass(module = "thc._native", frozen)]
pub struct CollectiveCall {
    owner: Arc<thc_worker::Collective>,
    inner: RwLock<Option<thc_worker::CollectiveCall>>,
}

/// A lookup table as Python gives it: bits of an index, bits of a sum's lane, granularity and fraction. What is left out is chosen: the lane that
/// all have, all points of the grid that fits it, the best table of these bits for the number of ranks.
type Told = (Option<u8>, Option<u8>, Option<u16>, Option<f64>);

impl Collective {
    /// Works while other Python threads run.
    fn work_with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&thc_worker::Collective) -> Result<T, WorkerError> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&self.inner)).map_err(|error| errors::worker(py, &error))
    }
}

fn closed_error() -> PyErr {
    PyValueError::new_err("this call is over")
}

impl Drop for CollectiveCall {
    /// A call that nobody finishes leaves error feedback as it was.
    fn drop(&mut self) {
        if let Some(call) = self.inner.write().unwrap_or_else(PoisonError::into_inner).take() {
            self.owner.give_up(call);
        }
    }
}

#[pymethods]
impl Collective {
    #[new]
    #[pyo3(signature = (*, rank, ranks, tables, lane, block, job_seed, seed, threads))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        rank: u16,
        ranks: u16,
        tables: Vec<Told>,
        lane: u8,
        block: u8,
        job_seed: u64,
        seed: Option<u64>,
        threads: usize,
    ) -> PyResult<Self> {
        let made = py.detach(|| {
            let tables = if tables.is_empty() { vec![Told::default()] } else { tables };
            let table = |(bits, own, granularity, fraction): Told| {
                solve_table(bits, granularity, fraction, ranks.into(), own.unwrap_or(lane))
            };
            let solved: Result<Vec<_>, CodecError> =
                (1..).zip(tables).map(|(id, told)| Ok((TableId(id), table(told)?))).collect();
            let tables = solved?;
            thc_worker::Collective::new(CollectiveConfig {
                rank,
                ranks,
                tables,
                block,
                job_seed,
                seed,
                threads,
            })
        });
        Ok(Collective { inner: Arc::new(made.map_err(|error| errors::worker(py, &error))?) })
    }

    /// The lookup tables, as those of a job.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let told = |(id, table, lanes): (TableId, &LookupTable, thc_codec::lanes::Lanes)| {
            let found = PyDict::new(py);
            found.set_item("id", id.0)?;
            found.set_item("bits", table.bits())?;
            found.set_item("width", if table.bits() <= 4 { 4 } else { 8 })?;
            found.set_item("lane", lanes.bits())?;
            found.set_item("down", lanes.bits())?;
            found.set_item("granularity", table.granularity())?;
            found.set_item("fraction", table.fraction())?;
            found.set_item(
                "values",
                table.values().iter().map(|value| u32::from(*value)).collect::<Vec<_>>(),
            )?;
            Ok(found)
        };
        self.inner.tables().map(told).collect()
    }

    /// Measures an array: the call, and the numbers of which the largest over all ranks are wanted.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        array: PyReadonlyArray1<'_, f32>,
        plan: Vec<(usize, Option<u8>)>,
        feedback: Option<u64>,
    ) -> PyResult<(CollectiveCall, Bound<'py, PyArray1<i32>>)> {
        let (plan, data) = (spans(plan), array.as_slice()?);
        let (call, norms) = self.work_with(py, |inner| inner.begin(data, &plan, feedback))?;
        let call = CollectiveCall { owner: Arc::clone(&self.inner), inner: RwLock::new(Some(call)) };
        Ok((call, PyArray1::from_vec(py, norms)))
    }

    /// Takes the largest numbers of all ranks. Returns the words of each piece.
    fn settle(
        &self,
        py: Python<'_>,
        call: &CollectiveCall,
        norms: PyReadonlyArray1<'_, i32>,
    ) -> PyResult<Vec<usize>> {
        let norms = norms.as_slice()?;
        let mut locked = call.inner.write().unwrap_or_else(PoisonError::into_inner);
        let found = locked.as_mut().ok_or_else(closed_error)?;
        self.work_with(py, |inner| inner.settle(found, norms))?;
        Ok((0..found.pieces()).map(|piece| found.words(piece)).collect())
    }

    /// The words of a piece, of which the sums over all ranks are wanted.
    fn compress<'py>(
        &self,
        py: Python<'py>,
        call: &CollectiveCall,
        piece: usize,
        array: PyReadonlyArray1<'_, f32>,
    ) -> PyResult<Bound<'py, PyArray1<i32>>> {
        let data = array.as_slice()?;
        let locked = call.inner.read().unwrap_or_else(PoisonError::into_inner);
        let found = locked.as_ref().ok_or_else(closed_error)?;
        let words = self.work_with(py, |inner| inner.compress(found, piece, data))?;
        Ok(PyArray1::from_vec(py, words))
    }

    /// The mean of a piece, from the sums of all ranks' words, into the array.
    fn finish(
        &self,
        py: Python<'_>,
        call: &CollectiveCall,
        piece: usize,
        sums: PyReadonlyArray1<'_, i32>,
        mut array: PyReadwriteArray1<'_, f32>,
    ) -> PyResult<()> {
        let (sums, data) = (sums.as_slice()?, array.as_slice_mut()?);
        let locked = call.inner.read().unwrap_or_else(PoisonError::into_inner);
        let found = locked.as_ref().ok_or_else(closed_error)?;
        self.work_with(py, |inner| inner.finish(found, piece, sums, data))
    }

    /// Ends a call whose pieces are all finished.
    fn end(&self, call: &CollectiveCall) -> PyResult<()> {
        let taken = call.inner.write().unwrap_or_else(PoisonError::into_inner).take();
        self.inner.end(taken.ok_or_else(closed_error)?);
        Ok(())
    }

    fn save_feedback<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let saved = self.work_with(py, thc_worker::Collective::save_feedback)?;
        let found = PyDict::new(py);
        for (key, state) in saved {
            found.set_item(key, PyBytes::new(py, &state))?;
        }
        Ok(found)
    }

    fn restore_feedback(&self, py: Python<'_>, key: u64, length: usize, saved: &[u8]) -> PyResult<()> {
        self.work_with(py, |inner| inner.restore_feedback(key, length, saved))
    }

    fn reset_feedback(&self, py: Python<'_>, key: u64) -> PyResult<()> {
        self.work_with(py, |inner| inner.reset_feedback(key))
    }
}
