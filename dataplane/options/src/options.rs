//! A configuration as it is written, in a file or as flags: every key may be absent and nothing is
//! checked yet.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Deserialize;
use thc_protocol::Policy;
use thc_transport::{DpdkOptions, IoName, LossyConfig, XdpOptions};

use crate::error::ConfigError;
use crate::p4runtime::P4RuntimeOptions;
use crate::rack_size::RackSize;
use crate::tables::TableOptions;
use crate::text::{Fraction, Interval, Secret, Size};
use crate::tls::TlsOptions;

/// The keys of a server, and its jobs.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerOptions {
    /// Address and UDP port to listen on, such as 0.0.0.0:9000, or [::]:9000 for IPv6 and IPv4; shards take the ports behind
    /// it. Port 0 lets the system choose [default: 127.0.0.1:9000]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Server")]
    pub listen: Option<String>,
    /// Threads, each with its own port and its part of the slots [default: as many as `pin` names cores, else 1 for each 4
    /// cores, at most 4; over DPDK and AF_XDP 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Server")]
    pub shards: Option<u64>,
    /// Serve a share of the slots alone, such as 1/4 for the second of four; the others are served beside other workers
    #[arg(long, value_name = "NUMBER/SHARES", help_heading = "Server")]
    pub share: Option<String>,
    /// Where all shares are, this one among them, in order; on every share the same
    #[arg(long, value_name = "ADDRESS:PORT,…", value_delimiter = ',', help_heading = "Server")]
    pub shares: Option<Vec<String>>,
    /// Where servers stand by that have slots only while a share is away, behind the shares and counted with them; on all the same
    #[arg(long, value_name = "ADDRESS:PORT,…", value_delimiter = ',', help_heading = "Server")]
    pub spares: Option<Vec<String>>,
    /// Be this rack, from 0 on, of the root: sums of this server's workers go up to it, and results come down
    #[arg(long, value_name = "NUMBER", help_heading = "Server")]
    pub rack: Option<u64>,
    /// Where the rack's root is
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Server")]
    pub root: Option<String>,
    /// Receive buffer of each port [default: 16MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Server")]
    pub recv_buffer: Option<Size>,
    /// Send buffer of each port [default: 4MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Server")]
    pub send_buffer: Option<Size>,
    /// What the slots of all jobs may take [default: 1GiB]
    #[arg(long, value_name = "BYTES", help_heading = "Server")]
    pub memory_limit: Option<Size>,
    /// Members that all jobs of a controller are planned to have together, also those that come later: each has its part of the
    /// receive buffers for sure [default: 64]
    #[arg(long, value_name = "NUMBER", help_heading = "Server")]
    pub members: Option<u64>,
    /// Never sleep: the lowest latency, for whole cores
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
    /// Print a line of statistics to stderr so often [default: never]
    #[arg(long, value_name = "TIME", help_heading = "Server")]
    pub stats_interval: Option<Interval>,
    /// Write all statistics to this file, at each interval and at the end
    #[arg(long, value_name = "PATH", help_heading = "Server")]
    pub stats_json: Option<PathBuf>,
    /// Answer Prometheus at http://ADDRESS:PORT/metrics; whoever reaches it can read the statistics [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Server")]
    pub http: Option<String>,
    /// Write packets in and out to this file, for Wireshark and the like; it holds cookies
    #[arg(long, value_name = "PATH", help_heading = "Server")]
    pub pcap: Option<PathBuf>,
    /// The most that this file may take; packets beyond are left out of it [default: 1GiB]
    #[arg(long, value_name = "BYTES", help_heading = "Server")]
    pub pcap_limit: Option<Size>,
    /// What carries the packets [default: udp]
    #[arg(long, value_name = "BACKEND", help_heading = "Server")]
    pub io: Option<IoName>,
    /// The `[dpdk]` section.
    #[command(flatten)]
    pub dpdk: DpdkOptions,
    /// The `[xdp]` section.
    #[command(flatten)]
    pub xdp: XdpOptions,
    /// The `[p4runtime]` section.
    #[command(flatten)]
    pub p4runtime: Option<P4RuntimeOptions>,
    /// Flags for the `[p4runtime.tls]` section. (clap sees no flags of a section's sections.)
    #[command(flatten)]
    #[serde(skip)]
    pub p4runtime_tls: Option<TlsOptions>,
    /// The `[[job]]` sections.
    #[arg(skip)]
    pub job: Vec<JobOptions>,
    /// Faults to inject, for tests; in no file.
    #[arg(skip)]
    #[serde(skip)]
    pub faults: Option<LossyConfig>,
}

/// The keys of a job.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobOptions {
    /// The job's number, 0 to 65535
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub job: Option<u64>,
    /// The secret with which workers join, 32 bits, as 0x1234abcd or decimal
    #[arg(long, value_name = "NUMBER", env = "THC_COOKIE", hide_env_values = true, help_heading = "Job")]
    pub cookie: Option<Secret>,
    /// How many workers the job has, 1 to 64; with racks they say it
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub workers: Option<u64>,
    /// Fewest workers of a session, in place of workers: members may come and go [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub min_workers: Option<u64>,
    /// Most workers of a session, in place of workers
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub max_workers: Option<u64>,
    /// A member that is silent for so long is gone, and the others go on without it [default: 3s]
    #[arg(long, value_name = "TIME", help_heading = "Job")]
    pub gone_after: Option<Interval>,
    /// The first session begins with fewer than the most workers when nobody new has come for so long [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Job")]
    pub gather: Option<Interval>,
    /// How many workers complete a sum [default: all]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub quorum: Option<u64>,
    /// Workers of each rack, such as 8,8, or 7/8,7/8 for a quorum of 7 in each; the same at the root and at every rack. Without
    /// --rack this server is the root
    #[arg(long, value_name = "WORKERS,…", value_delimiter = ',', help_heading = "Job")]
    pub racks: Option<Vec<RackSize>>,
    /// Bit budget b: bits per coordinate sent up, 1 to 4 or 8 [default: 4]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub bits: Option<u64>,
    /// Granularity g, the largest table value [default: the best for the number of workers]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub granularity: Option<u64>,
    /// Share p of the coordinates that is truncated, such as 1/32 [default: the best for the number of
    /// workers]
    #[arg(long, value_name = "FRACTION", help_heading = "Job")]
    pub fraction: Option<Fraction>,
    /// Number of the lookup table on the wire, 1 to 255 [default: from the job's number]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub table: Option<u64>,
    /// Bits per summed coordinate sent down, 4 to 16; workers × granularity must fit [default: 8, or 16 with bits = 8; of shares
    /// the fewest, from 5 or 9 on, that workers × granularity fits]
    #[arg(long, value_name = "BITS", help_heading = "Job")]
    pub lane: Option<u64>,
    /// 4: tell summed coordinates in 4 bits, each 64 with a range of their own: three quarters of the bytes of 7 bits, and an error of
    /// up to a thirtieth of that range, evenly to both sides [default: whole sums, as lane says]
    #[arg(long, value_name = "BITS", help_heading = "Job")]
    pub down: Option<u64>,
    /// A further lookup table that workers may choose for a tensor, such as bits=2 or bits=2,lane=4,granularity=5,fraction=1/32,
    /// with its number as table=7; can be repeated
    #[arg(long, value_name = "TABLE", help_heading = "Job")]
    pub tables: Vec<TableOptions>,
    /// Slots for coordinates; workers may have half as many packets under way [default: 1024]
    #[arg(long = "slots", alias = "data-slots", value_name = "NUMBER", help_heading = "Job")]
    pub data_slots: Option<u64>,
    /// Slots for norms [default: 64 to 1024, the more the smaller the blocks]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub norm_slots: Option<u64>,
    /// Coordinates that are transformed together and have a norm of their own, as a power of two: 10 to 20, for 2^10 to
    /// 2^20 [default: 13]
    #[arg(long, value_name = "LOG2", help_heading = "Job")]
    pub block: Option<u64>,
    /// What workers do about lost packets [default: reliable]
    #[arg(long, value_name = "POLICY", help_heading = "Job")]
    pub policy: Option<PolicyName>,
    /// When best-effort gives a packet up [default: 200ms]
    #[arg(long, value_name = "TIME", help_heading = "Job")]
    pub deadline: Option<Interval>,
    /// Seed of the signs that all workers share, 64 bits [default: from cookie and job]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub seed: Option<Secret>,
}

/// A loss policy by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Packets are sent again until the result comes
    #[default]
    Reliable,
    /// Packets are sent once, and what is missing at the deadline counts as zero
    BestEffort,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Policy {
        match name {
            PolicyName::Reliable => Policy::Reliable,
            PolicyName::BestEffort => Policy::BestEffort,
        }
    }
}

/// The fields of `$over` win where they are there.
macro_rules! lay_over {
    ($over:ident, $under:ident: $($field:ident),*) => {
        $(if $over.$field.is_some() { $under.$field = $over.$field; })*
    };
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
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let before = text.get(..at).unwrap_or(text);
            let line = before.matches('\n').count();
            let message = error.message().replace('\n', " ");
            ConfigError::Syntax { line: line + 1, key: text.lines().nth(line).and_then(key_of), message }
        })
    }

    /// Lays flags over a file: what they say wins. The flags of a job belong to the file's job of that
    /// number, or to its only one, or make a new one.
    ///
    /// # Errors
    /// [`ConfigError::WhichJob`].
    pub fn with_flags(
        mut self,
        server: ServerOptions,
        job: JobOptions,
    ) -> Result<ServerOptions, ConfigError> {
        lay_over!(server, self: listen, shards, share, shares, spares, rack, root, recv_buffer, send_buffer, memory_limit, members, busy_poll, pin,
                  stats_interval, stats_json, http, pcap, pcap_limit, io, faults);
        self.dpdk = server.dpdk.over(self.dpdk);
        self.xdp = server.xdp.over(self.xdp);
        if let Some(p4runtime) = server.p4runtime {
            self.p4runtime = Some(p4runtime.over(self.p4runtime.take()));
        }
        if let Some(tls) = server.p4runtime_tls {
            let p4runtime = self.p4runtime.get_or_insert_default();
            p4runtime.tls = Some(tls.over(p4runtime.tls.take()));
        }
        // A secret in the environment alone is no wish for a job.
        let wanted = JobOptions { cookie: None, ..job.clone() };
        let only_cookie = wanted.is_empty();
        if only_cookie && (job.cookie.is_none() || self.job.is_empty()) {
            return Ok(self);
        }
        let place = match job.job {
            Some(_) => self.job.iter().position(|known| known.job == job.job),
            None if self.job.len() > 1 => return Err(ConfigError::WhichJob { jobs: self.job.len() }),
            None => (!self.job.is_empty()).then_some(0),
        };
        let place = place.unwrap_or_else(|| {
            self.job.push(JobOptions::default());
            self.job.len() - 1
        });
        self.job[place].lay(job);
        Ok(self)
    }
}

impl JobOptions {
    fn is_empty(&self) -> bool {
        let JobOptions {
            job,
            cookie,
            workers,
            min_workers,
            max_workers,
            gone_after,
            gather,
            quorum,
            racks,
            bits,
            granularity,
            fraction,
            table,
            lane,
            down,
            tables,
            data_slots,
            norm_slots,
            block,
            policy,
            deadline,
            seed,
        } = self;
        let numbers = [
            job,
            workers,
            min_workers,
            max_workers,
            quorum,
            bits,
            granularity,
            table,
            lane,
            down,
            data_slots,
            norm_slots,
            block,
        ];
        numbers.iter().all(|number| number.is_none())
            && tables.is_empty()
            && racks.is_none()
            && cookie.is_none()
            && fraction.is_none()
            && policy.is_none()
            && [deadline, gone_after, gather].iter().all(|time| time.is_none())
            && seed.is_none()
    }

    fn lay(&mut self, over: JobOptions) {
        if !over.tables.is_empty() {
            self.tables = over.tables;
        }
        lay_over!(over, self: job, cookie, workers, min_workers, max_workers, gone_after, gather, quorum, racks, bits, granularity, fraction, table, lane, down, data_slots,
                  norm_slots, block, policy, deadline, seed);
    }
}

/// The key that a line of TOML sets, if it sets one. Never more of the line: it may hold a secret.
fn key_of(line: &str) -> Option<String> {
    let key = line.split_once('=')?.0.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!key.is_empty() && key.chars().all(plain)).then(|| key.to_owned())
}
