//! Table `own_address`: packets to the aggregator itself.

use super::{Mac, Row, mac_number};
use std::net::IpAddr;
use thc_transport::frame::address_number;

/// An address of the aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// Key: the Ethernet address.
    pub mac: Mac,
    /// Key: the IP address.
    pub address: IpAddr,
}

impl Row for OwnAddress {
    const TABLE: &'static str = "own_address";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("mac", mac_number(self.mac)), ("address", address_number(self.address))]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("set_ours", Vec::new())
    }
}
