//! What tests of several crates share: [`sim`], a network in memory with virtual time and seeded faults, and
//! [`openmetrics`], a strict reader of what the programs answer Prometheus.
#![forbid(unsafe_code)]

pub mod openmetrics;
pub mod sim;

pub use sim::{LinkConfig, SimConfig, SimIo, SimNet, SimStats};
