//! Table `loopback_ports`: the ports by which packets come back from a pass.

use super::Row;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopbackPort {
    /// Key: the port.
    pub port: u16,
}

impl Row for LoopbackPort {
    const TABLE: &'static str = "loopback_ports";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("port", self.port.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("own_pass", Vec::new())
    }
}
