//! `reliable` with full quorum always ends with the exact sums.

use crate::rng::{Rng, for_seeds};
use crate::scenario::{ms, network, patience, restarts, world};
use crate::world::{Network, Restarts, World};
use std::time::Duration;

fn all_ended(world: &World) {
    for client in &world.clients {
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
        let mut world = world(&mut rng, seed, jobs, 0.05, network, Restarts::default());
        world.run(patience(&world), ms(50));
        all_ended(&world);
        slowest = slowest.max(world.now);
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
        let mut world = world(&mut rng, seed, jobs, 0.05, network, restarts);
        world.run(patience(&world), ms(50));
        all_ended(&world);
        slowest = slowest.max(world.now);
    });
    println!("slowest trace: {slowest:?}");
}
