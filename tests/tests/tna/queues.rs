//! Ports that serve the queues of later passes first.

use super::{CASES, Case, Site, TOFINO2, trace, trim};
use fastrand::Rng;
use thc_protocol::wire::Header;
use thc_tests::p4::Order;
use thc_tests::traffic::loss;

/// Where a packet between two passes has its header of P1: behind trip_h.
const HEADER: std::ops::Range<usize> = 40..60;
/// What it asks for, and of which pass.
const COLLECT: u8 = 2;
const SECOND: u8 = 1;
/// As many queues as a port has passes at most, those that collect and the norms' among them.
const QUEUES: u8 = 32;

/// Sends the packets of whole rounds at once: how many were past the second pass when they came back; or which of them did so while
/// another one was.
pub fn finishes(case: Case, program: &str) -> Result<usize, String> {
    let plant = loss::plant();
    let mut site = Site::new(case, program, &trace::stations(&plant), 4);
    site.target.pass_queues = QUEUES;
    site.configure(&plant);
    site.chip.back = Some(Vec::new());
    let (mut later, mut wrong) = (0, None);
    // Bytes of sums that one pass adds.
    let chunk = if case.name == "tofino" { 64 } else { 128 };
    loss::rounds(&mut Rng::with_seed(4), &plant, chunk, |packets| {
        packets.iter().for_each(|(port, frame, _)| site.chip.send(*port, frame));
        site.chip.run(Order::Highest);
        let back = site.chip.back.replace(Vec::new()).unwrap_or_default();
        let whose = |frame: &[u8]| Header::parse(&frame[HEADER]).map(|(header, _)| (header.job, header.slot, header.worker));
        for pair in back.windows(2) {
            let (before, frame) = (&pair[0].1, &pair[1].1);
            // Any packet's first pass may follow that of another one; what has gone on from there is alone.
            if frame[0] == COLLECT || frame[1] > SECOND {
                later += 1;
                if whose(frame) != whose(before) && wrong.is_none() {
                    wrong = Some(format!("{case:?}: {:?} overtakes {:?}", whose(frame), whose(before)));
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
