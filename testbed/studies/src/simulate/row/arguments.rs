//! The command line of `thc simulate row`.

use clap::{Args, ValueEnum};
use thc_policy::ratio::{LEAST, RatioLimits};

use super::report::{self, Entry};
use super::run::Training;
use super::scheme::Scheme;
use super::workload::{Times, blocks};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::simulate::error::value_error;
use crate::units::Rate;

/// `thc simulate row`
#[derive(Args)]
#[command(
    after_help = "AQGB's discrete-event simulator (its section 5): ResNet-50 in blocks (Table 1), workers on links that flows share \
                  max-min\nfair, each computing 1.5 s an iteration. The paper's figures stand beside these.\n\n\
                  Examples:\n  \
                  thc simulate row                                        Fig. 10: 200 s at 2.5 Gb/s\n  \
                  thc simulate row --rate 2gbit,4gbit,6gbit,8gbit,10gbit  Fig. 12\n  \
                  thc simulate row --times stragglers                     Fig. 13\n  \
                  thc simulate row --scheme aqgb --blocks 1,3,4,5,6       Fig. 14\n  \
                  thc simulate row --workers 8 --scheme aqgb --steps 0:2.5gbit,60:1gbit,120:5gbit --json   Fig. 9"
)]
pub struct RowArgs {
    /// How gradients travel; several are simulated one after the other, as are several of all lists below [default:
    /// all]
    #[arg(long, value_enum, value_name = "SCHEME,…", value_delimiter = ',')]
    scheme: Vec<Scheme>,
    /// Workers
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=256))]
    workers: u16,
    /// What a worker's link carries, each way
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', default_value = "2.5gbit")]
    rate: Vec<Rate>,
    /// A link whose rate changes, instead of --rate: from each of these seconds on, this rate
    #[arg(long, value_name = "SECONDS:RATE,…", value_delimiter = ',', conflicts_with = "rate", value_parser = step)]
    steps: Vec<(f64, Rate)>,
    /// Blocks of the model: 1 (not split), 3, 4, 5 or 6
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', default_value = "4")]
    blocks: Vec<u8>,
    /// How long iterations take
    #[arg(long, value_enum, default_value = "uniform")]
    times: Times,
    /// Seconds of training
    #[arg(long, default_value_t = 200.0)]
    seconds: f64,
    /// The least part of a gradient that AQGB sends (q̄)
    #[arg(long, value_name = "RATIO", default_value_t = LEAST)]
    least: f64,
    /// Seed of all times
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What links carry: a rate, if it is one, and from each of these seconds on so much.
struct Link {
    rate: Option<Rate>,
    rates: Vec<(f64, f64)>,
}

impl Link {
    fn steady(rate: Rate) -> Self {
        Self { rate: Some(rate), rates: vec![(0.0, rate.0 as f64)] }
    }
}

fn step(text: &str) -> std::result::Result<(f64, Rate), String> {
    let (at, rate) = text.split_once(':').ok_or("write SECONDS:RATE")?;
    let at: f64 = at.parse().map_err(|_| "write SECONDS:RATE")?;
    Ok((at, rate.parse()?))
}

impl RowArgs {
    /// Simulates and reports.
    pub fn run(&self) -> Result<String> {
        if !(1.0..=1e5).contains(&self.seconds) {
            return Err(value_error("seconds", self.seconds, "give 1 to 100000"));
        }
        let control = RatioLimits::new(self.least)
            .ok_or_else(|| value_error("least", self.least, "give a part: above 0, up to 1"))?;
        let ordered = self.steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if self.steps.first().is_some_and(|(at, _)| *at != 0.0) || !ordered {
            return Err(value_error("steps", "out of order", "begin with 0 and go on in time"));
        }
        let schemes = if self.scheme.is_empty() { Scheme::value_variants() } else { &self.scheme[..] };
        let changing: Vec<(f64, f64)> = self.steps.iter().map(|(at, rate)| (*at, rate.0 as f64)).collect();
        let links: Vec<Link> = match changing.is_empty() {
            true => self.rate.iter().map(|rate| Link::steady(*rate)).collect(),
            false => vec![Link { rate: None, rates: changing }],
        };
        let mut trainings = Vec::new();
        for Link { rate, rates } in links {
            for &count in &self.blocks {
                let split =
                    blocks(count).ok_or_else(|| value_error("blocks", count, "give 1, 3, 4, 5 or 6"))?;
                for &scheme in schemes {
                    let training = Training {
                        scheme,
                        workers: self.workers.into(),
                        rates: rates.clone(),
                        seconds: self.seconds,
                        blocks: split.clone(),
                        times: self.times,
                        control,
                        seed: self.seed,
                    };
                    trainings.push((rate, count, training));
                }
            }
        }
        let outcomes = Progress::new(self.json)
            .parallel("training", trainings.len(), |number| Ok(trainings[number].2.run()))?;
        let entries: Vec<Entry> = trainings
            .iter()
            .zip(outcomes)
            .map(|((rate, blocks, training), outcome)| Entry::new(*rate, *blocks, training, outcome))
            .collect();
        if self.json {
            return serde_json::to_string_pretty(&entries).map_err(Error::Event);
        }
        Ok(report::text(&entries))
    }
}
