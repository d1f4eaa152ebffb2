//! A parameter server inside this process.

use crate::errors;
use crate::options::{Time, faults};
use crate::process::OwnedByProcess;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use thc_ps::{Interval, JobOptions, Keyword, KeywordKind, ServerOptions, Size, TableOptions, set};

/// A software parameter server with one job.
#[pyclass(module = "thc._native", frozen)]
pub struct Server {
    inner: Mutex<Option<OwnedByProcess<thc_ps::Server>>>,
    address: String,
}

/// A port for a share of a server, open before it is known where the others are.
#[pyclass(module = "thc._native", frozen)]
pub struct Reserved {
    inner: Mutex<Option<OwnedByProcess<thc_ps::Reserved>>>,
    address: String,
}

#[pymethods]
impl Reserved {
    #[new]
    #[pyo3(signature = (listen, *, recv_buffer=None, send_buffer=None))]
    fn new(
        py: Python<'_>,
        listen: &str,
        recv_buffer: Option<usize>,
        send_buffer: Option<usize>,
    ) -> PyResult<Self> {
        let listen = listen.parse().map_err(|_| {
            errors::config(py, &format!("{listen:?} is not an address and port, such as \"10.0.0.1:0\""))
        })?;
        let reserved = thc_ps::Reserved::open(listen, recv_buffer, send_buffer)
            .map_err(|error| errors::server(py, &error.to_string()))?;
        let address = reserved.local().to_string();
        Ok(Reserved { inner: Mutex::new(Some(OwnedByProcess::new(reserved))), address })
    }

    /// Where it is, "address:port".
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }
}

/// A key of a job as Python has it, as a file would.
fn value(keyword: &Keyword, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if keyword.is_list {
        let items: Vec<Bound<'_, PyAny>> = value.extract()?;
        return items
            .iter()
            .map(|item| convert_value(keyword, item))
            .collect::<PyResult<Vec<_>>>()
            .map(Value::from);
    }
    convert_value(keyword, value)
}

fn convert_value(keyword: &Keyword, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let text = || value.extract::<String>().map(Value::from);
    match keyword.kind {
        KeywordKind::Number => value.extract::<u64>().map(Value::from),
        KeywordKind::Secret => value.extract::<u64>().map(Value::from).or_else(|_| text()),
        KeywordKind::Fraction => value.extract::<f64>().map(Value::from).or_else(|_| text()),
        KeywordKind::Time => {
            let time = value.extract::<Time>()?.read(&keyword.name);
            let time = time.map_err(|message| errors::config(value.py(), &message))?;
            Ok(Interval(time).to_string().into())
        }
        KeywordKind::Text => match value.extract::<String>() {
            // Keys with values are a table of them, such as bits=2,lane=4.
            Ok(text) if text.contains('=') => {
                let table: Result<TableOptions, String> = text.parse();
                let table = table.and_then(|table| serde_json::to_value(table).map_err(|e| e.to_string()));
                table.map_err(|error| errors::config(value.py(), &format!("{}: {error}", keyword.name)))
            }
            Ok(text) => Ok(text.into()),
            Err(_) => value.extract::<u64>().map(|number| number.to_string().into()),
        },
    }
}

/// A job of these keys; None is not given.
fn job(options: &Bound<'_, PyDict>) -> PyResult<JobOptions> {
    let keywords = JobOptions::keywords();
    let mut job = JobOptions::default();
    for (name, given) in options {
        let name: String = name.extract()?;
        let keyword = keywords.iter().find(|keyword| keyword.name == name).ok_or_else(|| {
            PyTypeError::new_err(format!("Server() got an unexpected keyword argument '{name}'"))
        })?;
        if !given.is_none() {
            let set = set(&mut job, &keyword.name, value(keyword, &given)?);
            set.map_err(|message| errors::config(options.py(), &message))?;
        }
    }
    Ok(job)
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (*, listen, shards=None, pin=None, busy_poll=None, recv_buffer=None, send_buffer=None,
                        memory_limit=None, inject=None, inject_seed=None, share=None, shares=None, reserved=None, **options))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        listen: String,
        shards: Option<u64>,
        pin: Option<Vec<usize>>,
        busy_poll: Option<bool>,
        recv_buffer: Option<usize>,
        send_buffer: Option<usize>,
        memory_limit: Option<usize>,
        inject: Option<&str>,
        inject_seed: Option<u64>,
        share: Option<usize>,
        shares: Option<Vec<String>>,
        reserved: Option<PyRef<'_, Reserved>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let job = options.map(job).transpose()?.unwrap_or_default();
        let config = || {
            let options = ServerOptions {
                listen: Some(listen),
                share: share.map(|share| format!("{share}/{}", shares.as_ref().map_or(0, Vec::len))),
                shares,
                // It shares its host with a worker, and the ports behind its own may be others'.
                shards: shards.or(pin.is_none().then_some(1)),
                pin,
                busy_poll,
                recv_buffer: recv_buffer.map(Size),
                send_buffer: send_buffer.map(Size),
                memory_limit: memory_limit.map(Size),
                job: vec![job],
                faults: faults(inject, inject_seed.unwrap_or(0))?,
                ..ServerOptions::default()
            };
            options.validate().map_err(|error| error.to_string())
        };
        let config = config().map_err(|message: String| errors::config(py, &message))?;
        let reserved = reserved
            .map(|reserved| {
                let taken = reserved.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
                taken.and_then(OwnedByProcess::into_inner).ok_or_else(|| errors::closed_error(py, "port"))
            })
            .transpose()?;
        let server = py.detach(|| match reserved {
            Some(reserved) => thc_ps::Server::start_reserved(reserved, config),
            None => thc_ps::Server::start(config),
        });
        let server = server.map_err(|error| errors::server(py, &error.to_string()))?;
        let address = server.local().to_string();
        Ok(Server { inner: Mutex::new(Some(OwnedByProcess::new(server))), address })
    }

    /// Where workers join, "address:port".
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// All counters, as JSON.
    fn stats_json(&self, py: Python<'_>) -> PyResult<String> {
        let stats = py.detach(|| {
            let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.as_ref().and_then(OwnedByProcess::get).map(thc_ps::Server::stats)
        });
        let stats = stats.ok_or_else(|| errors::closed_error(py, "server"))?;
        serde_json::to_string(&stats).map_err(|error| errors::server(py, &error.to_string()))
    }

    /// Waits until all workers have left, `linger` at most, and stops. Again, it does nothing.
    fn close(&self, py: Python<'_>, linger: Time) -> PyResult<()> {
        let linger = match linger {
            Time::Seconds(0.0) => Duration::ZERO,
            other => other.read("linger").map_err(|message| errors::config(py, &message))?,
        };
        py.detach(|| {
            let taken = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(server) = taken.and_then(OwnedByProcess::into_inner) else { return };
            server.wait_for_leaving(linger);
        });
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(server) = inner {
            Python::attach(|py| py.detach(|| drop(server)));
        }
    }
}
