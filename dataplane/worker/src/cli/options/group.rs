//! The group that the keys describe.

use super::MOST_THREADS;
use super::keys::Keys;
use super::texts::{parse, time};
use std::net::SocketAddr;
use thc_transport::{Backend, LossyConfig};
use thc_worker::{Controller, ControllerUrl, GroupConfig, Rounding, Seat, Timeouts, server_address};

impl Keys {
    /// The group to join. The caller has checked `worker`, `cookie` and `io`.
    pub(super) fn group(&self, worker: u8, cookie: u32, io: Backend) -> Result<GroupConfig, String> {
        let defaults = GroupConfig::default();
        let rates = self.inject.as_ref().map(|text| parse("inject", text)).transpose()?;
        let faults = rates.map(|rates| LossyConfig::both_ways(rates, self.inject_seed.unwrap_or(0)));
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
            seat: Seat {
                ps: match (&controller, &self.ps) {
                    (None, Some(text)) => {
                        server_address(text).map_err(|error| format!("ps = {text:?}: {error}"))?
                    }
                    _ => defaults.seat.ps,
                },
                job: self.job.unwrap_or(defaults.seat.job),
                worker,
                cookie,
            },
            controller,
            bind,
            io,
            timeouts: Timeouts {
                join: time("join_timeout", self.join_timeout.as_deref(), defaults.timeouts.join)?,
                progress: time("timeout", self.timeout.as_deref(), defaults.timeouts.progress)?,
                patience: time("patience", self.patience.as_deref(), defaults.timeouts.patience)?,
                min_rto: time("min_rto", self.min_rto.as_deref(), defaults.timeouts.min_rto)?,
            },
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
