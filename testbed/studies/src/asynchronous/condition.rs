//! `thc async mu`: condition (2), E‖Q(x) − x‖² ≤ μ ‖x − x̃‖². One worker without delay, so that runs repeat bit for bit;
//! the shard is that of the server.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use thc_codec::rounding::Rounding;
use thc_model::payload;
use thc_model::shard::{Applied, ModelShard, PullAnswer, PushHead};
use thc_model::{ModelBits, Push, Spec};

use super::data::Digits;
use super::method::Method;
use super::problem::{Problem, Setting, Source, nonsmooth};
use thc_demo::error::{Error, Result};

/// The values of Table 1, right.
const MUS: [f32; 10] = [0.005, 0.01, 0.05, 0.1, 0.5, 2.0, 10.0, 50.0, 150.0, 800.0];
/// Precision and bits that Table 1 has for them.
const PUBLISHED: [(u8, f64); 10] = [
    (11, 2.42e7),
    (10, 2.33e7),
    (9, 1.52e7),
    (8, 1.07e7),
    (7, 1.12e7),
    (6, 1.24e7),
    (5, 1.14e7),
    (4, 1.08e7),
    (3, 1.44e7),
    (2, 2.16e8),
];
/// The loss of that table.
const TARGET: f64 = 0.5;
/// μ of Fig. 5.
const FIGURE_5: f32 = 0.6;
/// Samples on which the loss is measured within epochs.
const SEEN: usize = 500;

/// A step of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    pub epoch: u64,
    pub step: u64,
    /// Precision of the pull.
    pub bits: u8,
    /// E‖Q(x) − x‖² of a pull with the run's precision.
    pub error: f64,
    /// The least μ for pulls with 8 and 4 bits.
    pub mu: [f64; 2],
}

/// A row of Table 1, right.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub mu: f32,
    /// Mean over the pulls, floats counted as 32.
    pub mean_bits: f64,
    /// The precision most pulls had.
    pub usual_bits: u8,
    /// To the loss; `None`: it was not reached.
    pub bits: Option<u64>,
    pub steps: u64,
    pub published_bits: u8,
    pub published: f64,
}

/// What `thc async mu` finds.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    pub source: Source,
    pub scale: f64,
    pub seed: u64,
    /// m.
    pub pushes: u64,
    /// Fig. 2: μ of every tenth of three epochs.
    pub needed: Vec<Step>,
    /// Fig. 5: the error of a run with μ = 0.6.
    pub accuracy: Vec<Step>,
    /// Table 1, right.
    pub table: Vec<Row>,
}

struct Run<'a> {
    problem: &'a Problem,
    source: Source,
    seed: u64,
}

impl Run<'_> {
    /// Trains; calls `see` after every step with the shard before its pull's answer is forgotten. Ends when it says so.
    fn train(
        &self,
        bits: ModelBits,
        rate: f32,
        epochs: u64,
        mut see: impl FnMut(&ModelShard, u64) -> Result<bool>,
    ) -> Result<()> {
        let (problem, d, n) = (self.problem, self.problem.coordinates(), self.problem.samples());
        let m = problem.epoch(self.source);
        let spec = Spec {
            prox: self.source.prox(),
            bits,
            shard: d.next_power_of_two().max(16) as u32,
            seed: self.seed,
            ..Spec::asylpg(d as u64, rate, m)
        };
        spec.validate().map_err(Error::failure)?;
        let mut shard = ModelShard::new(Arc::new(spec), 0, Duration::from_secs(3600));
        shard.initialise(&problem.start(self.seed));
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let push = Push::bits(self.source.bits());
        let (mut x, mut alpha, mut other) = (vec![0.0; d], vec![0.0; d], vec![0.0; d]);
        let (mut sequence, mut sent) = (0, 0);
        for epoch in 0..epochs {
            let snapshot = shard.state().snapshot.clone();
            let mut full = vec![0.0; d];
            problem.accumulate(0..n, &snapshot, &mut full);
            full.iter_mut().for_each(|g| *g /= n as f32);
            shard.begin(epoch, &full);
            for _ in 0..m.get() {
                let mut bytes = Vec::new();
                let now = Instant::now();
                let stamp = match shard.pull(0, None, Some(epoch), now, &mut bytes)? {
                    PullAnswer::Running(stamp) => {
                        payload::decode(&bytes, &mut x).map_err(Error::failure)?;
                        sent += if shard.bits() == 32 {
                            32 * d as u64
                        } else {
                            32 + u64::from(shard.bits()) * d as u64
                        };
                        stamp
                    }
                    PullAnswer::Snapshot(stamp) | PullAnswer::Unchanged(stamp) => {
                        x.copy_from_slice(&snapshot);
                        sent += 1;
                        stamp
                    }
                    PullAnswer::Empty | PullAnswer::Waiting { .. } => {
                        return Err(Error::Failure("the shard does not run".to_owned()));
                    }
                };
                let batch: Vec<usize> = (0..self.source.batch()).map(|_| random.random_range(0..n)).collect();
                alpha.fill(0.0);
                other.fill(0.0);
                problem.accumulate(batch.iter().copied(), &x, &mut alpha);
                problem.accumulate(batch.iter().copied(), &snapshot, &mut other);
                let scale = 1.0 / batch.len() as f32;
                alpha.iter_mut().zip(&other).for_each(|(a, b)| *a = (*a - b) * scale);
                sequence += 1;
                let rounding = Rounding::new(self.seed ^ 0x5EED, sequence, 0);
                bytes.clear();
                sent += payload::encode(&alpha, push.encoding, rounding, &mut bytes)?.paper;
                payload::decode(&bytes, &mut alpha).map_err(Error::failure)?;
                let head = PushHead { sequence, stamp, scale: 1.0 };
                let Applied::Taken { .. } = shard.push(0, &head, &alpha, now) else {
                    return Err(Error::Failure("the shard took no push".to_owned()));
                };
                if see(&shard, sent)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Fig. 2, Fig. 5 and the right half of Table 1 for a problem; runs of the table end after `epochs`.
pub fn study(source: Source, scale: f64, seed: u64, epochs: u64, rate: Option<f32>) -> Result<Study> {
    let folder = tempfile::tempdir().map_err(Error::Process)?;
    let digits = if source == Source::Digits { Some(Digits::dump(folder.path())?) } else { None };
    let problem = Problem::load(&Setting { source, scale, seed, digits })?;
    let run = Run { problem: &problem, source, seed };
    let rate = rate.unwrap_or(Method::rate(source));
    let m = u64::from(problem.epoch(source).get());
    let sample = |shard: &ModelShard| -> Result<Option<Step>> {
        let stamp = shard.stamp();
        // At the snapshot itself, which is step 0, no lattice keeps the condition.
        if stamp.step == 0 || !(stamp.step - 1).is_multiple_of((m / 10).max(1)) {
            return Ok(None);
        }
        let mu = [shard.condition(8)?.0, shard.condition(4)?.0];
        let bits = shard.bits().clamp(2, 16);
        // The pull before the first step was a flag.
        let exact = shard.bits() == 32 || stamp.step == 1;
        let error = if exact { 0.0 } else { shard.condition(bits)?.1 };
        Ok(Some(Step { epoch: stamp.epoch, step: stamp.step, bits: shard.bits(), error, mu }))
    };
    let follow = |bits: ModelBits| -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        run.train(bits, rate, epochs.min(5), |shard, _| {
            steps.extend(sample(shard)?);
            Ok(false)
        })?;
        Ok(steps)
    };
    let needed = follow(ModelBits::Fixed(8))?;
    let accuracy = follow(ModelBits::Condition(FIGURE_5))?;
    let mut table = Vec::new();
    for (mu, (published_bits, published)) in MUS.into_iter().zip(PUBLISHED) {
        let (mut counts, mut reached, mut steps) = ([0_u64; 33], None, 0);
        run.train(ModelBits::Condition(mu), rate, epochs, |shard, sent| {
            counts[usize::from(shard.bits())] += 1;
            steps += 1;
            if steps % (m / 50).max(1) == 0 {
                let x = &shard.state().x;
                let seen = SEEN.min(problem.samples());
                let loss = problem.accumulate(0..seen, x, &mut vec![0.0; x.len()]) / seen as f64;
                if loss + nonsmooth(&source.prox(), x) <= TARGET {
                    reached = Some(sent);
                }
            }
            Ok(reached.is_some())
        })?;
        let pulls: u64 = counts.iter().sum();
        let sum: u64 = counts.iter().enumerate().map(|(bits, count)| bits as u64 * count).sum();
        let usual = (0..33).max_by_key(|bits| counts[*bits]).unwrap_or(0) as u8;
        table.push(Row {
            mu,
            mean_bits: sum as f64 / pulls.max(1) as f64,
            usual_bits: usual,
            bits: reached,
            steps,
            published_bits,
            published,
        });
    }
    Ok(Study { source, scale, seed, pushes: m, needed, accuracy, table })
}

impl fmt::Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "The least μ that condition (2) needs, within epochs (Fig. 2):\n")?;
        writeln!(f, "{:>5} {:>6} {:>12} {:>12}", "epoch", "step", "8 bits", "4 bits")?;
        for step in &self.needed {
            writeln!(f, "{:>5} {:>6} {:>12.4} {:>12.3}", step.epoch, step.step, step.mu[0], step.mu[1])?;
        }
        writeln!(f, "\nE‖Q(x) − x‖² of pulls with μ = {FIGURE_5} (Fig. 5):\n")?;
        writeln!(f, "{:>5} {:>6} {:>5} {:>12}", "epoch", "step", "bits", "error")?;
        for step in &self.accuracy {
            writeln!(f, "{:>5} {:>6} {:>5} {:>12.3e}", step.epoch, step.step, step.bits, step.error)?;
        }
        writeln!(f, "\nBits to a loss of {TARGET} (Table 1, right; the paper's are for MNIST):\n")?;
        writeln!(
            f,
            "{:>7} {:>10} {:>6} {:>10} {:>6} {:>9} {:>10}",
            "μ", "mean bits", "usual", "bits", "steps", "paper: bx", "bits"
        )?;
        for row in &self.table {
            let bits = row.bits.map_or_else(|| "–".to_owned(), |bits| format!("{:.2e}", bits as f64));
            writeln!(
                f,
                "{:>7} {:>10.1} {:>6} {:>10} {:>6} {:>9} {:>10.2e}",
                row.mu, row.mean_bits, row.usual_bits, bits, row.steps, row.published_bits, row.published
            )?;
        }
        Ok(())
    }
}
