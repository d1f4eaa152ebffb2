//! What is left of the goodput when packets are lost.

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::job::{Case, Took, simulate};
use super::layout::Layout;
use super::settings::{Keys, Settings};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::table::Table;
use crate::units::Rate;

/// `thc simulate loss`
#[derive(Args)]
#[command(
    after_help = "Every packet of every worker, up and down, is lost with the same chance. Goodput is the time without losses over \
                  the time\nwith them; `repeats` is how many packets workers sent again for each that was lost. Unlike in `thc \
                  simulate`, the defaults\nare 2, 4, 16 and 64 workers, a switch, 100 Gb/s and 4 Mi coordinates, three \
                  all-reduces.\n\n\
                  Examples:\n  \
                  thc simulate loss\n  \
                  thc simulate loss --losses 0,0.01 --workers 8 --job shards=8 --json"
)]
pub struct LossArgs {
    /// Shares of the packets that are lost; goodput is compared with that of the first
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', default_value = "0,0.0001,0.001,0.01,0.05")]
    losses: Vec<f64>,
    #[command(flatten)]
    keys: Keys,
    /// Print settings and all figures as JSON
    #[arg(long)]
    json: bool,
}

/// A case at a loss.
#[derive(Clone, Debug, Serialize)]
struct Lossy {
    #[serde(flatten)]
    case: Case,
    loss: f64,
    seconds: f64,
    /// The time at the first loss over the time at this one.
    goodput: f64,
    /// Packets sent again for each that was lost.
    repeats: f64,
    #[serde(flatten)]
    took: Took,
}

impl LossArgs {
    /// Simulates and reports.
    ///
    /// # Errors
    /// A setting that makes no sense, or what stands in the way of a case.
    pub fn run(&self) -> Result<String> {
        let usual = Keys {
            layout: Some(vec![Layout::Switch]),
            workers: Some(vec![2, 4, 16, 64]),
            rate: Some(vec![Rate(100_000_000_000)]),
            coordinates: Some(4 << 20),
            rounds: Some(3),
            ..Keys::default()
        };
        let settings = self.keys.clone().or(usual).validate()?;
        let each: Vec<Settings> = self
            .losses
            .iter()
            .map(|&loss| Settings { loss, ..settings.clone() }.validate())
            .collect::<Result<_>>()?;
        let mut cases = Vec::new();
        for case in super::study::cases(&settings).into_iter().filter(|case| !case.layout.is_ring()) {
            cases.extend(each.iter().map(|settings| (case, settings)));
        }
        let took = Progress::new(self.json)
            .parallel("simulating", cases.len(), |number| simulate(cases[number].1, &cases[number].0))?;
        let mut all: Vec<Lossy> = Vec::new();
        for (number, ((case, settings), took)) in cases.iter().zip(took).enumerate() {
            let seconds = took.seconds();
            let first = number - number % each.len();
            let whole = all.get(first).map_or(seconds, |first| first.seconds);
            let repeats = if took.lost > 0 { took.repeated as f64 / took.lost as f64 } else { 0.0 };
            let goodput = whole / seconds;
            all.push(Lossy { case: *case, loss: settings.loss, seconds, goodput, repeats, took });
        }
        if self.json {
            let all = json!({ "settings": settings, "points": all });
            return serde_json::to_string_pretty(&all).map_err(Error::Event);
        }
        Ok(table(&all).to_text())
    }
}

fn table(all: &[Lossy]) -> Table {
    let header = ["layout", "workers", "link", "loss", "ms", "goodput", "lost", "repeats", "time-outs"];
    let row = |point: &Lossy| {
        let Lossy { case, loss, seconds, goodput, repeats, took } = point;
        vec![
            case.layout.name().to_owned(),
            case.workers.to_string(),
            case.rate.name(),
            format!("{} %", loss * 100.0),
            format!("{:.3}", seconds * 1e3),
            format!("{:.1} %", goodput * 100.0),
            took.lost.to_string(),
            format!("{repeats:.2}"),
            took.timeouts.to_string(),
        ]
    };
    Table::new(&header, all.iter().map(row))
}
