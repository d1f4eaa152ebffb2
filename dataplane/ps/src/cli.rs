//! The command line.

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser};
use thc_config::help::{self, Stop};
use thc_ps::{ConfigError, JobOptions, ServerOptions};
use thc_transport::{FaultRates, LossyConfig};

const EXAMPLES: &str = "\
Examples:
  Job 1, of 4 workers on this machine; g and p are chosen for 4 workers:
    thc-ps --workers 4 --cookie 0x1234abcd

  For workers on other machines, with the paper's table and the secret in the environment:
    THC_COOKIE=0x1234abcd thc-ps --listen 0.0.0.0:9000 --job 1 --workers 4 \\
        --bits 4 --granularity 30 --fraction 1/32

  Many workers need wider sums; two threads share the work (ports 9000 and 9001):
    thc-ps --job 1 --workers 32 --cookie 0x1234abcd --lane 16 --shards 2

  Two racks of 8 workers below a root; workers join their rack:
    thc-ps --listen 10.0.0.1:9000 --job 1 --racks 8,8 --cookie 0x1234abcd
    thc-ps --listen 10.0.1.1:9000 --job 1 --racks 8,8 --cookie 0x1234abcd \\
        --rack 0 --root 10.0.0.1:9000
    thc-ps --listen 10.0.2.1:9000 --job 1 --racks 8,8 --cookie 0x1234abcd \\
        --rack 1 --root 10.0.0.1:9000

  Complete each sum with 9 of 10 workers, and never repeat a packet:
    thc-ps --job 1 --workers 10 --cookie 0x1234abcd --quorum 9 \\
        --policy best-effort --deadline 50ms

  Jobs that a controller writes by P4Runtime; none at the start:
    thc-ps --listen 10.0.0.1:9000 --p4runtime 127.0.0.1:9559

  For a controller on another host, which needs a certificate of the authority ca.pem:
    thc-ps --listen 10.0.0.1:9000 --p4runtime 10.0.0.1:9559 --p4runtime-cert tls/ps.pem \\
        --p4runtime-key tls/ps-key.pem --p4runtime-client-ca tls/ca.pem

  Bypass the kernel, through a NIC that DPDK drives or over shared memory (docs/dpdk.md):
    thc-ps --job 1 --workers 4 --cookie 0x1234abcd --listen 10.0.0.1:9000 \\
        --io dpdk --dpdk-device 0000:3b:00.0
    thc-ps --job 1 --workers 1 --cookie 0x1234abcd --listen 10.0.0.1:9000 \\
        --io dpdk --dpdk-hugepages=false \\
        --dpdk-device net_memif0,role=server,id=0,socket-abstract=no,socket=/tmp/thc.sock

  Several jobs from a file, whose keys flags override:
    thc-ps --config thc-ps.toml --listen 10.0.0.1:9000

Flags of the groups above are also keys of the file, with _ for -: those of Server at its top,
those of Job in its [[job]] sections, those of DPDK in a [dpdk] section, without dpdk-
(--dpdk-device is devices there, a list), those of P4Runtime in a [p4runtime] section
(--p4runtime is listen there), and its certificates in [p4runtime.tls].

Output: `ready ADDRESS:PORT` on stdout once workers can join, and before it `p4runtime
ADDRESS:PORT` if that is served; events on stderr (RUST_LOG=debug for more); totals on stdout
after SIGTERM or Ctrl-C. Nothing is read anew at SIGHUP, which ends it at once, unless nohup
started it.
Exit status: 0 stopped by a signal; 1 cannot serve, for example because the port is in use; 2
wrong flags or configuration.";

/// THC software parameter server: adds up the compressed gradients of training workers.
#[derive(Parser, Debug)]
#[command(name = "thc-ps", version, after_help = EXAMPLES)]
pub struct Flags {
    /// Read this TOML file; flags override it
    #[arg(long, short, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Print the totals as one line of JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub logs: thc_config::logs::LogFlags,
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    job: JobOptions,
    /// Faults to inject into this server's packets, for tests: loss=0.01,duplicate=0.01,reorder=0.01
    #[arg(long, hide = true, value_name = "FAULTS")]
    inject: Option<FaultRates>,
    /// Seed of the injected faults
    #[arg(long, hide = true, value_name = "NUMBER", default_value_t = 0)]
    inject_seed: u64,
}

/// The options that `-h` shows.
const SHORT: [&str; 9] = ["config", "listen", "job", "workers", "cookie", "bits", "shards", "racks", "json"];

impl Flags {
    /// Reads the command line.
    pub fn read() -> Result<Flags, Stop> {
        Ok(Flags::from_arg_matches_mut(&mut help::read(Flags::command(), &SHORT)?)?)
    }

    /// File and flags together.
    pub fn options(mut self) -> Result<ServerOptions, ConfigError> {
        let file = match &self.config {
            Some(path) => ServerOptions::read(path)?,
            None => ServerOptions::default(),
        };
        self.server.faults = self.inject.map(|rates| LossyConfig::both_ways(rates, self.inject_seed));
        file.with_flags(self.server, self.job)
    }
}
