//! The command line of `thc figures`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::gradients::Saved;
use super::run::{FigurePlan, Made, run};
use crate::error::Result;
use crate::progress::Progress;

/// `thc figures`
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Each figure comes as SVG files and one JSON file with all numbers, parameters and seeds; \
                  without a\nsubcommand also as one self-contained page, index.html.\n\n\
                  Examples:\n  \
                  thc figures                              all figures and the page, into ./figures\n  \
                  thc figures nmse --trials 100 --out nmse\n  \
                  thc demo --workers 8 --save-gradients gradients && thc figures --gradients gradients"
)]
pub struct FiguresArgs {
    #[command(subcommand)]
    which: Option<Which>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Which {
    /// All figures and a page with all of them (the default)
    All(Options),
    /// The error of the mean: schemes, gradients, numbers of workers, granularity
    Nmse(Options),
}

#[derive(Args)]
struct Options {
    /// Folder for the files, made if need be
    #[arg(short, long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Repetitions, each with new vectors and random numbers [default: by figure, 4 to 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trials: Option<u32>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Coordinates of a vector; a quarter of these in figures by number of workers, 1/16 in those by granularity, at
    /// least 2^14
    #[arg(short, long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1 << 14..=1 << 24))]
    dimension: u32,
    /// Also measure gradients of a training: files saved by `thc demo --save-gradients DIR`
    #[arg(long, value_name = "DIR")]
    gradients: Option<PathBuf>,
    /// Few points, short vectors, 2 repetitions: only to see that it works
    #[arg(long)]
    quick: bool,
}

impl Options {
    /// The command that makes the same figures again.
    fn command(&self, which: &str) -> String {
        let mut command = format!("thc figures {which} --seed {}", self.seed);
        let mut add = |flag: &str, value: &dyn std::fmt::Display| {
            command.push_str(&format!(" {flag} {value}"));
        };
        if let Some(trials) = self.trials {
            add("--trials", &trials);
        }
        if self.dimension != 1 << 20 {
            add("--dimension", &self.dimension);
        }
        if self.gradients.is_some() {
            add("--gradients", &"DIR");
        }
        if self.quick {
            add("--quick", &"");
        }
        command.trim_end().to_owned()
    }
}

impl FiguresArgs {
    /// Makes what was asked for.
    pub fn run(self) -> Result<Made> {
        let (options, which, page) = match self.which {
            None => (self.options, "all", true),
            Some(Which::All(options)) => (options, "all", true),
            Some(Which::Nmse(options)) => (options, "nmse", false),
        };
        let command = options.command(which);
        let plan = FigurePlan {
            trials: options.trials,
            seed: options.seed,
            dimension: if options.quick { 1 << 16 } else { options.dimension as usize },
            saved: options.gradients.as_deref().map(Saved::read).transpose()?,
            quick: options.quick,
            progress: Progress::new(false),
        };
        run(&plan, options.out, &command, page)
    }
}
