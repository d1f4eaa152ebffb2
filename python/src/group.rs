//! A worker's membership in a job, and calls under way.

use crate::errors;
use crate::keys::Keys;
use crate::options::Time;
use crate::packed::{self, PackedTensor};
use crate::process::OwnedByProcess;
use numpy::{PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use thc_protocol::TableId;
use thc_protocol::wire::Table;
use thc_worker::{Call, Choice, METRICS, Mode, Plan, Quantity, Span, WorkerError};

/// A worker's membership in a job.
#[pyclass(module = "thc._native", frozen)]
pub struct Group {
    inner: RwLock<Option<OwnedByProcess<Arc<thc_worker::Group>>>>,
    workers: u16,
    spare: Arc<Spare>,
}

/// Memory of queued calls that are over, for later ones: new memory costs more than the copy into it.
#[derive(Default)]
struct Spare(Mutex<Vec<Vec<f32>>>);

/// So many calls are under way at once, about.
const SPARE: usize = 8;

impl Spare {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<f32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of `data`, in the smallest memory that has room for it.
    fn copy(&self, data: &[f32]) -> Vec<f32> {
        let mut spare = self.lock();
        let fitting = spare.iter().enumerate().filter(|(_, memory)| memory.capacity() >= data.len());
        let best = fitting.min_by_key(|(_, memory)| memory.capacity()).map(|(at, _)| at);
        let mut copy = best.map(|at| spare.swap_remove(at)).unwrap_or_default();
        drop(spare);
        copy.clear();
        copy.extend_from_slice(data);
        copy
    }

    fn give(&self, memory: Vec<f32>) {
        let mut spare = self.lock();
        spare.push(memory);
        if spare.len() > SPARE {
            // Sizes that nobody asks for any more are the oldest.
            spare.remove(0);
        }
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "compressed" => Ok(Mode::Compressed),
        "raw" => Ok(Mode::Raw),
        other => Err(format!("mode = {other:?}: write \"compressed\" or \"raw\"")),
    }
}

/// What a call works on.
#[derive(FromPyObject)]
enum Operand<'py> {
    /// An array of the host.
    Array(Bound<'py, PyArrayDyn<f32>>),
    /// A tensor that Python compresses.
    Packed(PyRef<'py, PackedTensor>),
}

pub(crate) fn spans(plan: Vec<(usize, Option<u8>)>) -> Vec<Span> {
    let choice = |table: Option<u8>| table.map_or(Choice::Raw, |id| Choice::Table(TableId(id)));
    plan.into_iter().map(|(length, table)| Span { length, choice: choice(table) }).collect()
}

/// A table of the job.
fn table<'py>(py: Python<'py>, table: &Table) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("id", table.id.0)?;
    found.set_item("bits", table.bits)?;
    found.set_item("width", table.form.width())?;
    found.set_item("lane", table.form.lane().bits())?;
    found.set_item("down", table.form.sums())?;
    found.set_item("granularity", table.granularity)?;
    found.set_item("fraction", table.fraction)?;
    let values =
        if table.form.is_identity() { (0..=255).collect() } else { table.values[..1 << table.bits].to_vec() };
    found.set_item("values", values.into_iter().map(u32::from).collect::<Vec<_>>())?;
    Ok(found)
}

impl Group {
    fn group(&self, py: Python<'_>) -> PyResult<Arc<thc_worker::Group>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let group = inner.as_ref().and_then(OwnedByProcess::get).map(Arc::clone);
        group.ok_or_else(|| errors::closed_error(py, "group"))
    }

    /// Works with the group while other Python threads run.
    pub(crate) fn work_with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&thc_worker::Group) -> Result<T, WorkerError> + Send,
    ) -> PyResult<T> {
        let group = self.group(py)?;
        // The last reference may be this one, if the group is closed meanwhile: it goes inside, too.
        py.detach(move || work(&group)).map_err(|error| errors::worker(py, &error))
    }
}

/// The field of `Stats`, the name at Prometheus, the kind and the meaning of each total of a group.
#[pyfunction]
pub fn group_metrics() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    METRICS.iter().map(|metric| (metric.field, metric.name, metric.kind.as_str(), metric.help)).collect()
}

#[pymethods]
impl Group {
    /// Joins as keys in JSON say: those of `Keys`.
    #[new]
    fn new(py: Python<'_>, keys: &str) -> PyResult<Self> {
        let read = py.detach(|| {
            let keys = Keys::from_json(keys)?;
            Ok((keys.method.unwrap_or_default(), keys.config()?))
        });
        let (method, config) = read.map_err(|message: String| errors::config(py, &message))?;
        let joined = py.detach(|| {
            let group = thc_worker::Group::join(config)?;
            let workers = group.parameters()?.all_workers();
            let fits = method.check(group.parameters()?.tables.first(), group.block()?);
            Ok((group, workers, fits))
        });
        let (group, workers, fits) = joined.map_err(|error: WorkerError| errors::worker(py, &error))?;
        fits.map_err(|message| errors::config(py, &message))?;
        Ok(Group {
            inner: RwLock::new(Some(OwnedByProcess::new(Arc::new(group)))),
            workers,
            spare: Arc::default(),
        })
    }

    /// How many workers the session has; of a group that is closed, how many there were at first.
    #[getter]
    fn workers(&self, py: Python<'_>) -> u16 {
        self.work_with(py, |group| Ok(group.parameters()?.all_workers())).unwrap_or(self.workers)
    }

    /// Starts an all-reduce. Of an array, which must be contiguous, it waits for the mean, which replaces the
    /// array; or, if it is not to wait, it works on a copy, and the handle's `wait` writes the mean. Of a tensor that
    /// Python compresses it returns what takes the indices. The plan has the length of each span and the number of one
    /// of the job's tables, or None for RAW; it takes the place of the mode.
    #[pyo3(signature = (operand, *, mode="compressed", plan=None, feedback=None, wait=true))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        operand: Operand<'py>,
        mode: &str,
        plan: Option<Vec<(usize, Option<u8>)>>,
        feedback: Option<u64>,
        wait: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let plan = plan.map(spans);
        let whole = || self::mode(mode).map(Plan::Whole).map_err(|message| errors::config(py, &message));
        let plan = plan.as_deref().map_or_else(whole, |spans| Ok(Plan::Spans(spans)))?;
        let call = Call { plan, feedback };
        match operand {
            Operand::Array(array) if wait => {
                let mut array = array.try_readwrite()?;
                let data = array.as_slice_mut()?;
                self.work_with(py, |group| group.call(data, call))?;
                Ok(None)
            }
            Operand::Array(array) => {
                let array = array.try_readonly()?;
                let data = array.as_slice()?;
                let handle = self.work_with(py, |group| group.start(self.spare.copy(data), call))?;
                let handle = Handle { inner: Mutex::new(Some(handle)), spare: Arc::clone(&self.spare) };
                Ok(Some(Bound::new(py, handle)?.into_any()))
            }
            Operand::Packed(_) if wait => Err(errors::config(
                py,
                "a packed tensor takes its indices while it is reduced: give wait=False",
            )),
            Operand::Packed(tensor) => Ok(Some(Bound::new(py, tensor.start(self, py, call)?)?.into_any())),
        }
    }

    /// Has all calls of the session fail, whoever waits for them.
    fn give_up(&self, py: Python<'_>) -> PyResult<()> {
        self.work_with(py, |group| {
            group.give_up();
            Ok(())
        })
    }

    /// How a `PackedTensor` of this plan is cut, in pieces of 2^`piece` coordinates.
    fn packed_layout<'py>(
        &self,
        py: Python<'py>,
        plan: Vec<(usize, Option<u8>)>,
        piece: u8,
    ) -> PyResult<packed::Tables<'py>> {
        let plan = spans(plan);
        packed::tables(py, &self.work_with(py, |group| group.packed_layout(&plan, piece))?)
    }

    /// Totals since the group was joined, by the names of `thc_worker::Stats`; times in seconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.work_with(py, thc_worker::Group::stats)?;
        let found = PyDict::new(py);
        for metric in METRICS {
            match (metric.read)(&stats) {
                Quantity::Count(count) => found.set_item(metric.field, count)?,
                Quantity::Seconds(seconds) => found.set_item(metric.field, seconds)?,
            }
        }
        Ok(found)
    }

    /// What the parameter server said about the job.
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (parameters, table, block) =
            self.work_with(py, |group| Ok((group.parameters()?, group.table()?, group.block()?)))?;
        let found = PyDict::new(py);
        let policy = match parameters.policy {
            thc_protocol::Policy::Reliable => "reliable",
            thc_protocol::Policy::BestEffort => "best-effort",
        };
        found.set_item("job", parameters.job.0)?;
        found.set_item("worker", parameters.worker.0)?;
        found.set_item("workers", parameters.all_workers())?;
        found.set_item("quorum", parameters.quorum)?;
        found.set_item("slots", parameters.data_slots)?;
        found.set_item("norm_slots", parameters.norm_slots)?;
        let told = parameters.tables.first();
        found.set_item("lane", told.form.lane().bits())?;
        found.set_item("down", told.form.sums())?;
        let tables: PyResult<Vec<_>> = parameters.tables.iter().map(|table| self::table(py, table)).collect();
        found.set_item("tables", tables?)?;
        found.set_item("policy", policy)?;
        found.set_item("deadline", parameters.deadline.as_secs_f64())?;
        found.set_item("shards", parameters.shards)?;
        found.set_item("bits", table.bits())?;
        found.set_item("block", block)?;
        found.set_item("granularity", table.granularity())?;
        Ok(found)
    }

    /// Whether the parameter server answers within `patience`.
    fn find_server(&self, py: Python<'_>, patience: Time) -> PyResult<bool> {
        let patience = patience.read("patience").map_err(|message| errors::config(py, &message))?;
        self.work_with(py, |group| group.find_server(patience))
    }

    /// Joins anew after the session has ended.
    fn rejoin(&self, py: Python<'_>) -> PyResult<()> {
        self.work_with(py, thc_worker::Group::rejoin)
    }

    /// All error feedback: key to saved form.
    fn save_feedback<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = self.work_with(py, thc_worker::Group::save_feedback)?;
        let found = PyDict::new(py);
        for (key, saved) in all {
            found.set_item(key, PyBytes::new(py, &saved))?;
        }
        Ok(found)
    }

    /// Restores the error feedback of a tensor of `length` coordinates.
    fn restore_feedback(&self, py: Python<'_>, key: u64, length: usize, saved: &[u8]) -> PyResult<()> {
        self.work_with(py, |group| group.restore_feedback(key, length, saved))
    }

    /// Forgets the error feedback of a tensor.
    fn reset_feedback(&self, py: Python<'_>, key: u64) -> PyResult<()> {
        self.work_with(py, |group| group.reset_feedback(key))
    }

    /// Leaves the job; calls under way on other threads end first. Again, it does nothing.
    fn close(&self, py: Python<'_>) {
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(inner));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Leaving waits for an answer, and other Python threads shall run meanwhile.
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(group) = inner {
            Python::attach(|py| py.detach(|| drop(group)));
        }
    }
}

/// An all-reduce under way.
#[pyclass(module = "thc._native", frozen)]
pub struct Handle {
    inner: Mutex<Option<thc_worker::Handle>>,
    spare: Arc<Spare>,
}

#[pymethods]
impl Handle {
    /// Whether `wait` would return at once.
    fn done(&self) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.as_ref().is_none_or(thc_worker::Handle::is_done)
    }

    /// Waits for the mean and writes it to `out`.
    fn wait(&self, py: Python<'_>, out: &Bound<'_, PyArrayDyn<f32>>) -> PyResult<()> {
        let handle = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(handle) = handle else { return Err(errors::closed_error(py, "handle")) };
        let mean = py.detach(|| handle.wait()).map_err(|error| errors::worker(py, &error))?;
        let mut out = out.try_readwrite()?;
        let out = out.as_slice_mut()?;
        if out.len() != mean.len() {
            return Err(errors::config(py, "the array has changed its length since the all-reduce began"));
        }
        py.detach(|| {
            out.copy_from_slice(&mean);
            self.spare.give(mean);
        });
        Ok(())
    }
}
