//! What the libraries report on stderr.

use std::sync::OnceLock;

use pyo3::prelude::*;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::errors;

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Sends what the libraries report to stderr: warnings, or what the variable `THC_LOG` asks for.
pub fn begin() {
    let filter = EnvFilter::try_from_env("THC_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    // Another extension of this process may have set a subscriber. Then that one stays.
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        let _ = FILTER.set(handle);
    }
}

/// Replaces the filter of what is reported. Returns false if another extension has set the process's subscriber, which keeps its own.
#[pyfunction]
pub fn set_log(py: Python<'_>, filter: &str) -> PyResult<bool> {
    let parsed = EnvFilter::try_new(filter).map_err(|error| errors::config(py, &error.to_string()))?;
    Ok(FILTER.get().is_some_and(|handle| handle.reload(parsed).is_ok()))
}
