//! The programs as racks (P34 to P36).

use super::trace::{PACKETS, stations};
use super::{CASES, Case, Site, compare};
use fastrand::Rng;
use std::collections::BTreeMap;
use thc_protocol::aggregator::Outcome;
use thc_tests::traffic::plant::Plant;
use thc_tests::traffic::racks::{jobs, step, tables};

/// A chip and a model that are racks.
pub fn site(case: Case, seed: u64) -> (Site, Plant) {
    let mut plant = Plant::new(&[]);
    plant.jobs = jobs();
    plant.tables = tables();
    plant.configure_model();
    let mut site = Site::new(case, &case.program(), &stations(&plant), seed);
    site.configure(&plant);
    (site, plant)
}

fn equal(case: Case) {
    let seed = 4;
    let mut random = Rng::with_seed(seed);
    let (mut site, mut plant) = site(case, seed);
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for packet in 0..PACKETS as u32 {
        let (port, datagram) = step(&mut random, &plant, packet);
        let outcome = site.send_to_both(&mut plant, port, &datagram);
        let outcome = outcome.unwrap_or_else(|what| panic!("{case:?}, seed {seed}, packet {packet}: {what}"));
        *outcomes
            .entry(match outcome {
                Outcome::Handled(event) => event.name(),
                Outcome::Dropped(reason) => reason.name(),
                Outcome::Passed => "passed",
            })
            .or_default() += 1;
    }
    compare::counters(&plant, &site, 0).unwrap_or_else(|what| panic!("{case:?}: {what}"));
    println!("{case:?}: {outcomes:?}");
    for what in
        ["opened", "added", "duplicate", "late", "stale", "mismatch", "passed", "cookie", "source", "workers"]
    {
        assert!(outcomes.contains_key(what), "no packet is {what}: {outcomes:?}");
    }
}

#[test]
fn programs_and_model_are_equal_as_racks() {
    CASES.into_iter().for_each(equal);
}
