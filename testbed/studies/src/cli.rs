//! The command line of `thc-studies`: those commands of `thc` that only measure.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use thc_demo::cli;

use crate::bench::{self, BenchArgs};
use crate::error::Result;
use crate::papers::arguments::PapersArgs;
use crate::simulate::SimulateArgs;

#[derive(Parser)]
#[command(
    name = "thc",
    bin_name = "thc",
    version,
    max_term_width = 96,
    about = "Studies of THC: errors beside other schemes, benchmarks of processes, simulations",
    after_help = "The program thc has the same commands, and more: thc --help"
)]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Measure errors beside other schemes, and what docs/papers.md compares with the papers
    Papers(Box<PapersArgs>),
    /// Measure an all-reduce between real processes on links of a given rate, beside others
    Bench(BenchArgs),
    /// Simulate all-reduces in virtual time: 2 to 64 workers, links of any rate, losses, windows
    Simulate(Box<SimulateArgs>),
    /// A process of `thc bench`
    #[command(hide = true)]
    InternalPart,
}

/// Parses the arguments, does what they ask, and reports an error as one line.
pub fn main() -> ExitCode {
    cli::finish(Cli::try_parse().map(|cli| execute(cli.command)).map_err(Into::into))
}

fn execute(command: Subcommands) -> Result<()> {
    match command {
        Subcommands::Bench(args) => args.run(),
        Subcommands::Papers(args) => args.run(),
        Subcommands::Simulate(args) => args.run(),
        Subcommands::InternalPart => bench::part::run(),
    }
}
