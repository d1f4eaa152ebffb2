//! `thc async demo`: servers in this process, workers as processes, one method after the other.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::{RngCore, SeedableRng};
use thc_model::{ModelJobConfig, ModelServer, ModelServerConfig};

use super::data::Digits;
use super::method::Method;
use super::problem::{Setting, Source};
use super::report::{Comparison, Outcome};
use super::worker::{Event, ORDER, Order};
use thc_demo::demo::processes::{Children, Message};
use thc_demo::error::{Error, Result};

/// What is compared.
#[derive(Clone, Debug)]
pub struct ComparisonPlan {
    pub source: Source,
    pub methods: Vec<Method>,
    pub workers: u8,
    pub slow: f64,
    pub epochs: u64,
    /// Bits are counted to this loss.
    pub target: f64,
    /// Whether to end there.
    pub stop: bool,
    pub delay: Option<u32>,
    pub scale: f64,
    pub seed: u64,
    /// η: of several, each method has the one with which it needs the fewest bits to the target.
    pub rates: Vec<f32>,
    pub quiet: bool,
}

/// Runs all methods.
pub fn compare(plan: &ComparisonPlan) -> Result<Comparison> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Error::Process)?;
    }
    let folder = tempfile::tempdir().map_err(Error::Process)?;
    let digits = if plan.source == Source::Digits { Some(Digits::dump(folder.path())?) } else { None };
    let setting = Setting { source: plan.source, scale: plan.scale, seed: plan.seed, digits };
    let mut outcomes = Vec::new();
    for method in &plan.methods {
        let mut best: Result<Outcome> = Err(Error::Failure("there is no --rate".to_owned()));
        for rate in &plan.rates {
            let outcome = one(plan, &setting, *method, *rate, &interrupted);
            if interrupted.load(Ordering::Relaxed) {
                return Err(outcome.err().unwrap_or(Error::Interrupted));
            }
            if let (Ok(outcome), false) = (&outcome, plan.quiet) {
                eprintln!("{}", outcome.line());
            }
            best = match (best, outcome) {
                (Ok(best), Ok(outcome)) => Ok(if outcome.beats(&best) { outcome } else { best }),
                // A rate that is too high ends in numbers that are not finite: another one may do.
                (best, Err(error)) if plan.rates.len() > 1 => best.or(Err(error)),
                (Err(_), outcome) | (_, outcome) => outcome,
            };
        }
        outcomes.push(best?);
    }
    Ok(Comparison::new(plan, outcomes))
}

/// One method, from the first value to the last epoch.
fn one(
    plan: &ComparisonPlan,
    setting: &Setting,
    method: Method,
    rate: f32,
    interrupted: &Arc<AtomicBool>,
) -> Result<Outcome> {
    let mut random = rand_chacha::ChaCha8Rng::from_os_rng();
    let secret = format!("{:016x}{:016x}", random.next_u64(), random.next_u64());
    let server = ModelServer::start(ModelServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        jobs: vec![ModelJobConfig::new("train", secret.as_str().into())],
        threads: 2,
        ..ModelServerConfig::default()
    })
    .map_err(Error::failure)?;
    let cookie = random.next_u32() | 1;
    let job = thc_ps::JobOptions {
        job: Some(1),
        cookie: Some(u64::from(cookie).into()),
        workers: Some(u64::from(plan.workers)),
        // Room for the sums of 64 workers, though all calls are RAW.
        lane: Some(16),
        ..thc_ps::JobOptions::default()
    };
    let options = thc_ps::ServerOptions {
        listen: Some("127.0.0.1:0".into()),
        job: vec![job],
        ..thc_ps::ServerOptions::default()
    };
    let ps = options.validate().map_err(Error::failure)?;
    let ps = thc_ps::Server::start(ps).map_err(Error::failure)?;
    let mut children = Children::new(Arc::clone(interrupted));
    let program = std::env::current_exe().map_err(Error::Process)?;
    for worker in 0..plan.workers {
        let order = Order {
            setting: setting.clone(),
            method,
            rate,
            epochs: plan.epochs,
            target: plan.stop.then_some(plan.target),
            delay: plan.delay,
            worker,
            workers: plan.workers,
            // The last one is slow.
            slow: if worker + 1 == plan.workers { plan.slow } else { 1.0 },
            server: server.local().to_string(),
            secret: secret.clone(),
            ps: ps.local(),
            cookie,
        };
        let order = serde_json::to_string(&order).map_err(Error::Event)?;
        let mut command = Command::new(&program);
        // In its environment and not among its arguments, which everybody can list.
        command.args(["async-worker", "--parent", &std::process::id().to_string()]);
        command.env(ORDER, order);
        children.start(format!("worker {worker}"), &mut command)?;
    }
    let mut events: Vec<Vec<Event>> = vec![Vec::new(); usize::from(plan.workers)];
    let mut closed = 0;
    while closed < plan.workers {
        match children.message()? {
            (number, Message::Line(line)) => {
                events[number].push(serde_json::from_str(&line).map_err(Error::Event)?);
            }
            (number, Message::Closed) => {
                children.finish(number)?;
                closed += 1;
            }
        }
    }
    drop(ps);
    let stats = server.shutdown().map_err(Error::failure)?;
    let waits = stats.jobs.get("train").map_or(0, |job| job.waits);
    Outcome::new(plan, method, rate, &events, waits)
}
