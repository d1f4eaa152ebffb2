//! A group's settings from a TOML file.

use crate::errors;
use crate::options::{Time, cookie};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Deserialize;
use std::path::PathBuf;
use thc_ps::Secret;
use thc_transport::{DpdkOptions, IoName};

/// The keys of a group, as `thc-worker` has them.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    ps: Option<String>,
    job: Option<u16>,
    worker: Option<u8>,
    cookie: Option<Secret>,
    bind: Option<String>,
    join_timeout: Option<Time>,
    timeout: Option<Time>,
    patience: Option<Time>,
    min_rto: Option<Time>,
    seed: Option<u64>,
    threads: Option<usize>,
    recv_buffer: Option<usize>,
    send_buffer: Option<usize>,
    inject: Option<String>,
    inject_seed: Option<u64>,
    controller_ca: Option<PathBuf>,
    controller_cert: Option<PathBuf>,
    controller_key: Option<PathBuf>,
    io: Option<IoName>,
    dpdk: Option<DpdkOptions>,
}

/// Reads the settings of a group from a TOML file: the keys that it has.
#[pyfunction]
pub fn read_config(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let wrong = |message: String| errors::config(py, &format!("{}: {message}", path.display()));
    let text = py.detach(|| std::fs::read_to_string(&path)).map_err(|error| wrong(error.to_string()))?;
    let keys: Keys = toml::from_str(&text).map_err(|error| {
        let end = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count();
        wrong(format!("line {line}: {}", error.message()))
    })?;
    let found = PyDict::new(py);
    macro_rules! plain {
        ($($key:ident),*) => { $(if let Some(value) = keys.$key { found.set_item(stringify!($key), value)?; })* };
    }
    plain!(ps, job, worker, bind, seed, threads, recv_buffer, send_buffer, inject, inject_seed);
    plain!(controller_ca, controller_cert, controller_key);
    if let Some(io) = keys.io {
        let name = match io {
            IoName::Udp => "udp",
            IoName::Dpdk => "dpdk",
        };
        found.set_item("io", name)?;
    }
    let written = |error: serde_json::Error| wrong(error.to_string());
    let dpdk = keys.dpdk.as_ref().map(serde_json::to_string).transpose().map_err(written)?;
    if let Some(json) = dpdk {
        found.set_item("dpdk", py.import("json")?.call_method1("loads", (json,))?)?;
    }
    if let Some(secret) = keys.cookie {
        found.set_item("cookie", cookie(&secret).map_err(wrong)?)?;
    }
    for (key, time) in [
        ("join_timeout", keys.join_timeout),
        ("timeout", keys.timeout),
        ("patience", keys.patience),
        ("min_rto", keys.min_rto),
    ] {
        if let Some(time) = time {
            found.set_item(key, time.read(key).map_err(wrong)?.as_secs_f64())?;
        }
    }
    Ok(found)
}
