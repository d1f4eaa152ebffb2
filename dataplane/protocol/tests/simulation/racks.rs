//! Racks and a root (P34 to P39): with full quorum, sums are those of one aggregator, whatever is lost on whichever level.

use crate::client::Manner;
use crate::plan::{CallPlan, JobPlan};
use crate::scenario::{micros, ms, network};
use crate::scene::Network;
use crate::tree::{Node, Tree};
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

fn manners(rng: &mut Rng, plan: &JobPlan) -> Vec<Manner> {
    let calls = plan.calls.len();
    let dawdle = rng.pick(&[0, 0, 200, 5_000]);
    let manner = |_| Manner {
        flight: rng.between(1, 4) as usize,
        start: micros(rng.below(if dawdle == 0 { 100 } else { 50_000 })),
        compute: (0..calls).map(|_| micros(rng.below(dawdle + 1))).collect(),
        gaps: (0..calls).map(|_| micros(rng.below(dawdle + 1))).collect(),
        latency: micros(rng.pick(&[0, 1, 20, 500])),
        limit: rng.chance(0.2).then(|| rng.between(1, 64)),
    };
    (0..plan.workers()).map(manner).collect()
}

/// A lossy network on every level, not so bad that only time-outs move anything.
fn fair(rng: &mut Rng) -> Network {
    let network = network(rng);
    Network { loss: network.loss.min(0.1), late_by: network.late_by.min(ms(30)), ..network }
}

fn patience(plan: &JobPlan) -> Duration {
    let norms: u64 = plan.calls.iter().map(|call| call.packets.len() as u64).sum();
    let data: u64 = plan.calls.iter().flat_map(|call| &call.packets).map(|&count| u64::from(count)).sum();
    let windows =
        2 * norms / u64::from(plan.config.norm_slots) + 2 * data / u64::from(plan.config.data_slots);
    plan.max_rto * (windows as u32 * 4 + plan.calls.len() as u32 * 20 + 100)
}

fn all_ended(tree: &Tree) {
    for client in &tree.clients {
        assert_eq!(client.worker.failure(), None, "worker {}", client.number);
    }
}

#[test]
fn sums_are_those_of_one_aggregator_whatever_the_network_does() {
    for_seeds("sums_are_those_of_one_aggregator_whatever_the_network_does", 120, |seed| {
        let mut rng = Rng::new(seed);
        let (network, plan) = (fair(&mut rng), job(&mut rng, 0.05));
        let manners = manners(&mut rng, &plan);
        let mut tree = Tree::new(seed, network, &plan, manners);
        tree.run(patience(&plan));
        all_ended(&tree);
        // P39: without restarts nobody is ever that far ahead, on any level.
        assert_eq!((tree.too_far, tree.mixed), (0, 0));
    });
}

#[test]
fn sums_are_exact_whenever_a_rack_or_the_root_forgets() {
    for_seeds("sums_are_exact_whenever_a_rack_or_the_root_forgets", 150, |seed| {
        let mut rng = Rng::new(seed);
        let (network, plan) = (fair(&mut rng), job(&mut rng, 0.05));
        let manners = manners(&mut rng, &plan);
        let mut tree = Tree::new(seed, network, &plan, manners);
        let outage = micros(rng.pick(&[0, 0, 500, 20_000]));
        for _ in 0..rng.between(1, 5) {
            let rack = rng.below(plan.racks.len() as u64 + 1) as usize;
            let node = if rack == plan.racks.len() { Node::Root } else { Node::Rack(rack) };
            tree.restart(node, micros(rng.below(60_000)), outage);
        }
        tree.run(patience(&plan) * 2);
        all_ended(&tree);
        assert_eq!(tree.mixed, 0);
    });
}

#[test]
fn a_nan_fails_its_call_on_the_workers_of_all_racks_and_names_the_rank() {
    for_seeds("a_nan_fails_its_call_on_the_workers_of_all_racks_and_names_the_rank", 40, |seed| {
        let mut rng = Rng::new(seed);
        let (network, mut plan) = (fair(&mut rng), job(&mut rng, 0.0));
        let workers = plan.workers();
        let mut bad = CallPlan::random(&mut rng, workers, 20, 0.0);
        let odd = Rank(rng.below(workers.into()) as u16);
        bad.norms[usize::from(odd.0)][0] = thc_protocol::wire::Norm::non_finite(odd);
        let place = rng.below(plan.calls.len() as u64 + 1) as usize;
        plan.calls.insert(place, bad);
        let manners = manners(&mut rng, &plan);
        let mut tree = Tree::new(seed, network, &plan, manners);
        tree.run(patience(&plan));
        all_ended(&tree);
        for client in &tree.clients {
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
        let (network, plan) = (fair(&mut rng), job(&mut rng, 0.0));
        if plan.workers() < 2 {
            return;
        }
        let odd = rng.below(plan.workers().into()) as usize;
        let mut other = plan.clone();
        let at = rng.below(plan.calls.len() as u64) as usize;
        other.calls[at].key ^= 1;
        let manners = manners(&mut rng, &plan);
        let mut tree = Tree::new(seed, network, &plan, manners.clone());
        tree.differs(odd, &other, manners[odd].clone());
        tree.run(patience(&plan));
        let (rack, number, _) = plan.place(odd as u16);
        for client in &tree.clients {
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
        let network = fair(&mut rng);
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
        let mut tree = Tree::new(seed, network, &plan, manners);
        tree.run(patience(&plan));
        for client in &tree.clients {
            let failure = client.worker.failure();
            assert!(failure.is_none(), "worker {}: {failure:?}", client.number);
        }
    });
}

#[test]
fn best_effort_in_racks_ends_in_time() {
    for_seeds("best_effort_in_racks_ends_in_time", 40, |seed| {
        let mut rng = Rng::new(seed);
        let (network, mut plan) = (fair(&mut rng), job(&mut rng, 0.0));
        plan.policy = Policy::BestEffort;
        let manners = manners(&mut rng, &plan);
        let mut tree = Tree::new(seed, network, &plan, manners);
        tree.run(patience(&plan));
        all_ended(&tree);
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
    let mut tree = Tree::new(1, network, &plan, vec![Manner::prompt(1); 1024]);
    tree.restart(Node::Rack(7), micros(400), micros(100));
    tree.restart(Node::Root, micros(900), micros(100));
    tree.run(Duration::from_secs(30));
    all_ended(&tree);
    assert_eq!(plan.workers(), 1024);
    println!("1,024 workers: {:?} of virtual time, {} packets on all links", tree.now, tree.packets);
}
