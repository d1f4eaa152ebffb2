//! The command line of `thc bench`.

use clap::{Args, Subcommand, ValueEnum};

use super::local::LocalArgs;
use super::place::Place;
use super::{report, run};
use crate::error::Result;
use crate::units::{Link, size};

/// `thc bench`.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure one all-reduce of a plain tensor by real processes, each on a host of its own, on links of a given rate
    Allreduce(AllreduceArgs),
    /// Measure all-reduces of several sizes by a server and workers on this host, without privileges
    Local(LocalArgs),
}

/// An all-reduce to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Other {
    /// PyTorch's all-reduce over TCP, of f32
    Gloo,
    /// PyTorch's all-reduce over TCP, of bf16
    GlooBf16,
}

/// `thc bench allreduce`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Hosts are network namespaces of this machine, made for the run and removed after it, which needs root. Every \
repetition fills the tensor, waits for all processes, and takes the time until the last of them has the mean; with --against both \
take turns. Means are checked when all have ended, and neither time nor CPU counts that. All processes share this machine's cores: with more workers than cores, these are what is measured.\n\n\
Examples:\n  thc bench allreduce\n  thc bench allreduce --workers 4,8 --rate 1Gb/s,10Gb/s --place switch,server --against gloo\n  \
thc bench allreduce --size 64KiB,1MiB,16MiB,1GiB --against gloo-bf16 --json > sizes.json\n  \
thc bench allreduce --rate loopback --workers 2      (no namespaces, no root)"
)]
pub struct AllreduceArgs {
    /// Workers; several numbers are measured one after the other, as are several of all lists below
    #[arg(long, value_name = "NUMBER,…", default_value = "4", value_delimiter = ',',
          value_parser = clap::value_parser!(u8).range(1..=64))]
    pub workers: Vec<u8>,
    /// Bytes of the tensor of f32, at most 4GiB
    #[arg(long, value_name = "SIZE,…", default_value = "64MiB", value_delimiter = ',', value_parser = size)]
    pub size: Vec<u64>,
    /// Rate of each host's link, each way, such as 1gbit or 2.5gbit; loopback: no hosts and no bound
    #[arg(long, value_name = "RATE,…", default_value = "1gbit", value_delimiter = ',')]
    pub rate: Vec<Link>,
    /// Place of the aggregator
    #[arg(long, value_enum, value_name = "PLACE,…", default_value = "colocated", value_delimiter = ',')]
    pub place: Vec<Place>,
    /// Compare with another all-reduce; it needs a Python with torch (THC_PYTHON, by default python3)
    #[arg(long, value_enum, value_name = "OTHER")]
    pub against: Option<Other>,
    /// Repetitions of each
    #[arg(long, value_name = "NUMBER", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl BenchArgs {
    /// Measures and reports.
    pub fn run(&self) -> Result<()> {
        match &self.what {
            What::Allreduce(args) => report::show(args, &run::measure(args)?),
            What::Local(args) => args.run(),
        }
    }
}
