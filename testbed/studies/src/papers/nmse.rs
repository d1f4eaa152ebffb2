//! The error of the mean by scheme (THC, Fig. 2b), by number of workers, and by granularity (Fig. 15), on log-normal vectors.

use std::time::Instant;

use serde_json::{Value, json};
use thc_codec::signs::mix;
use thc_codec::table::LookupTable;
use thc_demo::nmse::{Experiment, error, log_normal};

use super::schemes::Scheme;
use super::sheet::Sheet;
use crate::error::Result;

/// Coordinates of a vector: one partition of 4 MiB.
const LENGTH: usize = 1 << 20;
const SCHEMES: [(&str, Scheme); 7] = [
    ("THC, table chosen for 4", Scheme::ChosenThc),
    ("THC, g = 30, p = 1/32", Scheme::THC),
    ("uniform THC", Scheme::Uniform { rotated: true }),
    ("not rotated", Scheme::Uniform { rotated: false }),
    ("TopK 10 %", Scheme::TopK { inverse: 10 }),
    ("QSGD, 4 and 8 bits", Scheme::Qsgd { up: 4, down: 8 }),
    ("TernGrad", Scheme::TernGrad),
];

/// The mean NMSE of trials with new vectors, `different` ones or copies of one.
fn nmse(scheme: Scheme, different: bool, workers: u32, length: usize, trials: u32, seed: u64) -> Result<f64> {
    let mut sum = 0.0;
    for trial in 0..trials {
        let own = |worker: u32| log_normal(length, seed, u64::from(trial) << 8 | u64::from(worker));
        let drawn: Vec<Vec<f32>> = (0..if different { workers } else { 1 }).map(own).collect();
        let drawn: Vec<&[f32]> = drawn.iter().map(Vec::as_slice).collect();
        let all: Vec<&[f32]> = drawn.iter().copied().cycle().take(workers as usize).collect();
        let estimate = scheme.mean(&all, mix(seed ^ mix(u64::from(trial) << 32 | u64::from(workers))))?;
        sum += error(&estimate, &drawn);
    }
    Ok(sum / f64::from(trials))
}

/// Schemes with four workers that hold copies of a vector, and different ones.
pub fn schemes(seed: u64, quick: bool) -> Result<Sheet> {
    let (length, trials) = if quick { (1 << 14, 1) } else { (LENGTH, 5) };
    let row = |(name, scheme): (&str, Scheme)| {
        let values = [false, true].map(|different| nmse(scheme, different, 4, length, trials, seed));
        Ok((name.to_owned(), values.into_iter().collect::<Result<_>>()?))
    };
    Ok(Sheet {
        name: "schemes",
        title: "NMSE of the mean of four workers",
        columns: &["copies", "different"],
        rows: SCHEMES.into_iter().map(row).collect::<Result<_>>()?,
    })
}

/// THC and two other schemes with 1 to 64 workers that hold copies.
pub fn workers(seed: u64, quick: bool) -> Result<Sheet> {
    let (length, trials) = if quick { (1 << 14, 1) } else { (LENGTH / 4, 3) };
    let all = [SCHEMES[1], ("THC, table chosen for n", Scheme::ChosenThc), SCHEMES[4]];
    let row = |(name, scheme): (&str, Scheme)| {
        let values = [1, 4, 16, 64].map(|n| nmse(scheme, false, n, length, trials, seed));
        Ok((name.to_owned(), values.into_iter().collect::<Result<_>>()?))
    };
    Ok(Sheet {
        name: "workers",
        title: "NMSE by number of workers, copies",
        columns: &["1", "4", "16", "64"],
        rows: all.into_iter().map(row).collect::<Result<_>>()?,
    })
}

/// THC by granularity and bit budget: ten workers with copies, p = 1/1024.
pub fn granularity(seed: u64, quick: bool) -> Result<Sheet> {
    let row = |bits: u8| {
        let least = (1 << bits) - 1;
        let values = [least, 20, 30, 60].map(|granularity| {
            let experiment = Experiment {
                bits,
                granularity,
                fraction: 1.0 / 1024.0,
                workers: 10,
                dimension: if quick { 1 << 14 } else { LENGTH / 16 },
                trials: if quick { 1 } else { 20 },
                seed,
            };
            Ok(experiment.run()?.nmse)
        });
        Ok((format!("b = {bits}"), values.into_iter().collect::<Result<_>>()?))
    };
    Ok(Sheet {
        name: "granularity",
        title: "NMSE by bit budget and granularity",
        columns: &["g = 2^b − 1", "g = 20", "g = 30", "g = 60"],
        rows: (2..=4).map(row).collect::<Result<_>>()?,
    })
}

/// The time in which one thread solves thousands of tables (App. B).
pub fn tables() -> Result<Value> {
    let started = Instant::now();
    let mut tables = 0;
    for bits in 2..=4_u8 {
        for granularity in (1 << bits) - 1..=60 {
            // 40 fractions from 1/4096 to 1/8, log-spaced.
            for part in (0..40).map(|i| f64::from(i) / 39.0) {
                LookupTable::solve(bits, granularity, 512_f64.powf(part) / 4096.0)?;
                tables += 1;
            }
        }
    }
    Ok(json!({ "tables": tables, "seconds": started.elapsed().as_secs_f64() }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_copies_fall_with_workers_as_far_as_they_are_independent() {
        let sheet = workers(1, true).unwrap();
        let of =
            |name: &str, column: usize| sheet.rows.iter().find(|(row, _)| row == name).unwrap().1[column];
        assert!(of("THC, table chosen for n", 3) < 0.1 * of("THC, table chosen for n", 0), "{sheet:?}");
        assert!((of("TopK 10 %", 3) / of("TopK 10 %", 0) - 1.0).abs() < 0.01, "{sheet:?}");
        let schemes = schemes(1, true).unwrap();
        assert!(schemes.rows[1].1[0] < 0.1 * schemes.rows[4].1[0], "{schemes:?}");
        let by_bits = granularity(1, true).unwrap();
        assert!(by_bits.rows[0].1[2] > 4.0 * by_bits.rows[1].1[2], "{by_bits:?}");
    }
}
