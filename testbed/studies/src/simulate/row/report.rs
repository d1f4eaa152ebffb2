//! What was simulated, beside what the paper published.

use serde::Serialize;

use super::run::{Outcome, Training};
use super::scheme::Scheme;
use super::workload::Times;
use crate::table::{Table, short};
use crate::units::Rate;

/// A training and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The rate of the link; `None` for one that changes.
    rate: Option<Rate>,
    blocks: u8,
    workers: usize,
    times: Times,
    seconds: f64,
    #[serde(flatten)]
    outcome: Outcome,
    /// Iterations as the paper has them for the same setting.
    published_rounds: Option<u64>,
    /// Utilization likewise.
    published_utilization: Option<f64>,
}

/// Section 5.2.2 has Fig. 10 in words, 5.2.5 Fig. 13 as shares of 32 bits' 39 iterations.
fn published_times(scheme: Scheme, times: Times) -> (Option<u64>, Option<f64>) {
    match (scheme, times) {
        (Scheme::Plain, Times::Uniform) => (Some(39), Some(0.90)),
        (Scheme::Fixed4, Times::Uniform) => (Some(130), None),
        (Scheme::Aqgb, Times::Uniform) => (Some(127), Some(0.77)),
        _ => (None, None),
    }
}

impl Entry {
    pub fn new(rate: Option<Rate>, blocks: u8, training: &Training, outcome: Outcome) -> Self {
        let same = rate == Some(Rate(2_500_000_000))
            && (blocks, training.workers, training.seconds) == (4, 16, 200.0);
        let known = if same { published_times(training.scheme, training.times) } else { (None, None) };
        Self {
            rate,
            blocks,
            workers: training.workers,
            times: training.times,
            seconds: training.seconds,
            outcome,
            published_rounds: known.0,
            published_utilization: known.1,
        }
    }
}

/// A table, and what to think of the published column.
pub fn text(entries: &[Entry]) -> String {
    let header = [
        "link, blocks, scheme",
        "rounds",
        "published",
        "T_wait / T_comp",
        "utilization",
        "published",
        "ROW",
        "OSF",
        "bits sent",
    ];
    let row = |entry: &Entry| {
        let link = entry.rate.map_or("changing".to_owned(), Rate::name);
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        vec![
            format!("{link}, {}, {}", entry.blocks, entry.outcome.scheme.name()),
            entry.outcome.rounds.to_string(),
            entry.published_rounds.map_or(String::new(), |rounds| rounds.to_string()),
            short(entry.outcome.waiting),
            percent(entry.outcome.utilization),
            entry.published_utilization.map_or(String::new(), percent),
            entry.outcome.row.map_or("–".to_owned(), short),
            format!("{:.3}", entry.outcome.osf),
            format!("{:.1}", entry.outcome.bits),
        ]
    };
    let table = Table::new(&header, entries.iter().map(row)).to_text();
    if entries.iter().any(|entry| entry.times == Times::Stragglers) {
        return table
            + "Published, with stragglers: 4 bit 125.6 % and AQGB 118.0 % more rounds than 32 bit (Fig. 13).\n";
    }
    table
}
