//! The switch itself, and what it forwards for others: tables `own_address`, `own_arp`, `source`, `stations`, `control_plane` and `control_ports`.

use super::{Row, mac_number, row};
use std::net::IpAddr;

row! {
    /// Table `own_address`: packets to this address are for the aggregator itself.
    #[derive(Clone, Debug, PartialEq, Eq)]
    OwnAddressRow of "own_address", "set_ours",
    key {
        /// Key: the Ethernet address.
        mac: [u8; 6],
        /// Key: the IP address.
        address: IpAddr,
    }
    params {}
}

row! {
    /// Table `own_arp`: an address whose ARP requests the switch answers itself.
    #[derive(Clone, Debug, PartialEq, Eq)]
    OwnArpRow of "own_arp", "answer_arp",
    key {
        /// Key: the IP address.
        address: IpAddr,
    }
    params {
        /// The answer.
        mac: [u8; 6],
    }
}

row! {
    /// Table `source`: the aggregator's own addresses, which answers come from; the table's default, it has no other rows.
    #[derive(Clone, Debug, PartialEq, Eq)]
    SourceRow of "source", "set_source",
    key {}
    params {
        /// The Ethernet address.
        mac: [u8; 6],
        /// The IP address.
        address: IpAddr,
    }
}

/// The action on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationAction {
    /// Out of this port.
    Port(u16),
    /// To this multicast group.
    Flood(u16),
    /// Nothing.
    Drop,
}

/// Table `stations`: where frames for others go, by Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationRow {
    /// Key: its Ethernet address; `None` is the table's default.
    pub mac: Option<[u8; 6]>,
    /// The action.
    pub action: StationAction,
}

impl Row for StationRow {
    const TABLE: &'static str = "stations";

    fn key(&self) -> Vec<(&'static str, u128)> {
        self.mac.map(|mac| ("mac", mac_number(mac))).into_iter().collect()
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        match self.action {
            StationAction::Port(port) => ("set_port", vec![("port", port.into())]),
            StationAction::Flood(group) => ("flood", vec![("group", group.into())]),
            StationAction::Drop => ("drop", Vec::new()),
        }
    }
}

row! {
    /// Table `control_plane`: a kind of packets that go to the controller.
    #[derive(Clone, Debug, PartialEq, Eq)]
    ControlPlaneRow of "control_plane", "to_control",
    key {
        /// Key: the kind's number (P2).
        kind: u8,
    }
    params {
        /// The controller's port.
        port: u16,
    }
}

/// Table `control_ports`: how often the control plane may be asked through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlPortRow {
    /// Key: the port.
    pub port: u16,
    /// Packets a second.
    pub rate: u32,
}

impl Row for ControlPortRow {
    const TABLE: &'static str = "control_ports";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("port", self.port.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("meter_port", Vec::new())
    }

    fn rate(&self) -> Option<u32> {
        Some(self.rate)
    }
}
