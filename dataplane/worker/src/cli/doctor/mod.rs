//! `thc-worker doctor`: checks whether a run with these settings will work on this host, and says what prevents it.

mod check;
mod dpdk;
mod server;
#[cfg(test)]
mod tests;
mod udp;

use check::{Check, Verdict};
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use thc_config::logs::print_and_ask;
use thc_config::values::plural;
use thc_transport::Backend;
use thc_worker::GroupConfig;

/// The settings to check.
#[derive(Debug)]
pub struct Visit {
    /// The settings of a run.
    pub config: GroupConfig,
    /// The time-out of the parameter server's answer; with zero it is not asked.
    pub patience: Duration,
    /// `true` to report as JSON.
    pub json: bool,
    /// `true` to check again until nothing is wrong.
    pub watch: bool,
}

/// The pause between two checks.
const PAUSE: Duration = Duration::from_secs(1);

/// The findings.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `udp` or `dpdk`.
    pub io: &'static str,
    /// The parameter server.
    pub ps: SocketAddr,
    /// The job's number.
    pub job: u16,
    /// The worst of all.
    pub verdict: Verdict,
    /// In the order of their causes: an earlier check can be why a later one fails.
    pub checks: Vec<Check>,
}

/// Checks, prints the report, and returns `true` if nothing is wrong, or if nobody reads any more what it watches.
pub fn run(visit: &Visit) -> anyhow::Result<bool> {
    loop {
        let report = examine(visit, Path::new("/"));
        let text = if visit.json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
        let has_reader = print_and_ask(text)?;
        let is_well = report.verdict != Verdict::Wrong;
        if is_well || !visit.watch {
            return Ok(is_well);
        }
        if !has_reader {
            return Ok(true);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Checks everything; `/sys` and `/dev` are below `root`.
fn examine(visit: &Visit, root: &Path) -> Report {
    let config = &visit.config;
    let mut checks = match &config.io {
        Backend::Udp => vec![udp::socket(config), udp::path(config.seat.ps)],
        Backend::Dpdk(dpdk) => dpdk::check(root, dpdk),
    };
    if !visit.patience.is_zero() {
        match checks.iter().all(|check| check.verdict != Verdict::Wrong) {
            true => checks.extend(server::check(config, visit.patience)),
            false => checks.push(server::not_asked()),
        }
    }
    Report {
        io: if config.io == Backend::Udp { "udp" } else { "dpdk" },
        ps: config.seat.ps,
        job: config.seat.job,
        verdict: checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok),
        checks,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A worker of job {} at {} over {}:\n", self.job, self.ps, self.io)?;
        for check in &self.checks {
            writeln!(f, "  {:8} {:12} {}", check.verdict.word(), check.name, check.found)?;
            if let Some(mend) = &check.mend {
                writeln!(f, "  {:8} {:12} -> {mend}", "", "")?;
            }
        }
        let count = |verdict| self.checks.iter().filter(|check| check.verdict == verdict).count();
        let warnings = plural(count(Verdict::Warning) as u64, "warning");
        match count(Verdict::Wrong) {
            0 => write!(f, "\nA run will work; {warnings}."),
            wrong => write!(f, "\n{} wrong, {warnings}.", plural(wrong as u64, "thing")),
        }
    }
}
