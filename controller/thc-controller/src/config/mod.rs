//! The configuration of a controller, as it is written ([`Options`]) and as it is used ([`Config`]).

mod options;

pub use options::{ControllerOptions, Options, TargetOptions};

use crate::capacity::Capacity;
use crate::error::{ControllerError, read, value};
use crate::program::{Passes, ProgramShape};
use crate::schema::Schema;
use crate::section::JobSection;
use p4runtime_proto::config::P4Info;
use p4runtime_proto::p4info;
use sha2::{Digest, Sha256};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use thc_config::tls::CertificateFiles;
use thc_config::values::Interval;
use thc_control_proto::DEFAULT_PORT;
use thc_transport::frame::Mac;

/// UDP port of the aggregator, fixed in the switch program (`THC_UDP_PORT`), the default of thc-ps.
const UDP_PORT: u16 = 9000;
/// The default time-out of a target's answers.
const PATIENCE: Duration = Duration::from_secs(20);
/// The default interval of comparing a target's rows with those that were written.
const COMPARE: Duration = Duration::from_secs(60);
/// The default of the controller's port on the switch.
const DEFAULT_CPU_PORT: u16 = 255;
/// Queues that a Tofino's port has unless its traffic manager says otherwise, and the most.
const DEFAULT_PASS_QUEUES: u8 = 8;
const MAX_PASS_QUEUES: u8 = 32;
/// The default rate of packets from each port to the controller, in packets a second.
const DEFAULT_CONTROL_RATE: u32 = 10_000;
/// Ports of a switch have 9 bits in the program.
const MAX_PORT: u16 = 511;
/// The default program of targets.
const P4INFO: &[u8] = thc_p4::P4INFO;

/// The state file that is given by this value to have none.
const NO_STATE: &str = "none";
/// The name of the state file in its default folder.
const STATE: &str = "jobs.state";

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of the service.
    pub listen: SocketAddr,
    /// The address of the metrics.
    pub http: Option<SocketAddr>,
    /// The file that keeps the store.
    pub state: Option<PathBuf>,
    /// Certificates of the service.
    pub tls: Option<CertificateFiles>,
    /// The aggregators.
    pub targets: Vec<TargetConfig>,
    /// Jobs to make at the start.
    pub jobs: Vec<JobSection>,
}

/// A checked aggregator.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// The name that messages use.
    pub name: String,
    /// Its P4Runtime service.
    pub service: ServiceConfig,
    /// The program's names and numbers.
    pub schema: Schema,
    /// The program's requirements on its rows.
    pub program: ProgramShape,
    /// Its capacity.
    pub capacity: Capacity,
    /// The program to load, and a number that distinguishes it from others.
    pub loads: Option<(Vec<u8>, u64)>,
    /// The ports of a switch.
    pub ports: PortConfig,
    /// The aggregator's Ethernet address.
    pub mac: Mac,
    /// The aggregator's address.
    pub at: SocketAddr,
    /// UDP ports from there on.
    pub shards: u8,
    /// The interval of comparing its rows with those that were written; zero is never.
    pub compare: Duration,
    /// `true` to end sessions that the state file does not know.
    pub drops_unknown: bool,
    /// `true` to replace another program by the one to load, which clears the target.
    pub replaces_program: bool,
}

/// The address of a target's P4Runtime service, and its certificates.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Its URI.
    pub address: String,
    /// The target's number there.
    pub device_id: u64,
    /// Which of two controllers is the primary one.
    pub election_id: u128,
    /// The time-out of its answers.
    pub patience: Duration,
    /// Authorities of its certificate, a PEM file.
    pub ca: Option<PathBuf>,
    /// This controller's certificate and key, PEM files.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The ports of a switch.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The port of this controller.
    pub cpu_port: u16,
    /// Ports of the passes.
    pub pass_ports: Vec<u16>,
    /// Queues of such a port.
    pub pass_queues: u8,
    /// The rate of packets from each station's port to this controller, in packets a second; zero is no limit.
    pub control_rate: u32,
    /// Hosts and the ports they are behind.
    pub stations: Vec<(Mac, u16)>,
}

/// The program that this controller was built with. Its text is read once: that takes milliseconds.
fn built_in() -> Result<P4Info, ControllerError> {
    static INFO: OnceLock<P4Info> = OnceLock::new();
    if let Some(info) = INFO.get() {
        return Ok(info.clone());
    }
    let info = p4info::parse(P4INFO)?;
    Ok(INFO.get_or_init(|| info).clone())
}

/// A file that is read when it is needed, and can be now.
fn readable(path: &Path) -> Result<PathBuf, ControllerError> {
    match fs::File::open(path) {
        Ok(_) => Ok(path.to_owned()),
        Err(cause) => Err(ControllerError::Read { path: path.to_owned(), cause }),
    }
}

/// The state file where none is named: of a service of systemd, or of a user.
fn default_state() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if let Some(folder) = folder("STATE_DIRECTORY") {
        return Some(folder.join(STATE));
    }
    let of_user = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(of_user.join("thc-controller").join(STATE))
}

fn read_text(path: &Path) -> Result<String, ControllerError> {
    let wrong = |error| ControllerError::Read { path: path.to_owned(), cause: std::io::Error::other(error) };
    String::from_utf8(read(path)?).map_err(wrong)
}

impl Options {
    /// Reads a file. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`ControllerError::Read`], [`ControllerError::Syntax`].
    pub fn read(path: &Path) -> Result<Options, ControllerError> {
        let mut options = Options::parse(&read_text(path)?)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let within = |file: &mut PathBuf| *file = folder.join(&*file);
        options.controller.state.as_mut().filter(|state| state.as_os_str() != NO_STATE).map(within);
        if let Some(tls) = &mut options.controller.tls {
            within(&mut tls.cert);
            within(&mut tls.key);
            tls.client_ca.as_mut().map(within);
        }
        for target in &mut options.target {
            let files = [
                &mut target.p4info,
                &mut target.device_config,
                &mut target.ca,
                &mut target.cert,
                &mut target.key,
            ];
            files.into_iter().flatten().for_each(within);
        }
        Ok(options)
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// [`ControllerError::Syntax`].
    pub fn parse(text: &str) -> Result<Options, ControllerError> {
        let mut options: Options = thc_config::file::parse(text)?;
        options.job = options.job.into_iter().map(JobSection::with_default_name).collect();
        Ok(options)
    }

    /// Checks everything and reads the files.
    ///
    /// # Errors
    /// The [`ControllerError`] of the first thing that is wrong.
    pub fn validate(&self) -> Result<Config, ControllerError> {
        if self.target.is_empty() {
            return Err(value("target", "[]", "add a [[target]] section for each switch or thc-ps"));
        }
        let targets = self.target.iter().map(TargetOptions::validate).collect::<Result<Vec<_>, _>>()?;
        for (place, target) in targets.iter().enumerate() {
            if targets[..place].iter().any(|other| other.name == target.name) {
                return Err(value("target.name", &target.name, "give each target a name of its own"));
            }
            // Both would hear the same JOINs, and welcome workers to sessions of which each knows its own only.
            if let Some(other) = targets[..place].iter().find(|other| other.at == target.at) {
                let mend = format!(
                    "{} and {} have it both; give each target an address of its own",
                    other.name, target.name
                );
                return Err(value("target.ip", target.at, &mend));
            }
        }
        let tls = match &self.controller.tls {
            None => None,
            Some(tls) => Some(CertificateFiles {
                cert: readable(&tls.cert)?,
                key: readable(&tls.key)?,
                client_ca: tls.client_ca.as_deref().map(readable).transpose()?,
            }),
        };
        for job in &self.job {
            job.check()?;
            for (key, names) in [("job.targets", &job.targets), ("job.servers", &job.servers)] {
                if let Some(name) = names.iter().find(|name| targets.iter().all(|t| t.name != **name)) {
                    return Err(value(key, name, "name a [[target]]"));
                }
            }
        }
        Ok(Config {
            listen: self.controller.listen.unwrap_or(([127, 0, 0, 1], DEFAULT_PORT).into()),
            http: self.controller.http,
            state: self
                .controller
                .state
                .clone()
                .or_else(default_state)
                .filter(|state| state.as_os_str() != NO_STATE),
            tls,
            targets,
            jobs: self.job.clone(),
        })
    }
}

/// The jobs of a file that has `[[job]]` sections and nothing else.
///
/// # Errors
/// [`ControllerError::Read`], [`ControllerError::Syntax`], [`ControllerError::Value`].
pub fn declared_jobs(path: &Path) -> Result<Vec<JobSection>, ControllerError> {
    let options = Options::parse(&read_text(path)?)?;
    if !options.target.is_empty() || options.controller != ControllerOptions::default() {
        let mend =
            "give a file that has [[job]] sections alone: the rest is the controller's own configuration";
        return Err(value("target and controller", "given", mend));
    }
    options.job.iter().try_for_each(JobSection::check)?;
    Ok(options.job)
}

impl TargetOptions {
    fn validate(&self) -> Result<TargetConfig, ControllerError> {
        let info = match &self.p4info {
            Some(path) => p4info::parse(&read(path)?)?,
            None => built_in()?,
        };
        let program = ProgramShape::from_p4info(&info)?;
        let loads = match &self.device_config {
            Some(path) => {
                let bytes = read(path)?;
                let digest = Sha256::digest(&bytes);
                let cookie =
                    digest.iter().take(8).fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
                Some((bytes, cookie))
            }
            None => None,
        };
        if self.ip.is_ipv6() && (loads.is_some() || program.source) {
            return Err(value("target.ip", self.ip, "switches speak IPv4: give the switch's IPv4 address"));
        }
        let shards = self.shards.unwrap_or(1);
        if !(1..=64).contains(&shards) {
            return Err(value("target.shards", shards, "give the number of the thc-ps's shards, 1 to 64"));
        }
        let ports = self.ports(&program)?;
        Ok(TargetConfig {
            name: self.name.clone().unwrap_or_else(|| self.address.clone()),
            service: self.service()?,
            capacity: program.capacity(&ports.pass_ports),
            schema: Schema::new(info),
            program,
            loads,
            ports,
            mac: mac("target.mac", self.mac.as_deref().unwrap_or("02:aa:00:00:00:01"))?,
            at: SocketAddr::from((self.ip, self.udp_port.unwrap_or(UDP_PORT))),
            shards,
            compare: self.compare.map_or(COMPARE, |Interval(every)| every),
            drops_unknown: false,
            replaces_program: false,
        })
    }

    fn service(&self) -> Result<ServiceConfig, ControllerError> {
        let patience = self.patience.map_or(PATIENCE, |Interval(patience)| patience);
        if patience.is_zero() {
            return Err(value("target.patience", "0s", "give the time that an answer may take, such as 20s"));
        }
        let scheme = if self.address.contains("://") { "" } else { "http://" };
        Ok(ServiceConfig {
            address: format!("{scheme}{}", self.address),
            device_id: self.device_id,
            election_id: self.election_id.unwrap_or(1),
            patience,
            ca: self.ca.as_deref().map(readable).transpose()?,
            identity: match (&self.cert, &self.key) {
                (None, None) => None,
                (Some(cert), Some(key)) => Some((readable(cert)?, readable(key)?)),
                _ => return Err(value("target.cert", "incomplete", "give cert and key, or neither")),
            },
        })
    }

    fn ports(&self, program: &ProgramShape) -> Result<PortConfig, ControllerError> {
        let port = |key: &str, port: u16| {
            // The port of a Tofino 2 on PCIe is 0. In rows of members 0 is any port.
            let least = u16::from(key != "cpu_port");
            if (least..=MAX_PORT).contains(&port) {
                return Ok(port);
            }
            Err(value(&format!("target.{key}"), port, &format!("give a port from {least} to {MAX_PORT}")))
        };
        let stations = self.station.iter().map(|station| {
            Ok((mac("target.station.mac", &station.mac)?, port("station.port", station.port)?))
        });
        let pass_ports: Vec<u16> =
            self.pass_ports.iter().map(|&number| port("pass_ports", number)).collect::<Result<_, _>>()?;
        if pass_ports.is_empty() && matches!(program.passes, Passes::Cells { .. }) {
            let mend = "this program's packets come back by ports in loopback: give them";
            return Err(value("target.pass_ports", "[]", mend));
        }
        let pass_queues = self.pass_queues.unwrap_or(DEFAULT_PASS_QUEUES);
        if !(1..=MAX_PASS_QUEUES).contains(&pass_queues) {
            let mend = format!("give the queues that a port of passes has, 1 to {MAX_PASS_QUEUES}");
            return Err(value("target.pass_queues", pass_queues, &mend));
        }
        let cpu_port = port("cpu_port", self.cpu_port.unwrap_or(DEFAULT_CPU_PORT))?;
        let stations: Vec<(Mac, u16)> = stations.collect::<Result<_, ControllerError>>()?;
        let mut others = stations.iter().map(|&(_, port)| port).chain([cpu_port]);
        if let Some(shared) = others.find(|port| program.loopback && pass_ports.contains(port)) {
            let mend = "this port leads to a station or to the control plane: packets come back by ports of their own";
            return Err(value("target.pass_ports", shared, mend));
        }
        let control_rate = self.control_rate.unwrap_or(DEFAULT_CONTROL_RATE);
        Ok(PortConfig { cpu_port, pass_ports, pass_queues, control_rate, stations })
    }
}

pub fn mac(key: &str, text: &str) -> Result<Mac, ControllerError> {
    let bytes: Vec<u8> = text.split(':').map_while(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let whole = text.split(':').count() == 6;
    bytes
        .try_into()
        .ok()
        .filter(|_| whole)
        .ok_or_else(|| value(key, format!("{text:?}"), "give an Ethernet address such as 02:aa:00:00:00:01"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_right() {
        let options = Options::read(Path::new("thc-controller.example.toml")).unwrap();
        let config = options.validate().unwrap();
        assert_eq!(config.targets[0].ports.stations.len(), 2);
        assert!(config.targets[0].loads.is_some());
        assert_eq!(config.jobs[0].name(), "train");
    }

    #[test]
    fn keys_of_a_target_are_taken() {
        let text = "[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\ncpu_port = 0\n";
        let target = |more: &str| {
            let options = Options::parse(&format!("{text}{more}")).unwrap();
            options.validate().unwrap().targets.remove(0)
        };
        // The port of a Tofino 2 on PCIe.
        assert_eq!((target("").ports.cpu_port, target("").service.election_id), (0, 1));
        assert_eq!(target("election_id = 7").service.election_id, 7);
        let text = "election_id = \"18446744073709551617\"";
        assert_eq!(target(text).service.election_id, (1 << 64) + 1);
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, says) in [
            ("", "[[target]]"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\nmac = \"02:03\"", "target.mac"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\nshards = 0", "target.shards"),
            (
                "[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[target.station]]\nmac = \"02:00:00:00:00:01\"\nport = 0",
                "give a port from 1",
            ),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\npass_queues = 0", "target.pass_queues"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\npass_queues = 33", "1 to 32"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\ncert = \"x\"", "cert and key"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\np4info = \"no\"", "cannot read no"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[job]]\nworkers = 2", "job.name"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[job]]\njob = 2\nlane = 9", "lane"),
            (
                "[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[job]]\njob = 2\ntargets = [\"x\"]",
                "job.targets",
            ),
            (
                "[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[job]]\njob = 2\nservers = [\"a:1\", \"x\"]",
                "job.servers = x",
            ),
            (
                "[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[target]]\naddress = \"a:1\"\nip = \"10.0.0.2\"",
                "target.name",
            ),
            (
                "[[target]]\nname = \"a\"\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[target]]\nname = \"b\"\naddress = \"b:1\"\nip = \"10.0.0.1\"",
                "target.ip = 10.0.0.1:9000: a and b have it both",
            ),
        ] {
            let error = Options::parse(text).unwrap().validate().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let error = Options::parse("[[job]]\nname = \"a\"\nworkrs = 3").unwrap_err().to_string();
        assert!(error.contains("workrs"), "{error}");
        let error = Options::parse("[[target]]\nip = 3").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
