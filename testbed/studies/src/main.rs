//! The program `thc-studies`, which `thc` becomes for its studies.

use std::process::ExitCode;

fn main() -> ExitCode {
    thc_studies::cli::main()
}
