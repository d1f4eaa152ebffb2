//! The program `thc`.

use std::process::ExitCode;

fn main() -> ExitCode {
    thc_testbed::cli::main()
}
