//! Random scenarios.

use crate::client::{Client, Manner};
use crate::plan::{CallPlan, JobPlan};
use crate::scene::{Network, Restarts, Scene};
use std::time::Duration;
use thc_protocol::Lane;
use thc_support::random::Rng;

pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub fn micros(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

/// A network from faultless to awful.
pub fn network(rng: &mut Rng) -> Network {
    let awful = rng.pick(&[0.0, 0.0, 0.3, 1.0]);
    Network {
        delay: micros(rng.between(1, 200)),
        jitter: micros(rng.pick(&[0, 1, 10, 300])),
        loss: awful * rng.pick(&[0.0, 0.001, 0.01, 0.1, 0.3]),
        duplicate: awful * rng.pick(&[0.0, 0.01, 0.3]),
        late: awful * rng.pick(&[0.0, 0.01, 0.1]),
        late_by: ms(rng.pick(&[1, 5, 30, 200])),
        corrupt: 0.0,
        wire_time: Duration::from_nanos(rng.pick(&[0, 100, 8_000])),
    }
}

/// A network that loses at most one packet in ten, so that time-outs mean something.
pub fn fair_network(rng: &mut Rng) -> Network {
    let network = network(rng);
    Network { loss: network.loss.min(0.1), late_by: network.late_by.min(ms(30)), ..network }
}

/// Moments at which the aggregator forgets, up to `most` of each sort.
pub fn restarts(rng: &mut Rng, most: u64) -> Restarts {
    let (timed, counted) = (rng.below(most + 1), rng.below(most + 1));
    Restarts {
        at: (0..timed).map(|_| micros(rng.below(60_000))).collect(),
        at_result: (0..counted).map(|_| rng.between(1, 400)).collect(),
        outage: micros(rng.pick(&[0, 0, 500, 50_000])),
    }
}

/// A job's shape and calls.
pub fn job(rng: &mut Rng, number: u16, nan: f64) -> JobPlan {
    let workers = rng.pick(&[1, 2, 2, 3, 3, 4, 6]);
    let data_slots = rng.pick(&[2, 4, 8, 16, 64, 130, 256, 512]);
    let norm_slots = rng.pick(&[2, 2, 4, 16, 128]);
    let lane = if rng.chance(0.3) { Lane::Bits16 } else { Lane::Bits8 };
    let mut plan = JobPlan::new(number, workers, data_slots, norm_slots, lane);
    plan.timeout = Duration::from_secs(1000);
    plan.min_rto = ms(rng.pick(&[1, 5, 20]));
    plan.max_rto = ms(rng.pick(&[100, 400]));
    if rng.chance(0.5) {
        plan.wrap_after(rng.between(1, 4));
    }
    let largest = rng.pick(&[1, 5, 40, 150]);
    let calls = rng.between(1, 6);
    plan.calls = (0..calls).map(|_| CallPlan::random(rng, workers, largest, nan)).collect();
    plan
}

/// Workers of uneven speed, some of which start late or dawdle.
pub fn manners(rng: &mut Rng, plan: &JobPlan) -> Vec<Manner> {
    let calls = plan.calls.len();
    let dawdle = rng.pick(&[0, 0, 200, 5_000, 50_000]);
    (0..plan.workers())
        .map(|_| Manner {
            flight: rng.between(1, 4) as usize,
            start: micros(if rng.chance(0.2) { rng.below(100_000) } else { rng.below(100) }),
            compute: (0..calls).map(|_| micros(rng.below(dawdle + 1))).collect(),
            gaps: (0..calls).map(|_| micros(rng.below(dawdle + 1))).collect(),
            latency: micros(rng.pick(&[0, 1, 20, 500])),
            limit: rng.chance(0.2).then(|| rng.between(1, 64)),
        })
        .collect()
}

/// A scene of `jobs` random jobs.
pub fn scene(rng: &mut Rng, seed: u64, jobs: u16, nan: f64, network: Network, restarts: Restarts) -> Scene {
    let shards = rng.pick(&[1, 1, 2, 3]);
    let mut scene = Scene::new(seed, shards, network, restarts);
    for number in 0..jobs {
        let plan = job(rng, number * 257, nan);
        let manners = manners(rng, &plan);
        scene.add_job(&plan, manners, &[]);
    }
    scene
}

/// How long the slowest job may take: some time-outs for every window of its packets, and no more.
pub fn patience(scene: &Scene) -> Duration {
    let of = |client: &Client| {
        let plan = &client.truth.plan;
        let norms: u64 = plan.calls.iter().map(|call| call.packets.len() as u64).sum();
        let data: u64 = plan.calls.iter().flat_map(|call| &call.packets).map(|&count| u64::from(count)).sum();
        let window = u64::from(plan.config.data_slots / 2).min(client.manner.limit.unwrap_or(u64::MAX));
        let windows = 2 * norms / u64::from(plan.config.norm_slots) + data / window;
        plan.max_rto * (windows as u32 * 3 + plan.calls.len() as u32 * 10 + 50)
    };
    scene.clients.iter().map(of).max().unwrap_or_default()
}
