//! `thc simulate`: all-reduces in virtual time, by the code that does them on real networks.
//!
//! A worker is thc-worker's engine with the real codec, and an aggregator is the protocol's with thc-ps's kernels. Their packets
//! are those of the wire, on the simulated network of thc-support. Virtual time passes on links, on cores and in a switch's passes.

mod actor;
mod arguments;
mod cluster;
mod job;
mod recirculation;

pub use arguments::SimulateArgs;
