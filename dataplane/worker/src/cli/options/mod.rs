//! Flags and the TOML file, checked together into a [`RunConfig`].

mod doctor;
mod group;
mod texts;

use self::doctor::DoctorFlags;
use self::texts::{cookie, parse};
use super::doctor::Visit;
use super::spans::Spans;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thc_options::{Secret, Size};
use thc_protocol::MAX_WORKERS;
use thc_ps::ServerConfig;
use thc_transport::{CaptureConfig, DpdkOptions, IoName, XdpOptions};
use thc_worker::{ControllerUrl, GroupConfig, Mode};

const EXAMPLES: &str = "\
Examples:
  A parameter server and two workers that average their gradients:
    thc-ps --job 1 --workers 2 --cookie 0x1234 &
    thc-worker --worker 0 --cookie 0x1234 --input a.npy --output mean-a.npy &
    thc-worker --worker 1 --cookie 0x1234 --input b.npy --output mean-b.npy

  Four hosts without a dedicated server, each of which serves a share of the slots; host i runs:
    thc-worker --colocated 10.0.0.1:9000,10.0.0.2:9000,10.0.0.3:9000,10.0.0.4:9000 \\
        --worker i --cookie 0x1234 --input a.npy --output mean-a.npy

  Measure ten all-reduces of 64 MiB, without files:
    thc-worker --worker 0 --cookie 0x1234 --coordinates 16777216 --repeat 10 --json

  A job with two tables; the first million coordinates travel in 2 bits, the rest uncompressed:
    thc-ps --job 1 --workers 2 --cookie 0x1234 --tables bits=2 &
    thc-worker --worker 0 --cookie 0x1234 --coordinates 1048576 --plan 2/8:1000000,raw

  Settings from a file, and the cookie from the environment:
    THC_COOKIE=0x1234 thc-worker --config worker.toml --worker 0 --input a.safetensors

  A job of thc-controller, which gives each worker its number:
    thc-worker --ps thc://127.0.0.1:9700/train --input a.npy --output mean-a.npy

  Bypass the kernel, through a NIC that DPDK drives or over shared memory (docs/dpdk.md):
    thc-worker --worker 0 --cookie 0x1234 --ps 10.0.0.1:9000 --coordinates 16777216 \\
        --io dpdk --dpdk-device 0000:3b:00.0 --dpdk-address 10.0.0.2/24
    thc-worker --worker 0 --cookie 0x1234 --ps 10.0.0.1:9000 --coordinates 16777216 \\
        --io dpdk --dpdk-address 10.0.0.2/24 --dpdk-hugepages=false \\
        --dpdk-device net_memif0,role=client,id=0,socket-abstract=no,socket=/tmp/thc.sock

  Use AF_XDP on an interface that the kernel keeps (docs/xdp.md):
    thc-worker --worker 0 --cookie 0x1234 --ps 10.0.0.1:9000 --coordinates 16777216 --io xdp --xdp-device eth1

  Check whether this host can run with these settings:
    thc-worker doctor --config worker.toml --worker 0

Exit status: 0 done, 1 failed, 2 wrong flags or configuration.";

/// Average tensors with the other workers of a job, in compressed form, through a parameter server.
#[derive(Debug, Parser)]
#[command(name = "thc-worker", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Flags {
    #[command(subcommand)]
    command: Option<Subcommands>,
    /// TOML file with the flags of "Group" and "Work" below as keys, in snake case, and those of "DPDK" and "AF_XDP",
    /// without dpdk- and xdp-, in its sections [dpdk] and [xdp]; flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the report as JSON on stdout
    #[arg(long)]
    json: bool,
    /// Print a line for each all-reduce when it is done: its number, how long it took, a checksum of the mean
    #[arg(long)]
    each: bool,
    #[command(flatten)]
    pub logs: thc_logs::LogFlags,
    // Last: what follows would go under its last heading.
    #[command(flatten)]
    keys: Keys,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Check whether a run with these flags will work on this host, and report what prevents it
    Doctor(DoctorFlags),
}

/// What the command line asks for.
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
/// The longest of all times, a year: further sums of times stay representable.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How coordinates travel.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Travel {
    /// Compressed: 4 bits up, 8 or 16 down
    Thc,
    /// As 32-bit integers
    Raw,
}

/// Every key, as written; a file and flags have the same.
#[derive(Clone, Debug, Default, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    /// The parameter server, such as ps:9000 or [fd00::1]:9000; or thc://CONTROLLER:PORT/JOB, a job of a controller,
    /// which supplies the server, the job's number, the cookie and, unless --worker gives it, this worker's number
    /// [default: 127.0.0.1:9000]
    #[arg(long, value_name = "HOST:PORT", help_heading = "Group")]
    ps: Option<String>,
    /// Run without a dedicated server: each of the first workers serves a share of the slots, at these addresses. Give
    /// every worker the same list; worker 0 has the first address
    #[arg(long, value_name = "ADDRESS:PORT,…", value_delimiter = ',', help_heading = "Group")]
    colocated: Option<Vec<String>>,
    /// How many workers the job has, with --colocated [default: one for each address]
    #[arg(long, value_name = "NUMBER", help_heading = "Group")]
    workers: Option<u8>,
    /// Bits per sum that colocated servers send down, 5 to 8, the same on all workers: fewer bits take fewer bytes, and
    /// the table is coarser [default: as many as the sums of the best table for 8 bits need]
    #[arg(long, value_name = "BITS", help_heading = "Group")]
    lane: Option<u8>,
    /// 4: colocated servers send sums down in 4 bits, the same on all workers: three quarters of the bytes that 7 bits
    /// take, and an additional error [default: whole sums, in the bits of --lane]
    #[arg(long, value_name = "BITS", help_heading = "Group")]
    down: Option<u8>,
    /// PEM file with the authority of the controller's certificate, for thcs://
    #[arg(long, value_name = "FILE", env = "THC_CONTROLLER_CA", help_heading = "Group")]
    controller_ca: Option<PathBuf>,
    /// PEM file with this worker's certificate for the controller
    #[arg(long, value_name = "FILE", env = "THC_CONTROLLER_CERT", help_heading = "Group")]
    controller_cert: Option<PathBuf>,
    /// PEM file with the private key of --controller-cert
    #[arg(long, value_name = "FILE", env = "THC_CONTROLLER_KEY", help_heading = "Group")]
    controller_key: Option<PathBuf>,
    /// The job's number [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Group")]
    job: Option<u16>,
    /// This worker's number, 0 to workers - 1
    #[arg(long, value_name = "NUMBER", env = "THC_WORKER", help_heading = "Group")]
    worker: Option<u8>,
    /// The job's cookie, the same as at the parameter server
    #[arg(long, value_name = "0x…", env = "THC_COOKIE", hide_env_values = true, help_heading = "Group")]
    cookie: Option<Secret>,
    /// Address and port to send from [default: 0.0.0.0:0]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Group")]
    bind: Option<String>,
    /// How long to wait for the other workers [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "Group")]
    join_timeout: Option<String>,
    /// How long an all-reduce may make no progress before it fails [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "Group")]
    timeout: Option<String>,
    /// Longer time-out, which applies while the parameter server answers and only other workers are late [default: that
    /// of --timeout]
    #[arg(long, value_name = "TIME", help_heading = "Group")]
    patience: Option<String>,
    /// When another worker restarts, join a new session with it and start again, instead of failing [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Group")]
    rejoin: Option<bool>,
    /// Shortest retransmission time-out [default: 20ms]
    #[arg(long, value_name = "TIME", help_heading = "Group")]
    min_rto: Option<String>,
    /// Seed of this worker's rounding [default: derived from the job's seed and the worker's number]
    #[arg(long, value_name = "NUMBER", help_heading = "Group")]
    seed: Option<u64>,
    /// Threads that compute [default: one fewer than there are cores, at least 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Group")]
    threads: Option<usize>,
    /// Threads for packets, each with a socket and slots of its own, in addition to those that compute; kernel UDP only
    /// [default: 0]
    #[arg(long, value_name = "NUMBER", help_heading = "Group")]
    network_threads: Option<usize>,
    /// Backend that carries the packets [default: udp]
    #[arg(long, value_enum, value_name = "BACKEND", help_heading = "Group")]
    io: Option<IoName>,
    /// Serve metrics to Prometheus at http://ADDRESS:PORT/metrics while this worker runs; anyone who can reach the
    /// address can read them [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Group")]
    http: Option<String>,
    /// Write all packets, sent and received, to this pcap file, which then contains the cookie
    #[arg(long, value_name = "FILE", help_heading = "Group")]
    pcap: Option<PathBuf>,
    /// Largest size of the pcap file; further packets are not written [default: 1GiB]
    #[arg(long, value_name = "BYTES", help_heading = "Group")]
    pcap_limit: Option<String>,
    /// The `[dpdk]` section.
    #[command(flatten)]
    dpdk: DpdkOptions,
    /// The `[xdp]` section.
    #[command(flatten)]
    xdp: XdpOptions,
    /// Faults to inject into this worker's packets, for tests: loss=0.01,duplicate=0.01,reorder=0.01
    #[arg(long, value_name = "FAULTS", hide = true)]
    inject: Option<String>,
    /// Seed of the injected faults
    #[arg(long, value_name = "NUMBER", hide = true)]
    inject_seed: Option<u64>,

    /// Tensors to reduce: .npy, .safetensors, or raw little-endian f32 under any other name
    #[arg(long, value_name = "FILE", help_heading = "Work")]
    input: Option<PathBuf>,
    /// Where to write the mean, in the input's format
    #[arg(long, value_name = "FILE", requires = "input", help_heading = "Work")]
    output: Option<PathBuf>,
    /// Reduce this many made-up coordinates instead of a file
    #[arg(long, value_name = "NUMBER", conflicts_with = "input", help_heading = "Work")]
    coordinates: Option<u64>,
    /// How many times to reduce the same tensors [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Work")]
    repeat: Option<u32>,
    /// How coordinates travel [default: thc]
    #[arg(long, value_enum, help_heading = "Work")]
    mode: Option<Travel>,
    /// How each tensor travels, the same on all workers: by a table of the job, named by its number or its form, such
    /// as 2/8 (bits up and down), or raw; or as several such spans in order, each with its length as :COORDINATES, the
    /// last for the rest [default: by the job's first table]
    #[arg(
        long,
        value_name = "TABLE|FORM|raw[:COORDINATES],…",
        conflicts_with = "mode",
        help_heading = "Work"
    )]
    plan: Option<String>,
    /// Keep error feedback between repetitions
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Work")]
    error_feedback: Option<bool>,
}

impl Keys {
    /// These keys, and those of a file, if there is one, where these are absent.
    fn merge_file(self, path: Option<&Path>) -> Result<Keys, String> {
        let Some(path) = path else { return Ok(self) };
        thc_options::merge(&read(path)?, &self).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// What to reduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorSource {
    /// The tensors of a file; the mean goes to another, if any.
    File { input: PathBuf, output: Option<PathBuf> },
    /// So many made-up coordinates.
    MadeUp(usize),
}

/// Everything that a run needs, checked.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The group to join.
    pub group: GroupConfig,
    /// The share of the server to run beside it, if any.
    pub share: Option<ServerConfig>,
    /// Where Prometheus is answered.
    pub http: Option<SocketAddr>,
    /// Where packets are written to.
    pub capture: Option<CaptureConfig>,
    /// Whether to begin again in a new session when another worker has restarted.
    pub rejoin: bool,
    /// What to reduce.
    pub source: TensorSource,
    /// How often.
    pub repeat: u32,
    /// How coordinates travel.
    pub mode: Mode,
    /// As what, span by span, if that is told.
    pub spans: Option<Spans>,
    /// Whether error feedback is kept between repetitions.
    pub error_feedback: bool,
    /// Whether to report as JSON.
    pub json: bool,
    /// Whether to tell of each all-reduce.
    pub each: bool,
}

impl Flags {
    /// Reads the command line.
    pub fn read() -> Result<Flags, clap::Error> {
        // Doctor takes a run's work along, as files have it, but its help has enough to say without.
        let hide = |arg: clap::Arg| {
            let work = arg.get_help_heading() == Some("Work");
            if work { arg.hide(true) } else { arg }
        };
        let command = Flags::command().mut_subcommand("doctor", |doctor| doctor.mut_args(hide));
        Flags::from_arg_matches_mut(&mut command.try_get_matches()?)
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
        let io = thc_transport::backend(keys.io, keys.bind()?.ip(), &keys.dpdk, &keys.xdp);
        let io = io.map_err(|e| e.to_string())?;
        let (worker, cookie) = if keys.ps.as_deref().is_some_and(ControllerUrl::is_meant) {
            // What the controller tells.
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
        let share = keys.share(&group)?;
        for (key, path) in [("input", &keys.input), ("output", &keys.output), ("pcap", &keys.pcap)] {
            if path.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
                return Err(format!("{key} is empty: name a file"));
            }
        }
        let limit = match &keys.pcap_limit {
            None => CaptureConfig::DEFAULT_LIMIT,
            Some(text) => parse::<Size>("pcap_limit", text)?.0 as u64,
        };
        let capture = keys.pcap.map(|path| CaptureConfig { path, limit });
        let address = |text: &String| {
            let wrong = |_| format!("http = {text:?}: give an address and a port, such as 127.0.0.1:9102");
            text.parse().map_err(wrong)
        };
        let http = keys.http.as_ref().map(address).transpose()?;
        let source = match (keys.input, keys.coordinates) {
            (Some(input), None) => TensorSource::File { input, output: keys.output },
            (None, Some(_)) if keys.output.is_some() => {
                return Err("output needs input: nobody has use for the mean of made-up coordinates".into());
            }
            (None, Some(0)) => return Err("coordinates is 0: give at least 1".into()),
            (None, Some(count)) if count > MOST_COORDINATES => {
                return Err(format!(
                    "coordinates is {count}: one all-reduce has {MOST_COORDINATES} at most, give fewer and --repeat"
                ));
            }
            (None, Some(count)) => TensorSource::MadeUp(count as usize),
            (Some(_), Some(_)) => {
                return Err("input and coordinates exclude each other: give one of them".into());
            }
            (None, None) => return Err("nothing to reduce: give --input FILE or --coordinates NUMBER".into()),
        };
        let spans = keys.plan.as_deref().map(|text| parse("plan", text)).transpose()?;
        if spans.is_some() && keys.mode.is_some() {
            return Err("mode and plan exclude each other: give one of them, a plan may say raw".into());
        }
        let repeat = keys.repeat.unwrap_or(1);
        if repeat == 0 {
            return Err("repeat is 0: give at least 1".into());
        }
        Ok(RunConfig {
            group,
            share,
            http,
            capture,
            rejoin: keys.rejoin.unwrap_or(false),
            source,
            repeat,
            mode: if keys.mode == Some(Travel::Raw) { Mode::Raw } else { Mode::Compressed },
            spans,
            error_feedback: keys.error_feedback.unwrap_or(false),
            json: self.json,
            each: self.each,
        })
    }
}

fn read(path: &Path) -> Result<Keys, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        format!("{}: line {line}: {}", path.display(), e.message())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
