//! `thc-worker doctor`: checks whether a run with these settings will work on this host, and says what prevents it.

mod check;
mod dpdk;
mod server;
#[cfg(test)]
mod tests;
mod udp;

use check::{Check, Verdict};
use serde::Serialize;
pub use server::Known;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use thc_transport::{Backend, Idle, TransportError};
use thc_worker::GroupConfig;

/// What to check.
#[derive(Debug)]
pub struct Visit {
    /// The settings of a run.
    pub config: GroupConfig,
    /// Which of them were given.
    pub known: Known,
    /// How long the parameter server may take to answer; zero: it is not asked.
    pub patience: Duration,
    /// Whether to report as JSON.
    pub json: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `udp` or `dpdk`.
    pub io: &'static str,
    /// The parameter server, or the controller that knows it.
    pub ps: String,
    /// The job's number; a controller supplies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u16>,
    /// The worst of all.
    pub verdict: Verdict,
    /// In the order of their causes: an earlier check can be why a later one fails.
    pub checks: Vec<Check>,
}

/// Checks, prints the report, and returns `true` if nothing is wrong.
pub fn run(visit: &Visit) -> anyhow::Result<bool> {
    let report = examine(visit, Path::new("/"));
    let text = if visit.json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
    crate::cli::print(text)?;
    Ok(report.verdict != Verdict::Wrong)
}

/// Checks everything; `/sys` and `/dev` are below `root`.
fn examine(visit: &Visit, root: &Path) -> Report {
    let config = &visit.config;
    let mut checks = vec![program(config)];
    // A path to the controller says nothing of the path to the server.
    let ps = config.controller.is_none().then_some(config.ps);
    match &config.io {
        Backend::Udp => {
            checks.push(udp::socket(config));
            checks.extend(ps.map(udp::path));
        }
        Backend::Dpdk(dpdk) => checks.extend(dpdk::check(root, dpdk)),
    }
    checks.push(cores(config));
    let openable = checks.iter().all(|check| check.name == "cores" || check.verdict != Verdict::Wrong);
    if !visit.patience.is_zero() {
        match &config.controller {
            Some(controller) => checks.push(server::controller(controller, visit.patience)),
            None if !openable => checks.push(server::not_asked()),
            None => checks.extend(server::check(config, visit.known, visit.patience)),
        }
    }
    Report {
        io: if config.io == Backend::Udp { "udp" } else { "dpdk" },
        ps: config.controller.as_ref().map_or(config.ps.to_string(), |controller| controller.url.to_string()),
        job: config.controller.is_none().then_some(config.job),
        verdict: checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok),
        checks,
    }
}

/// The version, and whether this program can do what is asked.
fn program(config: &GroupConfig) -> Check {
    let version = env!("CARGO_PKG_VERSION");
    let with = if cfg!(feature = "dpdk") { "with" } else { "without" };
    if config.io != Backend::Udp && !cfg!(feature = "dpdk") {
        let found = format!("thc-worker {version}, without DPDK");
        return Check { found, ..Check::failure("program", &TransportError::NoDpdk) };
    }
    Check::ok("program", format!("thc-worker {version}, {with} DPDK"))
}

/// Whether the process has a core for each of its threads.
fn cores(config: &GroupConfig) -> Check {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let polls = matches!(&config.io, Backend::Dpdk(dpdk) if dpdk.idle == Idle::BusyPoll);
    if polls && cores < 2 {
        return Check::warning(
            "cores",
            "1, and polling without pause takes all of it",
            "give this process a second core, or let it pause: --dpdk-idle 100us",
        );
    }
    if config.threads > cores {
        let found = format!("{cores}, fewer than --threads {}", config.threads);
        return Check::warning("cores", found, format!("--threads {cores}, or more cores for this process"));
    }
    Check::ok("cores", format!("{cores}, of which {} compute", config.threads))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = self.job.map_or(String::new(), |job| format!(" of job {job}"));
        writeln!(f, "A worker{job} at {} over {}:\n", self.ps, self.io)?;
        for check in &self.checks {
            writeln!(f, "  {:8} {:12} {}", check.verdict.word(), check.name, check.found)?;
            if let Some(mend) = &check.mend {
                writeln!(f, "  {:8} {:12} -> {mend}", "", "")?;
            }
        }
        let count = |verdict| self.checks.iter().filter(|check| check.verdict == verdict).count();
        let warnings = count(Verdict::Warning);
        let warnings = format!("{warnings} warning{}", if warnings == 1 { "" } else { "s" });
        match count(Verdict::Wrong) {
            0 => write!(f, "\nA run will work; {warnings}."),
            wrong => write!(f, "\n{wrong} thing{} wrong, {warnings}.", if wrong == 1 { "" } else { "s" }),
        }
    }
}
