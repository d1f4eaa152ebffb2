//! AF_XDP without a NIC: each process of the demo on a host of its own, a network namespace, and virtual cables to a
//! bridge.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use thc_netns::{Host, Network};

use crate::error::{Error, Result};

/// A host's interface.
pub const INTERFACE: &str = "eth0";
/// The server's port.
const PORT: u16 = 9000;

/// The server's host, and one for each worker. They go with the value.
#[derive(Debug)]
pub struct Hosts {
    network: Network,
}

impl Hosts {
    /// Makes them, which takes root.
    pub fn new(workers: u8) -> Result<Self> {
        let no = |reason| Error::NoNetwork { reason };
        let network = Network::star(workers + 1).map_err(no)?;
        network.hosts().iter().try_for_each(Host::assign).map_err(no)?;
        Ok(Self { network })
    }

    /// What the server listens on.
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::from((self.network.host(0).address, PORT))
    }

    /// The server's flags.
    pub fn server_arguments(&self) -> Vec<String> {
        ["--io", "xdp", "--xdp-device", INTERFACE].map(String::from).to_vec()
    }

    /// The same command on the server's host.
    pub fn on_server(&self, command: &Command) -> Command {
        wrap(self.network.host(0), command)
    }

    /// The same command on a worker's host.
    pub fn on_worker(&self, worker: u8, command: &Command) -> Command {
        wrap(self.network.host(usize::from(worker) + 1), command)
    }
}

/// The same command on a host, with what it adds to the environment.
pub fn wrap(host: &Host, command: &Command) -> Command {
    let mut there = host.command(Path::new(command.get_program()));
    there.args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            there.env(name, value);
        }
    }
    there
}
