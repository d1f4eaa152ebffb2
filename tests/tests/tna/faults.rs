//! The order of P7's checks, which the model asks one after the other and the programs find in a ternary table: packets with
//! every set of faults.

use super::{Site, TOFINO, TOFINO2, compare, racks, trace};
use thc_protocol::aggregator::Outcome;
use thc_protocol::wire::Kind;
use thc_protocol::{JobId, WorkerId};
use thc_tests::traffic::faults::{FAULTS, packet};
use thc_tests::traffic::plant::Plant;
use thc_tests::traffic::{config, jobs, tables};

/// Packets with all sets of faults, which are refused for the model's reasons.
fn send_faulty(site: &mut Site, plant: &mut Plant, kinds: &[Kind]) {
    for &kind in kinds {
        // Where a root's packet has no slot, the programs do not know whose it should be: of several reasons they count another
        // one that fits (P36).
        let of_root = kind as u8 > Kind::Raw as u8;
        let comparable = |faults: &u32| !of_root || faults >> 10 & 1 == 0 || faults >> 4 & 0xBF == 0;
        for faults in (1..1 << FAULTS).filter(comparable) {
            let (port, datagram) = packet(&plant.jobs[0], kind, faults);
            let outcome = site.send_to_both(plant, port, &datagram);
            let outcome = outcome.unwrap_or_else(|what| panic!("{kind:?} with faults {faults:#b}: {what}"));
            // What is of no matter for a kind is no fault: it may be let in.
            let dropped = matches!(outcome, Outcome::Dropped(_));
            assert!(dropped || faults & 0x3FF == 0 || of_root, "{kind:?} with faults {faults:#b}");
        }
        // Which reason it was, the counters say.
        compare::counters(plant, site, 0).unwrap_or_else(|what| panic!("{kind:?}: {what}"));
    }
}

#[test]
fn checks_are_in_the_order_of_p7() {
    for case in [TOFINO, TOFINO2] {
        let mut plant = Plant::new(&[Kind::Join, Kind::Leave]);
        plant.jobs = jobs();
        plant.jobs.truncate(1);
        plant.jobs[0].config = config(1, 4, 4, (8, 4), &[3]);
        plant.tables = tables();
        plant.tables.retain(|&id, _| id == 3);
        plant.configure_model();
        let mut site = Site::new(case, &case.program(), &trace::stations(&plant), 4);
        site.configure(&plant);
        send_faulty(&mut site, &mut plant, &[Kind::Norm, Kind::Data, Kind::Raw]);
        let counters = plant.model.job_counters(JobId(1)).unwrap();
        assert!(counters.worker(WorkerId(0)).drops.iter().filter(|&&drops| drops > 0).count() > 4);
    }
}

#[test]
fn what_a_root_sends_is_checked_in_the_order_of_p36() {
    for case in [TOFINO, TOFINO2] {
        let (mut site, mut plant) = racks::site(case, 4);
        let of_root =
            [Kind::NormResult, Kind::Result, Kind::RawResult, Kind::Straggler, Kind::Mismatch, Kind::Nudge];
        send_faulty(&mut site, &mut plant, &of_root);
        send_faulty(&mut site, &mut plant, &[Kind::Norm, Kind::Data, Kind::Raw]);
    }
}
