//! Whether the parameter server answers, and what.

use super::check::Check;
use super::link;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use thc_options::Interval;
use thc_protocol::wire::RefuseReason;
use thc_transport::Backend;
use thc_worker::{Controller, GroupConfig, Probe, ProbeAnswer, WorkerError, probe};

const NAME: &str = "server";
const CONTROLLER: &str = "controller";

/// What the flags left open.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// A cookie was given.
    pub cookie: bool,
    /// A worker's number was given.
    pub worker: bool,
}

/// Whether a controller takes connections, of a pair at least one. More is not asked: it would give this worker a place.
pub fn controller(controller: &Controller, patience: Duration) -> Check {
    let mut wrong = None;
    for authority in controller.url.authorities() {
        match takes_connections(authority, patience) {
            Ok(check) => return check,
            Err(check) => wrong = wrong.or(Some(check)),
        }
    }
    wrong.unwrap_or_else(|| Check::wrong(CONTROLLER, "none is named", "write thc://controller/job"))
}

/// What there is to say of one controller, good or bad.
fn takes_connections(authority: &str, patience: Duration) -> Result<Check, Check> {
    let mut addresses = authority.to_socket_addrs().map_err(|error| {
        Check::wrong(CONTROLLER, format!("{authority}: {error}"), "check the name, or give an address")
    })?;
    let tried = addresses.try_fold(None, |_, address| match TcpStream::connect_timeout(&address, patience) {
        Ok(_) => Err(address),
        Err(error) => Ok(Some(error)),
    });
    match tried {
        Err(address) => Ok(Check::ok(
            CONTROLLER,
            format!(
                "{address} takes connections; it tells the server on joining (--ps ADDRESS has that asked)"
            ),
        )),
        Ok(error) => Err(Check::wrong(
            CONTROLLER,
            format!("{authority}: {}", error.map_or("no address".to_owned(), |error| error.to_string())),
            "is thc-controller up, and do firewalls pass TCP?",
        )),
    }
}

/// The links of the devices asked through, if they are DPDK's, and what the server says.
pub fn check(config: &GroupConfig, known: Known, patience: Duration) -> Vec<Check> {
    let probe = probe(config, patience);
    if let (Err(error), Backend::Dpdk(_)) = (&probe, &config.io) {
        return vec![open_failure(error), not_asked()];
    }
    let devices = probe.as_ref().map_or(&[][..], |probe| &probe.devices);
    let mut checks: Vec<Check> = devices.iter().map(link::device).collect();
    checks.push(server(config, known, patience, probe));
    checks
}

/// A device that cannot be opened, although it looked well.
fn open_failure(error: &WorkerError) -> Check {
    let text = error.to_string();
    // Errors are written as what is wrong, and what to do.
    let text = text.strip_prefix("dpdk: ").unwrap_or(&text);
    let parts = text.split_once("; ").or_else(|| text.rsplit_once(": "));
    let (found, mend) = parts.unwrap_or((text, "see docs/dpdk.md"));
    Check::wrong("device", found, mend)
}

/// Without devices.
pub fn not_asked() -> Check {
    Check::wrong(NAME, "not asked, because the devices cannot be opened", "fix them first, then check again")
}

fn server(
    config: &GroupConfig,
    known: Known,
    patience: Duration,
    probe: Result<Probe, WorkerError>,
) -> Check {
    let ps = config.ps;
    match probe {
        Err(error) => Check::wrong(
            NAME,
            format!("nothing could be asked: {error}"),
            "fix this first; it would stop a run as well",
        ),
        Ok(Probe { answer: None, strangers: Some(from), .. }) => Check::wrong(
            NAME,
            format!("{ps} was asked, but {from} answers, which workers ignore"),
            format!(
                "are addresses translated in between? Use one that answers itself: --ps {from}, if that is thc-ps"
            ),
        ),
        Ok(Probe { answer: None, unresolved: true, .. }) => Check::wrong(
            NAME,
            format!("{}: nobody answers ARP", config.ps.ip()),
            "is thc-ps up, its device on the same link, its address right? Or --dpdk-neighbour, --dpdk-gateway",
        ),
        Ok(Probe { answer: None, asked, .. }) => Check::wrong(
            NAME,
            format!("{ps} does not answer ({asked} probes in {})", Interval(patience)),
            "is thc-ps up, and does its --listen have this address and port? Do firewalls pass UDP both ways?",
        ),
        Ok(Probe { answer: Some(answer), asked, answered, best, .. }) => {
            let job = config.job;
            let came = if answered == asked {
                format!("answers within {best:.1?}")
            } else {
                format!("answers {answered} of {asked} probes, the fastest within {best:.1?}")
            };
            match answer {
                ProbeAnswer::Job { unusable: Some(reason), .. } => Check::wrong(
                    NAME,
                    format!("{ps} {came}, but {reason}"),
                    "install the version that the server has",
                ),
                ProbeAnswer::Job { workers, .. } if known.worker && config.worker >= workers => Check::wrong(
                    NAME,
                    format!("{ps}: job {job} has {workers} workers, so there is no worker {}", config.worker),
                    format!("number workers from 0 to {}", workers.saturating_sub(1)),
                ),
                ProbeAnswer::Job { workers, .. } if answered < asked => Check::warning(
                    NAME,
                    format!("{ps} {came}; job {job}, {workers} workers"),
                    "packets get lost: look at drops on the way (ip -s link, ethtool -S)",
                ),
                ProbeAnswer::Job { workers, .. } => {
                    Check::ok(NAME, format!("{ps} {came}; job {job}, {workers} workers, cookie right"))
                }
                ProbeAnswer::Refused(RefuseReason::UnknownJob) => Check::wrong(
                    NAME,
                    format!("{ps} {came}, but has no job {job}"),
                    "give the job that thc-ps has: --job",
                ),
                ProbeAnswer::Refused(RefuseReason::WrongCookie) if !known.cookie => Check::warning(
                    NAME,
                    format!("{ps} {came} and has job {job}; no cookie was given, so it tells no more"),
                    "give the job's cookie: --cookie or THC_COOKIE",
                ),
                ProbeAnswer::Refused(RefuseReason::WrongCookie) => Check::wrong(
                    NAME,
                    format!("{ps} {came}, but job {job} has another cookie"),
                    "give the one that thc-ps has: --cookie or THC_COOKIE",
                ),
                ProbeAnswer::Refused(RefuseReason::Definitions) => Check::wrong(
                    NAME,
                    format!(
                        "{ps} {came}, but this build computes other numbers than the workers that are there"
                    ),
                    "install the same version everywhere",
                ),
                ProbeAnswer::Refused(reason) => {
                    Check::wrong(NAME, format!("{ps} {came}: {reason}"), "is it another version?")
                }
            }
        }
    }
}
