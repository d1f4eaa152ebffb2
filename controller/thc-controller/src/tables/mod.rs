//! The tables of the switch program, one file each: what a row's key and action are.

mod addresses;
mod control_plane;
mod control_ports;
mod job_tables;
mod jobs;
mod lookup;
mod lookup_bytes;
mod loopback_ports;
mod members;
mod own_address;
mod own_arp;
mod passes;
mod racks;
mod roots;
mod source;
mod stations;

pub use addresses::Address;
pub use control_plane::ControlPlane;
pub use control_ports::ControlPort;
pub use job_tables::JobTable;
pub use jobs::Job;
pub use lookup::Lookup;
pub use lookup_bytes::LookupBytes;
pub use loopback_ports::LoopbackPort;
pub use members::Member;
pub use own_address::OwnAddress;
pub use own_arp::OwnArp;
pub use passes::{Pass, PassCells};
pub use racks::Rack;
pub use roots::Root;
pub use source::Source;
pub use stations::{Station, StationAction};

pub use thc_transport::frame::Mac;

/// A row of a table: names and values as the P4Info has them.
pub trait Row: Sized {
    /// The table.
    const TABLE: &'static str;

    /// Fields of the key, by name.
    fn key(&self) -> Vec<(&'static str, u128)>;

    /// The action and its parameters, by name.
    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>);

    /// How many packets a second a row's own meter lets pass, if the table has meters.
    fn rate(&self) -> Option<u32> {
        None
    }
}

pub(crate) fn mac_number(mac: Mac) -> u128 {
    mac.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}
