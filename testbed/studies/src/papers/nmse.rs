//! The error of the mean by scheme (THC, Fig. 2b), by number of workers, and by granularity (Fig. 15), on log-normal vectors.

use serde_json::{Value, json};
use thc_baselines::{SchemeGroup, Thc};
use thc_codec::signs::mix;
use thc_codec::table::choose;
use thc_demo::distribution::Distribution;
use thc_demo::nmse::{Experiment, Vectors};

use super::schemes::Named;
use super::sheet::Sheet;
use crate::error::Result;

/// Coordinates of a vector: one partition of 4 MiB.
const LENGTH: usize = 1 << 20;
const SCHEMES: [(&str, Named); 7] = [
    ("THC, g = 30, p = 1/32", Named::THC),
    ("uniform THC", Named::Uniform { rotated: true }),
    ("not rotated", Named::Uniform { rotated: false }),
    ("TopK 10 %", Named::TopK { inverse: 10 }),
    ("QSGD, 4 and 8 bits", Named::Qsgd { up: 4, down: 8 }),
    ("TernGrad, clipped", Named::TernGrad { clipped: true }),
    ("TernGrad", Named::TernGrad { clipped: false }),
];

/// The mean NMSE of trials with new vectors, of a scheme by name, or of THC with the table that is chosen for the workers.
fn nmse(
    scheme: Option<Named>,
    vectors: Vectors,
    workers: u32,
    length: usize,
    trials: u32,
    seed: u64,
) -> Result<f64> {
    let made = match scheme {
        Some(scheme) => scheme.scheme()?,
        None => {
            let chosen = choose(4, 8, workers).or_else(|_| choose(4, 16, workers))?;
            Box::new(Thc::with_table(chosen.table))
        }
    };
    let mut sum = 0.0;
    for trial in 0..trials {
        let own = |worker: u32| {
            Distribution::Lognormal.sample(length, seed, u64::from(trial) << 8 | u64::from(worker))
        };
        let different = if vectors == Vectors::Copies { 1 } else { workers };
        let drawn: Vec<Vec<f32>> = (0..different).map(own).collect();
        let all: Vec<&[f32]> = drawn.iter().map(Vec::as_slice).cycle().take(workers as usize).collect();
        let seed = mix(seed ^ mix(u64::from(trial) << 32 | u64::from(workers)));
        let estimate = SchemeGroup::new(made.as_ref(), length, workers, seed)?.allreduce(&all)?.mean;
        let (mut lost, mut square) = (0.0, 0.0);
        for (i, found) in estimate.iter().enumerate() {
            let mean = drawn.iter().map(|vector| f64::from(vector[i])).sum::<f64>() / drawn.len() as f64;
            lost += (f64::from(*found) - mean).powi(2);
            square += mean * mean;
        }
        sum += lost / square;
    }
    Ok(sum / f64::from(trials))
}

/// Schemes with four workers that hold copies of a vector, and different ones.
pub fn schemes(seed: u64, quick: bool) -> Result<Sheet> {
    let (length, trials) = if quick { (1 << 14, 1) } else { (LENGTH, 5) };
    let chosen = [("THC, table chosen for 4", None)];
    let all = chosen.into_iter().chain(SCHEMES.map(|(name, scheme)| (name, Some(scheme))));
    let row = |(name, scheme): (&str, Option<Named>)| {
        let values =
            [Vectors::Copies, Vectors::Independent].map(|v| nmse(scheme, v, 4, length, trials, seed));
        Ok((name.to_owned(), values.into_iter().collect::<Result<_>>()?))
    };
    Ok(Sheet {
        name: "schemes",
        title: "NMSE of the mean of four workers",
        columns: &["copies", "different"],
        rows: all.map(row).collect::<Result<_>>()?,
    })
}

/// THC and two other schemes with 1 to 64 workers that hold copies.
pub fn workers(seed: u64, quick: bool) -> Result<Sheet> {
    let (length, trials) = if quick { (1 << 14, 1) } else { (LENGTH / 4, 3) };
    let all = [("THC, g = 30, p = 1/32", Some(Named::THC)), ("THC, table chosen for n", None)];
    let others = [SCHEMES[3], SCHEMES[5]].map(|(name, scheme)| (name, Some(scheme)));
    let row = |(name, scheme): (&str, Option<Named>)| {
        let values = [1, 4, 16, 64].map(|n| nmse(scheme, Vectors::Copies, n, length, trials, seed));
        Ok((name.to_owned(), values.into_iter().collect::<Result<_>>()?))
    };
    Ok(Sheet {
        name: "workers",
        title: "NMSE by number of workers, copies",
        columns: &["1", "4", "16", "64"],
        rows: all.into_iter().chain(others).map(row).collect::<Result<_>>()?,
    })
}

/// THC by granularity and bit budget: ten workers with copies, p = 1/1024, through real packets.
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
                distribution: Distribution::Lognormal,
                vectors: Vectors::Copies,
                trials: if quick { 1 } else { 20 },
                block: 20,
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

/// The time to solve thousands of tables.
pub fn tables() -> Result<Value> {
    let sweep = thc_demo::sweep::run()?;
    Ok(json!({ "tables": sweep.tables, "seconds": sweep.seconds }))
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
