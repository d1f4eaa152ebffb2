//! The program as a rack (P34 to P36).

use super::{SEED, Site, name_of};
use crate::bmv2_trace::compare;
use crate::tna::trace::stations;
use fastrand::Rng;
use std::collections::BTreeMap;
use thc_tests::traffic::plant::Plant;
use thc_tests::traffic::racks::{jobs, step, tables};

const PACKETS: u32 = 4000;

/// A switch and a model that are racks.
pub fn site() -> (Site, Plant) {
    let mut plant = Plant::new(&[]);
    (plant.jobs, plant.tables) = (jobs(), tables());
    plant.configure_model();
    let mut site = Site::new(&stations(&plant));
    site.configure(&plant);
    (site, plant)
}

#[test]
fn program_and_model_are_equal_as_racks() {
    let mut random = Rng::with_seed(SEED);
    let (mut site, mut plant) = site();
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for packet in 0..PACKETS {
        let (port, datagram) = step(&mut random, &plant, packet);
        let outcome = site.send_to_both(&mut plant, port, &datagram);
        let outcome = outcome.unwrap_or_else(|what| panic!("seed {SEED}, packet {packet}: {what}"));
        *outcomes.entry(name_of(outcome)).or_default() += 1;
    }
    let cells = compare::registers(SEED, &plant, &site.switch);
    compare::counters(SEED, &plant, &site.switch, 0);
    println!("{PACKETS} packets, {cells} cells: {outcomes:?}");
    for what in
        ["opened", "added", "duplicate", "late", "stale", "mismatch", "passed", "cookie", "source", "workers"]
    {
        assert!(outcomes.contains_key(what), "no packet is {what}: {outcomes:?}");
    }
}
