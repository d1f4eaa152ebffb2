//! Refusals that several simulations share.

use super::layout::Layout;
use crate::error::Error;

/// A key whose value is out of its range, and what it may be.
pub fn value_error(key: &str, value: impl std::fmt::Display, remedy: &str) -> Error {
    Error::Usage(format!("{key} is {value}: {remedy}"))
}

/// More workers than a layout has room for.
pub fn too_many_workers(workers: u16, layout: Layout) -> Error {
    Error::Usage(format!(
        "{workers} workers do not fit {}: an aggregator takes 2 to 64, racks more than fit one and at most 64 racks (--rack)",
        layout.name()
    ))
}

/// Settings that make no job for this many workers.
pub fn job_error(workers: u16, reason: impl std::fmt::Display) -> Error {
    Error::Usage(format!("no such job for {workers} workers: {reason}"))
}

/// What the simulated network refused.
pub fn network_error(error: std::io::Error) -> Error {
    Error::Failure(format!("the simulated network: {error}"))
}
