//! Support for the tests of several crates: [`sim`], a network in memory with virtual time and seeded faults;
//! [`openmetrics`], a strict parser of the metrics that programs serve; and [`wire_table`].
#![forbid(unsafe_code)]

pub mod openmetrics;
pub mod sim;

pub use thc_options::wire_table;

pub use sim::{LinkConfig, SimConfig, SimIo, SimNet, SimStats};
