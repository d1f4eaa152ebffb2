//! Asynchronous training: [`thc_model::Client`] and [`thc_model::ModelServer`] as Python classes.

use crate::errors;
use crate::options::Time;
use crate::process::OwnedByProcess;
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyReadwriteArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thc_model::payload::Encoding;
use thc_model::{
    Client, ClientConfig, Interval, ModelError, ModelJobConfig, ModelServerConfig, Pull, Push, ShardState,
    Spec,
};

/// What a pull found: whether a shard runs, the epoch that all wait for, whether a shard is empty, versions and epochs of those
/// that run, the epochs that others wait for.
type Found = (bool, Option<u64>, bool, Vec<u64>, Vec<u64>, Vec<u64>);
/// What became of a push: shards that took it, the longest delay, why others did not.
type Fate = (usize, u64, Vec<(usize, String)>);

/// Coordinates of a shard of a model for which none are given.
#[pyfunction]
pub fn default_shard(coordinates: u64) -> u32 {
    thc_model::default_shard(coordinates)
}

/// A worker's side of a model.
#[pyclass(module = "thc._native", frozen)]
pub struct Model {
    inner: Mutex<Option<OwnedByProcess<Client>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Model {
    /// Works with the client while other Python threads run.
    fn with_client<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Client) -> Result<T, ModelError> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let mut inner = lock(&self.inner);
            if inner.as_ref().is_none_or(|client| client.get().is_none()) {
                return None;
            }
            // Taken out for the call, which needs it whole; nobody else can look meanwhile.
            let mut client = inner.take().and_then(OwnedByProcess::into_inner)?;
            let done = work(&mut client);
            *inner = Some(OwnedByProcess::new(client));
            Some(done)
        });
        match done {
            Some(done) => done.map_err(|error| errors::model(py, &error)),
            None => Err(errors::closed_error(py, "model")),
        }
    }
}

/// How a gradient is pushed.
#[derive(FromPyObject)]
struct PushForm {
    bits: u8,
    sparse: bool,
    /// If it is made sparse.
    budget: Option<f32>,
    /// Factor of the rate.
    scale: f32,
}

impl From<PushForm> for Push {
    fn from(form: PushForm) -> Self {
        let PushForm { bits, sparse, budget, scale } = form;
        let encoding = match (bits, sparse) {
            // The library refuses 32 bits here: what is made sparse has no floats.
            (bits, true) => Encoding::Sparse { bits, budget },
            (32, false) => Encoding::Full,
            (bits, false) => Encoding::Dense { bits },
        };
        Self { encoding, scale }
    }
}

fn describe(pulled: &thc_model::Pulled) -> Found {
    let (versions, epochs) = pulled.stamps().map(|stamp| (stamp.version, stamp.epoch)).unzip();
    let waits = pulled.shards.iter().filter_map(|shard| match shard {
        ShardState::Waiting(epoch) => Some(*epoch),
        _ => None,
    });
    (pulled.is_running(), pulled.waiting_epoch(), pulled.is_empty(), versions, epochs, waits.collect())
}

fn fate(pushed: thc_model::Pushed) -> Fate {
    let refused = pushed.refused.into_iter().map(|(shard, reason)| (shard, reason.key().to_owned()));
    (pushed.accepted_shards, pushed.delay, refused.collect())
}

#[pymethods]
impl Model {
    /// `spec` is a [`Spec`] as JSON.
    #[new]
    #[pyo3(signature = (*, server, model, spec, secret, job, worker, seed, timeout))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        server: String,
        model: &str,
        spec: &str,
        secret: &str,
        job: &str,
        worker: u16,
        seed: u64,
        timeout: Option<Time>,
    ) -> PyResult<Self> {
        let defaults = ClientConfig::default();
        let prepared = || {
            let spec: Spec = serde_json::from_str(spec).map_err(|error| error.to_string())?;
            let timeout = timeout.map_or(Ok(defaults.timeout), |time| time.read("timeout"))?;
            let secret = secret.into();
            Ok((ClientConfig { server, job: job.to_owned(), secret, worker, timeout, seed }, spec))
        };
        let (config, spec) = prepared().map_err(|message: String| errors::config(py, &message))?;
        let opened = py.detach(|| Client::open(config, model, spec));
        let client = opened.map_err(|error| errors::model(py, &error))?;
        Ok(Self { inner: Mutex::new(Some(OwnedByProcess::new(client))) })
    }

    /// Gives the model its first value: whether it had none.
    fn initialise<'py>(&self, py: Python<'py>, array: PyReadonlyArrayDyn<'py, f32>) -> PyResult<bool> {
        let data = array.as_slice()?;
        self.with_client(py, |client| client.initialise(data))
    }

    /// Gives the full-batch gradient of an epoch: whether it was missing.
    fn begin<'py>(&self, py: Python<'py>, epoch: u64, array: PyReadonlyArrayDyn<'py, f32>) -> PyResult<bool> {
        let data = array.as_slice()?;
        self.with_client(py, |client| client.begin(epoch, data))
    }

    /// Overwrites the array by the model.
    fn pull<'py>(
        &self,
        py: Python<'py>,
        array: &Bound<'py, PyArrayDyn<f32>>,
        patient: bool,
    ) -> PyResult<Found> {
        let mut array: PyReadwriteArrayDyn<'py, f32> = array.try_readwrite()?;
        let data = array.as_slice_mut()?;
        self.with_client(py, |client| client.pull(data, Pull { patient })).map(|pulled| describe(&pulled))
    }

    /// Overwrites the array by the numbers of the model themselves: the version of each shard.
    fn exact<'py>(&self, py: Python<'py>, array: &Bound<'py, PyArrayDyn<f32>>) -> PyResult<Vec<u64>> {
        let mut array: PyReadwriteArrayDyn<'py, f32> = array.try_readwrite()?;
        let data = array.as_slice_mut()?;
        let stamps = self.with_client(py, |client| client.exact(data))?;
        Ok(stamps.iter().map(|stamp| stamp.version).collect())
    }

    /// Overwrites the array by the snapshot: its epoch.
    fn snapshot<'py>(&self, py: Python<'py>, array: &Bound<'py, PyArrayDyn<f32>>) -> PyResult<Option<u64>> {
        let mut array: PyReadwriteArrayDyn<'py, f32> = array.try_readwrite()?;
        let data = array.as_slice_mut()?;
        self.with_client(py, |client| client.snapshot(data))
    }

    /// Sends a gradient.
    fn push<'py>(
        &self,
        py: Python<'py>,
        gradient: PyReadonlyArrayDyn<'py, f32>,
        form: PushForm,
    ) -> PyResult<Fate> {
        let data = gradient.as_slice()?;
        self.with_client(py, |client| client.push(data, form.into())).map(fate)
    }

    /// Sends a gradient and overwrites the array by the model after it, in one round trip.
    fn push_pull<'py>(
        &self,
        py: Python<'py>,
        gradient: PyReadonlyArrayDyn<'py, f32>,
        form: PushForm,
        array: &Bound<'py, PyArrayDyn<f32>>,
    ) -> PyResult<(Fate, Found)> {
        let data = gradient.as_slice()?;
        let mut array: PyReadwriteArrayDyn<'py, f32> = array.try_readwrite()?;
        let into = array.as_slice_mut()?;
        let done = self.with_client(py, |client| client.push_pull(data, form.into(), into, Pull::default()));
        done.map(|(pushed, pulled)| (fate(pushed), describe(&pulled)))
    }

    /// Totals of this worker.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.with_client(py, |client| Ok(client.stats().clone()))?;
        let dict = PyDict::new(py);
        for (key, value) in [
            ("pulls", stats.pulls),
            ("flags", stats.flags),
            ("pushes", stats.pushes),
            ("refused", stats.refused),
            ("pulled_bits", stats.pulled.bits),
            ("pushed_bits", stats.pushed.bits),
            ("whole_bits", stats.whole.bits),
            ("delays", stats.delays),
            ("longest_delay", stats.longest_delay),
            ("reconnections", stats.reconnections),
            ("forgotten", stats.forgotten),
        ] {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// The counters of the server, as JSON.
    fn server_stats(&self, py: Python<'_>) -> PyResult<String> {
        self.with_client(py, |client| client.server_stats().map(|stats| stats.to_string()))
    }

    /// Leaves. A second time nothing happens.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(lock(&self.inner).take()));
    }
}

/// A model server in this process.
#[pyclass(module = "thc._native", frozen)]
pub struct ModelServer {
    inner: Mutex<Option<OwnedByProcess<thc_model::ModelServer>>>,
    address: String,
}

#[pymethods]
impl ModelServer {
    #[new]
    #[pyo3(signature = (*, secret, job, listen, state, durable, threads))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        secret: &str,
        job: &str,
        listen: &str,
        state: Option<PathBuf>,
        durable: Option<Time>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let defaults = ModelServerConfig::default();
        let prepared = || {
            let time = |key: &str, time: Option<Time>, usual| time.map_or(Ok(usual), |time| time.read(key));
            Ok(ModelServerConfig {
                listen: crate::options::parse("listen", listen)?,
                jobs: vec![ModelJobConfig::new(job, secret.into())],
                state,
                durable: Interval(time("durable", durable, defaults.durable.0)?),
                threads: threads.unwrap_or(defaults.threads),
                ..defaults
            })
        };
        let config = prepared().map_err(|message: String| errors::config(py, &message))?;
        let server =
            py.detach(|| thc_model::ModelServer::start(config)).map_err(|error| errors::model(py, &error))?;
        let address = server.local().to_string();
        Ok(Self { inner: Mutex::new(Some(OwnedByProcess::new(server))), address })
    }

    /// Where it listens.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Totals, as JSON.
    fn stats_json(&self, py: Python<'_>) -> PyResult<String> {
        let stats =
            lock(&self.inner).as_ref().and_then(OwnedByProcess::get).map(thc_model::ModelServer::stats);
        let stats = stats.ok_or_else(|| errors::closed_error(py, "model server"))?;
        serde_json::to_string(&stats).map_err(|error| errors::config(py, &error.to_string()))
    }

    /// Stops, after everything was written. A second time nothing happens.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let server = lock(&self.inner).take().and_then(OwnedByProcess::into_inner);
        let stopped = py.detach(|| server.map_or(Ok(()), |server| server.shutdown().map(|_| ())));
        stopped.map_err(|error| errors::model(py, &error))
    }
}
