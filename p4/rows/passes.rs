//! Ways of packets through a switch: tables `passes` and `loopback_ports`.

use super::{Row, row};

/// A row of a program whose passes have cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassCells {
    /// Key: whether the pass collects what another one has added.
    pub collect: bool,
    /// The port's queue.
    pub queue: u8,
    /// The first one of this pass in the port's pipe.
    pub first: u32,
}

/// Table `passes`: the port through which a packet goes to its next pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassRow {
    /// Key: number of the next pass. If passes have their own cells, also 0, and 255 for norms.
    pub pass: u8,
    /// The port.
    pub port: u16,
    /// The cells of passes.
    pub cells: Option<PassCells>,
}

impl Row for PassRow {
    const TABLE: &'static str = "passes";

    fn key(&self) -> Vec<(&'static str, u128)> {
        let collect = self.cells.iter().map(|cells| ("collect", cells.collect.into()));
        [("pass", self.pass.into())].into_iter().chain(collect).collect()
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let port = ("port", self.port.into());
        match &self.cells {
            None => ("set_pass_port", vec![port]),
            Some(cells) => {
                ("set_pass", vec![port, ("queue", cells.queue.into()), ("first_cell", cells.first.into())])
            }
        }
    }
}

row! {
    /// Table `loopback_ports`: a port by which packets come back from a pass.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    LoopbackPortRow of "loopback_ports", "own_pass",
    key {
        /// Key: the port.
        port: u16,
    }
    params {}
}
