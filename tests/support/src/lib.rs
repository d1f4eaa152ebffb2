//! Support for the tests of several crates: [`sim`], a network in memory with virtual time and seeded faults; [`agenda`], events
//! in virtual time; [`parties`], a registry and workers that join it; [`random`], seeded numbers; [`openmetrics`], a strict parser
//! of the metrics that programs serve; [`kinds`] and [`wire_table`].
#![forbid(unsafe_code)]

pub mod agenda;
pub mod openmetrics;
pub mod parties;
pub mod random;
pub mod sim;

use thc_codec::table::LookupTable;
use thc_protocol::TableId;
use thc_protocol::wire::{Form, Kind, Table};

/// A lookup table in the form of WELCOME, still without a number, for packets of this form.
pub fn wire_table(form: Form, table: &LookupTable) -> Table {
    Table {
        id: TableId(0),
        bits: table.bits(),
        form,
        granularity: table.granularity(),
        fraction: table.fraction(),
        t_p: table.t_p(),
        values: table.values16(),
    }
}

/// All kinds of packets, in the order of their bytes.
pub fn kinds() -> Vec<Kind> {
    (0..=u8::MAX).filter_map(Kind::from_byte).collect()
}

pub use agenda::Agenda;
pub use sim::{LinkConfig, SimConfig, SimIo, SimNet, SimStats};
