//! The command line of `thc-worker`.

pub mod doctor;
pub mod metrics;
pub mod options;
pub mod output;
pub mod run;
pub mod spans;
pub mod tensors;

use anyhow::Context;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Prints lines with one write, so that those of other processes do not mix with them. A reader that has gone, such as `head`, is no
/// failure: the other workers need this one.
fn print(lines: impl Display) -> anyhow::Result<()> {
    let text = format!("{lines}\n");
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
