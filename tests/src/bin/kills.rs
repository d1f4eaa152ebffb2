//! Server, workers and controller killed at random moments of a run, again and again. `make kills`.

use clap::Parser;
use std::process::ExitCode;
use thc_tests::{figures, kills};

/// Kills each party this many times, and compares every mean with that of an undisturbed run.
#[derive(Parser)]
struct Flags {
    /// Kills of each party
    #[arg(default_value_t = 100)]
    kills: usize,
    /// Workers
    #[arg(long, default_value_t = 3)]
    workers: u8,
    /// Coordinates of an all-reduce
    #[arg(long, default_value_t = 1 << 20)]
    coordinates: usize,
    /// All-reduces of a run
    #[arg(long, default_value_t = 500)]
    repeat: usize,
    /// Share of the packets that each worker loses in each direction
    #[arg(long, default_value_t = 0.01)]
    loss: f64,
    /// Seed of all random moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let Flags { kills, workers, coordinates, repeat, loss, seed } = Flags::parse();
    let mut all = Vec::new();
    for controller in [false, true] {
        let plan = kills::Plan { kills, controller, workers, coordinates, repeat, loss, seed, tell: true };
        match kills::run(&plan) {
            Ok(outcome) => all.extend(kills::figures(&outcome, controller)),
            Err(error) => {
                eprintln!("kills: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    figures::write("kills", &all);
    ExitCode::SUCCESS
}
