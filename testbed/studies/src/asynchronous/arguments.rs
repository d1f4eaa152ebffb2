//! The command line of `thc async`.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};

use super::condition::study;
use super::method::Method;
use super::problem::Source;
use super::run::{ComparisonPlan, compare};
use crate::units::{positive, share};
use thc_demo::error::{Error, Result};

/// `thc async`
#[derive(Args)]
#[command(
    after_help = "Examples:\n  \
                  thc async demo                                   AsyLPG and its variants against full precision\n  \
                  thc async demo --data real-sim\n  \
                  thc async demo --data digits --until-target      Table 1 of the paper\n  \
                  thc async demo --rate 0.01,0.05,0.1              tune each method's step size, as the paper does\n  \
                  thc async demo --methods asylpg --slow 10 --delay 20\n  \
                  thc async mu --data digits                       how precision and bits depend on μ\n\n\
                  docs/asynchronous.md explains the methods and has what was measured.",
    arg_required_else_help = true
)]
pub struct AsyncArgs {
    #[command(subcommand)]
    which: Which,
}

#[derive(Subcommand)]
enum Which {
    /// Train with a model server and worker processes, one of them slow, by several methods, and compare
    Demo(DemoArgs),
    /// Evaluate condition (2) of the paper: the μ that a precision needs, and the bits that a μ takes
    Mu(MuArgs),
}

#[derive(Args)]
struct Data {
    /// What is trained; data of real-sim's and rcv1's shape are generated from the seed
    #[arg(long, value_enum, default_value = "rcv1")]
    data: Source,
    /// Share of rows and columns of generated data
    #[arg(long, default_value_t = 1.0, value_parser = share)]
    scale: f64,
    /// Seed of everything random but the order in which workers come
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the report as JSON, and no progress
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct DemoArgs {
    #[command(flatten)]
    data: Data,
    /// Step sizes η, separated by commas; of several, each method takes the one with the fewest bits to the target
    /// [default: 4, for digits 0.2]
    #[arg(long, value_parser = rate, value_delimiter = ',')]
    rate: Vec<f32>,
    /// Methods, separated by commas [default: those of the paper for these data]
    #[arg(long, value_enum, value_delimiter = ',')]
    methods: Vec<Method>,
    /// Worker processes
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// How many times longer the last worker takes for a gradient
    #[arg(long, default_value_t = 4.0, value_parser = slowness)]
    slow: f64,
    /// Epochs [default: 20]
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    epochs: u64,
    /// The loss at which bits are compared [default: 0.4, real-sim 0.5, digits 0.05]
    #[arg(long)]
    target: Option<f64>,
    /// End each method when it reaches that loss
    #[arg(long)]
    until_target: bool,
    /// τ: quick workers wait rather than let a gradient become more than this many steps old [default: never]
    #[arg(long, value_name = "STEPS")]
    delay: Option<u32>,
}

#[derive(Args)]
struct MuArgs {
    #[command(flatten)]
    data: Data,
    /// Step size η [default: 4, for digits 0.2]
    #[arg(long, value_parser = rate)]
    rate: Option<f32>,
    /// Most epochs of a run
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    epochs: u64,
}

fn slowness(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(value) if (1.0..=1e4).contains(&value) => Ok(value),
        _ => Err("give a number from 1 to 10000".to_owned()),
    }
}

fn rate(text: &str) -> std::result::Result<f32, String> {
    positive(text).map(|value| value as f32)
}

impl AsyncArgs {
    /// Does it, and prints what was found.
    ///
    /// # Errors
    /// Whatever keeps it from an answer.
    pub fn run(self) -> Result<()> {
        let (text, json, as_json) = match self.which {
            Which::Demo(args) => {
                let json = args.data.json;
                let found = compare(&args.plan()?)?;
                (found.to_string(), serde_json::to_string_pretty(&found), json)
            }
            Which::Mu(args) => {
                let Data { data, scale, seed, json } = args.data;
                let found = study(data, scale, seed, args.epochs, args.rate)?;
                (found.to_string(), serde_json::to_string_pretty(&found), json)
            }
        };
        let text = if as_json { json.map_err(Error::Event)? } else { text };
        writeln!(std::io::stdout(), "{text}").map_err(Error::Output)
    }
}

impl DemoArgs {
    fn plan(self) -> Result<ComparisonPlan> {
        let Data { data: source, scale, seed, json } = self.data;
        if self.delay.is_some_and(|delay| delay < u32::from(self.workers) - 1) {
            let (workers, least) = (self.workers, self.workers - 1);
            return Err(Error::Usage(format!(
                "--delay must be at least {least} with {workers} workers, which compute at the same time"
            )));
        }
        let methods = if self.methods.is_empty() {
            let all = Method::value_variants().iter().copied();
            // HALP is in the paper's comparison of networks only.
            all.filter(|m| source == Source::Digits || *m != Method::Halp).collect()
        } else {
            self.methods
        };
        Ok(ComparisonPlan {
            source,
            methods,
            workers: self.workers,
            slow: self.slow,
            epochs: self.epochs,
            target: self.target.unwrap_or(source.target()),
            stop: self.until_target,
            delay: self.delay,
            scale,
            seed,
            rates: if self.rate.is_empty() { vec![Method::rate(source)] } else { self.rate },
            quiet: json,
        })
    }
}
