//! A hostile sender on the host of a running job: means bit-identical, goodput against as much noise. `make hostile`.

use clap::Parser;
use std::process::ExitCode;
use thc_tests::{figures, hostile};

/// Sends hostile packets and as much noise, in turns, to a job of two workers, and compares.
#[derive(Parser)]
struct Flags {
    /// Hostile packets
    #[arg(long, default_value_t = 5_000_000)]
    packets: u64,
    /// Packets a second
    #[arg(long, default_value_t = 50_000)]
    rate: u32,
    /// Turns of hostile packets and noise
    #[arg(long, default_value_t = 10)]
    slices: u32,
    /// Coordinates of an all-reduce
    #[arg(long, default_value_t = 1 << 20)]
    coordinates: usize,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let Flags { packets, rate, slices, coordinates, seed } = Flags::parse();
    let plan = hostile::Plan { packets, rate, slices: slices.max(1), coordinates, seed };
    match hostile::run(&plan) {
        Ok(outcome) => {
            figures::write("hostile", &[outcome.figure()]);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hostile: {error}");
            ExitCode::FAILURE
        }
    }
}
