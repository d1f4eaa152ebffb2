//! Whether the parameter server answers, and what.

use super::check::Check;
use std::time::Duration;
use thc_protocol::wire::RefuseReason;
use thc_worker::{GroupConfig, Probe, ProbeAnswer, probe};

const NAME: &str = "server";

/// What the flags left open.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// A cookie was given.
    pub cookie: bool,
    /// A worker's number was given.
    pub worker: bool,
}

pub fn check(config: &GroupConfig, known: Known, patience: Duration) -> Check {
    let ps = config.ps;
    match probe(config, patience) {
        Err(error) => Check::wrong(
            NAME,
            format!("nothing could be asked: {error}"),
            "mend this first; it would stop a run as well",
        ),
        Ok(Probe { answer: None, strangers: Some(from), .. }) => Check::wrong(
            NAME,
            format!("{ps} was asked, {from} answers, and workers take that for somebody else"),
            format!("let thc-ps listen on the one address that workers use: --listen {ps}"),
        ),
        Ok(Probe { answer: None, unresolved: true, .. }) => Check::wrong(
            NAME,
            format!("{}: nobody answers ARP", config.ps.ip()),
            "is thc-ps up, its device on the same link, its address right? Or --dpdk-neighbour, --dpdk-gateway",
        ),
        Ok(Probe { answer: None, asked, .. }) => Check::wrong(
            NAME,
            format!("{ps} does not answer ({asked} probes in {})", humantime::format_duration(patience)),
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
                ProbeAnswer::Job { workers } if known.worker && config.worker >= workers => Check::wrong(
                    NAME,
                    format!("{ps}: job {job} has {workers} workers, so there is no worker {}", config.worker),
                    format!("number workers from 0 to {}", workers.saturating_sub(1)),
                ),
                ProbeAnswer::Job { workers } if answered < asked => Check::warning(
                    NAME,
                    format!("{ps} {came}; job {job}, {workers} workers"),
                    "packets get lost: look at drops on the way (ip -s link, ethtool -S)",
                ),
                ProbeAnswer::Job { workers } => {
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
                ProbeAnswer::Refused(reason) => {
                    Check::wrong(NAME, format!("{ps} {came}: {reason}"), "is it another version?")
                }
            }
        }
    }
}
