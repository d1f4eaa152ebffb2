//! Table `source`: the aggregator's own addresses, from which answers come.

use super::{Mac, Row, mac_number};
use std::net::IpAddr;
use thc_transport::frame::address_number;

/// The table's default; it has no other rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The Ethernet address.
    pub mac: Mac,
    /// The IP address.
    pub address: IpAddr,
}

impl Row for Source {
    const TABLE: &'static str = "source";

    fn key(&self) -> Vec<(&'static str, u128)> {
        Vec::new()
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("set_source", vec![("mac", mac_number(self.mac)), ("address", address_number(self.address))])
    }
}
