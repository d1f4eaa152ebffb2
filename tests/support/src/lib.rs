//! Support for the tests of several crates: [`sim`], a network in memory with virtual time and seeded faults; [`agenda`], events
//! in virtual time; [`parties`], a registry and workers that join it; [`random`], seeded numbers; [`openmetrics`], a strict parser
//! of the metrics that programs serve; [`kinds`] and [`wire_table`].
#![forbid(unsafe_code)]

pub mod agenda;
pub mod openmetrics;
pub mod parties;
pub mod random;
pub mod sim;

use thc_protocol::wire::Kind;

pub use agenda::Agenda;
pub use sim::{LinkConfig, SimConfig, SimIo, SimNet, SimStats};
pub use thc_config::job::wire_table;

/// All kinds of packets, in the order of their bytes.
pub fn kinds() -> Vec<Kind> {
    (0..=u8::MAX).filter_map(Kind::from_byte).collect()
}
