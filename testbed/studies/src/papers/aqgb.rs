//! AQGB's figures by the simulator of its section 5: three seeds each, one for Figure 9.
//!
//! The simulator has computing and links, and neither packets nor a codec. A worker computes forward and backward, block by
//! block; gradients travel as fluids on links that are shared fairly (max-min); a block's next forward pass begins when its
//! gradients of all workers have arrived.

mod links;
mod run;
mod scheme;
mod workload;

use serde_json::{Map, Value, json};
use thc_policy::ratio::{LEAST, RatioLimits};

use crate::error::{Error, Result};
use run::Training;
use scheme::Scheme;
use workload::Times;

const SEEDS: [u64; 3] = [1, 2, 3];
const SCHEMES: [Scheme; 3] = [Scheme::Plain, Scheme::Fixed4, Scheme::Aqgb];

/// A training of the paper's section 5: 16 workers, 200 s, four blocks, links of `gbit` Gb/s.
fn training(scheme: Scheme, gbit: f64, times: Times) -> Result<Training> {
    let control = RatioLimits::new(LEAST).ok_or_else(|| Error::failure("the least ratio is no share"))?;
    let rates = vec![(0.0, 1e9 * gbit)];
    Ok(Training { scheme, workers: 16, rates, seconds: 200.0, times, control, seed: 1 })
}

/// The means over all seeds.
fn measure(training: Training) -> Value {
    let outcomes = SEEDS.map(|seed| Training { seed, ..training.clone() }.run());
    let mean = |of: &dyn Fn(usize) -> f64| (0..SEEDS.len()).map(of).sum::<f64>() / SEEDS.len() as f64;
    json!({
        "rounds": mean(&|i| outcomes[i].rounds as f64),
        "utilization, %": 100.0 * mean(&|i| outcomes[i].utilization),
        "bits": mean(&|i| outcomes[i].bits),
    })
}

/// The mean ratio of the first stage while 8 workers' links carry 2.5, then 1, then 5 Gb/s, from 5 s after each change on.
fn ratios_of_a_changing_link(quick: bool) -> Result<Value> {
    let scale = if quick { 0.1 } else { 1.0 };
    let control = RatioLimits::new(0.375).ok_or_else(|| Error::failure("the least ratio is no share"))?;
    let rates = vec![(0.0, 2.5e9), (60.0 * scale, 1e9), (120.0 * scale, 5e9)];
    let steady = training(Scheme::Aqgb, 2.5, Times::Uniform)?;
    let outcome = Training { workers: 8, rates, control, seconds: 200.0 * scale, ..steady }.run();
    let mean = |from: f64, to: f64| {
        let here = || {
            outcome
                .ratios
                .iter()
                .filter(|(at, _)| (scale * (from + 5.0)..scale * to).contains(at))
                .map(|(_, ratio)| ratio)
        };
        here().sum::<f64>() / here().count() as f64
    };
    Ok(json!({ "2.5 Gb/s": mean(0.0, 60.0), "1 Gb/s": mean(60.0, 120.0), "5 Gb/s": mean(120.0, 200.0) }))
}

/// Figures 9, 10, 12 and 13; `quick` simulates a tenth of the time or less.
pub fn figures(quick: bool) -> Result<Value> {
    let measure =
        |training: Training| measure(if quick { Training { seconds: 4.0, ..training } } else { training });
    let by_scheme = |gbit, times| -> Result<Value> {
        let row = |scheme: &Scheme| Ok((scheme.name().to_owned(), measure(training(*scheme, gbit, times)?)));
        Ok(Value::Object(SCHEMES.iter().map(row).collect::<Result<Map<_, _>>>()?))
    };
    let rates =
        [2.0, 4.0, 6.0, 8.0, 10.0].map(|gbit| Ok((format!("{gbit} Gb/s"), by_scheme(gbit, Times::Uniform)?)));
    Ok(json!({
        "command": "thc papers",
        "seeds": SEEDS,
        "Figure 9": ratios_of_a_changing_link(quick)?,
        "Figure 10": by_scheme(2.5, Times::Uniform)?,
        "Figure 12": rates.into_iter().collect::<Result<Map<_, _>>>()?,
        "Figure 13": by_scheme(2.5, Times::Stragglers)?,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_page() {
        let known = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers/aqgb.json");
        let known: Value = serde_json::from_str(&std::fs::read_to_string(known).unwrap()).unwrap();
        let measured = measure(training(Scheme::Aqgb, 2.5, Times::Uniform).unwrap());
        for (key, value) in measured.as_object().unwrap() {
            let (found, kept) = (value.as_f64().unwrap(), known["Figure 10"]["AQGB"][key].as_f64().unwrap());
            assert!(
                (found - kept).abs() <= 1e-6 * kept.abs(),
                "{key} is {found}, and docs/papers/aqgb.json has {kept}: thc papers --out docs/papers makes it anew"
            );
        }
    }
}
