//! Table `addresses`: where a worker's copies of RESULTs go.

use super::{Mac, Row, mac_number};
use std::net::SocketAddr;
use thc_transport::frame::address_number;

/// A worker's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Key: the job's number.
    pub job: u16,
    /// Key: the worker's number, which is the replica's instance in the job's group.
    pub worker: u8,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its IP address and UDP port.
    pub at: SocketAddr,
}

impl Row for Address {
    const TABLE: &'static str = "addresses";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into()), ("worker", self.worker.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let params = vec![
            ("mac", mac_number(self.mac)),
            ("address", address_number(self.at.ip())),
            ("udp_port", self.at.port().into()),
        ];
        ("set_address", params)
    }
}
