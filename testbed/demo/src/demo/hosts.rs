//! AF_XDP without a NIC: each process of the demo runs on a host of its own, which is a network namespace with a virtual
//! cable to a bridge.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use thc_netns::{Host, Network};

use crate::error::{Error, Result};

/// A host's interface.
pub const INTERFACE: &str = "eth0";
/// The server's port.
const PORT: u16 = 9000;

/// The server's host, and a host for each worker. Dropping the value removes them.
#[derive(Debug)]
pub struct Hosts {
    network: Network,
}

impl Hosts {
    /// Creates the hosts, which requires root.
    pub fn new(workers: u8) -> Result<Self> {
        let no = |reason| Error::NoNetwork { reason };
        let network = Network::star(workers + 1).map_err(no)?;
        network.hosts().iter().try_for_each(Host::assign).map_err(no)?;
        Ok(Self { network })
    }

    /// The address on which the server listens.
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::from((self.network.host(0).address, PORT))
    }

    /// The server's flags.
    pub(crate) fn server_arguments(&self) -> Vec<String> {
        ["--io", "xdp", "--xdp-device", INTERFACE].map(String::from).to_vec()
    }

    /// Makes a command run on the server's host.
    pub(crate) fn on_server(&self, command: &Command) -> Command {
        wrap(self.network.host(0), command)
    }

    /// Makes a command run on a worker's host.
    pub(crate) fn on_worker(&self, worker: u8, command: &Command) -> Command {
        wrap(self.network.host(usize::from(worker) + 1), command)
    }
}

/// Makes a command run on a host, with the same additions to its environment.
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
