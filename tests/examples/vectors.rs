//! Prints vectors (P33): those of whole sessions by `cargo run -p thc-tests --example vectors
//! >tests/vectors/all_reduce.json`, and those of members that come and go by `cargo run -p thc-tests --example
//! vectors members >tests/vectors/members.json`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => print!("{}", thc_tests::vectors::text()),
        Some("members") => print!("{}", thc_tests::members::text()),
        Some(other) => {
            eprintln!("error: there are no vectors {other:?}: give members, or nothing for sessions");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
