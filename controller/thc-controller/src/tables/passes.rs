//! Table `passes`: the port through which a packet goes to its next pass.

use super::Row;

/// A pass's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Key: number of the next pass; where passes have cells of their own also 0, and 255 of norms.
    pub pass: u8,
    /// The port.
    pub port: u16,
    /// Where passes have cells: the first one of this pass in the port's pipe.
    pub first_cell: Option<u32>,
}

impl Row for Pass {
    const TABLE: &'static str = "passes";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("pass", self.pass.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let port = ("port", self.port.into());
        match self.first_cell {
            None => ("set_pass_port", vec![port]),
            Some(cell) => ("set_pass", vec![port, ("first_cell", cell.into())]),
        }
    }
}
