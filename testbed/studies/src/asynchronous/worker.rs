//! A worker process of `thc async`.

use std::io::Write;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use thc_model::{Client, ClientConfig, ClientStats, Pull, Spec};
use thc_worker::{Call, Group, GroupConfig, Mode, Plan};

use super::method::Method;
use super::problem::{Problem, Setting, nonsmooth};
use thc_demo::error::{Error, Result};

/// Factor of the loss in the all-reduce.
const LOSS: f32 = 1.0 / 64.0;

/// The environment variable that holds a worker's order, secrets included.
pub(crate) const ORDER: &str = "THC_ASYNC_ORDER";

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub setting: Setting,
    pub method: Method,
    pub rate: f32,
    pub epochs: u64,
    /// Stop at this loss.
    pub target: Option<f64>,
    pub delay: Option<u32>,
    pub worker: u8,
    pub workers: u8,
    /// How many times longer than it needs to it takes for a gradient.
    pub slow: f64,
    /// The model server.
    pub server: String,
    pub secret: String,
    /// The parameter server.
    pub ps: std::net::SocketAddr,
    pub cookie: u32,
}

/// What a worker tells at the end of each epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Event {
    pub worker: u8,
    /// Epochs completed.
    pub epoch: u64,
    /// P(x̃).
    pub loss: f64,
    /// Since training began.
    pub seconds: f64,
    /// Pulls and pushes, as the paper counts them.
    pub bits: u64,
    /// The same as they were written.
    pub written: u64,
    /// Snapshots, the epoch's gradient to the server, and its all-reduce.
    pub epoch_bits: u64,
    pub pushes: u64,
    pub refused: u64,
    pub delays: u64,
    pub longest_delay: u64,
    /// Where the time went.
    pub computing: f64,
    pub coding: f64,
    pub waiting: f64,
    pub epochs: f64,
    /// What was slept to be slow.
    pub slept: f64,
}

fn event(order: &Order, stats: &ClientStats, clocks: &Clocks, epoch: u64, loss: f64, d: usize) -> Event {
    Event {
        worker: order.worker,
        epoch,
        loss,
        seconds: clocks.began.elapsed().as_secs_f64(),
        bits: stats.pulled.paper + stats.pushed.paper,
        written: stats.pulled.bits + stats.pushed.bits,
        epoch_bits: stats.whole.paper + 64 * (d as u64 + 1) * (epoch + 1),
        pushes: stats.pushes,
        refused: stats.refused,
        delays: stats.delays,
        longest_delay: stats.longest_delay,
        computing: clocks.computing.as_secs_f64(),
        coding: stats.coding.as_secs_f64(),
        waiting: (stats.waiting.saturating_sub(clocks.waited)).as_secs_f64(),
        epochs: clocks.epochs.as_secs_f64(),
        slept: clocks.slept.as_secs_f64(),
    }
}

struct Clocks {
    began: Instant,
    computing: Duration,
    /// Epochs' gradients, all of it.
    epochs: Duration,
    /// What of the client's waiting belongs to epochs.
    waited: Duration,
    slept: Duration,
}

/// A worker process of `thc async demo`: does what its environment orders.
///
/// # Errors
/// Whatever keeps it from the end of its training.
pub fn run_worker() -> Result<()> {
    let order = std::env::var(ORDER).unwrap_or_default();
    run(&serde_json::from_str(&order).map_err(Error::Event)?)
}

/// Trains until the last epoch, or the target.
fn run(order: &Order) -> Result<()> {
    let problem = Problem::load(&order.setting)?;
    let (d, n) = (problem.coordinates(), problem.samples());
    let source = order.setting.source;
    let group = Group::join(GroupConfig {
        ps: order.ps,
        cookie: order.cookie,
        worker: order.worker,
        ..GroupConfig::default()
    })?;
    let spec = Spec {
        accelerated: order.method.is_accelerated(),
        prox: source.prox(),
        delay: order.delay,
        workers: u16::from(order.workers),
        bits: order.method.model_bits(),
        seed: order.setting.seed,
        ..Spec::asylpg(d as u64, order.rate, problem.epoch(source))
    };
    let config = ClientConfig {
        servers: vec![order.server.clone()],
        secret: order.secret.as_str().into(),
        worker: u16::from(order.worker),
        seed: order.setting.seed,
        ..ClientConfig::default()
    };
    let model = format!("{}-{}", order.method.name().replace([' ', ','], "_"), order.setting.seed);
    let mut client = Client::open(config, &model, spec).map_err(Error::failure)?;
    if order.worker == 0 {
        client.initialise(&problem.start(order.setting.seed)).map_err(Error::failure)?;
    }
    let (mut x, mut snapshot) = (vec![0.0; d], vec![0.0; d]);
    let (mut alpha, mut other) = (vec![0.0; d], vec![0.0; d]);
    let mut random = ChaCha8Rng::seed_from_u64(order.setting.seed ^ (u64::from(order.worker) + 1) << 32);
    // Each worker's part of the samples, for the full-batch gradient.
    let part = n * usize::from(order.worker) / usize::from(order.workers)
        ..n * (usize::from(order.worker) + 1) / usize::from(order.workers);
    let share = f32::from(order.workers) / n as f32;
    let raw = Call { plan: Plan::Whole(Mode::Raw), feedback: None };
    let zero = Duration::ZERO;
    let mut clocks =
        Clocks { began: Instant::now(), computing: zero, epochs: zero, waited: zero, slept: zero };
    let mut begun = None;
    let mut pulled = client.pull(&mut x, Pull::default()).map_err(Error::failure)?;
    loop {
        if let Some(epoch) = pulled.waiting_epoch().filter(|epoch| begun != Some(*epoch)) {
            let (began, waited) = (Instant::now(), client.stats().waiting);
            if client.snapshot(&mut snapshot).map_err(Error::failure)? != Some(epoch) {
                return Err(Error::Failure("the shards of the snapshot are of different epochs".to_owned()));
            }
            let mut full = vec![0.0; d];
            let loss = problem.accumulate(part.clone(), &snapshot, &mut full) as f32;
            // The loss goes along, in the magnitude of a gradient: integers share one scale.
            full.push(loss * LOSS);
            full.iter_mut().for_each(|g| *g *= share);
            group.call(&mut full, raw)?;
            let loss = full.pop().map_or(f64::NAN, |loss| f64::from(loss / LOSS));
            let loss = loss + nonsmooth(&source.prox(), &snapshot);
            let last = epoch >= order.epochs || order.target.is_some_and(|target| loss <= target);
            if !last && order.worker == 0 {
                client.begin(epoch, &full).map_err(Error::failure)?;
            }
            begun = Some(epoch);
            clocks.epochs += began.elapsed();
            clocks.waited += client.stats().waiting - waited;
            let told = event(order, client.stats(), &clocks, epoch, loss, d);
            let line = serde_json::to_string(&told).map_err(Error::Event)?;
            writeln!(std::io::stdout(), "{line}").map_err(Error::Output)?;
            if last {
                return Ok(());
            }
        }
        if pulled.is_empty() || !pulled.is_running() {
            if pulled.is_empty() {
                // Worker 0 has not given the first value yet.
                std::thread::sleep(Duration::from_millis(5));
            }
            let (began, waited) = (Instant::now(), client.stats().waiting);
            // Patience is for those whose part of the epoch's gradient is done.
            let patient = begun.is_some() && pulled.waiting_epoch() == begun;
            pulled = client.pull(&mut x, Pull { patient }).map_err(Error::failure)?;
            clocks.epochs += began.elapsed();
            clocks.waited += client.stats().waiting - waited;
            continue;
        }
        let began = Instant::now();
        let batch: Vec<usize> = (0..source.batch()).map(|_| random.random_range(0..n)).collect();
        alpha.fill(0.0);
        other.fill(0.0);
        problem.accumulate(batch.iter().copied(), &x, &mut alpha);
        problem.accumulate(batch.iter().copied(), &snapshot, &mut other);
        let scale = 1.0 / batch.len() as f32;
        alpha.iter_mut().zip(&other).for_each(|(a, b)| *a = (*a - b) * scale);
        let took = began.elapsed();
        clocks.computing += took;
        if order.slow > 1.0 {
            let pause = took.mul_f64(order.slow - 1.0);
            std::thread::sleep(pause);
            clocks.slept += pause;
        }
        let pushed = client.push_pull(&alpha, order.method.push(source), &mut x, Pull::default());
        (_, pulled) = pushed.map_err(Error::failure)?;
    }
}
