//! `reliable` with full quorum always ends with the exact sums.

use crate::scenario::{job, manners, ms, network, patience, restarts, scene};
use crate::scene::{Network, Restarts, Scene};
use std::time::Duration;
use thc_support::random::{Rng, for_seeds};

fn all_ended(scene: &Scene) {
    for client in &scene.clients {
        assert_eq!(client.worker.failure(), None);
        assert!(client.ended.is_some());
    }
}

#[test]
fn sums_are_exact_whatever_the_network_does() {
    let mut slowest = Duration::ZERO;
    for_seeds("sums_are_exact_whatever_the_network_does", 150, |seed| {
        let mut rng = Rng::new(seed);
        let network = network(&mut rng);
        let jobs = rng.pick(&[1, 1, 3]);
        let mut scene = scene(&mut rng, seed, jobs, 0.05, network, Restarts::default());
        scene.run(patience(&scene), ms(50));
        all_ended(&scene);
        // P18: without restarts nobody is ever that far ahead.
        assert_eq!((scene.too_far, scene.mixed), (0, 0));
        slowest = slowest.max(scene.now);
    });
    println!("slowest trace: {slowest:?}");
}

#[test]
fn sums_are_exact_whenever_the_aggregator_forgets() {
    let mut slowest = Duration::ZERO;
    for_seeds("sums_are_exact_whenever_the_aggregator_forgets", 250, |seed| {
        let mut rng = Rng::new(seed);
        // Beyond a tenth it ends as well, but what only one worker lacks takes a second a packet.
        let network = network(&mut rng);
        let network = Network { loss: network.loss.min(0.1), ..network };
        let restarts = restarts(&mut rng, 4);
        let jobs = rng.pick(&[1, 1, 2]);
        let mut scene = scene(&mut rng, seed, jobs, 0.05, network, restarts);
        scene.run(patience(&scene), ms(50));
        all_ended(&scene);
        assert_eq!(scene.mixed, 0);
        slowest = slowest.max(scene.now);
    });
    println!("slowest trace: {slowest:?}");
}

/// P9: what was under way since before a restart opens slots with old rounds, and NUDGE brings them up to date.
#[test]
fn sums_are_exact_when_packets_outlive_a_restart() {
    let (mut slowest, mut too_far) = (Duration::ZERO, 0);
    for_seeds("sums_are_exact_when_packets_outlive_a_restart", 60, |seed| {
        let mut rng = Rng::new(seed);
        // Many doubled packets, a copy of which comes rounds later: few slots make short rounds.
        let network =
            Network { duplicate: 0.5, late: 0.3, late_by: ms(rng.between(20, 200)), ..network(&mut rng) };
        let network = Network { loss: network.loss.min(0.05), ..network };
        let restarts = restarts(&mut rng, 4);
        let mut plan = job(&mut rng, 5, 0.05);
        plan.config.data_slots = rng.pick(&[2, 4, 6]);
        plan.config.norm_slots = 2;
        let manners = manners(&mut rng, &plan);
        let mut scene = Scene::new(seed, 1, network, restarts);
        scene.add_job(&plan, manners, &[]);
        scene.run(patience(&scene), ms(50));
        all_ended(&scene);
        assert_eq!(scene.mixed, 0);
        too_far += scene.too_far;
        slowest = slowest.max(scene.now);
    });
    println!("slowest trace: {slowest:?}, {too_far} packets dropped as too far ahead");
    assert!(too_far > 0, "no trace has such a packet");
}
