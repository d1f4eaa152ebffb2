//! Table `control_ports`: how often the control plane may be asked through a port.

use super::Row;

/// A port's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlPort {
    /// Key: the port.
    pub port: u16,
    /// Packets a second.
    pub rate: u32,
}

impl Row for ControlPort {
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
