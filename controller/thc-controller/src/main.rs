//! The program `thc-controller`: the controller itself, and the commands that use it.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
