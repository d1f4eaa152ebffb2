//! The demo through the switch program: in BMv2, where every worker runs on a host of its own, which is a network namespace at a
//! port of the switch, or in the interpreter thc-v1model, whose hosts are the workers' sockets. thc-controller loads the program
//! and creates the job.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use thc_netns::{Network, ports};

use super::controller::JOB;
use super::server::{self, Job};
use crate::error::{Error, Result};

/// The name of the interpreter's program.
pub const INTERPRETER: &str = "thc-v1model";
/// The name of BMv2's program.
pub const PROGRAM: &str = "simple_switch_grpc";
/// The compiled switch program, which p4c made from `p4/v1model`.
const SWITCH_PROGRAM: &[u8] = thc_p4::BMV2;
/// The aggregator's address among the hosts.
pub const OWN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 254), 9000));
/// How long the switch may take to become ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// The shortest time after which a worker repeats a packet, since BMv2 needs milliseconds per packet.
pub(crate) const MIN_RTO: Duration = Duration::from_millis(500);
/// The number of slots, which is so small that the switch's queues hold all windows.
const SLOTS: u32 = 64;

/// A switch with a port for each worker.
#[derive(Debug)]
pub struct Site {
    program: PathBuf,
    network: Network,
    p4runtime: SocketAddr,
}

/// Finds BMv2 in the folder `THC_BMV2` or on the PATH.
fn find() -> Result<PathBuf> {
    let folders = std::env::var_os("THC_BMV2").or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let found =
        std::env::split_paths(&folders).map(|folder| folder.join(PROGRAM)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let text = "simple_switch_grpc not found: install BMv2 (docs/switch.md says how), or name its folder in THC_BMV2";
        Error::Failure(text.to_owned())
    })
}

fn free_port() -> Result<u16> {
    ports::find_free(1).map_err(Error::Process)
}

impl Site {
    /// Creates the hosts and cables, which requires root. Dropping the value removes them.
    pub fn new(workers: u8) -> Result<Self> {
        let program = find()?;
        let network = Network::with_cables(workers).map_err(|reason| Error::NoNetwork { reason })?;
        for host in network.hosts() {
            host.assign().map_err(|reason| Error::NoNetwork { reason })?;
        }
        Ok(Self { program, network, p4runtime: SocketAddr::from(([127, 0, 0, 1], free_port()?)) })
    }

    /// The command that starts the switch without a program.
    pub fn arguments(&self, folder: &Path) -> Result<Vec<String>> {
        let notifications = format!("ipc://{}", folder.join("notifications.ipc").display());
        let mut words: Vec<String> = vec![self.program.display().to_string(), "--no-p4".into()];
        let thrift = free_port()?.to_string();
        words.extend(["--log-level", "error", "--thrift-port", &thrift].map(str::to_owned));
        // A BMv2 without nanomsg has no notifications.
        let help = Command::new(&self.program).arg("--help").output();
        let help = help.map(|said| [said.stdout, said.stderr].concat()).unwrap_or_default();
        if String::from_utf8_lossy(&help).contains("--notifications-addr") {
            words.extend(["--notifications-addr".to_owned(), notifications]);
        }
        for (port, host) in (1..).zip(self.network.hosts()) {
            words.extend(["-i".to_owned(), format!("{port}@{}", host.port)]);
        }
        let grpc = self.p4runtime.to_string();
        words.extend(["--", "--grpc-server-addr", &grpc, "--cpu-port", "255"].map(str::to_owned));
        Ok(words)
    }

    /// Waits until the switch answers. Fails when `lives` says that its process has ended.
    pub fn wait(&self, mut lives: impl FnMut() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(self.p4runtime).is_err() {
            lives()?;
            if started.elapsed() > PATIENCE {
                return Err(Error::Failure(format!("{PROGRAM} did not answer for {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Writes the configuration of the switch's controller, and returns the command that starts it.
    pub fn controller(&self, folder: &Path, job: &Job) -> Result<Vec<String>> {
        let stations = self.network.hosts().iter().map(|host| host.mac.to_string());
        controller(folder, job, (self.p4runtime, OWN), stations)
    }

    /// The hosts.
    pub fn network(&self) -> &Network {
        &self.network
    }
}

/// The command of an interpreter at `at` with a port for each worker.
pub fn interpreter(at: SocketAddr, workers: u8) -> Vec<String> {
    let (at, workers) = (at.to_string(), workers.to_string());
    ["--listen", &at, "--p4runtime", "127.0.0.1:0", "--hosts", &workers].map(str::to_owned).to_vec()
}

/// Writes the configuration of an interpreter's controller, and returns the command that starts it. `p4runtime` and `at` are the
/// addresses of the interpreter.
pub fn interpreter_controller(
    folder: &Path,
    job: &Job,
    p4runtime: SocketAddr,
    at: SocketAddr,
) -> Result<Vec<String>> {
    let stations = (1..=job.workers).map(|port| format!("02:00:00:00:00:{port:02x}"));
    controller(folder, job, (p4runtime, at), stations)
}

/// Writes the program and the configuration of a controller for a switch and the job, and returns the command that starts it.
/// The stations' Ethernet addresses are in the order of the ports, from 1 on.
fn controller(
    folder: &Path,
    job: &Job,
    (p4runtime, aggregator): (SocketAddr, SocketAddr),
    stations: impl Iterator<Item = String>,
) -> Result<Vec<String>> {
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|source| Error::File { path: path.clone(), source })?;
        Ok::<_, Error>(path.display().to_string())
    };
    write("thc.json", SWITCH_PROGRAM)?;
    let mut text = format!(
        "[[target]]\nname = \"switch\"\naddress = \"{p4runtime}\"\nip = \"{}\"\ndevice_config = \"thc.json\"\n\
         pass_ports = [401, 402, 403, 404, 405, 406, 407]\n",
        aggregator.ip()
    );
    for (port, mac) in (1..).zip(stations) {
        text += &format!("[[target.station]]\nmac = \"{mac}\"\nport = {port}\n");
    }
    text += &format!(
        "[[job]]\nname = \"{JOB}\"\njob = {}\ncookie = \"{:#x}\"\nworkers = {}\n{}seed = \"{:#x}\"\n\
         data_slots = {SLOTS}\n",
        server::JOB,
        job.cookie,
        job.workers,
        job.keys(),
        job.seed,
    );
    let file = write("thc-controller.toml", text.as_bytes())?;
    let words =
        ["run", "--config", &file, "--state", "none", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    Ok(words.map(str::to_owned).to_vec())
}
