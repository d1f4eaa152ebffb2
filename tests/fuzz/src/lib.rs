//! What must hold for any input: one target for each place where bytes from outside come in.
//!
//! A target panics when something does not hold. `tests/replay.rs` runs the kept inputs and a few random ones;
//! `make fuzz` searches for more with libFuzzer, guided by coverage.
#![allow(clippy::unwrap_used)]

mod aggregator;
mod config;
mod feedback;
mod p4runtime;
mod random;
mod sessions;
mod table;
mod tensor_file;
#[path = "../../../dataplane/worker/src/cli/tensors.rs"]
#[allow(dead_code)]
mod tensors;
mod wire;
mod worker;

pub use random::Random;

/// A place where bytes come in.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What the command line and its corpus are called by.
    pub name: &'static str,
    /// Takes one input; panics if something does not hold.
    pub run: fn(&[u8]),
    /// The longest input that is worth making, bytes.
    pub longest: usize,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "wire", run: wire::run, longest: 160 },
    Target { name: "aggregator", run: aggregator::run, longest: 1024 },
    Target { name: "worker", run: worker::run, longest: 1024 },
    Target { name: "sessions", run: sessions::run, longest: 1024 },
    Target { name: "p4runtime", run: p4runtime::run, longest: 2048 },
    Target { name: "ps_config", run: config::server, longest: 1024 },
    Target { name: "controller_config", run: config::controller, longest: 1024 },
    Target { name: "npy", run: tensor_file::npy, longest: 512 },
    Target { name: "safetensors", run: tensor_file::safetensors, longest: 512 },
    Target { name: "table", run: table::run, longest: 300 },
    Target { name: "feedback", run: feedback::run, longest: 256 },
];
