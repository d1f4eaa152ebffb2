//! The command line of `thc`.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use serde::Serialize;
use thc_config::{help, logs::print_error};
use thc_netns::Rate;
use thc_ps::{Fraction, Method};

use crate::demo::plan::{DemoPlan, WorkerPlan};
use crate::demo::run::Aggregator;
use crate::demo::{exact, model, processes, run, server, shared};
use crate::error::{Error, Result};
use crate::nmse::Experiment;
use crate::table::TableReport;
use crate::testbed::Testbed;

/// A text that every Debian machine has.
const TEXT: &str = "/usr/share/common-licenses/GPL-3";

#[derive(Parser)]
#[command(
    name = "thc",
    version,
    about = "Compressed all-reduce for training: see it work, and see its tables and errors",
    after_help = "Start with `thc demo`: it trains a small language model on four workers whose gradients are \
                  averaged in compressed form, and compares with exact averaging.\n\n\
                  Examples:\n  \
                  thc demo\n  \
                  thc bench local\n  \
                  thc table -b 4 -g 30 -p 1/32\n  \
                  thc table -b 4 --workers 4\n  \
                  thc nmse -b 4 -g 30 -p 1/32 -n 4\n\n\
                  Exit status: 0 success, 1 failure, 2 wrong arguments, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Train a small language model through THC and compare with exact averaging
    Demo(DemoArgs),
    /// Run a command on each of several hosts with links of a rate, beside an aggregator
    Testbed(TestbedArgs),
    /// Compute an optimal lookup table, or choose the best one for a number of workers
    Table(TableArgs),
    /// Measure the error of the mean with the real codec, and compare it with theory
    Nmse(NmseArgs),
    /// Measure errors beside other schemes, and what docs/papers.md compares
    #[command(disable_help_flag = true)]
    Papers(StudyArgs),
    /// Measure an all-reduce between real processes on links of a given rate, beside others
    #[command(disable_help_flag = true)]
    Bench(StudyArgs),
    /// Simulate all-reduces of 2 to 64 workers in virtual time, on links of any rate
    #[command(disable_help_flag = true)]
    Simulate(StudyArgs),
    /// A worker process of the demo
    #[command(hide = true)]
    InternalWorker(ChildArgs),
    /// The exact run of the demo
    #[command(hide = true)]
    InternalExact(ChildArgs),
    /// The parameter server of the demo, or its controller: this process becomes the given program
    #[command(hide = true)]
    InternalServer(ServerArgs),
}

/// The arguments of the program thc-studies.
#[derive(Args)]
struct StudyArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = "Starts a parameter server (thc-ps) and worker processes on this machine, trains a \
                        character-level language model of about half a million parameters data-parallel through \
                        THC, then repeats the run with exact averaging: same initial parameters, same batches.\n\n\
                        Examples:\n  \
                        thc demo\n  \
                        thc demo --workers 8 --steps 200\n  \
                        thc demo --steps 50 --loss 0.01                 (same result, more packets)\n  \
                        thc demo --aggregator dpdk                      (same result, bypasses the kernel)\n  \
                        thc demo --aggregator interpreted               (the P4 switch's program adds up)\n  \
                        thc demo --text book.txt --json > report.json")]
struct DemoArgs {
    /// Worker processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    workers: u8,
    /// Optimizer steps [default: 400, through a switch program 60]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: Option<u32>,
    /// Text to learn: any file of at least 2 KiB
    #[arg(long, value_name = "FILE", default_value = TEXT)]
    text: PathBuf,
    /// Seed of initial parameters and batches
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Method of compression; thc-paper is THC as published
    #[arg(long, value_enum, value_name = "METHOD", default_value_t)]
    method: Method,
    /// Bit budget b: bits per coordinate sent up, 1 to 4 or 8 [default: 4]
    #[arg(short, long, value_parser = bits)]
    bits: Option<u8>,
    /// Aggregator that adds the gradients up; the result is the same
    #[arg(long, value_enum, value_name = "AGGREGATOR", default_value = "ps")]
    aggregator: Aggregator,
    /// Lose this share of all packets, in each direction, to see them repeated
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, value_parser = loss)]
    loss: f64,
    /// Do not carry what quantization loses over to the next step
    #[arg(long)]
    no_feedback: bool,
    /// Print the report as JSON, and no progress
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(
    after_help = "The hosts are network namespaces, which need root. The command has THC_PS and THC_WORKER in its environment, and THC_COOKIE where no controller gives it; its lines \
                        are printed with the host's number. Without a command there is a shell on the first host, and the commands that enter the others.\n\n\
                        Examples:\n  \
                        thc testbed --rate 1Gb/s --command 'thc-worker --ps $THC_PS --coordinates 16Mi'\n  \
                        thc testbed --workers 2 --aggregator shares"
)]
struct TestbedArgs {
    /// Hosts of workers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Aggregator: ps with thc-controller on a host of its own, shares on the workers' hosts, or bmv2
    #[arg(long, value_enum, value_name = "AGGREGATOR", default_value = "ps")]
    aggregator: Aggregator,
    /// Rate of each worker's link, each way
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: Rate,
    /// Method of compression of the job; the command has it in THC_METHOD
    #[arg(long, value_enum, value_name = "METHOD", default_value_t)]
    method: Method,
    /// Command for sh on every host
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
}

#[derive(Args)]
#[command(
    after_help = "A table maps the 2^b indices that workers send to values 0..g that the aggregator adds up. \
                  The one computed here is provably optimal for normally distributed coordinates.\n\n\
                  Examples:\n  \
                  thc table -b 4 -g 30 -p 1/32          the table of the paper's testbed\n  \
                  thc table -b 4 --workers 10           best g and p for sums of 10 workers in 8 bits\n  \
                  thc table -b 4 --workers 10 --lane 16 --json"
)]
struct TableArgs {
    /// Bit budget b, 1 to 4 or 8
    #[arg(short, long, default_value_t = 4, value_parser = bits)]
    bits: u8,
    /// Granularity g, the largest value: 2^b - 1 to 255
    #[arg(short, long, requires = "fraction")]
    granularity: Option<u16>,
    /// Fraction p of coordinates that is truncated, such as 1/32
    #[arg(short = 'p', long, requires = "granularity")]
    fraction: Option<Fraction>,
    /// Choose g and p with the least error for the mean of this many workers
    #[arg(short = 'n', long, conflicts_with_all = ["granularity", "fraction"])]
    workers: Option<u32>,
    /// Bits of a summed coordinate, 4 to 16
    #[arg(long, default_value_t = 8, requires = "workers")]
    lane: u8,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(
    after_help = "All workers hold the same vector of log-normal coordinates, as in the paper. They transform and quantize it; \
                        the mean that the sums give is compared with the exact one. Sums that exceed 8 bits use 16-bit lanes. Theory says \
                        quantization error / n + truncation error.\n\n\
                        Examples:\n  \
                        thc nmse -b 4 -g 30 -p 1/32 -n 4\n  \
                              thc nmse -b 2 -g 34 -p 1/512 -n 10 --trials 100 --json"
)]
struct NmseArgs {
    /// Bit budget b, 1 to 4 or 8
    #[arg(short, long, default_value_t = 4, value_parser = bits)]
    bits: u8,
    /// Granularity g
    #[arg(short, long, default_value_t = 30)]
    granularity: u16,
    /// Fraction p of coordinates that is truncated
    #[arg(short = 'p', long, default_value = "1/32")]
    fraction: Fraction,
    /// Workers
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Coordinates of a vector
    #[arg(short, long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 28))]
    dimension: u32,
    /// Repetitions, each with new vectors, signs and roundings
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    trials: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ChildArgs {
    #[arg(long)]
    parent: u32,
    order: String,
}

#[derive(Args)]
struct ServerArgs {
    #[arg(long)]
    parent: u32,
    program: PathBuf,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The bits that a job's indices can have.
fn bits(text: &str) -> std::result::Result<u8, String> {
    match text.parse() {
        Ok(bits @ (1..=4 | 8)) => Ok(bits),
        _ => Err("give 1, 2, 3, 4 or 8".to_owned()),
    }
}

fn loss(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=0.5).contains(&share) => Ok(share),
        _ => Err("give a number from 0 to 0.5".to_owned()),
    }
}

/// Parses the arguments, runs the command, and reports an error as one line.
pub fn main() -> ExitCode {
    let read = help::read(Cli::command(), &[]);
    let cli = read.and_then(|mut found| Ok(Cli::from_arg_matches_mut(&mut found)?));
    finish(cli.map(|cli| execute(cli.command)))
}

/// Returns the exit status of a command. An error becomes one line.
pub fn finish(done: std::result::Result<Result<()>, help::Stop>) -> ExitCode {
    match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            if error.exit_status() != 0 {
                print_error(format_args!("thc: {error}"));
            }
            ExitCode::from(error.exit_status())
        }
        Err(stop) => stop.print(),
    }
}

/// Replaces this process by the program thc-studies.
fn study(command: &str, args: &StudyArgs) -> Result<()> {
    let program = server::find("thc-studies")?;
    let source = Command::new(&program).arg(command).args(&args.arguments).exec();
    Err(Error::Start { name: program.display().to_string(), source })
}

fn print(report: &(impl Serialize + std::fmt::Display), json: bool) -> Result<()> {
    let text =
        if json { serde_json::to_string_pretty(report).map_err(Error::Event)? } else { report.to_string() };
    writeln!(std::io::stdout(), "{text}").map_err(Error::Output)
}

fn execute(command: Subcommands) -> Result<()> {
    match command {
        Subcommands::Table(args) => print(&table(&args)?, args.json),
        Subcommands::Nmse(args) => {
            let experiment = Experiment {
                bits: args.bits,
                granularity: args.granularity,
                fraction: args.fraction.0,
                workers: args.workers,
                dimension: args.dimension as usize,
                trials: args.trials,
                seed: args.seed,
            };
            print(&experiment.run()?, args.json)
        }
        Subcommands::Testbed(args) => {
            let TestbedArgs { workers, aggregator, rate, method, command } = args;
            Testbed { workers, aggregator, rate, method, command }.run()
        }
        Subcommands::Bench(args) => study("bench", &args),
        Subcommands::Papers(args) => study("papers", &args),
        Subcommands::Simulate(args) => study("simulate", &args),
        Subcommands::Demo(args) => {
            let slow = args.aggregator.is_slow();
            let plan = DemoPlan {
                text: args.text,
                workers: args.workers,
                steps: args.steps.unwrap_or(if slow { 60 } else { 400 }),
                batch: 128,
                hidden: if slow { model::NARROW } else { model::WIDE },
                seed: args.seed,
                learning_rate: 0.002,
            };
            let options = run::Options {
                plan,
                method: args.method,
                bits: args.bits,
                aggregator: args.aggregator,
                loss: args.loss,
                feedback: !args.no_feedback,
                quiet: args.json,
            };
            print(&run::run(&options)?, args.json)
        }
        Subcommands::InternalWorker(args) => {
            processes::tie_to_parent(args.parent)?;
            let order: WorkerPlan = serde_json::from_str(&args.order).map_err(Error::Event)?;
            shared::run(&order)
        }
        Subcommands::InternalExact(args) => {
            processes::tie_to_parent(args.parent)?;
            let order: DemoPlan = serde_json::from_str(&args.order).map_err(Error::Event)?;
            exact::run(&order)
        }
        Subcommands::InternalServer(args) => {
            processes::tie_to_parent(args.parent)?;
            let source = Command::new(&args.program).args(args.arguments).exec();
            Err(Error::Start { name: args.program.display().to_string(), source })
        }
    }
}

fn table(args: &TableArgs) -> Result<TableReport> {
    match (args.workers, args.granularity, args.fraction) {
        (Some(workers), ..) => TableReport::choose(args.bits, args.lane, workers),
        (None, Some(granularity), Some(fraction)) => TableReport::solve(args.bits, granularity, fraction.0),
        _ => Err(Error::Usage(
            "give -g and -p for a certain table, or --workers to choose the best (see thc table --help)"
                .to_owned(),
        )),
    }
}
