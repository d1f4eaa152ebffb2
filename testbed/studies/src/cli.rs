//! The command line of `thc-studies`: those commands of `thc` that only measure.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use thc_demo::cli;
use thc_demo::demo::processes;

use crate::asynchronous::{AsyncArgs, run_worker};
use crate::bench::{self, BenchArgs};
use crate::error::Result;
use crate::papers::arguments::PapersArgs;
use crate::simulate::SimulateArgs;

#[derive(Parser)]
#[command(
    name = "thc",
    bin_name = "thc",
    version,
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
    /// Simulate all-reduces in virtual time: 2 to 1,024 workers, links of any rate, and which layout is fastest
    Simulate(Box<SimulateArgs>),
    /// Train asynchronously with double quantization, and compare with full precision
    Async(AsyncArgs),
    /// A worker process of `thc async demo`
    #[command(hide = true)]
    AsyncWorker(AsyncWorkerArgs),
    /// A process of `thc bench`
    #[command(hide = true)]
    BenchPart,
}

#[derive(Args)]
struct AsyncWorkerArgs {
    /// The process that started this one
    #[arg(long)]
    parent: u32,
}

/// Parses the arguments, does what they ask, and reports an error as one line.
pub fn main() -> ExitCode {
    cli::finish(Cli::try_parse().map(|cli| execute(cli.command)))
}

fn execute(command: Subcommands) -> Result<()> {
    match command {
        Subcommands::Bench(args) => args.run(),
        Subcommands::Papers(args) => args.run(),
        Subcommands::Simulate(args) => args.run(),
        Subcommands::BenchPart => bench::part::run(),
        Subcommands::Async(args) => args.run(),
        Subcommands::AsyncWorker(args) => {
            processes::tie_to_parent(args.parent)?;
            run_worker()
        }
    }
}
