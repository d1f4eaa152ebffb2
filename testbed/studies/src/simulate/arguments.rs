//! The command line of `thc simulate`, and its table.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::job::{Case, Settings, Took, simulate};
use super::recirculation::RecirculationArgs;
use crate::bench::Place;
use crate::error::{Error, Result};
use crate::table::Table;
use thc_netns::Rate;

/// `thc simulate`
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Workers are thc-worker's engine with the real codec, aggregators are the protocol's own, and packets are real; \
                  the clock, links, cores and a switch's passes are virtual. The same settings give the same figures. Every packet \
                  of every worker, up and down, is lost with the same chance. Goodput is the time at the first loss over the time \
                  at this one; `repeats` counts the packets that workers sent again for each lost one.\n\n\
                  Examples:\n  \
                  thc simulate\n  \
                  thc simulate --losses 0 --layout switch,colocated,server --workers 2,4,16 --rate 1gbit,25gbit\n  \
                  thc simulate --losses 0 --workers 4 --slots 32,64,128,256,512,1024     goodput by window\n  \
                  thc simulate recirculation\n\n\
                  docs/measuring.md says what is simulated."
)]
pub struct SimulateArgs {
    #[command(subcommand)]
    recirculation: Option<Recirculation>,
    /// Place of the aggregator; switch: a Tofino 2 with four loopback ports of 800 Gb/s. Each list is simulated element by element
    #[arg(long, value_enum, value_name = "LAYOUT,…", value_delimiter = ',', default_value = "switch")]
    layout: Vec<Place>,
    /// Number of workers, each on a host of its own
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', default_value = "2,4,16,64",
          value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: Vec<u16>,
    /// Rate of a host's link, each way
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', default_value = "100gbit")]
    rate: Vec<Rate>,
    /// Shares of the packets that are lost
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', default_value = "0,0.0001,0.001,0.01,0.05", value_parser = loss)]
    losses: Vec<f64>,
    /// Data slots of the job; half of them are the window
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', default_value = "1024", value_parser = clap::value_parser!(u32).range(2..=1 << 16))]
    slots: Vec<u32>,
    /// Coordinates of the tensor, f32
    #[arg(long, value_name = "NUMBER", default_value_t = 4 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    coordinates: u32,
    /// All-reduces in a row. If there are several, the first is a warm-up and does not count
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Seed of everything random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Recirculation {
    /// Show what the loopback ports of a P4 switch carry, and what workers get for it
    Recirculation(RecirculationArgs),
}

fn loss(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=0.5).contains(share));
    share.ok_or_else(|| "give a share from 0 to 0.5".to_owned())
}

/// A case with its times.
#[derive(Clone, Debug, Serialize)]
struct Point {
    #[serde(flatten)]
    case: Case,
    /// Seconds of one all-reduce.
    seconds: f64,
    /// The time at the first loss over the time at this one.
    goodput: f64,
    #[serde(flatten)]
    took: Took,
}

impl SimulateArgs {
    /// Simulates all cases and prints the table.
    pub fn run(&self) -> Result<()> {
        let text = match &self.recirculation {
            Some(Recirculation::Recirculation(args)) => args.report()?,
            None => self.report()?,
        };
        writeln!(std::io::stdout(), "{}", text.trim_end()).map_err(Error::Output)
    }

    fn report(&self) -> Result<String> {
        let settings = Settings { seed: self.seed, rounds: self.rounds.into(), ..Settings::default() };
        let mut points: Vec<Point> = Vec::new();
        for case in self.cases() {
            let took = simulate(&settings, &case)?;
            let seconds = took.seconds();
            let first = points.len() - points.len() % self.losses.len();
            let goodput = points.get(first).map_or(seconds, |first| first.seconds) / seconds;
            points.push(Point { case, seconds, goodput, took });
        }
        if self.json {
            return serde_json::to_string_pretty(&points).map_err(Error::Event);
        }
        Ok(table(&points).to_markdown())
    }

    /// All combinations; the losses of one combination follow each other.
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &layout in &self.layout {
            for &rate in &self.rate {
                for &workers in &self.workers {
                    for &slots in &self.slots {
                        let case = |&loss| Case {
                            layout,
                            workers,
                            rate,
                            slots,
                            loss,
                            coordinates: self.coordinates,
                        };
                        cases.extend(self.losses.iter().map(case));
                    }
                }
            }
        }
        cases
    }
}

fn table(points: &[Point]) -> Table {
    let header =
        ["layout", "workers", "link", "slots", "loss", "ms", "goodput", "lost", "repeats", "time-outs"];
    let row = |Point { case, seconds, goodput, took }: &Point| {
        let repeats = if took.lost > 0 { took.repeated as f64 / took.lost as f64 } else { 0.0 };
        vec![
            case.layout.name().to_owned(),
            case.workers.to_string(),
            case.rate.name(),
            case.slots.to_string(),
            format!("{} %", case.loss * 100.0),
            format!("{:.3}", seconds * 1e3),
            format!("{:.1} %", goodput * 100.0),
            took.lost.to_string(),
            format!("{repeats:.2}"),
            took.timeouts.to_string(),
        ]
    };
    Table::new(&header, points.iter().map(row))
}
