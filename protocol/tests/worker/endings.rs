//! How a session fails, and what a worker still does afterwards.

use super::desk::{Desk, Report, ms, parameters};
use std::time::Duration;
use thc_protocol::wire::{Header, Kind, Mismatch, Norm};
use thc_protocol::worker::{SessionError, Who};
use thc_protocol::{TableId, WorkerId};

fn own(call: u16) -> Norm {
    Norm { tag: 0, value: 1f32.to_bits(), length: 1024, call, table: TableId(9), mode: 0, key: 0xFACE }
        .tagged(1)
}

fn mismatch(desk: &mut Desk, from: u8, seq: u64, slot: Norm, refused: Norm) {
    let header = Header {
        kind: Kind::Mismatch,
        worker: WorkerId(from),
        count: 0,
        ..desk.header(Kind::NormResult, seq)
    };
    desk.handle(header, &Mismatch { slot, refused }.to_bytes());
}

#[test]
fn a_mismatch_shows_what_was_sent_here_and_there() {
    let mut desk = Desk::new(parameters());
    desk.call(1);
    desk.submit(&[1], &[1.0]);
    let other = Norm { length: 77, key: 3, ..own(1) }.tagged(1);
    mismatch(&mut desk, 2, 1, own(1), other);
    let expected = SessionError::Mismatch {
        mine: Some(own(1)),
        who: Who::Worker(WorkerId(2)),
        slot: own(1),
        refused: other,
    };
    assert_eq!(desk.worker.failure(), Some(expected));
    let text = expected.to_string();
    assert!(text.contains("worker 2 called all-reduce #1 of 77 coordinates (tensor 0x3, table 9)"), "{text}");
    assert!(text.contains("#1 of 1024 coordinates (tensor 0xface, table 9) here"), "{text}");
    // A second one changes nothing.
    mismatch(&mut desk, 0, 1, other, own(1));
    assert_eq!(desk.worker.failure(), Some(expected));
    // Before this worker has come so far there is nothing to show.
    let mut early = Desk::new(parameters());
    mismatch(&mut early, 2, 0, own(0), other);
    assert!(matches!(early.worker.failure(), Some(SessionError::Mismatch { mine: None, .. })));
    assert!(early.worker.failure().unwrap().to_string().contains("nothing yet here"));
}

#[test]
fn after_a_failure_there_are_no_events_and_nothing_is_sent_but_to_who_asks() {
    let mut desk = Desk::new(parameters());
    desk.call(4);
    desk.fill();
    desk.submit(&[1], &[1.0]);
    desk.result(0);
    desk.take();
    desk.reports.0.clear();
    desk.worker.fail(SessionError::Reforming { worker: WorkerId(2) });
    desk.result(1);
    desk.norm_result(1, 0);
    desk.straggler(Kind::Data, 2);
    mismatch(&mut desk, 2, 1, own(1), own(2));
    assert_eq!(desk.submit(&[1], &[1.0]), 2);
    desk.now = ms(5000);
    desk.tick();
    desk.fill();
    assert_eq!((desk.take(), desk.worker.deadline(), desk.worker.next_data()), (vec![], None, None));
    assert_eq!(desk.reports.0, []);
    assert_eq!(desk.worker.failure(), Some(SessionError::Reforming { worker: WorkerId(2) }));
    desk.nudge(0, Kind::Data, 0, 0b001);
    assert_eq!(desk.take(), [(Kind::Data, 0, false)]);
}

#[test]
fn the_refused_brings_the_mismatch_again_to_who_still_waits() {
    let mut desk = Desk::new(parameters());
    desk.call(1);
    desk.submit(&[1], &[1.0]);
    desk.take();
    mismatch(&mut desk, 1, 1, Norm { key: 1, ..own(1) }.tagged(1), own(1));
    // Worker 0 has lost the MISMATCH and waits for something else.
    desk.nudge(0, Kind::Norm, 2, 0b101);
    assert_eq!(desk.take(), [(Kind::Norm, 1, false)]);
    desk.nudge(0, Kind::Data, 0, 0b111);
    assert_eq!(desk.take(), [(Kind::Norm, 1, false)]);
    // Once, where it is this very packet that lacks.
    desk.nudge(0, Kind::Norm, 1, 0b101);
    assert_eq!(desk.take(), [(Kind::Norm, 1, false)]);
    // Who was not refused has nothing to bring.
    let mut other = Desk::new(parameters());
    other.submit(&[1], &[1.0]);
    other.take();
    mismatch(&mut other, 2, 0, own(0), own(1));
    other.nudge(0, Kind::Norm, 1, 0b101);
    assert_eq!(other.take(), []);
}

#[test]
fn missing_workers_are_named_when_time_is_up() {
    let mut desk = Desk::new(parameters());
    desk.submit(&[1], &[1.0]);
    // Worker 0 comes late, worker 2 not at all.
    while desk.worker.failure().is_none() {
        desk.pass(desk.worker.deadline().unwrap());
        if desk.take().iter().any(|sent| sent.2) {
            let seen = if desk.now < ms(2000) { 0b010 } else { 0b011 };
            desk.nudge(1, Kind::Norm, 0, seen);
            assert_eq!(desk.worker.waiting_for(desk.now), Some((0b111 & !seen, desk.now)));
        }
    }
    let Some(error @ SessionError::Missing { missing: 0b100, waited }) = desk.worker.failure() else {
        panic!("{:?}", desk.worker.failure())
    };
    assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(11));
    assert!(error.to_string().contains("worker 2"), "{error}");
    assert!(!error.to_string().contains("workers"), "{error}");
}

#[test]
fn who_waits_for_data_is_asked_before_who_waits_for_later_norms() {
    // Worker 2 is gone; worker 0 waits for it in the data of call 0 and has no norm of call 1 yet.
    let mut desk = Desk::new(parameters());
    desk.call(1);
    desk.fill();
    desk.submit(&[1], &[0.0]);
    desk.nudge(1, Kind::Norm, 1, 0b010);
    assert_eq!(desk.worker.waiting_for(ms(10)).unwrap().0, 0b101);
    desk.nudge(1, Kind::Data, 0, 0b011);
    desk.nudge(1, Kind::Norm, 1, 0b010);
    assert_eq!(desk.worker.waiting_for(ms(10)).unwrap().0, 0b100);
    // Progress takes the blame away.
    desk.result(0);
    assert_eq!(desk.worker.waiting_for(ms(10)).unwrap().0, 0b101);
    desk.norm_result(1, 0);
    assert_eq!(desk.worker.waiting_for(ms(10)), None);
}

#[test]
fn a_silent_aggregator_is_named_when_time_is_up() {
    let mut desk = Desk::new(parameters());
    // Long idle before: only the wait counts.
    desk.now = Duration::from_secs(3600);
    desk.submit(&[1], &[1.0]);
    let begun = desk.now;
    while desk.worker.failure().is_none() {
        desk.pass(desk.worker.deadline().unwrap());
    }
    let Some(SessionError::Silent { waited }) = desk.worker.failure() else {
        panic!("{:?}", desk.worker.failure())
    };
    assert_eq!(waited, desk.now - begun);
    assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(11), "{waited:?}");
}

#[test]
fn as_long_as_anything_moves_time_is_not_up() {
    // The norms of the next call wait for a worker that is busy with this one's data.
    let mut desk = Desk::new(parameters());
    desk.call(60);
    desk.submit(&[1], &[1.0]);
    for seq in 0..60 {
        desk.fill();
        desk.now += ms(900);
        desk.result(seq);
        desk.tick();
        assert_eq!(desk.worker.failure(), None, "at {:?}", desk.now);
    }
    assert!(matches!(desk.reports.0.last(), Some(Report::Result(..))));
    desk.now += ms(10_000);
    desk.tick();
    assert!(desk.worker.failure().is_some());
}
