//! Racks and a root (P34 to P39): with full quorum, sums are those of one aggregator, whatever is lost on whichever level.

use crate::client::Manner;
use crate::plan::{CallPlan, JobPlan};
use crate::scenario::{fair_network, manners, micros, ms};
use crate::scene::{Network, Restarts, Scene};
use std::time::Duration;
use thc_protocol::worker::{CallError, SessionError, Who};
use thc_protocol::{Policy, Rank, WorkerId};
use thc_support::random::{Rng, for_seeds};

/// A job of a few racks.
fn job(rng: &mut Rng, nan: f64) -> JobPlan {
    let racks = rng.between(1, 4);
    let sizes: Vec<u8> = (0..racks).map(|_| rng.between(1, 4) as u8).collect();
    let data_slots = rng.pick(&[2, 4, 8, 64, 256]);
    let norm_slots = rng.pick(&[2, 4, 16, 128]);
    let mut plan = JobPlan::in_racks(5, &sizes, data_slots, norm_slots);
    plan.timeout = Duration::from_secs(1000);
    plan.min_rto = ms(rng.pick(&[1, 5, 20]));
    plan.max_rto = ms(rng.pick(&[100, 400]));
    if rng.chance(0.3) {
        plan.wrap_after(rng.between(1, 4));
    }
    let (largest, calls) = (rng.pick(&[1, 5, 40, 100]), rng.between(1, 4));
    let workers = plan.workers();
    plan.calls = (0..calls).map(|_| CallPlan::random(rng, workers, largest, nan)).collect();
    plan
}

fn patience(plan: &JobPlan) -> Duration {
    let norms: u64 = plan.calls.iter().map(|call| call.packets.len() as u64).sum();
    let data: u64 = plan.calls.iter().flat_map(|call| &call.packets).map(|&count| u64::from(count)).sum();
    let windows =
        2 * norms / u64::from(plan.config.norm_slots) + 2 * data / u64::from(plan.config.data_slots);
    plan.max_rto * (windows as u32 * 4 + plan.calls.len() as u32 * 20 + 100)
}

/// Runs a job without restarts.
fn run(seed: u64, network: Network, plan: &JobPlan, manners: Vec<Manner>) -> Scene {
    let mut scene = Scene::new(seed, 1, network, Restarts::default());
    scene.same_copies = plan.quorum() == plan.workers();
    scene.add_job(plan, manners, &[]);
    scene.run(patience(plan), Duration::ZERO);
    scene
}

fn all_ended(scene: &Scene) {
    for client in &scene.clients {
        assert_eq!(client.worker.failure(), None, "worker {}", client.number);
    }
}

#[test]
fn sums_are_those_of_one_aggregator_whatever_the_network_does() {
    for_seeds("sums_are_those_of_one_aggregator_whatever_the_network_does", 120, |seed| {
        let mut rng = Rng::new(seed);
        let (network, plan) = (fair_network(&mut rng), job(&mut rng, 0.05));
        let manners = manners(&mut rng, &plan);
        let scene = run(seed, network, &plan, manners);
        all_ended(&scene);
        // P39: without restarts nobody is ever that far ahead, on any level.
        assert_eq!((scene.too_far, scene.mixed), (0, 0));
    });
}

#[test]
fn sums_are_exact_whenever_a_rack_or_the_root_forgets() {
    for_seeds("sums_are_exact_whenever_a_rack_or_the_root_forgets", 150, |seed| {
        let mut rng = Rng::new(seed);
        let (network, plan) = (fair_network(&mut rng), job(&mut rng, 0.05));
        let manners = manners(&mut rng, &plan);
        let outage = micros(rng.pick(&[0, 0, 500, 20_000]));
        let mut scene = Scene::new(seed, 1, network, Restarts { outage, ..Restarts::default() });
        scene.add_job(&plan, manners, &[]);
        for _ in 0..rng.between(1, 5) {
            let node = rng.below(plan.racks.len() as u64 + 1) as usize;
            scene.forget_at(node, micros(rng.below(60_000)));
        }
        scene.run(patience(&plan) * 2, Duration::ZERO);
        all_ended(&scene);
        assert_eq!(scene.mixed, 0);
    });
}

#[test]
fn a_nan_fails_its_call_on_the_workers_of_all_racks_and_names_the_rank() {
    for_seeds("a_nan_fails_its_call_on_the_workers_of_all_racks_and_names_the_rank", 40, |seed| {
        let mut rng = Rng::new(seed);
        let (network, mut plan) = (fair_network(&mut rng), job(&mut rng, 0.0));
        let workers = plan.workers();
        let mut bad = CallPlan::random(&mut rng, workers, 20, 0.0);
        let odd = Rank(rng.below(workers.into()) as u16);
        bad.norms[usize::from(odd.0)][0] = thc_protocol::wire::Norm::non_finite(odd);
        let place = rng.below(plan.calls.len() as u64 + 1) as usize;
        plan.calls.insert(place, bad);
        let manners = manners(&mut rng, &plan);
        let scene = run(seed, network, &plan, manners);
        all_ended(&scene);
        for client in &scene.clients {
            let failed = client.record.failed.get(&(place as u64)).copied();
            assert_eq!(failed, Some(CallError::NonFinite { worker: odd }));
            assert_eq!(client.record.failed.len(), 1);
        }
    });
}

#[test]
fn different_calls_fail_on_the_workers_of_all_racks() {
    for_seeds("different_calls_fail_on_the_workers_of_all_racks", 60, |seed| {
        let mut rng = Rng::new(seed);
        let (network, plan) = (fair_network(&mut rng), job(&mut rng, 0.0));
        if plan.workers() < 2 {
            return;
        }
        let odd = rng.below(plan.workers().into()) as u16;
        let mut other = plan.clone();
        let at = rng.below(plan.calls.len() as u64) as usize;
        other.calls[at].key ^= 1;
        let manners = manners(&mut rng, &plan);
        let mut scene = Scene::new(seed, 1, network, Restarts::default());
        scene.add_job(&plan, manners, &[(odd, other)]);
        scene.run(patience(&plan), Duration::ZERO);
        let (rack, number, _) = plan.place(odd);
        for client in &scene.clients {
            let Some(SessionError::Mismatch { who, slot, refused, .. }) = client.worker.failure() else {
                panic!("worker {}: {:?}", client.number, client.worker.failure());
            };
            let Who::OfRack(of, member) = who else { panic!("{who}") };
            assert_eq!(slot.key ^ refused.key, 1);
            // Whose NORM came first is not refused. Alone in its rack, or first there, it speaks for all of the rack.
            let keys = |key: u32| plan.calls.iter().any(|call| call.key == key);
            let is_odd = of == WorkerId(rack) && member.is_none_or(|member| member == WorkerId(number));
            assert!(is_odd || keys(refused.key), "{who}");
        }
    });
}

/// The quorum of each rack is below its size; the root waits for all racks.
#[test]
fn a_quorum_in_each_rack_gives_sums_of_that_many() {
    for_seeds("a_quorum_in_each_rack_gives_sums_of_that_many", 60, |seed| {
        let mut rng = Rng::new(seed);
        let network = fair_network(&mut rng);
        let mut plan = job(&mut rng, 0.0);
        // The sets that can have made a sum are looked through.
        let sizes: Vec<u8> = (0..rng.between(2, 3)).map(|_| rng.between(1, 3) as u8).collect();
        let calls = plan.calls.len();
        plan =
            JobPlan { timeout: plan.timeout, max_rto: plan.max_rto, ..JobPlan::in_racks(5, &sizes, 16, 4) };
        let workers = plan.workers();
        plan.calls = (0..calls).map(|_| CallPlan::random(&mut rng, workers, 6, 0.0)).collect();
        for (size, quorum) in &mut plan.racks {
            *quorum = 1 + rng.below(u64::from(*size)) as u8;
        }
        plan.policy = rng.pick(&[Policy::Reliable, Policy::BestEffort]);
        let manners = manners(&mut rng, &plan);
        let scene = run(seed, network, &plan, manners);
        for client in &scene.clients {
            let failure = client.worker.failure();
            assert!(failure.is_none(), "worker {}: {failure:?}", client.number);
        }
    });
}

#[test]
fn best_effort_in_racks_ends_in_time() {
    for_seeds("best_effort_in_racks_ends_in_time", 40, |seed| {
        let mut rng = Rng::new(seed);
        let (network, mut plan) = (fair_network(&mut rng), job(&mut rng, 0.0));
        plan.policy = Policy::BestEffort;
        let manners = manners(&mut rng, &plan);
        let scene = run(seed, network, &plan, manners);
        all_ended(&scene);
    });
}

/// 1,024 workers, 32 racks of 32, one packet in a thousand lost on each link, and a rack and the root forget everything.
#[test]
fn a_thousand_workers_through_32_racks() {
    let sizes = [32; 32];
    let mut plan = JobPlan::in_racks(1, &sizes, 16, 4);
    plan.min_rto = ms(5);
    plan.max_rto = ms(100);
    let mut rng = Rng::new(1);
    let mut call = CallPlan::random(&mut rng, 1024u16, 20, 0.0);
    call.packets = vec![24, 3];
    call.choices = vec![Some(0), None];
    call.norms = (0..1024u32).map(|w| vec![(w as f32 + 0.5).to_bits(), 1f32.to_bits()]).collect();
    plan.calls = vec![call];
    let network = Network {
        delay: micros(20),
        jitter: micros(5),
        loss: 0.001,
        wire_time: Duration::from_nanos(100),
        ..Network::default()
    };
    let mut scene = Scene::new(1, 1, network, Restarts { outage: micros(100), ..Restarts::default() });
    scene.add_job(&plan, vec![Manner::prompt(1); 1024], &[]);
    scene.forget_at(8, micros(400));
    scene.forget_at(0, micros(900));
    scene.run(Duration::from_secs(30), Duration::ZERO);
    all_ended(&scene);
    assert_eq!(plan.workers(), 1024);
    println!("1,024 workers: {:?} of virtual time, {} packets on their links", scene.now, scene.packets);
}
