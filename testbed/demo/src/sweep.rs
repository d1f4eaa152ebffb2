//! `thc table sweep`: the time to solve thousands of tables.

use std::fmt;
use std::time::Instant;

use serde::Serialize;
use thc_codec::table::LookupTable;

use crate::error::Result;

/// Largest granularity of the sweep.
const LARGEST: u16 = 60;

/// Fractions per (b, g), log-spaced from the smallest to the largest.
const FRACTIONS: u32 = 40;
const SMALLEST_FRACTION: f64 = 1.0 / 4096.0;
const LARGEST_FRACTION: f64 = 1.0 / 8.0;

/// The results of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// The number of optimal tables.
    pub tables: u32,
    /// Wall-clock time on one thread.
    pub seconds: f64,
    /// The number of tables of each bit budget.
    pub of_bits: Vec<(u8, u32)>,
    /// The least sum of quantization and truncation error of all tables.
    pub least_error: f64,
    /// The parameters (b, g, p) of that table.
    pub least_at: (u8, u16, f64),
}

/// The `i`-th fraction.
fn fraction(i: u32) -> f64 {
    let part = f64::from(i) / f64::from(FRACTIONS - 1);
    SMALLEST_FRACTION * (LARGEST_FRACTION / SMALLEST_FRACTION).powf(part)
}

/// Solves every table of 2 to 4 bits with a granularity up to 60.
pub fn run() -> Result<Sweep> {
    let started = Instant::now();
    let mut sweep = Sweep {
        tables: 0,
        seconds: 0.0,
        of_bits: Vec::new(),
        least_error: f64::INFINITY,
        least_at: (0, 0, 0.0),
    };
    for bits in 2..=4u8 {
        let before = sweep.tables;
        for granularity in (1 << bits) - 1..=LARGEST {
            for i in 0..FRACTIONS {
                let table = LookupTable::solve(bits, granularity, fraction(i))?;
                let error = table.quantization_error() + table.truncation_error();
                if error < sweep.least_error {
                    sweep.least_error = error;
                    sweep.least_at = (bits, granularity, fraction(i));
                }
                sweep.tables += 1;
            }
        }
        sweep.of_bits.push((bits, sweep.tables - before));
    }
    sweep.seconds = started.elapsed().as_secs_f64();
    Ok(sweep)
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} optimal tables in {:.3} s on one thread ({:.1} µs each)",
            self.tables,
            self.seconds,
            1e6 * self.seconds / f64::from(self.tables)
        )?;
        for (bits, tables) in &self.of_bits {
            let least = (1 << bits) - 1;
            write!(f, "\n  b = {bits}: {tables} (g {least} to {LARGEST}, {FRACTIONS} fractions each)")?;
        }
        let (bits, granularity, fraction) = self.least_at;
        write!(
            f,
            "\nleast error for one worker: {:.6} at b = {bits}, g = {granularity}, p = {fraction:.6}",
            self.least_error
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_span_the_range() {
        assert_eq!(fraction(0), 1.0 / 4096.0);
        assert!((fraction(FRACTIONS - 1) * 8.0 - 1.0).abs() < 1e-12);
        let ratio = fraction(1) / fraction(0);
        assert!((fraction(20) / fraction(19) / ratio - 1.0).abs() < 1e-12);
    }
}
