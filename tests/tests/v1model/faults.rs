//! The order of P7's checks: packets with every set of faults.

use super::{SEED, Site, racks};
use crate::bmv2_trace::compare;
use crate::tna::trace::stations;
use thc_protocol::aggregator::Outcome;
use thc_protocol::wire::Kind;
use thc_tests::traffic::faults::{FAULTS, packet};
use thc_tests::traffic::plant::Plant;
use thc_tests::traffic::{config, jobs, tables};

/// Packets with all sets of faults; how many the model drops.
fn send_faulty(site: &mut Site, plant: &mut Plant, kinds: &[Kind]) -> usize {
    let mut dropped = 0;
    for &kind in kinds {
        // Where a root's packet has no slot, the program does not know which worker's it should be: of several reasons it counts
        // another one that fits (P36).
        let of_root = kind as u8 > Kind::Raw as u8;
        let comparable = |faults: &u32| !of_root || faults >> 10 & 1 == 0 || faults >> 4 & 0xBF == 0;
        for faults in (1..1 << FAULTS).filter(comparable) {
            let (port, datagram) = packet(&plant.jobs[0], kind, faults);
            let outcome = site.send_to_both(plant, port, &datagram);
            let outcome = outcome.unwrap_or_else(|what| panic!("{kind:?} with faults {faults:#b}: {what}"));
            dropped += usize::from(matches!(outcome, Outcome::Dropped(_)));
        }
    }
    compare::counters(SEED, plant, &site.switch, 0);
    dropped
}

#[test]
fn checks_are_in_the_order_of_p7() {
    let mut plant = Plant::new(&[Kind::Join, Kind::Leave]);
    plant.jobs = jobs();
    plant.jobs.truncate(1);
    plant.jobs[0].config = config(1, 4, 4, (8, 4), &[3]);
    plant.tables = tables();
    plant.configure_model();
    let mut site = Site::new(&stations(&plant));
    site.configure(&plant);
    let dropped = send_faulty(&mut site, &mut plant, &[Kind::Norm, Kind::Data, Kind::Raw]);
    assert!(dropped > 1 << FAULTS, "{dropped}");
}

#[test]
fn what_a_root_sends_is_checked_in_the_order_of_p36() {
    let (mut site, mut plant) = racks::site();
    let of_root =
        [Kind::NormResult, Kind::Result, Kind::RawResult, Kind::Straggler, Kind::Mismatch, Kind::Nudge];
    let dropped = send_faulty(&mut site, &mut plant, &of_root);
    assert!(dropped > 1 << FAULTS, "{dropped}");
}
