//! Times the paper's dynamic program and the exact solver on 1,000 layers of 8 choices each.
//!
//! Sizes are spread over five decades, and errors fall by a factor of about four with every bit. The names contain the
//! yardsticks, which are times that a training loop would notice. The benchmark compares the program's answer with the
//! exact one before it times anything.
//!
//! Results go to `bench/adapt.json` in the target directory. Without `--bench` there is one turn, and nothing is written.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use serde_json::json;
use std::time::Instant;
use thc_bench::{is_measuring, median};
use thc_codec::signs::mix;
use thc_policy::layerwise::{Problem, STEPS, discrete, exact};

const LAYERS: usize = 1000;
const CHOICES: usize = 8;

fn uniform(seed: u64) -> f64 {
    (mix(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 11) as f64 / (1u64 << 53) as f64
}

fn problem(seed: u64) -> Problem {
    let (mut costs, mut errors) = (Vec::new(), Vec::new());
    for layer in 0..LAYERS as u64 {
        let size = (100.0 * 10f64.powf(5.0 * uniform(seed ^ (2 * layer)))).round();
        let norm = size * 10f64.powf(2.0 * uniform(seed ^ (2 * layer + 1)) - 1.0);
        costs.push((1..=CHOICES).map(|bits| (size * bits as f64 / 8.0).ceil() + 48.0).collect::<Vec<_>>());
        errors.push((1..=CHOICES).map(|bits| norm * 0.3 * 0.26f64.powi(bits as i32)).collect());
    }
    Problem::new(&costs, &errors).unwrap()
}

fn main() {
    let measured = is_measuring();
    let turns = if measured { 15 } else { 1 };
    let (mut of_steps, mut of_exact, mut lost, mut gap) = (Vec::new(), Vec::new(), 0.0f64, 0.0f64);
    for turn in 0..turns {
        let problem = problem(turn);
        // The bound is the error of 4 bits for all layers.
        let uniform = problem.price(&[3; LAYERS]).unwrap();
        let started = Instant::now();
        let stepped = discrete(&problem, uniform.error, STEPS).unwrap();
        of_steps.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        let best = exact(&problem, uniform.error).unwrap();
        of_exact.push(started.elapsed().as_secs_f64());
        assert!(stepped.error <= uniform.error && best.error <= uniform.error * (1.0 + 1e-9));
        assert!(best.cost <= stepped.cost && stepped.cost < uniform.cost && best.least_cost <= best.cost);
        lost = lost.max(stepped.cost / best.cost);
        gap = gap.max(best.cost / best.least_cost);
    }
    let (steps, exact) = (median(of_steps), median(of_exact));
    let detail = format!(
        "{turns} problems: the dynamic program's cost is at most {lost:.5} times the exact one's, which is within {gap:.7} of the \
         least possible"
    );
    let figures = [("dynamic program of 10,000 steps", steps), ("exact solver", exact)];
    let entry = |(name, seconds): (&str, f64)| {
        let ratio = seconds / 0.1;
        println!("{name}: {:.1} ms, {ratio:.2} of 100 ms; {detail}", seconds * 1e3);
        json!({
            "name": format!("{name}, 1,000 layers of 8 choices, over 100 ms"),
            "ratio": (ratio * 1000.0).round() / 1000.0,
            "better": "lower",
            "aim": 1.0,
            "floor": 5.0,
            "detail": format!("{:.1} ms; {detail}", seconds * 1e3),
        })
    };
    let entries = figures.map(entry);
    if measured {
        thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "adapt", &entries).unwrap();
    }
}
