//! `thc-worker doctor`: looks whether a run with these settings will work on this host, and says what is in the way.

mod buffers;
mod check;
mod clock;
mod cores;
mod device;
mod host;
mod hugepages;
mod link;
mod permissions;
mod reach;
#[cfg(test)]
mod tests;

use check::{Check, Verdict};
use device::Device;
use host::Host;
pub use reach::Known;
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use thc_transport::{Backend, TransportError};
use thc_worker::GroupConfig;

/// What to look at.
#[derive(Debug)]
pub struct Visit {
    /// The settings of a run.
    pub config: GroupConfig,
    /// Which of them were given.
    pub known: Known,
    /// Where `/proc`, `/sys` and `/dev` are, if not where they always are.
    pub root: Option<PathBuf>,
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
    /// The job's number; a controller tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u16>,
    /// The worst of all.
    pub verdict: Verdict,
    /// In the order of their causes: an earlier check can be why a later one fails.
    pub checks: Vec<Check>,
}

/// Looks, and reports. Whether nothing is wrong.
pub fn run(visit: &Visit) -> anyhow::Result<bool> {
    let report = examine(visit);
    let text = if visit.json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(report.verdict != Verdict::Wrong)
}

/// Looks at everything.
fn examine(visit: &Visit) -> Report {
    let host = Host::new(visit.root.as_deref());
    let config = &visit.config;
    let mut checks = vec![program(config)];
    let built = checks[0].verdict != Verdict::Wrong;
    let dpdk = match &config.io {
        Backend::Udp => None,
        Backend::Dpdk(dpdk) => Some(dpdk),
    };
    let mut devices = Vec::new();
    let mut interfaces = Vec::new();
    if let Some(dpdk) = dpdk {
        devices = dpdk.devices.iter().map(|text| Device::parse(text)).collect();
        interfaces = devices.iter().flat_map(|device| device.interfaces(&host)).collect();
        checks.extend(hugepages::check(&host, dpdk, &devices));
        checks.extend(devices.iter().map(|device| device::check(&host, device)));
        checks.extend(permissions::dpdk(&host, &devices, hugepages::required_bytes(dpdk)));
        checks.extend(link::address(&host, dpdk.address, &interfaces));
        if i64::from(dpdk.mtu) < link::LONGEST {
            checks.push(Check::wrong(
                "link",
                format!("--dpdk-mtu is {}, the longest packets have {} bytes", dpdk.mtu, link::LONGEST),
                "leave it at 1500",
            ));
        }
    } else {
        checks.push(permissions::udp(&host, config.bind));
        checks.push(buffers::check(&host, config));
        if config.controller.is_none() {
            interfaces.extend(link::outgoing_interface(&host, config.ps.ip()));
        }
        if interfaces.is_empty() && config.controller.is_none() {
            checks.push(Check::wrong(
                "link",
                format!("no route to {}", config.ps.ip()),
                "give this host an address in the server's network, or a route: ip route",
            ));
        }
    }
    checks.extend(interfaces.iter().map(|interface| link::check(&host, interface, config.ps.ip())));
    checks.push(cores::numa(&host, &devices, &interfaces));
    checks.push(cores::check_isolation(&host, dpdk));
    checks.push(clock::check(&host, visit.root.is_none(), dpdk.is_some()));
    if built && !visit.patience.is_zero() {
        match &config.controller {
            Some(controller) => checks.push(reach::controller(controller, visit.patience)),
            None if unopenable(&checks) => checks.push(reach::not_asked()),
            None => checks.extend(reach::check(config, visit.known, visit.patience)),
        }
    }
    Report {
        io: match config.io {
            Backend::Udp => "udp",
            Backend::Dpdk(_) => "dpdk",
        },
        ps: config.controller.as_ref().map_or(config.ps.to_string(), |controller| controller.url.to_string()),
        job: config.controller.is_none().then_some(config.job),
        verdict: checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok),
        checks,
    }
}

/// Whether opening would only repeat the same problems in other words, or wait for nothing.
fn unopenable(checks: &[Check]) -> bool {
    let hinders = |check: &Check| matches!(check.name, "hugepages" | "device");
    checks.iter().any(|check| check.verdict == Verdict::Wrong && hinders(check))
}

/// Whether this program can do what is asked.
fn program(config: &GroupConfig) -> Check {
    let version = env!("CARGO_PKG_VERSION");
    let with = if cfg!(feature = "dpdk") { "with" } else { "without" };
    if matches!(config.io, Backend::Dpdk(_)) && !cfg!(feature = "dpdk") {
        let mend = TransportError::NoDpdk.to_string();
        let mend = mend.split_once(": ").map_or(mend.as_str(), |(_, mend)| mend).to_owned();
        return Check::wrong("program", format!("thc-worker {version}, without DPDK"), mend);
    }
    Check::ok("program", format!("thc-worker {version}, {with} DPDK"))
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
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let warnings = count(Verdict::Warning);
        match (count(Verdict::Wrong), warnings) {
            (0, 0) => write!(f, "\nAll is well."),
            (0, _) => write!(f, "\nIt will work; {warnings} warning{}.", plural(warnings)),
            (wrong, _) => {
                write!(f, "\n{wrong} thing{} wrong, {warnings} warning{}.", plural(wrong), plural(warnings))
            }
        }
    }
}
