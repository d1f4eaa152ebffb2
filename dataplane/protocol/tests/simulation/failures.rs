//! How calls and sessions fail: NaN, different calls, crashed workers, a silent aggregator.

use crate::plan::{CallPlan, JobPlan};
use crate::scenario::{fair_network, job, manners, micros, ms, network, patience};
use crate::scene::{Network, Restarts, Scene};
use std::time::Duration;
use thc_protocol::WorkerId;
use thc_protocol::wire::Norm;
use thc_protocol::worker::{CallError, SessionError, Who};
use thc_support::random::{Rng, for_seeds};

/// A job of several workers with a time-out of 3 s.
fn impatient_job(rng: &mut Rng) -> JobPlan {
    loop {
        let mut plan = job(rng, 5, 0.0);
        if plan.config.workers >= 2 {
            plan.timeout = Duration::from_secs(3);
            plan.max_rto = ms(100);
            return plan;
        }
    }
}

#[test]
fn a_nan_fails_its_call_on_all_workers_alike_and_no_other() {
    for_seeds("a_nan_fails_its_call_on_all_workers_alike_and_no_other", 60, |seed| {
        let mut rng = Rng::new(seed);
        let network = network(&mut rng);
        let mut plan = job(&mut rng, 3, 0.4);
        // Several workers, several partitions, and values that a careless maximum would confuse.
        let workers = plan.config.workers;
        let mut bad = CallPlan::random(&mut rng, workers, 20, 0.0);
        bad.norms[0][0] = f32::MAX.to_bits();
        bad.norms[usize::from(workers) - 1][0] = Norm::non_finite(WorkerId(workers - 1));
        let place = rng.below(plan.calls.len() as u64 + 1) as usize;
        plan.calls.insert(place, bad);
        let manners = manners(&mut rng, &plan);
        let mut scene = Scene::new(seed, 1, network, Restarts::default());
        scene.add_job(&plan, manners, &[]);
        scene.run(patience(&scene), ms(50));
        for client in &scene.clients {
            assert_eq!(client.worker.failure(), None);
            for (number, call) in (0u64..).zip(&plan.calls) {
                let expected = call.non_finite().map(|worker| CallError::NonFinite { worker });
                assert_eq!(client.record.failed.get(&number).copied(), expected);
                assert_eq!(client.record.norms.contains_key(&number), expected.is_none());
                assert!(expected.is_none() || client.record.results.iter().all(|result| result.0 != number));
            }
        }
    });
}

/// What one worker does differently at call `at`.
fn differ(rng: &mut Rng, plan: &JobPlan, at: usize) -> JobPlan {
    let mut other = plan.clone();
    let call = &mut other.calls[at];
    match rng.below(4) {
        0 => call.length ^= 1,
        1 => call.key = call.key.wrapping_add(1),
        2 => {
            let choice = &mut call.choices[rng.below(call.packets.len() as u64) as usize];
            *choice = if choice.is_none() { Some(0) } else { None };
        }
        _ if at + 1 < plan.calls.len() => other.calls.swap(at, at + 1),
        // Another length has other partitions as well.
        _ => {
            call.length += 1024;
            call.packets.push(1);
            call.choices.push(Some(0));
            call.norms.iter_mut().for_each(|norms| norms.push(1f32.to_bits()));
        }
    }
    other
}

#[test]
fn different_calls_fail_every_worker_and_nothing_of_them_is_summed() {
    for_seeds("different_calls_fail_every_worker_and_nothing_of_them_is_summed", 100, |seed| {
        let mut rng = Rng::new(seed);
        let network = fair_network(&mut rng);
        let mut plan = impatient_job(&mut rng);
        plan.timeout = Duration::from_secs(1000);
        let at = rng.below(plan.calls.len() as u64) as usize;
        let odd = rng.below(u64::from(plan.config.workers)) as u8;
        let other = differ(&mut rng, &plan, at);
        let manners = manners(&mut rng, &plan);
        let mut scene = Scene::new(seed, 1, network, Restarts::default());
        scene.add_job(&plan, manners, &[(odd.into(), other.clone())]);
        scene.run(patience(&scene), ms(50));
        for client in &scene.clients {
            let own = &client.truth.plan.calls;
            let Some(SessionError::Mismatch { mine, who, slot, refused }) = client.worker.failure() else {
                panic!("worker {}: {:?}", client.number, client.worker.failure());
            };
            // Both sides are shown; one of them is the odd worker's.
            let of = |norm: Norm, calls: &[CallPlan]| {
                let call = &calls[usize::from(norm.call)];
                let as_called = (0..call.packets.len()).any(|partition| {
                    let (table, mode) = call.choice(partition, &plan.tables).of_norm();
                    (norm.table, norm.mode) == (table, mode as u8)
                });
                as_called && (norm.length, norm.key) == (call.length, call.key)
            };
            assert!(usize::from(slot.call) >= at && usize::from(refused.call) >= at);
            assert!(slot.tag != refused.tag);
            assert!(who == Who::Worker(WorkerId(odd)) || of(slot, &other.calls), "{who} is not the odd one");
            assert!(mine.is_none_or(|mine| of(mine, own)));
            // Norms of a later call may be through by then; its data wait for those of this call.
            assert!(!client.record.norms.contains_key(&(at as u64)));
            assert!(client.record.results.iter().all(|result| (result.0 as usize) < at));
        }
    });
}

#[test]
fn a_crashed_worker_is_named_by_all_others_in_time() {
    let mut stopped = 0;
    for_seeds("a_crashed_worker_is_named_by_all_others_in_time", 120, |seed| {
        let mut rng = Rng::new(seed);
        let network = fair_network(&mut rng);
        let plan = impatient_job(&mut rng);
        let dead = rng.below(u64::from(plan.config.workers)) as usize;
        let manners = manners(&mut rng, &plan);
        let mut scene = Scene::new(seed, 1, network, Restarts::default());
        scene.add_job(&plan, manners, &[]);
        let at = micros(rng.below(rng.clone().pick(&[1_000, 20_000, 200_000])));
        scene.crash_at(dead, at);
        scene.run(patience(&scene) + plan.timeout * 2, ms(50));
        for client in scene.clients.iter().filter(|client| !client.crashed) {
            let Some(failure) = client.worker.failure() else {
                assert_eq!(client.pending(), 0);
                continue;
            };
            let expected = WorkerId(dead as u8).bit();
            assert!(
                matches!(failure, SessionError::Missing { missing, .. } if missing == expected),
                "worker {dead} crashed, worker {} says: {failure}",
                client.number
            );
            let SessionError::Missing { waited, .. } = failure else { continue };
            assert!(waited >= plan.timeout && waited <= plan.timeout + plan.max_rto * 2, "{waited:?}");
            stopped += 1;
        }
    });
    println!("{stopped} workers were stopped by the crash of another");
    assert!(stopped > 100 || std::env::var_os("THC_SEED").is_some());
}

#[test]
fn a_silent_aggregator_is_said_to_be_silent() {
    for_seeds("a_silent_aggregator_is_said_to_be_silent", 60, |seed| {
        let mut rng = Rng::new(seed);
        let network = fair_network(&mut rng);
        let plan = impatient_job(&mut rng);
        let manners = manners(&mut rng, &plan);
        let at = micros(rng.pick(&[0, 500, 5_000, 50_000]));
        let restarts = Restarts { at: vec![at], outage: Duration::from_secs(10_000), ..Restarts::default() };
        let mut scene = Scene::new(seed, 1, network, restarts);
        scene.add_job(&plan, manners, &[]);
        scene.run(patience(&scene) + plan.timeout * 2, ms(50));
        for client in &scene.clients {
            match client.worker.failure() {
                None => assert_eq!(client.pending(), 0),
                Some(SessionError::Silent { waited }) => {
                    assert!(
                        waited >= plan.timeout && waited <= plan.timeout + plan.max_rto * 2,
                        "{waited:?}"
                    );
                }
                Some(other) => panic!("worker {}: {other}", client.number),
            }
        }
    });
}

#[test]
fn undetected_corruption_ends_every_call_or_session() {
    // What it does to the numbers nobody can say; but nothing panics, and nobody waits for ever.
    for_seeds("undetected_corruption_ends_every_call_or_session", 80, |seed| {
        let mut rng = Rng::new(seed);
        let network = Network { corrupt: rng.pick(&[0.0005, 0.01, 0.2]), ..fair_network(&mut rng) };
        let mut plan = impatient_job(&mut rng);
        plan.config.quorum = rng.between(1, u64::from(plan.config.workers)) as u8;
        if rng.chance(0.3) {
            plan.policy = thc_protocol::Policy::BestEffort;
        }
        let manners = manners(&mut rng, &plan);
        let mut scene = Scene::new(seed, 1, network, Restarts::default());
        scene.add_job(&plan, manners, &[]);
        scene.run(patience(&scene) + plan.timeout * 4, ms(50));
        for client in &scene.clients {
            assert!(client.worker.failure().is_some() || client.pending() == 0);
        }
    });
}
