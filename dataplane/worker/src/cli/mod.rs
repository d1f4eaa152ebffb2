//! The command line of `thc-worker`.

pub mod doctor;
pub mod metrics;
pub mod options;
pub mod output;
pub mod run;
pub mod signals;
pub mod spans;
pub mod tensors;

use anyhow::Context;
use std::fmt::Display;

/// Prints lines on stdout.
fn print(lines: impl Display) -> anyhow::Result<()> {
    thc_config::logs::print(lines).context("cannot write to standard output")
}
