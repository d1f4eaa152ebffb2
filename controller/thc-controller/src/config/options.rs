//! The file of a controller, as it is written.

use crate::section::JobSection;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use thc_config::values::Interval;

/// A configuration as it is written in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The controller itself.
    #[serde(default)]
    pub controller: ControllerOptions,
    /// The aggregators.
    #[serde(default)]
    pub target: Vec<TargetOptions>,
    /// Jobs to make at the start, beside those that commands make. Their keys are those of thc-ps, and a name.
    #[serde(default)]
    pub job: Vec<JobSection>,
}

/// A number, or a string with one, since TOML's numbers have 63 bits and election ids 128.
fn election_id<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u128>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u64),
        Text(String),
    }
    match Written::deserialize(from)? {
        Written::Number(number) => Ok(Some(number.into())),
        Written::Text(text) => text.parse().map(Some).map_err(|_| {
            serde::de::Error::custom(format!("election_id = {text:?}: give a number below 2^128"))
        }),
    }
}

/// The controller itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerOptions {
    /// The address of the service for commands and workers. Default 127.0.0.1:9700.
    pub listen: Option<SocketAddr>,
    /// The address of `/metrics` and the probes. Default: none.
    pub http: Option<SocketAddr>,
    /// The file that keeps jobs over restarts, or "none". Default: jobs.state in $STATE_DIRECTORY, or in
    /// thc-controller of $XDG_STATE_HOME or ~/.local/state.
    pub state: Option<PathBuf>,
    /// Certificates for the service.
    pub tls: Option<TlsOptions>,
}

/// The service's certificates, PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsOptions {
    /// The certificate and those that lead to its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of clients' certificates; without it clients need none.
    pub client_ca: Option<PathBuf>,
}

/// An aggregator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetOptions {
    /// The name that messages and jobs use. Default: its address.
    pub name: Option<String>,
    /// Its P4Runtime service, such as `127.0.0.1:9559` or `https://switch:9559`.
    pub address: String,
    /// Its number there. Default 0.
    #[serde(default)]
    pub device_id: u64,
    /// The controller with the highest is the primary one: a number, or text if it has more than 63 bits.
    /// Default 1.
    #[serde(default, deserialize_with = "election_id")]
    pub election_id: Option<u128>,
    /// The program's P4Info, text or binary. Default: the one that this controller was built with.
    pub p4info: Option<PathBuf>,
    /// The program that the switch loads: BMv2's JSON, or the file that Stratum's `bf_pipeline_builder` makes of a program for a Tofino. Without it the
    /// target must have the program already.
    pub device_config: Option<PathBuf>,
    /// The port by which packets reach this controller (`--cpu-port` of BMv2). Default 255.
    pub cpu_port: Option<u16>,
    /// The aggregator's Ethernet address. Default 02:aa:00:00:00:01.
    pub mac: Option<String>,
    /// The aggregator's IP address.
    pub ip: IpAddr,
    /// The aggregator's UDP port. Default 9000; a switch has it compiled in.
    pub udp_port: Option<u16>,
    /// Threads of a thc-ps, each with a port of its own. Default 1, as a switch.
    pub shards: Option<u8>,
    /// The ports that go through the passes, in turn; without them the program's default.
    #[serde(default)]
    pub pass_ports: Vec<u16>,
    /// Queues of each of these ports, on a chip. The port should serve the highest number first: packets that have fewest passes left go there. Default 8.
    pub pass_queues: Option<u8>,
    /// Packets a second from each station's port to this controller; a chip drops the rest. 0: no limit. Default 10000.
    pub control_rate: Option<u32>,
    /// The hosts behind the switch. None, as for thc-ps: workers may come from anywhere.
    #[serde(default)]
    pub station: Vec<StationOptions>,
    /// The time-out of its answers, ten times as long while it loads a program. Default 20s.
    pub patience: Option<Interval>,
    /// The interval of comparing its rows with those that were written, and of repairing them; 0s is never. Default 1m.
    pub compare: Option<Interval>,
    /// Authorities of the target's certificate, a PEM file, if its address is `https://`.
    pub ca: Option<PathBuf>,
    /// This controller's own certificate for the target, a PEM file.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// A host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationOptions {
    /// Its Ethernet address.
    pub mac: String,
    /// The port that it is behind.
    pub port: u16,
}
