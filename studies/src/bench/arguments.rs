//! The command line of `thc bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::fairness::FairnessArgs;
use super::place::Place;
use super::{report, run};
use crate::error::Result;

/// The largest tensor.
const MOST: u64 = 1 << 32;

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
    /// Measure how jobs share a link with a shallow queue: each job's part, and what is lost
    Fairness(FairnessArgs),
}

/// What to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Other {
    /// PyTorch's all-reduce over TCP, of f32
    Gloo,
}

/// `thc bench allreduce`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Hosts are network namespaces of this machine, made for the run and removed after it, which needs root. Every \
repetition\nfills the tensor, waits for all processes, and takes the time until the last of them has the mean; with --against both\n\
take turns. Means are checked when all have ended, and neither time nor CPU counts that. All processes share this machine's cores: with more workers than cores, these are what is measured.\n\n\
Examples:\n  thc bench allreduce\n  thc bench allreduce --workers 4,8 --rate 1gbit,10gbit --place switch,colocated,server --against gloo\n  \
thc bench allreduce --size 64KiB,1MiB,16MiB,1GiB --against gloo --plot sizes.svg --json > sizes.json\n  \
thc bench allreduce --rate loopback --workers 2      (no namespaces, no root)\n  \
thc bench allreduce --jobs 1,2                       (what two groups on one server cost each other)"
)]
pub struct AllreduceArgs {
    /// Workers; several numbers are measured one after the other, as are several of all lists below
    #[arg(long, value_name = "NUMBER,…", default_value = "4", value_delimiter = ',',
          value_parser = clap::value_parser!(u8).range(1..=64))]
    pub workers: Vec<u8>,
    /// Bytes of the tensor of f32, at most 4GiB
    #[arg(long, value_name = "SIZE,…", default_value = "64MiB", value_delimiter = ',', value_parser = size)]
    pub size: Vec<u64>,
    /// What each host's link carries, each way, such as 1gbit or 2.5gbit; loopback: no hosts and no bound
    #[arg(long, value_name = "RATE,…", default_value = "1gbit", value_delimiter = ',', value_parser = rate)]
    pub rate: Vec<Rate>,
    /// Where the aggregator is
    #[arg(long, value_enum, value_name = "PLACE,…", default_value = "colocated", value_delimiter = ',')]
    pub place: Vec<Place>,
    /// Jobs that reduce at the same time on the same server or shares, each with as many workers of its own on the same hosts
    #[arg(long, value_name = "NUMBER,…", default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=8))]
    pub jobs: Vec<u16>,
    /// Racks, with --place racks; the workers are divided among them as evenly as possible
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub racks: u8,
    /// Compare with another all-reduce; it needs a Python with torch (THC_PYTHON, by default /usr/bin/python3)
    #[arg(long, value_enum, value_name = "OTHER")]
    pub against: Option<Other>,
    /// Repetitions of each
    #[arg(long, value_name = "NUMBER", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// Threads that compute, of each worker [default: the library's]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Keep error feedback
    #[arg(long)]
    pub feedback: bool,
    /// Keep each process, with all its threads, on a core of its own; with more processes than cores they share these in turn
    #[arg(long)]
    pub pin: bool,
    /// Keys of the server's job or of the server, as in its file: data_slots=2048,shards=2
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = pair)]
    pub server: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw times, by size or by workers, into this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Bits a second of a link; nothing is the loopback interface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub Option<u64>);

impl Rate {
    /// As it is written.
    pub fn name(self) -> String {
        match self.0 {
            None => "loopback".to_owned(),
            Some(bits) => format!("{} Gb/s", bits as f64 / 1e9),
        }
    }
}

impl BenchArgs {
    /// Measures, draws and reports.
    pub fn run(&self) -> Result<()> {
        match &self.what {
            What::Allreduce(args) => report::show(args, &run::measure(args)?),
            What::Fairness(args) => args.run(),
        }
    }
}

/// A number with a unit.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    Some(number * unit.1).filter(|value| value.is_finite())
}

/// Bytes of a tensor as they are written.
///
/// # Errors
/// How to write them.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    let units = [("B", 1.0), ("", 1.0), ("KiB", 1024.0), ("MiB", 1048576.0), ("GiB", 1073741824.0)];
    match with_unit(text, &units).map(|bytes| bytes as u64) {
        Some(bytes) if (4..=MOST).contains(&bytes) && bytes.is_multiple_of(4) => Ok(bytes),
        _ => Err("write a size like 64KiB or 64MiB, of whole f32, at most 4GiB".to_owned()),
    }
}

/// A rate as it is written.
///
/// # Errors
/// How to write one.
pub fn rate(text: &str) -> std::result::Result<Rate, String> {
    if text == "loopback" {
        return Ok(Rate(None));
    }
    match with_unit(text, &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)]) {
        Some(bits) if (1e6..=1e12).contains(&bits) => Ok(Rate(Some(bits as u64))),
        _ => Err("write a rate like 100mbit, 2.5gbit or 25gbit, or loopback".to_owned()),
    }
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1.5 KiB"), Ok(1536));
        assert_eq!(size("4"), Ok(4));
        for wrong in ["", "MiB", "64MB", "-1KiB", "3", "8GiB", "nan", "1e9KiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(rate("2.5gbit"), Ok(Rate(Some(2_500_000_000))));
        assert_eq!(rate("loopback"), Ok(Rate(None)));
        for wrong in ["1", "0gbit", "10gbps", "-1gbit", "gbit"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
