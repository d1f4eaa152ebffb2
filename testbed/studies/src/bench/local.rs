//! `thc bench local`: all-reduces of several sizes on this host, as a table like that of nccl-tests.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bytesize::ByteSize;
use clap::Args;
use thc_config::logs::print_error;

use super::arguments::{AllreduceArgs, Other};
use super::place::Place;
use super::plot;
use super::report::{self, Measured};
use super::run;
use crate::error::{Error, Result};
use crate::table::{Table, short};
use crate::units::{Link, size};

/// `thc bench local`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "One server and the workers are processes of this host, over its loopback interface, and share its cores. Columns: the \
median of the repetitions; algbw, the tensor's bytes over that time; busbw, algbw · 2(n - 1)/n, as nccl-tests define it; the NMSE of \
the mean; what gloo, PyTorch's all-reduce over TCP, takes, where THC_PYTHON (by default python3) has \
torch; the share of the bytes of a ring all-reduce of f32 and of bf16 that THC saves.\n\n\
Examples:\n  thc bench local\n  thc bench local -n 8 -b 1Mi -e 64Mi\n  thc bench local -e 16Mi --plot sizes.svg\n  thc bench local --rate 1Gb/s      (hosts with links of that rate; as root)"
)]
pub struct LocalArgs {
    /// Workers
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=64))]
    workers: u8,
    /// Bytes of the smallest tensor of f32; each further one is four times as large
    #[arg(short, long, value_name = "SIZE", default_value = "64KiB", value_parser = size)]
    begin: u64,
    /// Bytes of the largest
    #[arg(short, long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    end: u64,
    /// Rate of each worker's link, each way, between hosts made for the run
    #[arg(long, value_name = "RATE", default_value = "loopback")]
    rate: Link,
    /// Repetitions of each size
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Compare with another all-reduce, which needs a Python with torch [default: gloo where there is torch]
    #[arg(long, value_enum, value_name = "OTHER")]
    against: Option<Other>,
    /// Draw the times into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl LocalArgs {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        let sizes: Vec<u64> = std::iter::successors(Some(self.begin), |size| size.checked_mul(4))
            .take_while(|&size| size <= self.end)
            .collect();
        if sizes.is_empty() {
            return Err(Error::Usage("--begin is larger than --end".to_owned()));
        }
        let against = self.against.or_else(|| has_torch().then_some(Other::Gloo));
        if against.is_none() {
            print_error(format_args!(
                "{} has no torch: gloo is not measured (name another by THC_PYTHON)",
                run::python().display()
            ));
        }
        if let Some(path) = &self.plot {
            // A file that cannot be written is an error before anything is measured.
            File::create(path).map_err(|source| Error::File { path: path.clone(), source })?;
        }
        let args = AllreduceArgs {
            workers: vec![self.workers],
            size: sizes,
            rate: vec![self.rate],
            place: vec![Place::Switch],
            against,
            repeat: self.repeat,
            json: self.json,
        };
        let found = run::measure(&args)?;
        if let Some(path) = &self.plot {
            plot::draw(path, &found, name(against))
                .map_err(|error| Error::failure(format_args!("cannot draw {}: {error}", path.display())))?;
        }
        if self.json {
            return report::show(&args, &found);
        }
        writeln!(std::io::stdout(), "{}", table(&found, against).to_markdown()).map_err(Error::Output)
    }
}

fn has_torch() -> bool {
    let mut command = Command::new(run::python());
    let found = command.args(["-c", "import torch"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// The name of the other all-reduce.
fn name(against: Option<Other>) -> &'static str {
    match against {
        Some(Other::GlooBf16) => "gloo bf16",
        Some(Other::Gloo) | None => "gloo",
    }
}

fn table(found: &[Measured], against: Option<Other>) -> Table {
    let other = format!("{} ms", name(against));
    let header = [
        "size",
        "coordinates",
        "ms",
        "algbw GB/s",
        "busbw GB/s",
        "NMSE",
        &other,
        "faster",
        "of f32 saved",
        "of bf16",
    ];
    Table::new(&header, found.iter().map(row))
}

fn row(measured: &Measured) -> Vec<String> {
    let (n, bytes) = (f64::from(measured.workers), measured.bytes as f64);
    let ms = |seconds: f64| short(seconds * 1e3);
    let algbw = bytes / measured.seconds / 1e9;
    let part = 2.0 * (n - 1.0) / n;
    // Each rank of a ring sends and receives that much.
    let ring = 2.0 * part * bytes;
    let saved = |ring: f64| format!("{:.0} %", 100.0 * (1.0 - measured.worker_bytes / ring));
    let gloo = measured.against_seconds;
    vec![
        ByteSize(measured.bytes).to_string(),
        (measured.bytes / 4).to_string(),
        ms(measured.seconds),
        short(algbw),
        short(algbw * part),
        short(measured.nmse),
        gloo.map_or("-".to_owned(), ms),
        gloo.map_or("-".to_owned(), |gloo| format!("{:.2} ×", gloo / measured.seconds)),
        saved(ring),
        saved(ring / 2.0),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bench::run::Turn;

    #[test]
    fn rows_follow_nccl_tests_definitions() {
        let turn = |seconds, bytes| Turn { seconds, cpu: 0.1, again: 0.0, bytes, nmse: 0.0123 };
        let (turns, gloo) = ([turn(0.1, 1.5e6)], [turn(0.4, 0.0)]);
        let measured = Measured::new(4, 4_000_000, Link(None), Place::Switch, &turns, &gloo, None);
        assert_eq!(
            row(&measured)[1..],
            ["1000000", "100", "0.0400", "0.0600", "0.0123", "400", "4.00 ×", "88 %", "75 %"]
        );
        for (other, title) in [(Other::Gloo, "gloo ms"), (Other::GlooBf16, "gloo bf16 ms")] {
            assert_eq!(table(&[], Some(other)).header[6], title);
        }
    }
}
