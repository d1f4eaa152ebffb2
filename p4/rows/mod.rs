//! Rows of the switch program's tables: what a key and an action are. Whoever writes rows, a controller into a switch or a server for its
//! own jobs, writes these.

mod jobs;
mod lookup;
mod passes;
mod switch;

pub use jobs::{AddressRow, JobRow, JobTableRow, MemberRow, RackRow, RootRow};
pub use lookup::{LookupBytes, LookupRow};
pub use passes::{LoopbackPortRow, PassCells, PassRow};
pub use switch::{
    ControlPlaneRow, ControlPortRow, OwnAddressRow, OwnArpRow, SourceRow, StationAction, StationRow,
};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A row of a table: names and values as the P4Info has them.
pub trait Row: Sized {
    /// The table.
    const TABLE: &'static str;

    /// Fields of the key, by name.
    fn key(&self) -> Vec<(&'static str, u128)>;

    /// The action and its parameters, by name.
    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>);

    /// How many packets a second a row's own meter lets pass, where the table has meters.
    fn rate(&self) -> Option<u32> {
        None
    }
}

fn mac_number(mac: [u8; 6]) -> u128 {
    mac.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}

/// An address as a number in rows of the switch program's tables: that of IPv4 below 2^32, that of IPv6 above, but for ::1,
/// which has the number of 0.0.0.1, an address that no host has.
#[must_use]
pub fn address_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address of such a number.
#[must_use]
pub fn address_of_number(number: u128) -> IpAddr {
    match u32::try_from(number) {
        Ok(1) | Err(_) => Ipv6Addr::from_bits(number).into(),
        Ok(number) => Ipv4Addr::from_bits(number).into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_number() {
        for text in ["10.0.0.1", "255.255.255.255", "::1", "fd00::1", "2001:db8::ffff:1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(address_of_number(address_number(address)), address);
        }
        assert_eq!(address_number([10, 0, 0, 1].into()), 0x0a00_0001);
    }
}
