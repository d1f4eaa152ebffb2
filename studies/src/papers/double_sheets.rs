//! Double quantization in one process: methods of the paper and HALP with bit-centering, on a logistic regression, with a delay
//! that is drawn; and how fast they converge beside what theorems promise.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::sheet::{Line, Make, Sheet};
use crate::error::Result;

/// Table 1 by these methods.
pub const METHODS: Sheet = Sheet {
    name: "double-methods",
    random: true,
    columns: &["steps", "Mbit", "times fewer bits", "with its best step size", "published, MNIST"],
    digits: 2,
    drawn: &[2, 3, 4],
    axis: "times fewer bits than AsyFPG",
    make: Make::Computed(methods),
};
/// Theorems 2 to 4.
pub const RATES: Sheet = Sheet {
    name: "double-rates",
    random: true,
    columns: &["slope", "theorem, at most"],
    digits: 2,
    drawn: &[0, 1],
    axis: "slope of the logarithms",
    make: Make::Computed(rates),
};

/// What is quantized, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    AsyFpg,
    Qsvrg,
    Halp,
    /// HALP as De Sa et al. have it: what is quantized is the distance from the snapshot, in a range that shrinks with the gradient.
    BitCentered,
    AsyLpg,
    Sparse,
    Acc,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::AsyFpg => "AsyFPG",
            Self::Qsvrg => "QSVRG",
            Self::Halp => "HALP without bit-centering",
            Self::BitCentered => "HALP with bit-centering",
            Self::AsyLpg => "AsyLPG",
            Self::Sparse => "Sparse-AsyLPG",
            Self::Acc => "Acc-AsyLPG",
        }
    }
}

/// Samples, coordinates, samples of a step, the largest delay, the weight of the L2 norm.
const SAMPLES: usize = 1000;
const WIDTH: usize = 64;
const BATCH: usize = 20;
const DELAY: usize = 4;
const L2: f64 = 1e-2;
/// Steps of an epoch.
const EPOCH: usize = SAMPLES / BATCH;
/// Bits of the model and of gradients where they are quantized.
const MODEL: u32 = 8;
const GRADIENT: u32 = 4;
/// The step size over 1/L where it is the same for all, and those that are tried. L is of the sample with the largest curvature, several times
/// that of the mean.
const STEP: f64 = 0.5;
const STEPS: [f64; 5] = [0.2, 0.5, 1.0, 2.0, 4.0];

/// A logistic regression.
struct Problem {
    rows: Vec<[f64; WIDTH]>,
    signs: Vec<f64>,
    /// The largest second derivative, or more.
    smooth: f64,
}

impl Problem {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let truth: Vec<f64> = (0..WIDTH).map(|_| StandardNormal.sample(&mut random)).collect();
        let mut row = || {
            let mut row = [0.0; WIDTH];
            for (i, value) in row.iter_mut().enumerate() {
                let normal: f64 = StandardNormal.sample(&mut random);
                // Columns differ in scale, so that the problem is not one of a few steps.
                *value = normal / (1.0 + i as f64 / 8.0);
            }
            row
        };
        let rows: Vec<[f64; WIDTH]> = (0..SAMPLES).map(|_| row()).collect();
        let dot = |row: &[f64; WIDTH]| row.iter().zip(&truth).map(|(a, b)| a * b).sum::<f64>();
        let signs =
            rows.iter().map(|row| if dot(row) + random.random_range(-1.0..1.0) > 0.0 { 1.0 } else { -1.0 });
        let signs = signs.collect();
        let largest = rows.iter().map(|row| row.iter().map(|a| a * a).sum::<f64>()).fold(0.0, f64::max);
        Self { rows, signs, smooth: 0.25 * largest + L2 }
    }

    /// Adds the mean gradient of samples at `x`, and returns their mean loss.
    fn gradient(&self, samples: impl ExactSizeIterator<Item = usize>, x: &[f64], sum: &mut [f64]) -> f64 {
        let part = 1.0 / samples.len() as f64;
        let mut loss = 0.0;
        for sample in samples {
            let (row, sign) = (&self.rows[sample], self.signs[sample]);
            let margin = sign * row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
            loss += part * (-margin).exp().ln_1p();
            let slope = -part * sign / (1.0 + margin.exp());
            sum.iter_mut().zip(row).for_each(|(sum, a)| *sum += slope * a);
        }
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += L2 * x;
            loss += 0.5 * L2 * x * x;
        }
        loss
    }

    fn loss_and_norm(&self, x: &[f64]) -> (f64, f64) {
        let mut gradient = vec![0.0; WIDTH];
        let loss = self.gradient(0..SAMPLES, x, &mut gradient);
        (loss, gradient.iter().map(|g| g * g).sum())
    }

    /// The least loss, by many full steps.
    fn least(&self) -> f64 {
        let (mut x, mut before) = (vec![0.0; WIDTH], vec![0.0; WIDTH]);
        for step in 0..3000_u32 {
            let part = f64::from(step) / (f64::from(step) + 3.0);
            let ahead: Vec<f64> = x.iter().zip(&before).map(|(x, b)| x + part * (x - b)).collect();
            let mut gradient = vec![0.0; WIDTH];
            self.gradient(0..SAMPLES, &ahead, &mut gradient);
            before = std::mem::replace(
                &mut x,
                ahead.iter().zip(&gradient).map(|(a, g)| a - g / self.smooth).collect(),
            );
        }
        self.loss_and_norm(&x).0
    }
}

/// Rounds to a lattice of so many bits over `range`, at random so that the mean is the value; what is outside is cut off.
fn round_stochastically(values: &mut [f64], bits: u32, range: f64, random: &mut ChaCha8Rng) {
    if range <= 0.0 {
        return;
    }
    let levels = f64::from((1_u32 << (bits - 1)) - 1);
    for value in values {
        let scaled = (*value / range).clamp(-1.0, 1.0) * levels;
        let low = scaled.floor();
        *value = (low + f64::from(u8::from(random.random::<f64>() < scaled - low))) * range / levels;
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| f64::max(most, value.abs()))
}

/// What a run shows after each step: bits so far, and the model.
type See<'a> = &'a mut dyn FnMut(u64, &[f64]) -> bool;

/// Trains until `see` says so, or for so many epochs.
fn train(problem: &Problem, method: Method, step_size: f64, epochs: usize, seed: u64, see: See<'_>) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut x = vec![0.0; WIDTH];
    let (mut y, mut snapshot) = (x.clone(), x.clone());
    let mut past = vec![x.clone(); DELAY + 1];
    let d = WIDTH as u64;
    let mut bits = 0;
    for epoch in 0..epochs {
        let mut mean = vec![0.0; WIDTH];
        let mut full = vec![0.0; WIDTH];
        problem.gradient(0..SAMPLES, &snapshot, &mut full);
        bits += 2 * 32 * d;
        let norm = full.iter().map(|g| g * g).sum::<f64>().sqrt();
        let theta = if method == Method::Acc { 2.0 / (epoch as f64 + 2.0) } else { 1.0 };
        let rate = step_size / (problem.smooth * theta);
        for (i, x) in x.iter_mut().enumerate() {
            *x = theta * y[i] + (1.0 - theta) * snapshot[i];
        }
        past.iter_mut().for_each(|old| old.clone_from(&x));
        for step in 0..EPOCH {
            let mut pulled = past[random.random_range(0..=DELAY.min(step))].clone();
            match method {
                Method::AsyFpg | Method::Qsvrg => bits += 32 * d,
                Method::BitCentered => {
                    pulled.iter_mut().zip(&snapshot).for_each(|(x, s)| *x -= s);
                    // Within an epoch the model goes no further than the gradient over the curvature takes it.
                    round_stochastically(&mut pulled, MODEL, norm / L2 / 10.0, &mut random);
                    pulled.iter_mut().zip(&snapshot).for_each(|(x, s)| *x += s);
                    bits += u64::from(MODEL) * d + 32;
                }
                _ => {
                    let range = largest(&pulled);
                    round_stochastically(&mut pulled, MODEL, range, &mut random);
                    bits += u64::from(MODEL) * d + 32;
                }
            }
            let batch: Vec<usize> = (0..BATCH).map(|_| random.random_range(0..SAMPLES)).collect();
            let (mut alpha, mut other) = (vec![0.0; WIDTH], vec![0.0; WIDTH]);
            problem.gradient(batch.iter().copied(), &pulled, &mut alpha);
            problem.gradient(batch.iter().copied(), &snapshot, &mut other);
            alpha.iter_mut().zip(&other).for_each(|(a, b)| *a -= b);
            bits += match method {
                Method::AsyFpg | Method::Halp | Method::BitCentered => 32 * d,
                Method::Sparse => {
                    let (sum, most) = (alpha.iter().map(|a| a.abs()).sum::<f64>(), largest(&alpha));
                    let budget = if most > 0.0 { sum / most } else { 1.0 };
                    for a in &mut alpha {
                        let part = if sum > 0.0 { (a.abs() * budget / sum).min(1.0) } else { 0.0 };
                        *a = if random.random::<f64>() < part { *a / part } else { 0.0 };
                    }
                    let range = largest(&alpha);
                    round_stochastically(&mut alpha, GRADIENT, range, &mut random);
                    let kept = alpha.iter().filter(|a| **a != 0.0).count() as u64;
                    32 + kept * (u64::from(GRADIENT) + 6)
                }
                _ => {
                    let range = largest(&alpha);
                    round_stochastically(&mut alpha, GRADIENT, range, &mut random);
                    u64::from(GRADIENT) * d + 32
                }
            };
            for (i, y) in y.iter_mut().enumerate() {
                *y -= rate * (alpha[i] + full[i]);
                x[i] = theta * *y + (1.0 - theta) * snapshot[i];
                mean[i] += x[i] / EPOCH as f64;
            }
            past[step % (DELAY + 1)].clone_from(&x);
            if see(bits, &x) {
                return;
            }
        }
        // Acceleration begins an epoch from the mean of the one before, the others from where they are.
        snapshot = if method == Method::Acc { mean } else { x.clone() };
    }
}

/// How far above the least loss counts as there, as a part of where it begins.
const THERE: f64 = 1e-3;

fn methods(quick: bool, seed: u64) -> Result<Vec<Line>> {
    let problem = Problem::new(seed);
    let least = problem.least();
    let target = least + THERE * (problem.loss_and_norm(&[0.0; WIDTH]).0 - least);
    let epochs = if quick { 2 } else { 200 };
    let run = |method, step_size| {
        let (mut steps, mut found) = (0_u64, None);
        train(&problem, method, step_size, epochs, seed, &mut |bits, x| {
            steps += 1;
            if steps.is_multiple_of(EPOCH as u64 / 10) && problem.loss_and_norm(x).0 <= target {
                found = Some(bits);
            }
            found.is_some()
        });
        (steps, found)
    };
    let best = |method| {
        let tried = &STEPS[..if quick { 1 } else { STEPS.len() }];
        tried.iter().filter_map(|step_size| run(method, *step_size).1).min()
    };
    let (exact, best_exact) = (run(Method::AsyFpg, STEP).1, best(Method::AsyFpg));
    let fewer = |exact: Option<u64>, bits: Option<u64>| {
        exact.zip(bits).map(|(exact, bits)| exact as f64 / bits as f64)
    };
    let all = [
        (Method::AsyFpg, Some(1.0)),
        (Method::Qsvrg, Some(5.38)),
        (Method::Halp, Some(3.29)),
        (Method::BitCentered, Some(3.29)),
        (Method::AsyLpg, Some(7.28)),
        (Method::Sparse, Some(8.87)),
        (Method::Acc, Some(19.13)),
    ];
    Ok(all
        .into_iter()
        .map(|(method, published)| {
            let (steps, found) = run(method, STEP);
            let tuned = fewer(best_exact, best(method));
            let mbit = found.map(|bits| bits as f64 / 1e6);
            let values = vec![Some(steps as f64), mbit, fewer(exact, found), tuned, published];
            Line { label: method.name().to_owned(), values }
        })
        .collect())
}

/// The slope of the line through logarithms.
fn slope(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.max(1e-300).ln())).collect();
    let n = logs.len() as f64;
    let (mx, my) = (logs.iter().map(|p| p.0).sum::<f64>() / n, logs.iter().map(|p| p.1).sum::<f64>() / n);
    let above: f64 = logs.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    above / logs.iter().map(|p| (p.0 - mx).powi(2)).sum::<f64>()
}

fn rates(quick: bool, seed: u64) -> Result<Vec<Line>> {
    let problem = Problem::new(seed);
    let least = problem.least();
    let lengths: &[usize] = if quick { &[1, 2] } else { &[16, 32, 64, 128] };
    let mut lines = Vec::new();
    for method in [Method::AsyFpg, Method::AsyLpg, Method::Sparse, Method::BitCentered] {
        // An output that is drawn uniformly from all steps has, in the mean, the mean of all steps' norms.
        let (mut sum, mut steps, mut uniform, mut last) = (0.0, 0_usize, Vec::new(), Vec::new());
        train(&problem, method, STEP, lengths[lengths.len() - 1], seed, &mut |_, x| {
            let norm = problem.loss_and_norm(x).1;
            sum += norm;
            steps += 1;
            if steps.is_multiple_of(EPOCH) && lengths.contains(&(steps / EPOCH)) {
                uniform.push((steps as f64, sum / steps as f64));
                last.push((steps as f64, norm));
            }
            false
        });
        lines.push(Line::full(
            format!("{}, ‖G‖² of an output drawn uniformly", method.name()),
            [slope(&uniform), -1.0],
        ));
        lines.push(Line::full(format!("{}, ‖G‖² of the last output", method.name()), [slope(&last), -1.0]));
    }
    let (mut steps, mut gaps) = (0_usize, Vec::new());
    train(&problem, Method::Acc, STEP, lengths[lengths.len() - 1], seed, &mut |_, x| {
        steps += 1;
        if steps.is_multiple_of(EPOCH) && lengths.contains(&(steps / EPOCH)) {
            gaps.push(((steps / EPOCH) as f64, problem.loss_and_norm(x).0 - least));
        }
        false
    });
    lines.push(Line::full("Acc-AsyLPG, distance from the least loss, by epochs", [slope(&gaps), -2.0]));
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_has_the_value_as_its_mean_and_the_least_loss_is_the_least() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut sum = 0.0;
        for _ in 0..4000 {
            let mut values = [0.3, -1.0];
            round_stochastically(&mut values, 3, 1.0, &mut random);
            assert!((values[0] * 3.0 - (values[0] * 3.0).round()).abs() < 1e-12 && values[1] == -1.0);
            sum += values[0] / 4000.0;
        }
        assert!((sum - 0.3).abs() < 0.02, "{sum}");
        let problem = Problem::new(5);
        let least = problem.least();
        let mut reached = f64::INFINITY;
        train(&problem, Method::AsyFpg, STEP, 40, 5, &mut |_, x| {
            reached = reached.min(problem.loss_and_norm(x).0);
            false
        });
        assert!(reached >= least - 1e-6 && reached < problem.loss_and_norm(&[0.0; WIDTH]).0);
    }
}
