//! Ports that serve the queues of later passes first.

use super::{CASES, Case, Site, TOFINO2, trace, trim};
use fastrand::Rng;
use std::collections::BTreeSet;
use thc_protocol::wire::Header;
use thc_tests::p4::Order;
use thc_tests::traffic::loss;

/// Where a packet between two passes has its header of P1: behind trip_h.
const HEADER: std::ops::Range<usize> = 40..60;
/// What it asks for, and of which pass.
const COLLECT: u8 = 1;
const SECOND: u8 = 1;
/// As many queues as a port has passes at most, those that collect and the norms' among them.
const QUEUES: u8 = 32;

/// Sends the packets of whole rounds at once: how many came back from passes after the first; or which of them did so in between
/// those of another one.
pub fn finishes(case: Case, program: &str) -> Result<usize, String> {
    let plant = loss::plant();
    let mut site = Site::new(case, program, &trace::stations(&plant), 4);
    site.target.ports.pass_queues = QUEUES;
    site.configure(&plant);
    site.chip.back = Some(Vec::new());
    let (mut later, mut wrong) = (0, None);
    // Bytes of sums that one pass adds.
    let chunk = if case.name == "tofino" { 64 } else { 128 };
    loss::rounds(&mut Rng::with_seed(4), &plant, chunk, |packets| {
        packets.iter().for_each(|(port, frame, _)| site.chip.send(*port, frame));
        site.chip.run(Order::Highest);
        let back = site.chip.back.replace(Vec::new()).unwrap_or_default();
        // Any packet's first pass may follow that of another one; what has gone on from there comes alone until it is gone.
        let of_later = |frame: &&Vec<u8>| frame[0] == COLLECT || frame[1] > SECOND;
        let (mut now, mut gone) = (None, BTreeSet::new());
        for frame in back.iter().map(|(_, frame)| frame).filter(of_later) {
            later += 1;
            let (header, _) = Header::parse(&frame[HEADER]).unwrap();
            let whose = (header.job.0, header.slot.0, header.worker.0);
            if let Some(before) = now.replace(whose).filter(|before| *before != whose) {
                gone.insert(before);
                if gone.contains(&whose) {
                    wrong =
                        Some(format!("{case:?}: job, slot and worker {before:?} has overtaken {whose:?}"));
                }
            }
        }
        let mut out = std::mem::take(&mut site.chip.out);
        out.values_mut().flatten().for_each(trim);
        out
    });
    wrong.map_or(Ok(later), Err)
}

#[test]
fn what_is_begun_is_finished_first() {
    for case in CASES.into_iter().filter(|case| case.pass_ports.len() == 1) {
        let later = finishes(case, &case.program()).unwrap_or_else(|what| panic!("{what}"));
        println!("{case:?}: {later} passes after the second");
        assert!(later > 500, "{later}");
    }
}

/// Without queues the passes of all packets come in turn.
#[test]
fn a_program_without_queues_is_noticed() {
    let program = TOFINO2.program();
    let right = "manager.qid = queue;";
    assert!(program.contains(right), "the program has no {right}");
    assert!(finishes(TOFINO2, &program.replace(right, "")).is_err());
}
