//! How far the workers' replicas drift apart under `best-effort`, and how far from the truth they get
//! (docs/reliability.md has the figures).
//!
//! Four workers reduce 1,000 gradients with error feedback in a simulated network that loses packets in both directions.
//! Each adds up the means it gets, as an optimizer does. Printed, in units of the root mean square (RMS) of one
//! true mean: the largest difference between any two workers' totals in any coordinate, the RMS of what a worker's
//! total differs by from the average of all, and the RMS of what that average differs by from the true total.
#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code, unused_imports, reason = "shared with tests")]
#[path = "../tests/simulated/world.rs"]
mod world;

use std::time::Duration;
use thc_protocol::{Lane, Policy};
use thc_support::SimConfig;
use thc_worker::Call;
use world::{World, exact_mean, gradients, static_job};

const WORKERS: usize = 4;
const COORDINATES: usize = 1 << 15;
const CALLS: u64 = 1_000;

fn main() {
    println!(
        "{:>8} {:>9} {:>9} {:>10} {:>10} {:>10}",
        "loss", "given up", "repeated", "max", "RMS", "off truth"
    );
    for loss in [0.0, 0.001, 0.01, 0.1] {
        run(loss);
    }
}

fn rms(x: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = x.fold((0.0, 0.0), |(sum, count), v| (sum + v * v, count + 1.0));
    (sum / count).sqrt()
}

fn run(loss: f64) {
    let network = SimConfig { seed: 7, latency: Duration::from_micros(20), loss, ..SimConfig::default() };
    let mut world =
        World::new(static_job(WORKERS as u8, Lane::Bits8, WORKERS as u8, Policy::BestEffort), network);
    let options = Call { feedback: Some(1), ..Call::default() };
    // What all gradients have in common, and the noise of each.
    let signal = gradients(1, COORDINATES, 1).remove(0);
    let mut totals = vec![vec![0.0_f64; COORDINATES]; WORKERS];
    let mut truth = vec![0.0_f64; COORDINATES];
    let mut unit = 0.0;
    for call in 0..CALLS {
        let mut data = gradients(WORKERS, COORDINATES, 1_000 + call);
        for x in &mut data {
            x.iter_mut().zip(&signal).for_each(|(x, s)| *x += s);
        }
        let mean = exact_mean(&data);
        unit += rms(mean.iter().map(|v| f64::from(*v))) / CALLS as f64;
        truth.iter_mut().zip(&mean).for_each(|(t, v)| *t += f64::from(*v));
        for outcome in world.allreduce(&mut data, &[options; WORKERS], |_, _| {}) {
            outcome.unwrap();
        }
        for (total, mean) in totals.iter_mut().zip(&data) {
            total.iter_mut().zip(mean).for_each(|(t, v)| *t += f64::from(*v));
        }
    }
    let average: Vec<f64> =
        (0..COORDINATES).map(|i| totals.iter().map(|t| t[i]).sum::<f64>() / WORKERS as f64).collect();
    let spread = (0..COORDINATES).map(|i| {
        let of = || totals.iter().map(move |t| t[i]);
        of().fold(f64::MIN, f64::max) - of().fold(f64::MAX, f64::min)
    });
    let apart = totals.iter().flat_map(|t| t.iter().zip(&average).map(|(t, a)| t - a));
    let off = average.iter().zip(&truth).map(|(a, t)| a - t);
    let stats: Vec<_> = world.engines.iter().map(|engine| engine.stats()).collect();
    println!(
        "{:>7}% {:>9} {:>9} {:>10.4} {:>10.4} {:>10.4}",
        loss * 100.0,
        stats.iter().map(|s| s.lost).sum::<u64>(),
        stats.iter().map(|s| s.retransmissions).sum::<u64>(),
        spread.fold(0.0, f64::max) / unit,
        rms(apart) / unit,
        rms(off) / unit,
    );
}
