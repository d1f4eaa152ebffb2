//! The program `thc`.

use std::process::ExitCode;

fn main() -> ExitCode {
    thc_demo::cli::main()
}
