//! A job that runs while somebody on the same host sends whatever may hurt it (`make hostile`).
//!
//! Slices of hostile packets take turns with slices of as much plain noise: random bytes, as many, of the same lengths,
//! to the same ports, as fast. Means must be those of an undisturbed run, bit for bit.

mod packets;
mod sender;

use crate::figures::Figure;
use crate::followed::{Followed, Step};
use crate::wiretap::Wiretap;
use crate::{COOKIE, Ps, free_port};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub use packets::{Known, Packets};
pub use sender::{Load, Sender};

const WORKERS: u8 = 2;
/// The longest that a session may take to begin, or an all-reduce to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Hostile packets.
    pub packets: u64,
    /// Packets a second.
    pub rate: u32,
    /// Turns of hostile packets and noise.
    pub slices: u32,
    /// Coordinates of an all-reduce.
    pub coordinates: usize,
    /// Of all random numbers.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Packets sent, hostile and noise.
    pub sent: [u64; 2],
    /// Seconds of sending, by the same order.
    pub seconds: [f64; 2],
    /// All-reduces finished in these.
    pub all_reduces: [f64; 2],
    /// All-reduces whose means were compared with those of an undisturbed run.
    pub compared: usize,
    /// All-reduces a second when nobody else sends.
    pub undisturbed: f64,
    /// Bytes that the server wrote to its log.
    pub log: usize,
    /// Coordinates of an all-reduce.
    pub coordinates: usize,
}

impl Outcome {
    /// All-reduces a second under hostile packets over those under noise.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let [hostile, noise] = [0, 1].map(|i| self.all_reduces[i] / self.seconds[i]);
        hostile / noise
    }

    /// As docs/measuring.md has it.
    #[must_use]
    pub fn figure(&self) -> Figure {
        let rate = |i: usize| self.all_reduces[i] / self.seconds[i] * self.coordinates as f64 / 1e6;
        Figure {
            name: "goodput under hostile packets over that under as much noise".to_owned(),
            ratio: self.ratio(),
            lower_is_better: false,
            aim: 0.8,
            floor: 0.5,
            detail: format!(
                "{} hostile packets at {:.0} a second: {:.1} million coordinates a second; {} of noise at {:.0} a second: {:.1}; \
                 none: {:.1}; {} all-reduces bit-identical on both workers; server's log {} bytes",
                self.sent[0],
                self.sent[0] as f64 / self.seconds[0],
                rate(0),
                self.sent[1],
                self.sent[1] as f64 / self.seconds[1],
                rate(1),
                self.undisturbed * self.coordinates as f64 / 1e6,
                self.compared,
                self.log,
            ),
        }
    }
}

fn start(ps: &Ps, coordinates: usize, repeat: usize) -> Vec<Followed> {
    let (ps, coordinates, repeat) = (ps.addr.to_string(), coordinates.to_string(), repeat.to_string());
    let flags = |number: u8| {
        let number = number.to_string();
        let flags = ["--ps", &ps, "--worker", &number, "--cookie", COOKIE, "--coordinates", &coordinates];
        let more = ["--repeat", &repeat, "--error-feedback"];
        flags.iter().chain(&more).map(|&flag| flag.to_owned()).collect::<Vec<_>>()
    };
    (0..WORKERS).map(|number| Followed::start(None, &flags(number))).collect()
}

/// Adds what workers have finished. An error if one has ended that should not.
fn gather(workers: &mut [Followed], steps: &mut [Vec<Step>]) -> Result<(), String> {
    for (number, (worker, steps)) in workers.iter_mut().zip(steps).enumerate() {
        steps.extend(worker.steps());
        if let Some(status) = worker.exit_status().filter(|status| !status.success()) {
            return Err(format!("worker {number} has ended with {status}: {}", worker.errors()));
        }
    }
    Ok(())
}

/// Runs the plan.
///
/// # Errors
/// What has been hurt.
pub fn run(plan: &Plan) -> Result<Outcome, String> {
    let port = free_port();
    let tap = Wiretap::open(port..=port)?;
    let ps = Ps::start_on(None, SocketAddr::from(([127, 0, 0, 1], port)), WORKERS, &[]);
    let mut workers = start(&ps, plan.coordinates, u32::MAX as usize);
    let mut steps = vec![Vec::new(); workers.len()];
    let started = Instant::now();
    while steps.iter().any(Vec::is_empty) {
        gather(&mut workers, &mut steps)?;
        if started.elapsed() > PATIENCE {
            return Err("the session did not begin".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let known = Known::parse_frames(&tap.finish(), ps.addr)?;
    let mut sender = Sender::new(Packets::new(known, plan.seed), plan.rate);
    let mut windows = [Vec::new(), Vec::new()];
    let mut sent = [0; 2];
    for slice in 0..2 * plan.slices {
        // Hostile, noise, noise, hostile: a machine that gets slower hits both.
        let which = usize::from(slice % 4 == 1 || slice % 4 == 2);
        let load = if which == 0 { Load::Hostile } else { Load::Noise };
        let began = Instant::now();
        sent[which] += sender.send(load, plan.packets / u64::from(plan.slices));
        windows[which].push((began, Instant::now()));
        gather(&mut workers, &mut steps)?;
    }
    // Whoever waits for something lost still gets it.
    let last = steps[0].len();
    let ended = Instant::now();
    while steps.iter().any(|steps| steps.len() <= last) {
        gather(&mut workers, &mut steps)?;
        if ended.elapsed() > PATIENCE {
            return Err(format!("no all-reduce has ended in {} s after the last packet", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let log = ps.log();
    workers.iter_mut().for_each(Followed::kill);
    drop(ps);
    if log.contains("panicked") {
        return Err(format!("the server has panicked: {log}"));
    }
    let most = steps.iter().map(Vec::len).max().unwrap_or(0);
    let (reference, undisturbed) = reference(plan.coordinates, most)?;
    let mut compared = 0;
    for (worker, steps) in steps.iter().enumerate() {
        for (place, step) in steps.iter().enumerate() {
            if step.number != place || step.checksum != reference[place].checksum {
                return Err(format!(
                    "worker {worker}'s mean of all-reduce {} is not that of an undisturbed run",
                    step.number
                ));
            }
        }
        compared = steps.len();
    }
    let seconds = |which: usize| windows[which].iter().map(|(a, b)| (*b - *a).as_secs_f64()).sum();
    let finished =
        |which: usize| windows[which].iter().map(|(a, b)| place(&steps[0], *b) - place(&steps[0], *a)).sum();
    Ok(Outcome {
        sent,
        seconds: [seconds(0), seconds(1)],
        all_reduces: [finished(0), finished(1)],
        compared,
        undisturbed,
        log: log.len(),
        coordinates: plan.coordinates,
    })
}

/// So many all-reduces of an undisturbed run, and how many a second that were.
fn reference(coordinates: usize, count: usize) -> Result<(Vec<Step>, f64), String> {
    let ps = Ps::start(WORKERS, &[]);
    let mut workers = start(&ps, coordinates, count);
    let mut steps = vec![Vec::new(); workers.len()];
    let mut last = Instant::now();
    while steps.iter().any(|steps| steps.len() < count) {
        let before = steps[0].len();
        gather(&mut workers, &mut steps)?;
        if steps[0].len() > before {
            last = Instant::now();
        }
        if last.elapsed() > PATIENCE {
            return Err("an undisturbed run stands still".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let steps = steps.swap_remove(0);
    let seconds = steps.last().zip(steps.first()).map_or(1.0, |(b, a)| (b.at - a.at).as_secs_f64());
    let rate = (count - 1) as f64 / seconds.max(1e-9);
    Ok((steps, rate))
}

/// How many all-reduces were finished at a moment, parts of one included.
fn place(steps: &[Step], at: Instant) -> f64 {
    let after = steps.partition_point(|step| step.at <= at);
    match (after.checked_sub(1).and_then(|before| steps.get(before)), steps.get(after)) {
        (Some(before), Some(next)) => {
            let part = (at - before.at).as_secs_f64() / (next.at - before.at).as_secs_f64().max(1e-9);
            after as f64 + part
        }
        _ => after as f64,
    }
}
