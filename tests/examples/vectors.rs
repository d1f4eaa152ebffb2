//! Prints vectors (P33). `cargo run -p thc-tests --example vectors` prints those of whole sessions, which are kept in
//! tests/vectors/all_reduce.json; with the argument `members` it prints those of members that come and go, which are kept in
//! tests/vectors/members.json.

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
