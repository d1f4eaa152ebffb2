//! DPDK without a NIC: shared memory connects the demo's processes, by one net_memif link per worker.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

use serde::{Deserialize, Serialize};
use thc_transport::{Backend, DpdkConfig};

use crate::error::{Error, Result};

/// The server's address. Only the demo's own processes use these links.
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 84, 72, 1), 9000);
/// The address of worker 0. Those of the other workers follow.
const FIRST_WORKER: u8 = 10;

/// All links of a demo. The processes connect through a socket in a folder that only this user may enter.
#[derive(Debug)]
pub struct Links {
    folder: tempfile::TempDir,
}

/// A worker's end of its link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The device, in the form of DPDK's environment layer.
    pub device: String,
    /// The worker's address.
    pub address: Ipv4Addr,
}

impl Links {
    /// Creates the folder for the socket.
    pub fn new() -> Result<Self> {
        Ok(Self { folder: tempfile::tempdir().map_err(Error::Process)? })
    }

    /// The folder of the socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn device(&self, number: u8, worker: u8, role: &str) -> String {
        let socket = self.folder.path().join("memif.sock");
        format!("net_memif{number},role={role},id={worker},socket-abstract=no,socket={}", socket.display())
    }

    /// What the server listens on.
    pub fn listen(&self) -> SocketAddr {
        SERVER.into()
    }

    /// The server's flags, which give it a device for each worker and memory without hugepages.
    pub(crate) fn server_arguments(&self, workers: u8) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["--io", "dpdk", "--dpdk-hugepages=false"].map(String::from).to_vec();
        for worker in 0..workers {
            arguments.extend(["--dpdk-device".to_owned(), self.device(worker, worker, "server")]);
        }
        arguments
    }

    /// A worker's end.
    pub fn link(&self, worker: u8) -> Link {
        let address = Ipv4Addr::from_bits(SERVER.ip().to_bits() - 1 + u32::from(FIRST_WORKER + worker));
        Link { device: self.device(0, worker, "client"), address }
    }
}

impl Link {
    /// The settings with which the worker's group opens its device.
    pub fn backend(&self) -> Backend {
        let mut config = DpdkConfig::new(self.address);
        config.devices = vec![self.device.clone()];
        config.hugepages = false;
        Backend::Dpdk(config)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_link_meet() {
        let links = Links::new().unwrap();
        let server = links.server_arguments(3);
        let ends: Vec<&String> = server.iter().filter(|argument| argument.starts_with("net_memif")).collect();
        assert_eq!(ends.len(), 3);
        for (worker, end) in (0u8..).zip(ends) {
            let link = links.link(worker);
            let place = |device: &str| device.split_once("id=").unwrap().1.to_owned();
            assert_eq!(place(end), place(&link.device));
            assert!(end.contains("role=server") && link.device.contains("role=client"));
            assert_eq!(link.address, Ipv4Addr::new(10, 84, 72, 10 + worker));
            let Backend::Dpdk(config) = link.backend() else { panic!() };
            config.check().unwrap();
            assert!(config.on_link(*SERVER.ip()));
        }
    }
}
