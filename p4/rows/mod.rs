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

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A row of a table: names and values as the P4Info has them.
pub trait Row: Sized {
    /// The table.
    const TABLE: &'static str;

    /// Fields of the key, by name.
    fn key(&self) -> Vec<(&'static str, u128)>;

    /// The action and its parameters, by name.
    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>);

    /// The packets a second that a row's own meter lets pass, where the table has meters.
    fn rate(&self) -> Option<u32> {
        None
    }
}

/// A value of a row: a field of its table's key or a parameter of its action, or two of them.
pub(crate) trait Fields {
    /// Appends the value under this name, or under names of its own.
    fn put(&self, name: &'static str, to: &mut Vec<(&'static str, u128)>);
}

macro_rules! fields {
    ($($type:ty: $value:ident => $number:expr;)*) => {$(
        impl Fields for $type {
            fn put(&self, name: &'static str, to: &mut Vec<(&'static str, u128)>) {
                let $value = *self;
                to.push((name, $number));
            }
        }
    )*};
}

fields! {
    u8: number => number.into();
    u16: number => number.into();
    u32: number => number.into();
    bool: truth => truth.into();
    [u8; 6]: mac => mac_number(mac);
    [u8; 16]: bytes => u128::from_be_bytes(bytes);
    IpAddr: address => address_number(address);
}

/// The fields `address` and `udp_port`.
impl Fields for SocketAddr {
    fn put(&self, _: &'static str, to: &mut Vec<(&'static str, u128)>) {
        to.extend([("address", address_number(self.ip())), ("udp_port", self.port().into())]);
    }
}

/// Declares the rows of a table that have one action: its name and that of the action, the fields of its key, and the action's
/// parameters.
macro_rules! row {
    (
        $(#[$meta:meta])*
        $name:ident of $table:literal, $action:literal,
        key { $($(#[$key_meta:meta])* $key:ident: $key_type:ty,)* }
        params { $($(#[$param_meta:meta])* $param:ident: $param_type:ty,)* }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$key_meta])* pub $key: $key_type,)*
            $($(#[$param_meta])* pub $param: $param_type,)*
        }

        impl $crate::rows::Row for $name {
            const TABLE: &'static str = $table;

            fn key(&self) -> Vec<(&'static str, u128)> {
                #[allow(unused_mut, reason = "the key of a default is empty")]
                let mut key = Vec::new();
                $($crate::rows::Fields::put(&self.$key, stringify!($key), &mut key);)*
                key
            }

            fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
                #[allow(unused_mut, reason = "some actions have no parameters")]
                let mut params = Vec::new();
                $($crate::rows::Fields::put(&self.$param, stringify!($param), &mut params);)*
                ($action, params)
            }
        }
    };
}
use row;

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
