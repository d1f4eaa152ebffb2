//! What a controller is told: as it is written ([`Options`]) and as it is used ([`Config`]).

use crate::capacity::Capacity;
use crate::device_config;
use crate::error::ControllerError;
use crate::program::{Passes, Program};
use crate::roles::{Roles, Subject};
use crate::schema::Schema;
use crate::tables::Mac;
use p4runtime_proto::config::P4Info;
use p4runtime_proto::p4info;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use thc_control_proto::{DEFAULT_PORT, v1};
use thc_options::credit::{DEFAULT_MEMBERS, Room};
use thc_options::{Interval, JobOptions, PolicyName, RackSize, TableOptions};

/// UDP port of the aggregator, fixed in the switch program (`THC_UDP_PORT`), the default of thc-ps.
pub const UDP_PORT: u16 = 9000;
/// How long a target may take to answer, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(20);
/// The controller's port on the switch, unless told otherwise.
const DEFAULT_CPU_PORT: u16 = 255;
/// Ports of a switch have 9 bits in the program.
const MAX_PORT: u16 = 511;
/// The program that every target runs unless told otherwise.
const P4INFO: &[u8] = thc_p4::P4INFO;

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
    /// Jobs that are made at the start unless they are there; their keys are those of thc-ps, and a name.
    #[serde(default)]
    pub job: Vec<NamedJob>,
}

/// The controller itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerOptions {
    /// Where operators' tools and workers ask. Default 127.0.0.1:9700.
    pub listen: Option<SocketAddr>,
    /// Where the status page and `/metrics` are. Default: nowhere.
    pub http: Option<SocketAddr>,
    /// Where jobs are kept over restarts. Default: nowhere.
    pub state: Option<PathBuf>,
    /// Certificates for the service.
    pub tls: Option<TlsOptions>,
}

/// A server's certificates, PEM files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsOptions {
    /// The certificate and those that lead to its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of clients' certificates; without it clients need none.
    pub client_ca: Option<PathBuf>,
    /// Who may join jobs and report, beside operators: parts of certificates' subjects, OU=NAME or CN=NAME. Default: all whose
    /// certificate is an authority's of `client_ca`.
    pub workers: Option<Vec<String>>,
    /// Who may create, delete and install, likewise.
    pub operators: Option<Vec<String>>,
}

impl TlsOptions {
    fn roles(&self) -> Result<Roles, ControllerError> {
        let role = |key: &str, subjects: &Option<Vec<String>>| {
            let Some(subjects) = subjects else { return Ok(None) };
            let key = format!("controller.tls.{key}");
            if self.client_ca.is_none() {
                return Err(value(
                    &key,
                    format!("{subjects:?}"),
                    "give client_ca as well: roles are of clients' certificates",
                ));
            }
            if subjects.is_empty() {
                return Err(value(&key, "[]", "name at least one OU=NAME or CN=NAME, or leave it out"));
            }
            let subject = |text: &String| {
                Subject::read(text)
                    .ok_or_else(|| value(&key, format!("{text:?}"), "write OU=NAME or CN=NAME"))
            };
            subjects.iter().map(subject).collect::<Result<_, _>>().map(Some)
        };
        Ok(Roles { workers: role("workers", &self.workers)?, operators: role("operators", &self.operators)? })
    }
}

/// A job of the configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct NamedJob {
    /// Its name. Default: `job-` and its number.
    pub name: Option<String>,
    /// Its targets. Default: all.
    pub targets: Vec<String>,
    /// Targets that have a share of its slots each, in place of `targets`.
    pub servers: Vec<String>,
    /// Targets that stand by for these, or for its one target.
    pub spares: Vec<String>,
    /// Which of `racks` its target is, below a root.
    pub rack: Option<u32>,
    /// Where that is.
    pub root: Option<String>,
    /// The root's Ethernet address.
    pub root_mac: Option<String>,
    /// The rest.
    pub job: JobOptions,
}

// Not by serde's flatten, which lets unknown keys pass.
impl TryFrom<toml::Table> for NamedJob {
    type Error = toml::de::Error;

    fn try_from(mut table: toml::Table) -> Result<NamedJob, toml::de::Error> {
        let name = table.remove("name").map(toml::Value::try_into).transpose()?;
        let targets = table.remove("targets").map_or(Ok(Vec::new()), toml::Value::try_into)?;
        let servers = table.remove("servers").map_or(Ok(Vec::new()), toml::Value::try_into)?;
        let spares = table.remove("spares").map_or(Ok(Vec::new()), toml::Value::try_into)?;
        let rack = table.remove("rack").map(toml::Value::try_into).transpose()?;
        let root = table.remove("root").map(toml::Value::try_into).transpose()?;
        let root_mac = table.remove("root_mac").map(toml::Value::try_into).transpose()?;
        Ok(NamedJob { name, targets, servers, spares, rack, root, root_mac, job: table.try_into()? })
    }
}

/// An aggregator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetOptions {
    /// What messages and jobs call it. Default: its address.
    pub name: Option<String>,
    /// Its P4Runtime service, such as `127.0.0.1:9559` or `https://switch:9559`.
    pub address: String,
    /// Its number there. Default 0.
    #[serde(default)]
    pub device_id: u64,
    /// The higher one of two controllers is the primary one. Default 1.
    pub election_id: Option<u64>,
    /// The program's P4Info, text or binary. Default: the one that this controller was built with.
    pub p4info: Option<PathBuf>,
    /// What the switch runs: BMv2's JSON; a `.conf` of p4c for Tofino, of which what Stratum takes is made. Without it the target must have the program already.
    pub device_config: Option<PathBuf>,
    /// The port by which packets reach this controller (`--cpu-port` of BMv2). Default 255.
    pub cpu_port: Option<u16>,
    /// The aggregator's Ethernet address. Default 02:aa:00:00:00:01.
    pub mac: Option<String>,
    /// The aggregator's IPv4 address.
    pub ip: Ipv4Addr,
    /// The aggregator's UDP port. Default 9000; a switch has it compiled in.
    pub udp_port: Option<u16>,
    /// Threads of a thc-ps, each with a port of its own. Default 1, as a switch.
    pub shards: Option<u8>,
    /// Packets that it can hold for all jobs. Default: what it says itself, as a thc-ps does; of a switch no bound.
    pub room: Option<u32>,
    /// Members of all jobs that this is planned for. Default 64, or what it says itself.
    pub members: Option<u32>,
    /// The ports that go through the passes, in turn; without them the program's default.
    #[serde(default)]
    pub pass_ports: Vec<u16>,
    /// The hosts behind the switch. None, as for thc-ps: workers may come from anywhere.
    #[serde(default)]
    pub station: Vec<StationOptions>,
    /// How long it may take to answer a request, ten times as long to load a program. Default 20s.
    pub patience: Option<Interval>,
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

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Of the service.
    pub listen: SocketAddr,
    /// Of page and metrics.
    pub http: Option<SocketAddr>,
    /// Of the book.
    pub state: Option<PathBuf>,
    /// PEM texts of the service.
    pub tls: Option<Tls>,
    /// Who may do what there.
    pub roles: Roles,
    /// The aggregators.
    pub targets: Vec<TargetConfig>,
    /// Jobs to make at the start.
    pub jobs: Vec<v1::JobSpec>,
}

/// PEM texts of a server.
#[derive(Clone)]
pub struct Tls {
    /// Certificate.
    pub cert: String,
    /// Private key.
    pub key: String,
    /// Authorities of clients.
    pub client_ca: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// A checked aggregator.
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
    /// What the program asks of its rows.
    pub program: Program,
    /// What it has room for.
    pub capacity: Capacity,
    /// What the target shall load, and a number that tells it from others.
    pub loads: Option<(Vec<u8>, u64)>,
    /// The port of this controller.
    pub cpu_port: u16,
    /// The aggregator's Ethernet address.
    pub mac: Mac,
    /// The aggregator's address.
    pub at: SocketAddrV4,
    /// UDP ports from there on.
    pub shards: u8,
    /// Ports of the passes.
    pub pass_ports: Vec<u16>,
    /// How long it may take to answer.
    pub patience: Duration,
    /// Hosts and the ports they are behind.
    pub stations: Vec<(Mac, u16)>,
    /// Authorities, and this controller's certificate and key: PEM texts.
    pub ca: Option<String>,
    /// See `ca`.
    pub identity: Option<Tls>,
}

fn value(key: &str, value: impl ToString, mend: &str) -> ControllerError {
    ControllerError::Value { key: key.to_owned(), value: value.to_string(), mend: mend.to_owned() }
}

fn read(path: &Path) -> Result<Vec<u8>, ControllerError> {
    fs::read(path).map_err(|cause| ControllerError::Read { path: path.to_owned(), cause })
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

fn read_text(path: &Path) -> Result<String, ControllerError> {
    fs::read_to_string(path).map_err(|cause| ControllerError::Read { path: path.to_owned(), cause })
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
        options.controller.state.as_mut().map(within);
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
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1;
            ControllerError::Syntax { line, message: error.message().replace('\n', " ") }
        })
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
            Some(tls) => Some(Tls {
                cert: read_text(&tls.cert)?,
                key: read_text(&tls.key)?,
                client_ca: tls.client_ca.as_deref().map(read_text).transpose()?,
            }),
        };
        let jobs = self.job.iter().map(NamedJob::spec).collect::<Result<Vec<_>, _>>()?;
        for job in &jobs {
            for (key, names) in [("job.targets", &job.targets), ("job.servers", &job.servers)] {
                if let Some(name) = names.iter().find(|name| targets.iter().all(|t| t.name != **name)) {
                    return Err(value(key, name, "name a [[target]]"));
                }
            }
        }
        Ok(Config {
            listen: self.controller.listen.unwrap_or(([127, 0, 0, 1], DEFAULT_PORT).into()),
            http: self.controller.http,
            state: self.controller.state.clone(),
            tls,
            roles: self.controller.tls.as_ref().map_or(Ok(Roles::default()), TlsOptions::roles)?,
            targets,
            jobs,
        })
    }
}

impl NamedJob {
    fn spec(&self) -> Result<v1::JobSpec, ControllerError> {
        let job = &self.job;
        let name = match (&self.name, job.job) {
            (Some(name), _) => name.clone(),
            (None, Some(number)) => format!("job-{number}"),
            (None, None) => return Err(value("job.name", "missing", "give each [[job]] a name")),
        };
        let racks = job.racks.iter().flatten().map(RackSize::to_string).collect();
        let rack = asked_rack(&name, self.rack, racks, self.root.clone(), self.root_mac.clone())?;
        if let Some(down) = job.down.or_else(|| job.tables.iter().find_map(|table| table.down)) {
            let mend = "a controller's jobs send whole sums down, as switches do; leave it out";
            return Err(value(&format!("job {name}: down"), down, mend));
        }
        if job.lane.is_some_and(|lane| lane != 8) {
            return Err(value(
                &format!("job {name}: lane"),
                job.lane.unwrap_or(0),
                "the switch program adds in lanes of 8 bits; leave it out",
            ));
        }
        // Far too large numbers stay too large, and are refused with the others.
        let small = |number: Option<u64>| number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let secret = |key: &str, text: &Option<thc_options::Secret>| match text {
            None => Ok(None),
            Some(text) => match text.number() {
                Some(number) => Ok(Some(number)),
                None => Err(value(&format!("job {name}: {key}"), "no number", "write it like 0x1234abcd")),
            },
        };
        let cookie = match secret("cookie", &job.cookie)?.map(u32::try_from) {
            None => None,
            Some(Ok(cookie)) => Some(cookie),
            Some(Err(_)) => return Err(value(&format!("job {name}: cookie"), "too large", "give 32 bits")),
        };
        let milliseconds =
            |time: Option<Interval>| time.map(|time| u32::try_from(time.0.as_millis()).unwrap_or(u32::MAX));
        Ok(v1::JobSpec {
            name: name.clone(),
            workers: small(job.workers).unwrap_or(0),
            bits: small(job.bits),
            granularity: small(job.granularity),
            fraction: job.fraction.map(|fraction| fraction.0.to_string()),
            data_slots: small(job.data_slots),
            norm_slots: small(job.norm_slots),
            block: small(job.block),
            quorum: small(job.quorum),
            policy: job.policy.map(|policy| match policy {
                PolicyName::Reliable => "reliable".to_owned(),
                PolicyName::BestEffort => "best-effort".to_owned(),
            }),
            deadline_ms: milliseconds(job.deadline),
            number: small(job.job),
            cookie,
            seed: secret("seed", &job.seed)?,
            targets: self.targets.clone(),
            servers: self.servers.clone(),
            spares: self.spares.clone(),
            tables: job.tables.iter().map(|table| asked_table(&name, table)).collect::<Result<_, _>>()?,
            rack,
            min_workers: small(job.min_workers),
            max_workers: small(job.max_workers),
            gone_after_ms: milliseconds(job.gone_after),
            gather_ms: milliseconds(job.gather),
        })
    }
}

/// What a target is as a rack of a job, of what is given about it.
///
/// # Errors
/// [`ControllerError::Value`] if some of it is missing.
pub fn asked_rack(
    job: &str,
    number: Option<u32>,
    racks: Vec<String>,
    root: Option<String>,
    mac: Option<String>,
) -> Result<Option<v1::RackSpec>, ControllerError> {
    match (number, root, mac) {
        (Some(number), Some(root), Some(mac)) if !racks.is_empty() => {
            Ok(Some(v1::RackSpec { number, racks, root, mac }))
        }
        (None, None, None) if racks.is_empty() => Ok(None),
        _ => {
            let mend = "give racks, rack, root and root_mac, or none of them: a root itself is a thc-ps with a job of its own";
            Err(value(&format!("job {job}: rack"), "half of one", mend))
        }
    }
}

/// A further table of a job as it is asked for; the controller gives tables their numbers.
///
/// # Errors
/// [`ControllerError::Value`] for one with a number.
pub fn asked_table(job: &str, table: &TableOptions) -> Result<v1::TableSpec, ControllerError> {
    if let Some(number) = table.table {
        let key = format!("job {job}: tables: table");
        return Err(value(&key, number, "the controller numbers tables; leave it out"));
    }
    let small = |number: Option<u64>| number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    Ok(v1::TableSpec {
        bits: small(table.bits),
        granularity: small(table.granularity),
        fraction: table.fraction.map(|fraction| fraction.0.to_string()),
        lane: small(table.lane),
    })
}

impl TargetOptions {
    /// What the target holds, if that is given.
    fn room(&self) -> Result<Option<Room>, ControllerError> {
        if let Some(0) = self.room {
            return Err(value("target.room", 0, "give the packets that it holds, or leave it out"));
        }
        if let Some(wrong) = self.members.filter(|members| !(1..=65535).contains(members)) {
            return Err(value("target.members", wrong, "use 1 to 65535"));
        }
        if let (None, Some(members)) = (self.room, self.members) {
            return Err(value("target.members", members, "give room as well, or thc-ps --members"));
        }
        let members = self.members.unwrap_or(DEFAULT_MEMBERS);
        Ok(self.room.map(|packets| Room { packets, members }))
    }

    fn validate(&self) -> Result<TargetConfig, ControllerError> {
        let port = |key: &str, port: u16| {
            if (1..=MAX_PORT).contains(&port) {
                return Ok(port);
            }
            Err(value(&format!("target.{key}"), port, &format!("give a port from 1 to {MAX_PORT}")))
        };
        let info = match &self.p4info {
            Some(path) => p4info::parse(&read(path)?)?,
            None => built_in()?,
        };
        let loads = match &self.device_config {
            Some(path) => {
                let bytes = device_config::read(path)?;
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
        let identity = match (&self.cert, &self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                Some(Tls { cert: read_text(cert)?, key: read_text(key)?, client_ca: None })
            }
            _ => return Err(value("target.cert", "half", "give cert and key, or neither")),
        };
        let shards = self.shards.unwrap_or(1);
        if !(1..=64).contains(&shards) {
            return Err(value("target.shards", shards, "give the number of the thc-ps's shards, 1 to 64"));
        }
        let patience = self.patience.map_or(PATIENCE, |Interval(patience)| patience);
        if patience.is_zero() {
            return Err(value("target.patience", "0s", "give the time that an answer may take, such as 20s"));
        }
        let program = Program::of(&info)?;
        let pass_ports: Vec<u16> =
            self.pass_ports.iter().map(|&number| port("pass_ports", number)).collect::<Result<_, _>>()?;
        if pass_ports.is_empty() && matches!(program.passes, Passes::Cells { .. }) {
            let mend = "this program's packets come back by ports in loopback: give them";
            return Err(value("target.pass_ports", "[]", mend));
        }
        let cpu_port = port("cpu_port", self.cpu_port.unwrap_or(DEFAULT_CPU_PORT))?;
        let stations: Vec<(Mac, u16)> = stations.collect::<Result<_, ControllerError>>()?;
        let mut others = stations.iter().map(|&(_, port)| port).chain([cpu_port]);
        if let Some(shared) = others.find(|port| program.loopback && pass_ports.contains(port)) {
            let mend = "this port leads to a station or to the control plane: packets come back by ports of their own";
            return Err(value("target.pass_ports", shared, mend));
        }
        Ok(TargetConfig {
            name: self.name.clone().unwrap_or_else(|| self.address.clone()),
            address,
            device_id: self.device_id,
            election_id: self.election_id.unwrap_or(1),
            capacity: Capacity { room: self.room()?, ..program.capacity(&pass_ports) },
            schema: Schema::new(info),
            program,
            loads,
            cpu_port,
            mac: mac("target.mac", self.mac.as_deref().unwrap_or("02:aa:00:00:00:01"))?,
            at: SocketAddrV4::new(self.ip, self.udp_port.unwrap_or(UDP_PORT)),
            shards,
            pass_ports,
            patience,
            stations,
            ca: self.ca.as_deref().map(read_text).transpose()?,
            identity,
        })
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
        assert_eq!(config.targets[0].stations.len(), 2);
        assert!(config.targets[0].loads.is_some());
        assert_eq!(config.jobs[0].name, "train");
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, says) in [
            ("", "[[target]]"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\nmac = \"02:03\"", "target.mac"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\nshards = 0", "target.shards"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\nroom = 0", "target.room"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\nmembers = 9", "thc-ps --members"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\ncert = \"x\"", "cert and key"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\np4info = \"no\"", "cannot read no"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[job]]\nworkers = 2", "job.name"),
            ("[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[job]]\njob = 2\nlane = 16", "lane"),
            (
                "[[target]]\naddress = \"a:1\"\nip = \"10.0.0.1\"\n[[job]]\njob = 2\ndown = 4",
                "down = 4: a controller's",
            ),
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
