//! Table `own_address`: packets to the aggregator itself.

use super::{Mac, Row, mac_number};
use std::net::Ipv4Addr;

/// An address of the aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// Key: the Ethernet address.
    pub mac: Mac,
    /// Key: the IPv4 address.
    pub address: Ipv4Addr,
}

impl Row for OwnAddress {
    const TABLE: &'static str = "own_address";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("mac", mac_number(self.mac)), ("address", u32::from(self.address).into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("set_ours", Vec::new())
    }
}
