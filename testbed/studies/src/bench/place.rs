//! The place of the aggregator.

use clap::ValueEnum;
use serde::Serialize;
use thc_protocol::wire::{Form, HEADER_LEN};

/// Bytes of the headers of a packet, from IPv4 on.
const HEADERS: usize = 28 + HEADER_LEN;
/// Bytes of a NORM packet or its answer for each coordinate: one packet for each block of 2^13.
const NORM: f64 = 68.0 / 8192.0;

/// The place of the aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// At the switch's place, where no port bounds it
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

    /// Seconds in which packets of this form can cross the busiest link, which carries `bits` a second each way at the same time.
    pub fn limit(self, workers: u8, form: Form, coordinates: usize, bits: u64) -> f64 {
        let n = f64::from(workers);
        let each = |payload: usize| (HEADERS + payload) as f64 / form.coordinates() as f64 + NORM;
        let (up, down) = (each(form.data_len()), each(form.result_len()));
        let bytes = match self {
            Place::Switch => up.max(down),
            Place::Colocated => (n - 1.0) / n * (up + down),
            Place::Server => n * up.max(down),
        };
        bytes * coordinates as f64 * 8.0 / bits as f64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_64_mib_on_a_gigabit() {
        let limit = |place: Place, workers, sums| {
            let form = Form::with_sums(4, sums).unwrap();
            (place.limit(workers, form, 1 << 24, 1_000_000_000) * 1e3).round()
        };
        assert_eq!(limit(Place::Switch, 4, 8), 142.0);
        assert_eq!(limit(Place::Colocated, 4, 8), 162.0);
        assert_eq!(limit(Place::Server, 4, 8), 566.0);
        assert_eq!(limit(Place::Colocated, 2, 8), 108.0);
        // Shares send the sums of 64 workers in 14 bits, a single server in 16.
        assert_eq!(limit(Place::Colocated, 64, 16), 357.0);
        assert_eq!(limit(Place::Colocated, 64, 14), 324.0);
    }
}
