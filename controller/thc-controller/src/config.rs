//! What a controller is told: as it is written ([`Options`]) and as it is used ([`Config`]).

use crate::error::ControllerError;
use crate::place::{PlacedJob, place};
use crate::schema::Schema;
use crate::tables::Mac;
use p4runtime_proto::p4info;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use thc_ps::{JobOptions, ServerOptions};

/// UDP port of the aggregator, fixed in the switch program (`THC_UDP_PORT`).
pub const UDP_PORT: u16 = 9000;
/// The controller's port on the switch, unless told otherwise.
const DEFAULT_CPU_PORT: u16 = 255;
/// Ports of a switch have 9 bits in the program.
const MAX_PORT: u16 = 511;

/// A configuration as it is written in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The switch.
    pub target: TargetOptions,
    /// The jobs; their keys are those of thc-ps.
    #[serde(default)]
    pub job: Vec<JobOptions>,
}

/// A switch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetOptions {
    /// What messages call it.
    pub name: Option<String>,
    /// Its P4Runtime service, such as `127.0.0.1:9559`.
    pub address: String,
    /// Its number there. Default 0.
    #[serde(default)]
    pub device_id: u64,
    /// The higher one of two controllers is the primary one. Default 1.
    pub election_id: Option<u64>,
    /// The program's P4Info, text or binary.
    pub p4info: PathBuf,
    /// What the switch runs: BMv2's JSON. Without it the switch must have the program already.
    pub device_config: Option<PathBuf>,
    /// The port by which packets reach this controller (`--cpu-port` of BMv2). Default 255.
    pub cpu_port: Option<u16>,
    /// The aggregator's Ethernet address.
    pub mac: String,
    /// The aggregator's IPv4 address.
    pub ip: Ipv4Addr,
    /// The ports that go through the passes, in turn; without them the program's default.
    #[serde(default)]
    pub pass_ports: Vec<u16>,
    /// The hosts behind the switch.
    #[serde(default)]
    pub station: Vec<StationOptions>,
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

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The switch.
    pub target: TargetConfig,
    /// The jobs, each at its place.
    pub jobs: Vec<PlacedJob>,
}

/// A checked switch.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// What messages call it.
    pub name: String,
    /// URI of its P4Runtime service.
    pub address: String,
    /// Its number there.
    pub device_id: u64,
    /// Which of two controllers is the primary one.
    pub election_id: u64,
    /// The program's names and numbers.
    pub schema: Schema,
    /// The program, and a number that tells it from others.
    pub program: Option<(Vec<u8>, u64)>,
    /// The port of this controller.
    pub cpu_port: u16,
    /// The aggregator's Ethernet address.
    pub mac: Mac,
    /// The aggregator's address.
    pub at: SocketAddrV4,
    /// Ports of the passes.
    pub pass_ports: Vec<u16>,
    /// Hosts and the ports they are behind.
    pub stations: Vec<(Mac, u16)>,
}

impl Options {
    /// Reads a file. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`ControllerError::Read`], [`ControllerError::Syntax`].
    pub fn read(path: &Path) -> Result<Options, ControllerError> {
        let text = fs::read_to_string(path)
            .map_err(|cause| ControllerError::Read { path: path.to_owned(), cause })?;
        let mut options: Options = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1;
            ControllerError::Syntax { line, message: error.message().replace('\n', " ") }
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        options.target.p4info = folder.join(&options.target.p4info);
        options.target.device_config = options.target.device_config.map(|file| folder.join(file));
        Ok(options)
    }

    /// Checks everything and reads the program.
    ///
    /// # Errors
    /// The [`ControllerError`] of the first thing that is wrong.
    pub fn validate(&self) -> Result<Config, ControllerError> {
        let server = ServerOptions { job: self.job.clone(), ..ServerOptions::default() }.validate()?;
        Ok(Config { target: self.target.validate()?, jobs: place(&server.jobs)? })
    }
}

impl TargetOptions {
    fn validate(&self) -> Result<TargetConfig, ControllerError> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|cause| ControllerError::Read { path: path.clone(), cause })
        };
        let port = |key: &str, port: u16| {
            if (1..=MAX_PORT).contains(&port) {
                return Ok(port);
            }
            let mend = format!("give a port from 1 to {MAX_PORT}");
            Err(ControllerError::Value { key: format!("target.{key}"), value: port.to_string(), mend })
        };
        let info = p4info::parse(&read(&self.p4info)?)?;
        let program = match &self.device_config {
            Some(path) => {
                let bytes = read(path)?;
                let digest = Sha256::digest(&bytes);
                let cookie =
                    digest.iter().take(8).fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
                Some((bytes, cookie))
            }
            None => None,
        };
        let stations = self.station.iter().map(|station| {
            Ok((mac("target.station.mac", &station.mac)?, port("station.port", station.port)?))
        });
        let address = match self.address.split_once("://") {
            Some(_) => self.address.clone(),
            None => format!("http://{}", self.address),
        };
        Ok(TargetConfig {
            name: self.name.clone().unwrap_or_else(|| self.address.clone()),
            address,
            device_id: self.device_id,
            election_id: self.election_id.unwrap_or(1),
            schema: Schema::new(info),
            program,
            cpu_port: port("cpu_port", self.cpu_port.unwrap_or(DEFAULT_CPU_PORT))?,
            mac: mac("target.mac", &self.mac)?,
            at: SocketAddrV4::new(self.ip, UDP_PORT),
            pass_ports: self
                .pass_ports
                .iter()
                .map(|&number| port("pass_ports", number))
                .collect::<Result<_, _>>()?,
            stations: stations.collect::<Result<_, ControllerError>>()?,
        })
    }
}

fn mac(key: &str, text: &str) -> Result<Mac, ControllerError> {
    let bytes: Vec<u8> = text.split(':').map_while(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let whole = text.split(':').count() == 6;
    bytes.try_into().ok().filter(|_| whole).ok_or_else(|| ControllerError::Value {
        key: key.to_owned(),
        value: format!("{text:?}"),
        mend: "give an Ethernet address such as 02:aa:00:00:00:01".to_owned(),
    })
}
