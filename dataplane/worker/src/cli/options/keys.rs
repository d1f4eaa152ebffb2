//! The keys of a run, as a file and flags write them.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use thc_config::job::Method;
use thc_config::values::{Secret, Size};
use thc_transport::{DpdkOptions, IoName};

/// The form in which coordinates travel.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Travel {
    /// Compressed: 4 bits up, 8 or 16 down
    Thc,
    /// As 32-bit integers
    Raw,
}

/// Every key, as written; a file and flags have the same.
#[derive(Clone, Debug, Default, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Keys {
    /// The parameter server, such as ps, 10.0.0.1:9000 or [fd00::1]:9000; or thc://CONTROLLER:PORT/JOB, a job of a
    /// controller, which supplies the server, the job's number, the cookie and, without --worker, this worker's number
    /// [default: 127.0.0.1:9000]
    #[arg(long, value_name = "HOST:PORT", help_heading = "Group")]
    pub(super) ps: Option<String>,
    /// The job's method: thc-paper is THC as published, keeps error feedback and rounds independently of other workers
    #[arg(long, value_name = "METHOD", env = "THC_METHOD", help_heading = "Group")]
    pub(super) method: Option<Method>,
    /// PEM file with the authority of the controller's certificate, for thcs://
    #[arg(long, value_name = "FILE", env = "THC_CONTROLLER_CA", help_heading = "Group")]
    pub(super) controller_ca: Option<PathBuf>,
    /// PEM file with this worker's certificate for the controller
    #[arg(long, value_name = "FILE", env = "THC_CONTROLLER_CERT", help_heading = "Group")]
    pub(super) controller_cert: Option<PathBuf>,
    /// PEM file with the private key of --controller-cert
    #[arg(long, value_name = "FILE", env = "THC_CONTROLLER_KEY", help_heading = "Group")]
    pub(super) controller_key: Option<PathBuf>,
    /// The job's number [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Group")]
    pub(super) job: Option<u16>,
    /// This worker's number, 0 to workers - 1
    #[arg(long, value_name = "NUMBER", env = "THC_WORKER", help_heading = "Group")]
    pub(super) worker: Option<u8>,
    /// The job's cookie, the same as at the parameter server
    #[arg(long, value_name = "0x…", env = "THC_COOKIE", hide_env_values = true, help_heading = "Group")]
    pub(super) cookie: Option<Secret>,
    /// Address and port to send from [default: 0.0.0.0:0]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Group")]
    pub(super) bind: Option<String>,
    /// Longest wait for the other workers [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "Group")]
    pub(super) join_timeout: Option<String>,
    /// Time without progress after which an all-reduce fails [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "Group")]
    pub(super) timeout: Option<String>,
    /// Longer time-out, which applies while the parameter server answers and only other workers are late [default: that
    /// of --timeout]
    #[arg(long, value_name = "TIME", help_heading = "Group")]
    pub(super) patience: Option<String>,
    /// When another worker restarts, join a new session with it and start again, instead of failing [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Group")]
    pub(super) rejoin: Option<bool>,
    /// Shortest retransmission time-out [default: 20ms]
    #[arg(long, value_name = "TIME", help_heading = "Group")]
    pub(super) min_rto: Option<String>,
    /// Seed of this worker's rounding [default: derived from the job's seed and the worker's number]
    #[arg(long, value_name = "NUMBER", help_heading = "Group")]
    pub(super) seed: Option<u64>,
    /// Threads that compute [default: one fewer than there are cores, at least 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Group")]
    pub(super) threads: Option<usize>,
    /// Backend that carries the packets [default: udp]
    #[arg(long, value_enum, value_name = "BACKEND", help_heading = "Group")]
    pub(super) io: Option<IoName>,
    /// The `[dpdk]` section.
    #[command(flatten)]
    pub(super) dpdk: DpdkOptions,
    /// Faults to inject into this worker's packets, for tests: loss=0.01,duplicate=0.01,reorder=0.01
    #[arg(long, value_name = "FAULTS", hide = true)]
    pub(super) inject: Option<String>,
    /// Seed of the injected faults
    #[arg(long, value_name = "NUMBER", hide = true)]
    pub(super) inject_seed: Option<u64>,

    /// Tensors to reduce: f32, f64, f16 or bf16 in .npy or .safetensors, or raw little-endian f32 under any other name
    #[arg(long, value_name = "FILE", help_heading = "Work")]
    pub(super) input: Option<PathBuf>,
    /// File for the mean: .npy, .safetensors, or raw little-endian f32 under any other name
    #[arg(long, value_name = "FILE", requires = "input", help_heading = "Work")]
    pub(super) output: Option<PathBuf>,
    /// Reduce this many made-up coordinates, such as 16Mi or 1e6, instead of a file
    #[arg(long, value_name = "NUMBER", conflicts_with = "input", help_heading = "Work")]
    pub(super) coordinates: Option<Size>,
    /// Number of times that the tensors are reduced [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Work")]
    pub(super) repeat: Option<u32>,
    /// Form in which coordinates travel [default: thc]
    #[arg(long, value_enum, help_heading = "Work")]
    pub(super) mode: Option<Travel>,
    /// Form in which each tensor travels, the same on all workers: by a table of the job, named by its number or its form, such
    /// as 2/8 (bits up and down), or raw; or as several such spans in order, each with its length as :COORDINATES, the
    /// last for the rest [default: by the job's first table]
    #[arg(
        long,
        value_name = "TABLE|FORM|raw[:COORDINATES],…",
        conflicts_with = "mode",
        help_heading = "Work"
    )]
    pub(super) plan: Option<String>,
    /// Keep error feedback between repetitions
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = "Work")]
    pub(super) error_feedback: Option<bool>,
}

impl Keys {
    /// These keys, and those of a file, if there is one, where these are absent.
    pub(super) fn merge_file(self, path: Option<&Path>) -> Result<Keys, String> {
        let Some(path) = path else { return Ok(self) };
        thc_config::job::merge(&read(path)?, &self).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn read(path: &Path) -> Result<Keys, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    thc_config::file::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
}
