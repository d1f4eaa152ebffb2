//! The place of the aggregator.

use clap::ValueEnum;
use serde::Serialize;

/// Bytes of a DATA or NORM packet for each coordinate, and of its answer, from IPv4 on: blocks of 2^13 have one NORM for eight DATA.
const UP: f64 = 560.0 / 1024.0 + 68.0 / 8192.0;
const DOWN: f64 = 1072.0 / 1024.0 + 68.0 / 8192.0;
/// More workers than that need lanes of 16 bits: 512 coordinates a packet.
const NARROW: u8 = 17;

/// The place of the aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// At the switch's place: one server, whose port has no bound
    Switch,
    /// Beside the workers: a share on every worker's host
    Colocated,
    /// One server on a link like the workers'
    Server,
}

impl Place {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Place::Switch => "switch",
            Place::Colocated => "colocated",
            Place::Server => "server",
        }
    }

    /// Seconds in which what must cross the busiest link can cross it: `bits` a second, each way at the same time.
    pub fn limit(self, workers: u8, coordinates: usize, bits: u64) -> f64 {
        let n = f64::from(workers);
        let (up, down) =
            if workers > NARROW { (UP + 28.0 / 512.0 - 28.0 / 1024.0, DOWN * 2.0) } else { (UP, DOWN) };
        let bytes = match self {
            Place::Switch => up.max(down),
            Place::Colocated => (n - 1.0) / n * (up + down),
            Place::Server => n * up.max(down),
        };
        bytes * coordinates as f64 * 8.0 / bits as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_64_mib_on_a_gigabit() {
        let limit = |place: Place, workers| (place.limit(workers, 1 << 24, 1_000_000_000) * 1e3).round();
        assert_eq!(limit(Place::Switch, 4), 142.0);
        assert_eq!(limit(Place::Colocated, 4), 162.0);
        assert_eq!(limit(Place::Server, 4), 566.0);
        assert_eq!(limit(Place::Colocated, 2), 108.0);
    }
}
