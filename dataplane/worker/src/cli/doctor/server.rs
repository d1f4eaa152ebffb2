//! The answer of the parameter server.

use super::check::Check;
use super::dpdk;
use std::time::Duration;
use thc_config::values::Interval;
use thc_protocol::wire::RefuseReason;
use thc_transport::Backend;
use thc_worker::{GroupConfig, Probe, ProbeAnswer, Seat, WorkerError, probe};

const NAME: &str = "server";

/// Checks the links of DPDK's devices, and the server's answer.
pub fn check(config: &GroupConfig, patience: Duration) -> Vec<Check> {
    match probe(config, patience) {
        Err(error @ WorkerError::Io(_)) if config.io != Backend::Udp => {
            vec![Check::failure("device", &error), not_asked()]
        }
        Err(error) => vec![Check::failure(NAME, &error)],
        Ok(probe) => {
            let mut checks: Vec<Check> = probe.devices.iter().map(dpdk::opened).collect();
            checks.push(match &probe.answer {
                None => silent(config, patience, &probe),
                Some(answer) => answered(config, &probe, answer),
            });
            checks
        }
    }
}

/// The check of a server that is not asked, because a run would fail before.
pub fn not_asked() -> Check {
    Check::wrong(NAME, "not asked, because of what is wrong above", "fix that first, then check again")
}

fn silent(config: &GroupConfig, patience: Duration, probe: &Probe) -> Check {
    let ps = config.seat.ps;
    if let Some(from) = probe.strangers {
        return Check::wrong(
            NAME,
            format!("{ps} was asked, but {from} answers, which workers ignore"),
            format!("is its address translated on the way? Give the one that answers: --ps {from}"),
        );
    }
    if probe.unresolved {
        return Check::wrong(
            NAME,
            format!("{}: nobody answers ARP", ps.ip()),
            "is thc-ps up, its device on the same link, its address right? Or --dpdk-neighbour, --dpdk-gateway",
        );
    }
    if probe.refused {
        return Check::wrong(
            NAME,
            format!("nobody listens on {ps} (UDP)"),
            "start thc-ps there, or give --ps the address and port of its --listen",
        );
    }
    Check::wrong(
        NAME,
        format!("{ps} (UDP) does not answer ({} probes in {})", probe.asked, Interval(patience)),
        "is its host up, and does its --listen have this address and port? Do firewalls pass UDP both ways?",
    )
}

fn answered(config: &GroupConfig, probe: &Probe, answer: &ProbeAnswer) -> Check {
    let Seat { ps, job, worker, cookie } = config.seat;
    let Probe { asked, answered, best, .. } = probe;
    let came = if answered == asked {
        format!("{ps} answers within {best:.1?}")
    } else {
        format!("{ps} answers {answered} of {asked} probes, the fastest within {best:.1?}")
    };
    let wrong = |found: String, mend: String| Check::wrong(NAME, format!("{came}, but {found}"), mend);
    match answer {
        ProbeAnswer::Job { unusable: Some(reason), .. } => {
            wrong(reason.clone(), "install the version that the server has".into())
        }
        &ProbeAnswer::Job { workers, .. } if worker >= workers => wrong(
            format!("job {job} has {workers} workers, so there is no worker {worker}"),
            format!("number workers from 0 to {}", workers.saturating_sub(1)),
        ),
        ProbeAnswer::Job { workers, .. } if answered < asked => Check::warning(
            NAME,
            format!("{came}; job {job}, {workers} workers"),
            "packets get lost: look at drops on the way (ip -s link, ethtool -S)",
        ),
        ProbeAnswer::Job { workers, .. } => {
            Check::ok(NAME, format!("{came}; job {job}, {workers} workers, cookie right"))
        }
        ProbeAnswer::Refused(RefuseReason::UnknownJob) => {
            wrong(format!("has no job {job}"), "give the job that thc-ps has: --job".into())
        }
        ProbeAnswer::Refused(RefuseReason::WrongCookie) if cookie == 0 => Check::warning(
            NAME,
            format!("{came} and has job {job}; no cookie was given, so it says no more"),
            "give the job's cookie: --cookie or THC_COOKIE",
        ),
        ProbeAnswer::Refused(RefuseReason::WrongCookie) => wrong(
            format!("job {job} has another cookie"),
            "give the one that thc-ps has: --cookie or THC_COOKIE".into(),
        ),
        ProbeAnswer::Refused(reason) => {
            wrong(reason.to_string(), "install the same version everywhere".into())
        }
    }
}
