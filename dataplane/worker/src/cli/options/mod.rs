//! Flags and the TOML file, checked together into a [`RunConfig`].

mod doctor;
mod group;
mod keys;
mod texts;

use self::doctor::DoctorFlags;
use self::keys::{Keys, Travel};
use self::texts::{cookie, parse};
use super::doctor::Visit;
use super::spans::Spans;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::path::PathBuf;
use thc_config::help::{self, Stop};
use thc_config::job::Method;
use thc_config::values::Size;
use thc_protocol::MAX_WORKERS;
use thc_worker::{ControllerUrl, GroupConfig, Mode};

const EXAMPLES: &str = "\
Examples:
  A parameter server and two workers that average their gradients:
    thc-ps --workers 2 --cookie 0x1234 &
    thc-worker --worker 0 --cookie 0x1234 --input a.npy --output mean-a.npy &
    thc-worker --worker 1 --cookie 0x1234 --input b.npy --output mean-b.npy

  Measure ten all-reduces of 64 MiB, without files:
    thc-worker --worker 0 --cookie 0x1234 --coordinates 16Mi --repeat 10 --json

  A job with two tables; the first million coordinates travel in 2 bits, the rest uncompressed:
    thc-ps --job 1 --workers 2 --cookie 0x1234 --tables bits=2 &
    thc-worker --worker 0 --cookie 0x1234 --coordinates 1Mi --plan 2/8:1000000,raw

  Settings from a file, and the cookie from the environment:
    THC_COOKIE=0x1234 thc-worker --config worker.toml --worker 0 --input a.safetensors

  A job of thc-controller, which gives each worker its number:
    thc-worker --ps thc://127.0.0.1:9700/train --input a.npy --output mean-a.npy

  Bypass the kernel, through a NIC that DPDK drives or over shared memory (docs/dpdk.md):
    thc-worker --worker 0 --cookie 0x1234 --ps 10.0.0.1 --coordinates 16Mi \\
        --io dpdk --dpdk-device 0000:3b:00.0 --dpdk-address 10.0.0.2/24
    thc-worker --worker 0 --cookie 0x1234 --ps 10.0.0.1 --coordinates 16Mi \\
        --io dpdk --dpdk-address 10.0.0.2/24 --dpdk-hugepages=false \\
        --dpdk-device net_memif0,role=client,id=0,socket-abstract=no,socket=/tmp/thc.sock

  Check whether this host can run with these settings:
    thc-worker doctor --config worker.toml --worker 0

SIGINT and SIGTERM make it leave, which ends the session of the other workers; a second one ends
it at once.
Exit status: 0 done, 1 failed, 2 wrong flags or configuration, 130 SIGINT, 143 SIGTERM.";

/// Average tensors with the other workers of a job, in compressed form, through a parameter server.
#[derive(Debug, Parser)]
#[command(name = "thc-worker", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Flags {
    #[command(subcommand)]
    command: Option<Subcommands>,
    /// TOML file; flags override it. Its keys are the flags of "Group" and "Work" below, in snake case, and those of
    /// "DPDK", without dpdk-, in its section [dpdk]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the report as JSON on stdout
    #[arg(long)]
    json: bool,
    /// Print a line for each all-reduce when it is done: its number, how long it took, a checksum of the mean
    #[arg(long)]
    each: bool,
    #[command(flatten)]
    pub logs: thc_config::logs::LogFlags,
    // Last: what follows would go under its last heading.
    #[command(flatten)]
    keys: Keys,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Check whether a run with these flags will work here, and report what prevents it
    Doctor(DoctorFlags),
}

/// The options that `-h` shows.
const SHORT: [&str; 10] =
    ["config", "ps", "job", "worker", "cookie", "input", "output", "coordinates", "repeat", "json"];

/// The order of the command line.
#[derive(Debug)]
pub enum Order {
    /// A run.
    Run(Box<RunConfig>),
    /// A look at the host.
    Doctor(Box<Visit>),
}

/// P3 has 32 bits for the length of an all-reduce.
const MOST_COORDINATES: u64 = u32::MAX as u64;
/// More than any machine has cores for.
const MOST_THREADS: usize = 1024;
/// The tensors to reduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorSource {
    /// The tensors of a file; the mean goes to another, if any.
    File { input: PathBuf, output: Option<PathBuf> },
    /// This many made-up coordinates.
    MadeUp(usize),
}

/// Everything that a run needs, checked.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The group to join.
    pub group: GroupConfig,
    /// `true` to begin again in a new session when another worker has restarted.
    pub rejoin: bool,
    /// The tensors to reduce.
    pub source: TensorSource,
    /// The number of repetitions.
    pub repeat: u32,
    /// The form in which coordinates travel.
    pub mode: Mode,
    /// The form of each span, if a plan gives them.
    pub spans: Option<Spans>,
    /// The job's method, which it is checked for.
    pub method: Method,
    /// `true` to keep error feedback between repetitions.
    pub error_feedback: bool,
    /// `true` to report as JSON.
    pub json: bool,
    /// `true` to print a line for each all-reduce.
    pub each: bool,
}

impl Flags {
    /// Reads the command line.
    pub fn read() -> Result<Flags, Stop> {
        // Doctor takes a run's work along, as files have it, but its help has enough to say without.
        let hide = |arg: clap::Arg| {
            let work = arg.get_help_heading() == Some("Work");
            if work { arg.hide(true) } else { arg }
        };
        let command = Flags::command().mut_subcommand("doctor", |doctor| doctor.mut_args(hide));
        Ok(Flags::from_arg_matches_mut(&mut help::read(command, &SHORT)?)?)
    }

    /// Reads the file, if any, and checks everything.
    pub fn order(mut self) -> Result<Order, String> {
        match self.command.take() {
            Some(Subcommands::Doctor(flags)) => Ok(Order::Doctor(Box::new(flags.visit()?))),
            None => Ok(Order::Run(Box::new(self.run_config()?))),
        }
    }

    fn run_config(self) -> Result<RunConfig, String> {
        let keys = self.keys.merge_file(self.config.as_deref())?;
        let io = thc_transport::backend(keys.io, keys.bind()?.ip(), &keys.dpdk);
        let io = io.map_err(|e| e.to_string())?;
        let (worker, cookie) = if keys.ps.as_deref().is_some_and(ControllerUrl::is_meant) {
            // The controller supplies both.
            (0, 0)
        } else {
            let worker = keys
                .worker
                .ok_or("worker is missing: give this worker's number, --worker 0 to workers - 1")?;
            if usize::from(worker) >= MAX_WORKERS {
                return Err(format!("worker is {worker}: a job's workers are 0 to {}", MAX_WORKERS - 1));
            }
            let cookie = cookie(keys.cookie.as_ref())?;
            (worker, cookie.ok_or("cookie is missing: give the job's cookie by --cookie or THC_COOKIE")?)
        };
        let group = keys.group(worker, cookie, io)?;
        for (key, path) in [("input", &keys.input), ("output", &keys.output)] {
            if path.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
                return Err(format!("{key} is empty: name a file"));
            }
        }
        let source = match (keys.input, keys.coordinates) {
            (Some(input), None) => TensorSource::File { input, output: keys.output },
            (None, Some(_)) if keys.output.is_some() => {
                return Err("--output needs --input: made-up coordinates have no mean to keep".into());
            }
            (None, Some(Size(0))) => return Err("coordinates is 0: give at least 1".into()),
            (None, Some(Size(count))) if count as u64 > MOST_COORDINATES => {
                return Err(format!(
                    "coordinates is {count}: one all-reduce has {MOST_COORDINATES} at most, give fewer and --repeat"
                ));
            }
            (None, Some(Size(count))) => TensorSource::MadeUp(count),
            (Some(_), Some(_)) => {
                return Err("input and coordinates exclude each other: give one of them".into());
            }
            (None, None) => return Err("nothing to reduce: give --input FILE or --coordinates NUMBER".into()),
        };
        let spans = keys.plan.as_deref().map(|text| parse("plan", text)).transpose()?;
        if spans.is_some() && keys.mode.is_some() {
            return Err("mode and plan exclude each other: give one of them, a plan may say raw".into());
        }
        let method = keys.method.unwrap_or_default();
        if method.fixes_workers() && keys.error_feedback == Some(false) {
            return Err(format!(
                "error_feedback is false, and method = {method} keeps it: leave one of them out"
            ));
        }
        let repeat = keys.repeat.unwrap_or(1);
        if repeat == 0 {
            return Err("repeat is 0: give at least 1".into());
        }
        Ok(RunConfig {
            group,
            rejoin: keys.rejoin.unwrap_or(false),
            source,
            repeat,
            mode: if keys.mode == Some(Travel::Raw) { Mode::Raw } else { Mode::Compressed },
            spans,
            method,
            error_feedback: keys.error_feedback.unwrap_or(method.fixes_workers()),
            json: self.json,
            each: self.each,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
