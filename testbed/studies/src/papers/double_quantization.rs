//! Double Quantization, Fig. 3: the bits that methods need to bring a logistic regression to a loss, times fewer than AsyFPG's.
//!
//! A model server and its workers are real, on the loopback interface; the workers are threads, and the last one is slow. The
//! methods share all code, with parts of it switched off.

mod data;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use thc_model::payload::Encoding;
use thc_model::{
    Client, ClientConfig, ClientStats, ModelBits, ModelJobConfig, ModelServer, ModelServerConfig, Prox, Pull,
    Push, Spec,
};

use self::data::Sparse;
use super::sheet::Sheet;
use crate::error::{Error, Result};

const WORKERS: u16 = 6;
/// The last worker takes so many times longer for a gradient.
const SLOW: f64 = 4.0;
/// Samples of a step.
const BATCH: usize = 200;
/// η, which was the best of 0.05 and 0.1 for each method.
const RATE: f32 = 0.1;
/// L1 and L2 of the nonsmooth part.
const PROX: Prox = Prox { l1: 1e-4, l2: 1e-4, bounds: None };
/// The loss to which bits are counted.
const TARGET: f64 = 0.4;
/// Time between two looks at the end, and at a first value that is not there yet.
const TICK: Duration = Duration::from_millis(2);
const SECRET: &str = "workers of this process alone";

/// A method: its name in the paper, the bits of a pulled coordinate, the form of a push, whether it has momentum, and how many
/// times fewer bits than AsyFPG it takes in the paper's figure.
struct Method {
    name: &'static str,
    model: u8,
    push: Encoding,
    accelerated: bool,
    published: f64,
}

const fn method(name: &'static str, model: u8, push: Encoding, accelerated: bool, published: f64) -> Method {
    Method { name, model, push, accelerated, published }
}

const DENSE: Encoding = Encoding::Dense { bits: 8 };
const SPARSE: Encoding = Encoding::Sparse { bits: 8, budget: None };
const METHODS: [Method; 6] = [
    method("AsyFPG", 32, Encoding::Full, false, 1.0),
    method("Acc-AsyFPG", 32, Encoding::Full, true, f64::NAN),
    method("QSVRG", 32, DENSE, false, f64::NAN),
    method("AsyLPG", 8, DENSE, false, 6.48),
    method("Sparse-AsyLPG", 8, SPARSE, false, 7.33),
    method("Acc-AsyLPG", 8, DENSE, true, 19.19),
];

/// The end of an epoch.
#[derive(Clone, Copy, Debug)]
struct Point {
    epoch: u64,
    loss: f64,
    /// Bits of all workers' pulls and pushes so far, as the paper counts them.
    bits: u64,
}

/// The workers of a training.
struct Training<'a> {
    data: &'a Sparse,
    method: &'a Method,
    server: String,
    seed: u64,
    epochs: u64,
    target: f64,
    /// The counters of each worker.
    stats: Mutex<Vec<ClientStats>>,
    points: Mutex<Vec<Point>>,
    ends: AtomicBool,
}

/// Trains by all methods. `quick` takes a small part of the data and few epochs.
pub fn methods(seed: u64, quick: bool) -> Result<Sheet> {
    // The shape of rcv1 in the LIBSVM collection: rows, columns, and entries of a row on average.
    let data = if quick {
        Sparse::generate(404, 944, 74.1, seed)
    } else {
        Sparse::generate(20_242, 47_236, 74.1, seed)
    };
    let (epochs, target) = if quick { (4, 0.69) } else { (60, TARGET) };
    let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
    let mut base = f64::NAN;
    for method in &METHODS {
        let (points, stats) = train(&data, method, seed, epochs, target)?;
        let bits = crossing(&points, target, |point| point.bits as f64).unwrap_or(f64::NAN);
        if rows.is_empty() {
            base = bits;
        }
        let sum = |of: fn(&ClientStats) -> u64| stats.iter().map(of).sum::<u64>() as f64;
        let row = vec![
            points.last().map_or(f64::NAN, |point| point.loss),
            crossing(&points, target, |point| point.epoch as f64).unwrap_or(f64::NAN),
            bits / 1e6,
            base / bits,
            method.published,
            sum(|stats| stats.delays) / sum(|stats| stats.pushes),
        ];
        rows.push((method.name.to_owned(), row));
    }
    Ok(Sheet {
        name: "methods",
        title: "logistic regression, bits to a loss",
        columns: &["loss", "epochs", "Mbit", "times fewer bits", "published", "mean delay"],
        rows,
    })
}

/// Trains by one method, from the first value to the target or the last epoch.
fn train(
    data: &Sparse,
    method: &Method,
    seed: u64,
    epochs: u64,
    target: f64,
) -> Result<(Vec<Point>, Vec<ClientStats>)> {
    let server = ModelServer::start(ModelServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        jobs: vec![ModelJobConfig::new("train", SECRET.into())],
        threads: 2,
        ..ModelServerConfig::default()
    });
    let server = server.map_err(Error::failure)?;
    let training = Training {
        data,
        method,
        server: server.local().to_string(),
        seed,
        epochs,
        target,
        stats: Mutex::new(vec![ClientStats::default(); WORKERS.into()]),
        points: Mutex::default(),
        ends: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let worker = |worker| {
            let training = &training;
            scope.spawn(move || {
                let trained = training.work(worker);
                // The others wait for a worker that fails.
                training.ends.store(true, Ordering::Relaxed);
                trained
            })
        };
        let workers: Vec<_> = (0..WORKERS).map(worker).collect();
        let panicked = |_| Error::failure("a worker has panicked");
        workers.into_iter().try_for_each(|worker| worker.join().map_err(panicked)?)
    })?;
    server.shutdown().map_err(Error::failure)?;
    let Training { points, stats, .. } = training;
    Ok((points.into_inner().unwrap_or_default(), stats.into_inner().unwrap_or_default()))
}

impl Training<'_> {
    fn work(&self, worker: u16) -> Result<()> {
        let (d, n) = (self.data.columns, self.data.labels.len());
        let pushes = std::num::NonZeroU32::new(n.div_ceil(BATCH) as u32).unwrap_or(std::num::NonZeroU32::MIN);
        let spec = Spec {
            accelerated: self.method.accelerated,
            prox: PROX,
            workers: WORKERS,
            bits: ModelBits::Fixed(self.method.model),
            seed: self.seed,
            ..Spec::asylpg(d as u64, RATE, pushes)
        };
        let config = ClientConfig {
            server: self.server.clone(),
            secret: SECRET.into(),
            worker,
            seed: self.seed,
            ..ClientConfig::default()
        };
        let mut client = Client::open(config, "model", spec).map_err(Error::failure)?;
        if worker == 0 {
            client.initialise(&vec![0.0; d]).map_err(Error::failure)?;
        }
        let (mut x, mut snapshot) = (vec![0.0; d], vec![0.0; d]);
        let (mut alpha, mut other) = (vec![0.0; d], vec![0.0; d]);
        let mut random = ChaCha8Rng::seed_from_u64(self.seed ^ (u64::from(worker) + 1) << 32);
        let mut begun = None;
        let mut pulled = client.pull(&mut x, Pull::default()).map_err(Error::failure)?;
        while !self.ends.load(Ordering::Relaxed) {
            if let Some(epoch) = pulled.waiting_epoch().filter(|epoch| begun != Some(*epoch)) {
                begun = Some(epoch);
                client.snapshot(&mut snapshot).map_err(Error::failure)?;
                self.count(worker, client.stats());
                if worker == 0 && self.begin(&mut client, epoch, &snapshot)? {
                    return Ok(());
                }
            }
            if pulled.is_empty() || !pulled.is_running() {
                std::thread::sleep(TICK);
                pulled = client.pull(&mut x, Pull::default()).map_err(Error::failure)?;
                continue;
            }
            let began = Instant::now();
            let batch: Vec<usize> = (0..BATCH).map(|_| random.random_range(0..n)).collect();
            alpha.fill(0.0);
            other.fill(0.0);
            self.data.accumulate(batch.iter().copied(), &x, &mut alpha);
            self.data.accumulate(batch.iter().copied(), &snapshot, &mut other);
            alpha.iter_mut().zip(&other).for_each(|(a, b)| *a = (*a - b) / BATCH as f32);
            if worker + 1 == WORKERS {
                std::thread::sleep(began.elapsed().mul_f64(SLOW - 1.0));
            }
            let push = Push::with_encoding(self.method.push);
            let answer = client.push_pull(&alpha, push, &mut x, Pull::default());
            (_, pulled) = answer.map_err(Error::failure)?;
            self.count(worker, client.stats());
        }
        Ok(())
    }

    fn count(&self, worker: u16, stats: &ClientStats) {
        if let Ok(mut all) = self.stats.lock() {
            all[usize::from(worker)] = stats.clone();
        }
    }

    /// Gives the model the full-batch gradient at an epoch's snapshot, and returns `true` if the training ends instead.
    fn begin(&self, client: &mut Client, epoch: u64, snapshot: &[f32]) -> Result<bool> {
        let n = self.data.labels.len();
        let mut full = vec![0.0; snapshot.len()];
        let loss = self.data.accumulate(0..n, snapshot, &mut full) / n as f64 + nonsmooth(snapshot);
        if !loss.is_finite() {
            return Err(Error::Failure(format!("{}: the loss is not finite", self.method.name)));
        }
        let bits = |stats: &ClientStats| stats.pulled.paper + stats.pushed.paper;
        if let (Ok(mut points), Ok(stats)) = (self.points.lock(), self.stats.lock()) {
            points.push(Point { epoch, loss, bits: stats.iter().map(bits).sum() });
        }
        if epoch >= self.epochs || loss <= self.target {
            return Ok(true);
        }
        full.iter_mut().for_each(|g| *g /= n as f32);
        client.begin(epoch, &full).map_err(Error::failure)?;
        Ok(false)
    }
}

/// h(x).
fn nonsmooth(x: &[f32]) -> f64 {
    let Prox { l1, l2, .. } = PROX;
    x.iter().map(|v| f64::from(*v)).map(|v| f64::from(l1) * v.abs() + 0.5 * f64::from(l2) * v * v).sum()
}

/// The value of `of` where the loss first falls to `target`, on the line between two points.
fn crossing(points: &[Point], target: f64, of: fn(&Point) -> f64) -> Option<f64> {
    let after = points.iter().position(|point| point.loss <= target)?;
    let Some(before) = after.checked_sub(1) else { return Some(of(&points[0])) };
    let (a, b) = (&points[before], &points[after]);
    Some(of(a) + (a.loss - target) / (a.loss - b.loss) * (of(b) - of(a)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossings_are_interpolated() {
        let points =
            [(0, 0.7), (1, 0.5), (2, 0.3)].map(|(epoch, loss)| Point { epoch, loss, bits: 100 * epoch });
        let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
        assert!(close(crossing(&points, 0.4, |p| p.bits as f64), 150.0));
        assert!(close(crossing(&points, 0.7, |p| p.bits as f64), 0.0));
        assert_eq!(crossing(&points, 0.2, |p| p.bits as f64), None);
    }
}
