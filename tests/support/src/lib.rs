//! What tests of several crates share: [`sim`], a network in memory with virtual time and seeded faults, [`openmetrics`], a strict
//! reader of what the programs answer Prometheus, and [`wire_table`].
#![forbid(unsafe_code)]

pub mod openmetrics;
pub mod sim;

pub use thc_options::wire_table;

pub use sim::{LinkConfig, SimConfig, SimIo, SimNet, SimStats};
