//! `best-effort`, and quorums below n: what may be missing, and that nothing else is.

use crate::client::Manner;
use crate::plan::{CallPlan, JobPlan};
use crate::scenario::{job, manners, micros, ms, network, patience, restarts};
use crate::scene::{Network, Restarts, Scene};
use std::time::Duration;
use thc_protocol::wire::Norm;
use thc_protocol::worker::CallError;
use thc_protocol::{Policy, WorkerId};
use thc_support::random::{Rng, for_seeds};

fn quorum_job(rng: &mut Rng, nan: f64) -> JobPlan {
    loop {
        let mut plan = job(rng, 9, nan);
        if plan.config.workers >= 3 {
            plan.config.quorum = rng.between(1, u64::from(plan.config.workers) - 1) as u8;
            plan.max_rto = ms(100);
            return plan;
        }
    }
}

#[test]
fn best_effort_ends_in_time_whatever_is_lost() {
    let (mut results, mut lost) = (0, 0);
    for_seeds("best_effort_ends_in_time_whatever_is_lost", 120, |seed| {
        let mut rng = Rng::new(seed);
        let network = network(&mut rng);
        let mut plan = job(&mut rng, 2, 0.1);
        plan.policy = Policy::BestEffort;
        plan.deadline = ms(rng.pick(&[1, 10, 100]));
        let restarts = restarts(&mut rng, 3);
        let manners = manners(&mut rng, &plan);
        let mut scene = Scene::new(seed, rng.pick(&[1, 2]), network, restarts);
        scene.add_job(&plan, manners, &[]);
        scene.run(patience(&scene) + deadlines(&scene), ms(50));
        for client in &scene.clients {
            assert_eq!(client.worker.failure(), None);
            results += client.record.results.len();
            lost += client.record.lost.len();
        }
    });
    println!("{results} results, {lost} given up");
    assert!(lost > 0 && results > lost);
}

/// The time that best-effort may take if every packet is lost: a deadline for every window.
fn deadlines(scene: &Scene) -> Duration {
    let of = |plan: &JobPlan, limit: Option<u64>| {
        let window = limit.unwrap_or(u64::MAX).min(u64::from(plan.config.data_slots / 2)) as u32;
        plan.calls
            .iter()
            .flat_map(|call| &call.packets)
            .map(|packets| plan.deadline * (packets / window + 2))
            .sum()
    };
    scene.clients.iter().map(|client| of(&client.truth.plan, client.manner.limit)).max().unwrap_or_default()
}

#[test]
fn best_effort_data_are_given_up_at_the_deadline_and_not_before() {
    // The aggregator goes deaf once the norms are in: every window of 4 takes one deadline.
    let mut plan = JobPlan::new(1, 2, 8, 8, thc_protocol::Lane::Bits8);
    plan.policy = Policy::BestEffort;
    plan.deadline = ms(40);
    let norms = vec![vec![1f32.to_bits()]; 2];
    plan.calls = vec![CallPlan { length: 1, key: 0, packets: vec![10], choices: vec![Some(0)], norms }];
    let network = Network { delay: micros(100), ..Network::default() };
    let restarts =
        Restarts { at: vec![micros(250)], outage: Duration::from_secs(100), ..Restarts::default() };
    let mut scene = Scene::new(0, 1, network, restarts);
    let slow = Manner { compute: vec![ms(1)], ..Manner::prompt(1) };
    scene.add_job(&plan, vec![slow.clone(), slow], &[]);
    scene.run(Duration::from_secs(1), Duration::ZERO);
    for client in &scene.clients {
        assert_eq!((client.record.lost.len(), client.worker.stats().data.given_up), (10, 10));
        // Each was asked for again at each quarter of the deadline.
        assert_eq!(client.worker.stats().data.repeated, 30);
        let took = client.ended.unwrap();
        assert!(took >= ms(120) && took < ms(123), "{took:?}");
    }
}

#[test]
fn without_loss_best_effort_loses_nothing() {
    for_seeds("without_loss_best_effort_loses_nothing", 30, |seed| {
        let mut rng = Rng::new(seed);
        let mut plan = job(&mut rng, 2, 0.1);
        plan.policy = Policy::BestEffort;
        plan.deadline = Duration::from_secs(5);
        let manners = manners(&mut rng, &plan);
        let network =
            Network { delay: micros(50), jitter: micros(5), wire_time: micros(1), ..Network::default() };
        let mut scene = Scene::new(seed, 1, network, Restarts::default());
        scene.add_job(&plan, manners, &[]);
        scene.run(patience(&scene), Duration::ZERO);
        for client in &scene.clients {
            assert_eq!(client.worker.failure(), None);
            let stats = client.worker.stats().data;
            assert_eq!(client.record.lost.len(), 0);
            assert!(stats.repeated <= 4 + stats.sent / 50, "{stats:?}");
        }
    });
}

#[test]
fn a_quorum_goes_on_and_its_sums_are_of_exactly_those_it_counts() {
    let (mut partial, mut left_out) = (0, 0);
    for_seeds("a_quorum_goes_on_and_its_sums_are_of_exactly_those_it_counts", 150, |seed| {
        let mut rng = Rng::new(seed);
        let network = network(&mut rng);
        let mut plan = quorum_job(&mut rng, 0.0);
        if rng.chance(0.3) {
            plan.policy = Policy::BestEffort;
        }
        let manners = manners(&mut rng, &plan);
        let mut scene = Scene::new(seed, rng.pick(&[1, 2]), network, Restarts::default());
        scene.add_job(&plan, manners, &[]);
        scene.run(patience(&scene) + deadlines(&scene), ms(50));
        for client in &scene.clients {
            assert_eq!(client.worker.failure(), None);
            partial += client.record.lost.len();
            left_out += client.record.left_out.len();
        }
    });
    println!("{partial} packets given up, {left_out} partitions left out");
    assert!(left_out > 0 || std::env::var_os("THC_SEED").is_some());
}

#[test]
fn a_quorum_goes_on_without_crashed_workers() {
    for_seeds("a_quorum_goes_on_without_crashed_workers", 80, |seed| {
        let mut rng = Rng::new(seed);
        let network = network(&mut rng);
        let mut plan = quorum_job(&mut rng, 0.0);
        // So many that nobody is left behind, and the living are a quorum.
        plan.config.norm_slots = 256;
        let manners = manners(&mut rng, &plan);
        let mut scene = Scene::new(seed, 1, network, Restarts::default());
        scene.add_job(&plan, manners, &[]);
        for dead in 0..plan.config.workers - plan.config.quorum {
            let at = micros(rng.pick(&[0, 300, 2_000, 30_000]));
            scene.crash_at(usize::from(dead), at);
        }
        scene.run(patience(&scene), ms(50));
        for client in scene.clients.iter().filter(|client| !client.crashed) {
            assert_eq!(client.worker.failure(), None);
        }
    });
}

#[test]
fn a_nan_that_comes_after_the_quorum_fails_the_call_on_its_own_worker_and_spoils_no_sum() {
    // Worker 2 starts late, with a NaN in the middle one of three calls: the others never see it.
    for_seeds(
        "a_nan_that_comes_after_the_quorum_fails_the_call_on_its_own_worker_and_spoils_no_sum",
        40,
        |seed| {
            let mut rng = Rng::new(seed);
            let slots = rng.pick(&[8, 64, 256]);
            let mut plan = JobPlan::new(1, 3, slots, 16, thc_protocol::Lane::Bits8);
            plan.config.quorum = 2;
            plan.calls = (0..3).map(|_| CallPlan::random(&mut rng, 3u8, 40, 0.0)).collect();
            plan.calls[1].norms[2][0] = Norm::non_finite(WorkerId(2));
            let network = Network { delay: micros(20), ..Network::default() };
            let mut scene = Scene::new(seed, 1, network, Restarts::default());
            let mut manners = vec![Manner { flight: 3, ..Manner::prompt(3) }; 3];
            manners[2].start = micros(rng.pick(&[200, 1_000]));
            manners[2].latency = micros(rng.pick(&[0, 100]));
            scene.add_job(&plan, manners, &[]);
            scene.run(Duration::from_secs(20), ms(50));
            for client in &scene.clients {
                assert_eq!(client.worker.failure(), None);
                let error = CallError::NonFinite { worker: WorkerId(2).into() };
                match client.record.failed.get(&1) {
                    Some(&failed) => assert_eq!((client.number, failed), (2, error)),
                    None => assert!(client.number != 2),
                }
            }
        },
    );
}
