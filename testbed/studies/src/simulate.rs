//! `thc simulate`: all-reduces in virtual time, by the code that does them in earnest.
//!
//! Workers are thc-worker's engine with the real codec, aggregators the protocol's with thc-ps's kernels, packets those of the wire,
//! on thc-transport's simulated network. What is simulated besides is time: links, cores, a switch's passes.

mod actor;
mod arguments;
mod cluster;
mod cores;
mod error;
mod job;
mod layout;
mod loss;
mod port;
mod recirculation;
mod ring;
mod settings;
mod study;

pub use arguments::SimulateArgs;
