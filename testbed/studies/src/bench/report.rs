//! The measurements as a table and as JSON.

use std::io::Write;

use bytesize::ByteSize;
use serde::Serialize;
use thc_bench::median;

use super::arguments::AllreduceArgs;
use super::place::Place;
use super::run::Turn;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::units::Link;
use thc_netns::Rate;

/// One setting's figures. Seconds are of one all-reduce.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// n.
    pub workers: u8,
    /// Bytes of the tensor.
    pub bytes: u64,
    /// Bits a second of a host's link; none for the loopback interface.
    pub rate: Option<u64>,
    /// The aggregator's place.
    pub place: Place,
    /// Repetitions.
    pub repeat: usize,
    /// The median.
    pub seconds: f64,
    /// The shortest and the longest.
    pub spread: [f64; 2],
    /// The median of what it was compared with.
    pub against_seconds: Option<f64>,
    /// Its shortest and longest.
    pub against_spread: Option<[f64; 2]>,
    /// In which the bytes that must cross the busiest link can.
    pub limit_seconds: Option<f64>,
    /// CPU time of all processes, servers included, for each GiB of one worker's tensor.
    pub cpu_seconds_per_gib: f64,
    /// That of the other all-reduce.
    pub against_cpu_seconds_per_gib: Option<f64>,
    /// Packets sent again by all workers, in the mean of the repetitions.
    pub retransmissions: f64,
    /// Bytes that a worker sent and received, from the IP header on, in the mean of the repetitions.
    pub worker_bytes: f64,
    /// The worst NMSE of the mean of one all-reduce.
    pub nmse: f64,
}

/// The shortest and the longest.
fn spread(turns: &[Turn]) -> [f64; 2] {
    let seconds = || turns.iter().map(|turn| turn.seconds);
    [seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max)]
}

impl Measured {
    /// Sums up the turns of a setting, and those of what it is compared with.
    pub fn new(
        workers: u8,
        bytes: u64,
        link: Link,
        place: Place,
        turns: &[Turn],
        against: &[Turn],
        limit_seconds: Option<f64>,
    ) -> Self {
        let compared = !against.is_empty();
        let mean = |of: fn(&Turn) -> f64| turns.iter().map(of).sum::<f64>() / turns.len().max(1) as f64;
        let cpu =
            |turns: &[Turn]| median(turns.iter().map(|turn| turn.cpu)) / bytes as f64 * (1u64 << 30) as f64;
        Self {
            workers,
            bytes,
            rate: link.0.map(|rate| rate.0),
            place,
            repeat: turns.len(),
            seconds: median(turns.iter().map(|turn| turn.seconds)),
            spread: spread(turns),
            against_seconds: compared.then(|| median(against.iter().map(|turn| turn.seconds))),
            against_spread: compared.then(|| spread(against)),
            limit_seconds,
            cpu_seconds_per_gib: cpu(turns),
            against_cpu_seconds_per_gib: compared.then(|| cpu(against)),
            retransmissions: mean(|turn| turn.again),
            worker_bytes: mean(|turn| turn.bytes),
            nmse: turns.iter().map(|turn| turn.nmse).fold(0.0, f64::max),
        }
    }

    fn cells(&self) -> Vec<String> {
        let ms = |seconds: f64| format!("{:.*}", if seconds < 0.01 { 2 } else { 1 }, seconds * 1e3);
        let against = self.against_seconds;
        vec![
            self.workers.to_string(),
            ByteSize(self.bytes).to_string(),
            Link(self.rate.map(Rate)).name(),
            self.place.name().to_owned(),
            format!("{} ({} to {})", ms(self.seconds), ms(self.spread[0]), ms(self.spread[1])),
            against.map_or(String::new(), ms),
            against.map_or(String::new(), |against| format!("{:.2} ×", against / self.seconds)),
            self.limit_seconds.map_or(String::new(), ms),
            self.limit_seconds
                .map_or(String::new(), |limit| format!("{:.0} %", 100.0 * limit / self.seconds)),
            format!("{:.2}", self.cpu_seconds_per_gib),
            self.against_cpu_seconds_per_gib.map_or(String::new(), |cpu| format!("{cpu:.2}")),
            format!("{:.0}", self.retransmissions),
        ]
    }
}

/// Prints a table, or JSON.
pub fn show(args: &AllreduceArgs, found: &[Measured]) -> Result<()> {
    let text = if args.json {
        serde_json::to_string_pretty(found).map_err(Error::Event)?
    } else {
        table(found).to_markdown()
    };
    writeln!(std::io::stdout(), "{text}").map_err(Error::Output)
}

fn table(found: &[Measured]) -> Table {
    let header = [
        "workers",
        "size",
        "link",
        "place",
        "ms: median (spread)",
        "against",
        "faster",
        "limit",
        "of it",
        "CPU s/GiB",
        "against's",
        "sent again",
    ];
    Table::new(&header, found.iter().map(|measured| measured.cells()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_medians() {
        let turns =
            [0.2, 0.1, 0.4].map(|seconds| Turn { seconds, cpu: 0.5, again: 3.0, bytes: 9.0, nmse: 0.01 });
        let against =
            [0.8, 0.9, 0.7].map(|seconds| Turn { seconds, cpu: 0.1, again: 0.0, bytes: 0.0, nmse: 0.0 });
        let link = Link(Some(Rate(1_000_000_000)));
        let measured = Measured::new(4, 64 << 20, link, Place::Colocated, &turns, &against, Some(0.15));
        assert_eq!(
            measured.cells().join(", "),
            "4, 64.0 MiB, 1 Gb/s, colocated, 200.0 (100.0 to 400.0), 800.0, 4.00 ×, 150.0, 75 %, 8.00, 1.60, 3"
        );
        let fields = serde_json::to_value(&measured).unwrap();
        for (key, value) in [
            ("seconds", 0.2),
            ("against_seconds", 0.8),
            ("limit_seconds", 0.15),
            ("cpu_seconds_per_gib", 8.0),
            ("against_cpu_seconds_per_gib", 1.6),
            ("retransmissions", 3.0),
            ("worker_bytes", 9.0),
        ] {
            assert!((fields[key].as_f64().unwrap() - value).abs() < 1e-9, "{key}: {fields}");
        }
    }
}
