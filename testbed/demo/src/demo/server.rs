//! The demo's parameter server: the programs of server and controller, and how they are started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thc_ps::{JobOptions, Method, Server, ServerOptions};
use thc_transport::{FaultRates, LossyConfig};

use crate::error::{Error, Result};

/// Name of the parameter server's program.
pub const PROGRAM: &str = "thc-ps";

/// The job number that the demo uses.
pub const JOB: u16 = 1;

/// Finds a program in the folder of this one.
pub fn find(name: &'static str) -> Result<PathBuf> {
    let program = std::env::current_exe().map_err(Error::Process)?.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    let of_demo = program.parent().is_some_and(|folder| folder.ends_with("demo"));
    let profile = if of_demo { "profile demo" } else { "release" };
    let what = format!("{} does not exist; build it with: cargo build", program.display());
    Err(Error::Failure(format!("{what} --{profile} -p {name}")))
}

/// The environment variable that carries the job's cookie to `thc-ps` and to workers.
const COOKIE: &str = "THC_COOKIE";

/// The job that the demo's parameter server serves.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The number of workers.
    pub workers: u8,
    /// The method of compression.
    pub method: Method,
    /// The bit budget b, for which the server chooses the best table; 4 if it is not given.
    pub bits: Option<u8>,
    /// The seed of the shared signs, from which workers also derive their roundings.
    pub seed: u64,
    /// The share of packets to lose, in each direction.
    pub loss: f64,
    /// The job's secret, which no command line contains.
    #[serde(skip)]
    pub cookie: u32,
}

/// The share of the server that runs in a worker's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The job.
    pub job: Job,
    /// The addresses of all shares, by worker.
    pub at: Vec<SocketAddr>,
}

impl Share {
    /// How long a share waits at its end for workers that have not left. It is shorter than the time in which the demo
    /// expects a worker to end.
    pub const LINGER: Duration = Duration::from_millis(1500);

    /// Serves worker `worker`'s share of the slots, until it is dropped.
    pub fn serve(&self, worker: u8) -> Result<Server> {
        let Share { job, at } = self;
        let rates = FaultRates { loss: job.loss, ..FaultRates::NONE };
        let seed = job.seed.wrapping_add(worker.into());
        let faults = LossyConfig::both_ways(rates, seed);
        let options = ServerOptions {
            share: Some(format!("{worker}/{}", at.len())),
            shares: Some(at.iter().map(ToString::to_string).collect()),
            job: vec![JobOptions {
                job: Some(JOB.into()),
                cookie: Some(u64::from(cookie_from_environment()?).into()),
                workers: Some(job.workers.into()),
                method: Some(job.method),
                bits: job.bits.map(Into::into),
                seed: Some(job.seed.into()),
                ..JobOptions::default()
            }],
            faults: (job.loss > 0.0).then_some(faults),
            ..ServerOptions::default()
        };
        let failed = |error: &dyn std::fmt::Display| {
            Error::Failure(format!("worker {worker}'s share of the server: {error}"))
        };
        let config = options.validate().map_err(|error| failed(&error))?;
        Server::start(config).map_err(|error| failed(&error))
    }
}

impl Job {
    /// The command line of a parameter server for this job alone, at this address or on a free port of the loopback
    /// interface, with flags for its transport.
    pub fn arguments(&self, listen: Option<SocketAddr>, carrier: Vec<String>) -> Vec<String> {
        let mut arguments = vec!["--json".to_owned()];
        let mut pair = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        pair("--listen", listen.map_or("127.0.0.1:0".to_owned(), |listen| listen.to_string()));
        pair("--job", JOB.to_string());
        pair("--workers", self.workers.to_string());
        pair("--method", self.method.to_string());
        if let Some(bits) = self.bits {
            pair("--bits", bits.to_string());
        }
        pair("--seed", self.seed.to_string());
        arguments.extend(self.faults());
        arguments.extend(carrier);
        arguments
    }

    /// The command line of a parameter server whose jobs a controller creates.
    pub(crate) fn arguments_for_controller(&self) -> Vec<String> {
        let mut arguments =
            ["--json", "--listen", "127.0.0.1:0", "--p4runtime", "127.0.0.1:0"].map(str::to_owned).to_vec();
        arguments.extend(self.faults());
        arguments
    }

    /// The keys of its compression in a controller's file.
    pub(crate) fn keys(&self) -> String {
        let bits = self.bits.map(|bits| format!("bits = {bits}\n")).unwrap_or_default();
        format!("method = \"{}\"\n{bits}", self.method)
    }

    fn faults(&self) -> Vec<String> {
        if self.loss == 0.0 {
            return Vec::new();
        }
        vec![format!("--inject=loss={}", self.loss), format!("--inject-seed={}", self.seed)]
    }

    /// Puts the secret into a child's environment.
    pub(crate) fn hand_cookie<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env(COOKIE, self.cookie.to_string())
    }
}

/// Reads the secret that [`Job::hand_cookie`] stored.
pub(crate) fn cookie_from_environment() -> Result<u32> {
    std::env::var(COOKIE).ok().and_then(|text| text.parse().ok()).ok_or_else(Error::orphaned)
}

/// The address in a server's `ready` line. `None` for any other line.
pub fn ready(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("ready ")?.trim().parse().ok()
}

/// Reads lines until both the address of P4Runtime and that for workers have appeared.
pub(crate) fn ready_for_controller() -> impl FnMut(&str) -> Option<(SocketAddr, SocketAddr)> {
    let mut p4runtime = None;
    move |line| {
        if let Some(address) = line.strip_prefix("p4runtime ") {
            p4runtime = address.trim().parse().ok();
        }
        Some((p4runtime?, ready(line)?))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ready_line_has_an_address() {
        assert_eq!(ready("ready 127.0.0.1:4711"), Some("127.0.0.1:4711".parse().unwrap()));
        for line in ["", "ready", "ready soon", "thc-ps listening on 127.0.0.1:4711"] {
            assert_eq!(ready(line), None);
        }
    }

    #[test]
    fn the_secret_is_not_on_the_command_line() {
        let job = Job {
            workers: 4,
            method: Method::ThcPaper,
            bits: None,
            seed: 1,
            loss: 0.01,
            cookie: 0xC00C_1E55,
        };
        let line = job.arguments(None, Vec::new()).join(" ");
        assert!(
            line.contains("--workers 4 --method thc-paper") && line.contains("--inject=loss=0.01"),
            "{line}"
        );
        assert!(!line.contains(&job.cookie.to_string()) && !line.to_lowercase().contains("c00c1e55"));
        assert!(!Job { loss: 0.0, ..job }.arguments(None, Vec::new()).join(" ").contains("inject"));
    }
}
