//! Table `stations`: where frames for others go, by Ethernet address.

use super::{Mac, Row, mac_number};

/// What is done with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationAction {
    /// Out of this port.
    Port(u16),
    /// To this multicast group.
    Flood(u16),
    /// Nothing.
    Drop,
}

/// A station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Key: its Ethernet address; `None` is the table's default.
    pub mac: Option<Mac>,
    /// What is done.
    pub action: StationAction,
}

impl Row for Station {
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
