//! Table `own_arp`: the addresses whose ARP requests the switch answers itself.

use super::{Mac, Row, mac_number};
use std::net::Ipv4Addr;

/// An address of the aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnArp {
    /// Key: the IPv4 address.
    pub address: Ipv4Addr,
    /// The answer.
    pub mac: Mac,
}

impl Row for OwnArp {
    const TABLE: &'static str = "own_arp";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("address", u32::from(self.address).into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("answer_arp", vec![("mac", mac_number(self.mac))])
    }
}
