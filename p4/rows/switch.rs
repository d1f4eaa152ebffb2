//! The switch itself, and what it forwards for others: tables `own_address`, `own_arp`, `source`, `stations`, `control_plane` and `control_ports`.

use super::{Row, address_number, mac_number};
use std::net::IpAddr;

/// Table `own_address`: packets to this address are for the aggregator itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddressRow {
    /// Key: the Ethernet address.
    pub mac: [u8; 6],
    /// Key: the IP address.
    pub address: IpAddr,
}

impl Row for OwnAddressRow {
    const TABLE: &'static str = "own_address";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("mac", mac_number(self.mac)), ("address", address_number(self.address))]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("set_ours", Vec::new())
    }
}

/// Table `own_arp`: an address whose ARP requests the switch answers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnArpRow {
    /// Key: the IP address.
    pub address: IpAddr,
    /// The answer.
    pub mac: [u8; 6],
}

impl Row for OwnArpRow {
    const TABLE: &'static str = "own_arp";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("address", address_number(self.address))]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("answer_arp", vec![("mac", mac_number(self.mac))])
    }
}

/// Table `source`: the aggregator's own addresses, which answers come from; the table's default, it has no other rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRow {
    /// The Ethernet address.
    pub mac: [u8; 6],
    /// The IP address.
    pub address: IpAddr,
}

impl Row for SourceRow {
    const TABLE: &'static str = "source";

    fn key(&self) -> Vec<(&'static str, u128)> {
        Vec::new()
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("set_source", vec![("mac", mac_number(self.mac)), ("address", address_number(self.address))])
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

/// Table `control_plane`: a kind of packets that go to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneRow {
    /// Key: the kind's number (P2).
    pub kind: u8,
    /// The controller's port.
    pub port: u16,
}

impl Row for ControlPlaneRow {
    const TABLE: &'static str = "control_plane";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("kind", self.kind.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("to_control", vec![("port", self.port.into())])
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
