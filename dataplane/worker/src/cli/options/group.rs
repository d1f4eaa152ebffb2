//! What the keys say of a group and of a share of its server.

use super::MOST_THREADS;
use super::keys::Keys;
use super::texts::{parse, resolve, time};
use crate::cli::colocated;
use std::net::SocketAddr;
use thc_protocol::MAX_WORKERS;
use thc_ps::ServerConfig;
use thc_transport::{Backend, FaultRates, LossyConfig};
use thc_worker::{Controller, ControllerUrl, GroupConfig, Rounding};

impl Keys {
    /// The group to join; `worker` and `cookie` are checked already, and whether `io` is built in.
    pub(super) fn group(&self, worker: u8, cookie: u32, io: Backend) -> Result<GroupConfig, String> {
        let defaults = GroupConfig::default();
        let faults = match &self.inject {
            None => None,
            Some(text) => {
                let rates: FaultRates = parse("inject", text)?;
                let seed = self.inject_seed.unwrap_or(0);
                Some(LossyConfig { seed, outgoing: rates, incoming: rates, ..LossyConfig::default() })
            }
        };
        let controller = self.controller()?;
        let bind = self.bind()?;
        if let Backend::Dpdk(dpdk) = &io
            && !bind.ip().is_unspecified()
            && bind.ip() != dpdk.address
        {
            return Err(format!(
                "bind = \"{bind}\": over DPDK this end has the address {} only, give that or 0.0.0.0",
                dpdk.address
            ));
        }
        Ok(GroupConfig {
            ps: match &controller {
                Some(_) => defaults.ps,
                None => match self.shares()?.first() {
                    Some(&first) => first,
                    None => self.ps.as_deref().map_or(Ok(defaults.ps), |text| resolve("ps", text))?,
                },
            },
            controller,
            job: self.job.unwrap_or(defaults.job),
            worker,
            cookie,
            bind,
            io,
            join_timeout: time("join_timeout", self.join_timeout.as_deref(), defaults.join_timeout)?,
            timeout: time("timeout", self.timeout.as_deref(), defaults.timeout)?,
            patience: time("patience", self.patience.as_deref(), defaults.patience)?,
            min_rto: time("min_rto", self.min_rto.as_deref(), defaults.min_rto)?,
            rounding: match (self.seed, self.method.unwrap_or_default().fixes_workers()) {
                (Some(seed), _) => Rounding::Seed(seed),
                (None, true) => Rounding::Independent,
                (None, false) => Rounding::Stratified,
            },
            threads: match self.threads.unwrap_or(defaults.threads) {
                0 => return Err("threads is 0: give at least 1".into()),
                threads if threads > MOST_THREADS => {
                    return Err(format!("threads is {threads}: {MOST_THREADS} is the most"));
                }
                threads => threads,
            },
            faults,
            ..defaults
        })
    }

    /// Where the shares are, of colocated servers; none of another server.
    pub(super) fn shares(&self) -> Result<Vec<SocketAddr>, String> {
        let Some(list) = &self.colocated else {
            return match (self.workers, self.lane) {
                (Some(_), _) => {
                    Err("workers needs colocated: a server knows how many workers a job has".into())
                }
                (_, Some(_)) => Err("lane needs colocated: a server has the lanes of its job".into()),
                (None, None) => Ok(Vec::new()),
            };
        };
        if self.ps.is_some() {
            return Err(
                "ps and colocated exclude each other: the first worker's address is the server's".into()
            );
        }
        list.iter().map(|text| resolve("colocated", text)).collect()
    }

    /// The share of the server that this worker is to run, with the group checked already.
    pub(super) fn share(&self, group: &GroupConfig) -> Result<Option<ServerConfig>, String> {
        let at = self.shares()?;
        if at.is_empty() {
            return Ok(None);
        }
        if group.io != Backend::Udp {
            return Err("colocated needs io = \"udp\": start thc-ps with --share for DPDK".into());
        }
        let workers = self.workers.unwrap_or(at.len().min(MAX_WORKERS) as u8);
        if usize::from(workers) < at.len() {
            return Err(format!("workers is {workers}, but {} shares need as many workers", at.len()));
        }
        if group.worker >= workers {
            return Err(format!("worker is {}: the job's workers are 0 to {}", group.worker, workers - 1));
        }
        colocated::plan(group, &at, workers, (self.lane, self.method))
    }

    /// The controller, if `ps` names one.
    pub(super) fn controller(&self) -> Result<Option<Controller>, String> {
        let Some(text) = self.ps.as_deref().filter(|text| ControllerUrl::is_meant(text)) else {
            return Ok(None);
        };
        let url = text.parse().map_err(|error| format!("ps: {error}"))?;
        for (key, given) in [("job", self.job.is_some()), ("cookie", self.cookie.is_some())] {
            if given {
                return Err(format!(
                    "{key} is given, and ps = \"{text}\": the controller supplies it, leave it out"
                ));
            }
        }
        let identity = match (&self.controller_cert, &self.controller_key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            _ => return Err("give controller_cert and controller_key, or neither".into()),
        };
        let mut controller = Controller::new(url);
        controller.rank = self.worker;
        controller.ca = self.controller_ca.clone();
        controller.identity = identity;
        Ok(Some(controller))
    }

    pub(super) fn bind(&self) -> Result<SocketAddr, String> {
        self.bind.as_deref().map_or(Ok(GroupConfig::default().bind), |text| parse("bind", text))
    }
}
