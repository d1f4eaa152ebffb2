//! How well it does: needless repeats, and goodput under loss.

use crate::client::Manner;
use crate::plan::{CallPlan, JobPlan};
use crate::scenario::micros;
use crate::scene::{Network, Restarts, Scene};
use std::time::Duration;
use thc_protocol::Lane;
use thc_support::random::Rng;

/// 100 Gbit/s: 1 KB in some 100 ns; 20 µs one way.
const FAST: Network = Network {
    delay: Duration::from_micros(20),
    jitter: Duration::from_micros(5),
    loss: 0.0,
    duplicate: 0.0,
    late: 0.0,
    late_by: Duration::ZERO,
    corrupt: 0.0,
    wire_time: Duration::from_nanos(100),
};

fn plan(workers: u8, calls: usize, partitions: usize, packets: u32) -> JobPlan {
    let mut plan = JobPlan::new(1, workers, 1024, 256, Lane::Bits8);
    let call = CallPlan {
        length: 1,
        key: 7,
        choices: vec![Some(0); partitions],
        packets: vec![packets; partitions],
        norms: vec![vec![1f32.to_bits(); partitions]; usize::from(workers)],
    };
    plan.calls = vec![call; calls];
    plan
}

/// Runs it; returns the time, packets sent once and packets repeated.
fn run(plan: &JobPlan, manners: Vec<Manner>, network: Network) -> (Duration, u64, u64) {
    let mut scene = Scene::new(1, 1, network, Restarts::default());
    scene.add_job(plan, manners, &[]);
    scene.run(Duration::from_secs(60), Duration::ZERO);
    let stats = scene.clients.iter().map(|client| client.worker.stats());
    let (mut sent, mut repeated) = (0, 0);
    for stats in stats {
        sent += stats.norm.sent + stats.data.sent;
        repeated += stats.norm.repeated + stats.data.repeated;
    }
    (scene.now, sent, repeated)
}

#[test]
fn without_loss_uneven_workers_repeat_next_to_nothing() {
    for (what, skew) in
        [("no skew", 0), ("skew to 1 ms", 1_000), ("skew to 10 ms", 10_000), ("skew to 100 ms", 100_000)]
    {
        let mut rng = Rng::new(skew);
        let plan = plan(8, 8, 4, 500);
        let manners = (0..8)
            .map(|_| Manner {
                start: micros(rng.below(skew + 1)),
                compute: (0..8).map(|_| micros(rng.below(skew + 1))).collect(),
                gaps: (0..8).map(|_| micros(rng.below(skew + 1))).collect(),
                latency: micros(rng.between(1, 40)),
                ..Manner::prompt(8)
            })
            .collect();
        let (time, sent, repeated) = run(&plan, manners, FAST);
        println!("{what}: {sent} packets in {time:?}, {repeated} repeated");
        assert!(repeated * 100 <= sent, "{what}: {repeated} of {sent} repeated");
    }
}

#[test]
fn goodput_under_loss() {
    let base = plan(4, 4, 4, 1000);
    let manners = || vec![Manner::prompt(4); 4];
    let (ideal, sent, _) = run(&base, manners(), FAST);
    for (loss, least) in [(0.0001, 0.5), (0.001, 0.25), (0.01, 0.1)] {
        let (time, _, repeated) = run(&base, manners(), Network { loss, ..FAST });
        let share = ideal.as_secs_f64() / time.as_secs_f64();
        println!(
            "loss {loss}: {:.0} % of the goodput without ({time:?}), {repeated} of {sent} repeated",
            share * 100.0
        );
        assert!(share > least, "loss {loss}: only {share} of the goodput");
        // Of what one of them lost, or did not get, nearly nothing more is repeated than that: 2 and what repeating loses.
        assert!((repeated as f64) < 5.0 * loss * sent as f64 + 150.0, "loss {loss}: {repeated} repeated");
    }
}

#[test]
fn a_restart_in_the_middle_costs_three_time_outs_at_most() {
    // 4 workers with 512 packets in flight each; the last thing sent are some copies of a result.
    let plan = plan(4, 1, 4, 2000);
    let mut slowest = Duration::ZERO;
    for at in (5..8000).step_by(401) {
        let restarts = Restarts { at_result: vec![at], ..Restarts::default() };
        let mut scene = Scene::new(at, 1, FAST, restarts);
        scene.add_job(&plan, vec![Manner::prompt(1); 4], &[]);
        scene.run(Duration::from_secs(10), Duration::ZERO);
        slowest = slowest.max(scene.now);
    }
    println!("slowest with one restart: {slowest:?}");
    // 20 + 40 + 80 ms, and what the rest takes.
    assert!(slowest < Duration::from_millis(160), "{slowest:?}");
}
