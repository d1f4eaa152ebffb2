//! Table `own_arp`: the addresses whose ARP requests the switch answers itself.

use super::{Mac, Row, mac_number};
use std::net::IpAddr;
use thc_transport::frame::address_number;

/// An address of the aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnArp {
    /// Key: the IP address.
    pub address: IpAddr,
    /// The answer.
    pub mac: Mac,
}

impl Row for OwnArp {
    const TABLE: &'static str = "own_arp";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("address", address_number(self.address))]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("answer_arp", vec![("mac", mac_number(self.mac))])
    }
}
