//! Table `passes`: the port through which a packet goes to its next pass.

use super::Row;

/// A pass's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Key: number of the next pass, 1 to 7.
    pub pass: u8,
    /// The port.
    pub port: u16,
}

impl Row for Pass {
    const TABLE: &'static str = "passes";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("pass", self.pass.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("set_pass_port", vec![("port", self.port.into())])
    }
}
