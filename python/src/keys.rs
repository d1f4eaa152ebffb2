//! A group's settings: the keys of a TOML file, and of Python's keywords.

use crate::errors;
use crate::options::{Time, backend, cookie, faults, parse};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;
use thc_config::file;
use thc_ps::{Method, Secret};
use thc_transport::{DpdkOptions, IoName};
use thc_worker::{Controller, ControllerUrl, GroupConfig, Rounding, Seat, Timeouts, server_address};

/// The keys of a group, as `thc-worker` has them.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keys {
    ps: Option<String>,
    job: Option<u16>,
    worker: Option<u8>,
    workers: Option<u16>,
    cookie: Option<Secret>,
    bind: Option<String>,
    join_timeout: Option<Time>,
    timeout: Option<Time>,
    patience: Option<Time>,
    min_rto: Option<Time>,
    seed: Option<u64>,
    pub method: Option<Method>,
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

impl Keys {
    /// The keys in JSON. An error names the key that is wrong.
    pub fn from_json(text: &str) -> Result<Keys, String> {
        let given: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (key, value) in &given {
            let alone = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
            serde_json::from_value::<Keys>(alone).map_err(|error| format!("{key}: {error}"))?;
        }
        serde_json::from_value(given.into()).map_err(|error| error.to_string())
    }

    /// The controller, if `ps` names one.
    fn controller(&mut self, ps: &str) -> Result<Option<Controller>, String> {
        let identity = match (self.controller_cert.take(), self.controller_key.take()) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err("give controller_cert and controller_key, or neither".to_owned()),
        };
        if !ControllerUrl::is_meant(ps) {
            return Ok(None);
        }
        let mut controller = Controller::new(ps.parse().map_err(|error| format!("ps: {error}"))?);
        controller.rank = self.worker;
        controller.ca = self.controller_ca.take();
        controller.identity = identity;
        Ok(Some(controller))
    }

    /// What they say. It may wait for a name server.
    pub fn config(mut self) -> Result<GroupConfig, String> {
        let defaults = GroupConfig::default();
        let time = |key: &str, time: Option<Time>, default: Duration| {
            time.map_or(Ok(default), |time| time.read(key))
        };
        let ps = self.ps.take().ok_or("ps is missing")?;
        let controller = self.controller(&ps)?;
        let bind = self.bind.map_or(Ok(defaults.bind), |text| parse("bind", &text))?;
        Ok(GroupConfig {
            io: backend(self.io, &self.dpdk.unwrap_or_default(), bind.ip())?,
            seat: Seat {
                ps: match controller {
                    Some(_) => defaults.seat.ps,
                    None => server_address(&ps).map_err(|error| format!("ps = {ps:?}: {error}"))?,
                },
                job: self.job.unwrap_or(defaults.seat.job),
                worker: self.worker.unwrap_or(defaults.seat.worker),
                cookie: self.cookie.map_or(Ok(defaults.seat.cookie), |secret| cookie(&secret))?,
            },
            controller,
            workers: self.workers,
            bind,
            timeouts: Timeouts {
                join: time("join_timeout", self.join_timeout, defaults.timeouts.join)?,
                progress: time("timeout", self.timeout, defaults.timeouts.progress)?,
                patience: time("patience", self.patience, defaults.timeouts.patience)?,
                min_rto: time("min_rto", self.min_rto, defaults.timeouts.min_rto)?,
            },
            rounding: match (self.seed, self.method.unwrap_or_default().fixes_workers()) {
                (Some(seed), _) => Rounding::Seed(seed),
                (None, true) => Rounding::Independent,
                (None, false) => Rounding::Stratified,
            },
            threads: match self.threads.unwrap_or(defaults.threads) {
                0 => return Err("threads is 0: give at least 1".to_owned()),
                threads => threads,
            },
            recv_buffer: self.recv_buffer.unwrap_or(defaults.recv_buffer),
            send_buffer: self.send_buffer.unwrap_or(defaults.send_buffer),
            faults: faults(self.inject.as_deref(), self.inject_seed.unwrap_or(0))?,
        })
    }
}

/// What a method of this name fixes of a job, if it fixes anything: bits, granularity, fraction, and log₂ of a block.
#[pyfunction]
pub fn method_values(py: Python<'_>, name: &str) -> PyResult<Option<(u8, u16, f64, u8)>> {
    let method: Result<Method, _> = serde_json::from_value(name.into());
    let wrong = |_| errors::config(py, &format!("method is {name:?}: write \"default\" or \"thc-paper\""));
    let values = method.map_err(wrong)?.values();
    Ok(values.map(|fixed| (fixed.bits, fixed.granularity, fixed.fraction, fixed.block)))
}

/// Reads the settings of a group from a TOML file: the keys that it has, as JSON.
#[pyfunction]
pub fn read_config(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let wrong = |cause: &dyn Display| errors::config(py, &format!("{}: {cause}", path.display()));
    let text = py.detach(|| std::fs::read_to_string(&path)).map_err(|error| wrong(&error))?;
    file::parse::<Keys>(&text).map_err(|error| wrong(&error))?;
    let found: Value = file::parse(&text).map_err(|error| wrong(&error))?;
    Ok(found.to_string())
}
