//! A server's configuration as it is written, in a file or as flags: every key may be absent and nothing is
//! checked yet.

use std::fs;
use std::path::Path;

use crate::file;
use crate::job::{ConfigError, JobOptions, Section, merge};
use crate::values::Size;
use clap::Args;
use serde::{Deserialize, Serialize};
use thc_transport::{DpdkOptions, IoName, LossyConfig};

use crate::server::p4runtime::P4RuntimeOptions;
use crate::server::tls::TlsOptions;

/// The keys of a server, and its jobs.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerOptions {
    /// Address and UDP port to listen on, such as 0.0.0.0:9000, or [::]:9000 for IPv6 and IPv4; further shards use the
    /// ports after it. Port 0 lets the system choose [default: 127.0.0.1:9000]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Server")]
    pub listen: Option<String>,
    /// Threads, each with its own port and its part of the slots [default: one for each core in `pin`, else one for
    /// every 4 cores, at most 4; over DPDK 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Server")]
    pub shards: Option<u64>,
    /// Serve one share of the slots, such as 1/4 for the second of four; other servers have the other shares
    #[arg(long, value_name = "NUMBER/SHARES", help_heading = "Server")]
    pub share: Option<String>,
    /// Addresses of all shares in order, including this one; the same list on every share
    #[arg(long, value_name = "ADDRESS:PORT,…", value_delimiter = ',', help_heading = "Server")]
    pub shares: Option<Vec<String>>,
    /// Serve this rack, counted from 0: the sums of its workers go up to the root, and results come down from it
    #[arg(long, value_name = "NUMBER", help_heading = "Server")]
    pub rack: Option<u64>,
    /// Address of the rack's root
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Server")]
    pub root: Option<String>,
    /// Receive buffer of each port [default: 16MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Server")]
    pub recv_buffer: Option<Size>,
    /// Send buffer of each port [default: 4MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Server")]
    pub send_buffer: Option<Size>,
    /// Memory that the slots of all jobs may take [default: 1GiB]
    #[arg(long, value_name = "BYTES", help_heading = "Server")]
    pub memory_limit: Option<Size>,
    /// Members to plan for over all jobs of a controller, later ones included: each gets its part of the receive buffers
    /// [default: 64]
    #[arg(long, value_name = "NUMBER", help_heading = "Server")]
    pub members: Option<u64>,
    /// Never sleep: the lowest latency, at the cost of a whole core for each shard
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Server"
    )]
    pub busy_poll: Option<bool>,
    /// Cores to pin the shards to, one each [default: none]
    #[arg(long, value_name = "CORES", value_delimiter = ',', help_heading = "Server")]
    pub pin: Option<Vec<usize>>,
    /// Serve metrics to Prometheus at http://ADDRESS:PORT/metrics; anyone who can reach the address can read them
    /// [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Server")]
    pub http: Option<String>,
    /// Backend that carries the packets [default: udp]
    #[arg(long, value_name = "BACKEND", help_heading = "Server")]
    pub io: Option<IoName>,
    /// The `[dpdk]` section.
    #[command(flatten)]
    pub dpdk: DpdkOptions,
    /// The `[p4runtime]` section.
    #[command(flatten)]
    pub p4runtime: Option<P4RuntimeOptions>,
    /// Flags for the `[p4runtime.tls]` section. (clap sees no flags of a section's sections.)
    #[command(flatten)]
    #[serde(skip)]
    pub p4runtime_tls: Option<TlsOptions>,
    /// The `[[job]]` sections.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub job: Vec<JobOptions>,
    /// Faults to inject, for tests; in no file.
    #[arg(skip)]
    #[serde(skip)]
    pub faults: Option<LossyConfig>,
}

impl ServerOptions {
    /// Reads a file. Paths of certificates in it are relative to its folder.
    ///
    /// # Errors
    /// [`ConfigError::Read`] or [`ConfigError::Syntax`].
    pub fn read(path: &Path) -> Result<ServerOptions, ConfigError> {
        let text =
            fs::read_to_string(path).map_err(|cause| ConfigError::Read { path: path.to_owned(), cause })?;
        let mut options = ServerOptions::parse(&text)?;
        if let Some(tls) = options.p4runtime.as_mut().and_then(|p4runtime| p4runtime.tls.as_mut()) {
            tls.resolve(path.parent().unwrap_or(Path::new(".")));
        }
        Ok(options)
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`].
    pub fn parse(text: &str) -> Result<ServerOptions, ConfigError> {
        Ok(file::parse(text)?)
    }

    /// Lays flags over a file: a flag wins over the file's key. The flags of a job belong to the file's job of that
    /// number, or to its only one, or make a new one, whose number is 1 if none is given.
    ///
    /// # Errors
    /// [`ConfigError::Conflict`], [`ConfigError::Flags`].
    pub fn with_flags(
        self,
        mut server: ServerOptions,
        job: JobOptions,
    ) -> Result<ServerOptions, ConfigError> {
        if let Some(tls) = server.p4runtime_tls.take() {
            server.p4runtime.get_or_insert_default().tls = Some(tls);
        }
        let mut options = merge(&self, &server)?;
        options.faults = server.faults.or(self.faults);
        // A secret in the environment alone is no wish for a job.
        let only_cookie = JobOptions { cookie: None, ..job.clone() } == JobOptions::default();
        if only_cookie && (job.cookie.is_none() || options.job.is_empty()) {
            return Ok(options);
        }
        let place = match job.job {
            Some(_) => options.job.iter().position(|known| known.job == job.job),
            None if options.job.len() > 1 => {
                let jobs = options.job.len();
                let text = format!("the flags of a job need --job, because the file configures {jobs} jobs");
                return Err(Section::Server.conflict(text));
            }
            None => (!options.job.is_empty()).then_some(0),
        };
        match place {
            Some(place) => options.job[place] = merge(&options.job[place], &job)?,
            None => options.job.push(JobOptions { job: job.job.or(Some(1)), ..job }),
        }
        Ok(options)
    }
}
