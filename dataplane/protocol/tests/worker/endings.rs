//! How a session fails, and what a worker still does afterwards.

use super::driven::{Driven, Report, ms, parameters};
use std::time::Duration;
use thc_protocol::wire::{Header, Kind, Mismatch, Norm};
use thc_protocol::worker::{Parameters, SessionError, Who};
use thc_protocol::{TableId, WorkerId};

fn own_norm(call: u16) -> Norm {
    Norm { tag: 0, value: 1f32.to_bits(), length: 1024, call, table: TableId(9), mode: 0, key: 0xFACE }
        .with_tag(1)
}

fn mismatch(driven: &mut Driven, from: u8, seq: u64, slot: Norm, refused: Norm) {
    let header = Header {
        kind: Kind::Mismatch,
        worker: WorkerId(from),
        count: 0,
        ..driven.header(Kind::NormResult, seq)
    };
    driven.handle(header, &Mismatch { slot, refused }.to_bytes());
}

#[test]
fn a_mismatch_shows_what_was_sent_here_and_there() {
    let mut driven = Driven::new(parameters());
    driven.call(1);
    driven.submit(&[1], &[1.0]);
    let other = Norm { length: 77, key: 3, ..own_norm(1) }.with_tag(1);
    mismatch(&mut driven, 2, 1, own_norm(1), other);
    let expected = SessionError::Mismatch {
        mine: Some(own_norm(1)),
        who: Who::Worker(WorkerId(2)),
        slot: own_norm(1),
        refused: other,
    };
    assert_eq!(driven.worker.failure(), Some(expected));
    let text = expected.to_string();
    assert!(text.contains("worker 2 called all-reduce #1 of 77 coordinates (tensor 0x3, table 9)"), "{text}");
    assert!(text.contains("#1 of 1024 coordinates (tensor 0xface, table 9) here"), "{text}");
    // A second one changes nothing.
    mismatch(&mut driven, 0, 1, other, own_norm(1));
    assert_eq!(driven.worker.failure(), Some(expected));
    // Before this worker has come so far there is nothing to show.
    let mut early = Driven::new(parameters());
    mismatch(&mut early, 2, 0, own_norm(0), other);
    assert!(matches!(early.worker.failure(), Some(SessionError::Mismatch { mine: None, .. })));
    assert!(early.worker.failure().unwrap().to_string().contains("nothing yet here"));
}

#[test]
fn after_a_failure_there_are_no_events_and_nothing_is_sent_but_to_who_asks() {
    let mut driven = Driven::new(parameters());
    driven.call(4);
    driven.fill();
    driven.submit(&[1], &[1.0]);
    driven.result(0);
    driven.take();
    driven.reports.0.clear();
    driven.worker.fail(SessionError::Reforming { worker: WorkerId(2) });
    driven.result(1);
    driven.norm_result(1, 0);
    driven.straggler(Kind::Data, 2);
    mismatch(&mut driven, 2, 1, own_norm(1), own_norm(2));
    assert_eq!(driven.submit(&[1], &[1.0]), 2);
    driven.now = ms(5000);
    driven.tick();
    driven.fill();
    assert_eq!((driven.take(), driven.worker.deadline(), driven.worker.next_data()), (vec![], None, None));
    assert_eq!(driven.reports.0, []);
    assert_eq!(driven.worker.failure(), Some(SessionError::Reforming { worker: WorkerId(2) }));
    driven.nudge(0, Kind::Data, 0, 0b001);
    assert_eq!(driven.take(), [(Kind::Data, 0, false)]);
}

#[test]
fn the_refused_brings_the_mismatch_again_to_who_still_waits() {
    let mut driven = Driven::new(parameters());
    driven.call(1);
    driven.submit(&[1], &[1.0]);
    driven.take();
    mismatch(&mut driven, 1, 1, Norm { key: 1, ..own_norm(1) }.with_tag(1), own_norm(1));
    // Worker 0 has lost the MISMATCH and waits for something else.
    driven.nudge(0, Kind::Norm, 2, 0b101);
    assert_eq!(driven.take(), [(Kind::Norm, 1, false)]);
    driven.nudge(0, Kind::Data, 0, 0b111);
    assert_eq!(driven.take(), [(Kind::Norm, 1, false)]);
    // Once, where it is this very packet that lacks.
    driven.nudge(0, Kind::Norm, 1, 0b101);
    assert_eq!(driven.take(), [(Kind::Norm, 1, false)]);
    // Who was not refused has nothing to bring.
    let mut other = Driven::new(parameters());
    other.submit(&[1], &[1.0]);
    other.take();
    mismatch(&mut other, 2, 0, own_norm(0), own_norm(1));
    other.nudge(0, Kind::Norm, 1, 0b101);
    assert_eq!(other.take(), []);
}

#[test]
fn missing_workers_are_named_when_time_is_up() {
    let mut driven = Driven::new(parameters());
    driven.submit(&[1], &[1.0]);
    // Worker 0 comes late, worker 2 not at all.
    while driven.worker.failure().is_none() {
        driven.pass(driven.worker.deadline().unwrap());
        if driven.take().iter().any(|sent| sent.2) {
            let seen = if driven.now < ms(2000) { 0b010 } else { 0b011 };
            driven.nudge(1, Kind::Norm, 0, seen);
            assert_eq!(driven.worker.waiting_for(), Some((0b111 & !seen, driven.now)));
        }
    }
    let Some(error @ SessionError::Missing { missing: 0b100, waited }) = driven.worker.failure() else {
        panic!("{:?}", driven.worker.failure())
    };
    assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(11));
    assert!(error.to_string().contains("worker 2"), "{error}");
    assert!(!error.to_string().contains("workers"), "{error}");
}

#[test]
fn workers_that_are_late_are_waited_for_longer_than_an_aggregator_that_is_silent() {
    let patient = || Driven::new(Parameters { patience: ms(60_000), ..parameters() });
    // Worker 2 is late for as long as the aggregator says so.
    let mut driven = patient();
    driven.submit(&[1], &[1.0]);
    while driven.worker.failure().is_none() {
        driven.pass(driven.worker.deadline().unwrap());
        if driven.take().iter().any(|sent| sent.2) {
            driven.nudge(1, Kind::Norm, 0, 0b011);
        }
    }
    let Some(SessionError::Missing { missing: 0b100, waited }) = driven.worker.failure() else {
        panic!("{:?}", driven.worker.failure())
    };
    assert!(waited >= ms(60_000) && waited < ms(62_000), "{waited:?}");
    // An aggregator that says nothing has the usual time-out, from the beginning on and after it has answered for a while.
    for answers in [0, 30_000] {
        let mut driven = patient();
        driven.submit(&[1], &[1.0]);
        while driven.worker.failure().is_none() {
            driven.pass(driven.worker.deadline().unwrap());
            if driven.take().iter().any(|sent| sent.2) && driven.now < ms(answers) {
                driven.nudge(1, Kind::Norm, 0, 0b011);
            }
        }
        assert!(
            matches!(driven.worker.failure(), Some(SessionError::Silent { .. })),
            "{:?}",
            driven.worker.failure()
        );
        assert!(driven.now >= ms(answers + 8_000) && driven.now < ms(answers + 12_000), "{:?}", driven.now);
    }
}

/// The workers that are waited for, after a millisecond of waiting.
fn missing(driven: &mut Driven) -> Option<u64> {
    driven.now += ms(1);
    driven.tick();
    driven.worker.waiting_for().map(|(missing, _)| missing)
}

#[test]
fn who_waits_for_data_is_asked_before_who_waits_for_later_norms() {
    // Worker 2 is gone; worker 0 waits for it in the data of call 0 and has no norm of call 1 yet.
    let mut driven = Driven::new(parameters());
    driven.call(1);
    driven.fill();
    driven.submit(&[1], &[0.0]);
    driven.nudge(1, Kind::Norm, 1, 0b010);
    assert_eq!(missing(&mut driven), Some(0b101));
    driven.nudge(1, Kind::Data, 0, 0b011);
    driven.nudge(1, Kind::Norm, 1, 0b010);
    assert_eq!(missing(&mut driven), Some(0b100));
    // Progress takes the blame away.
    driven.result(0);
    assert_eq!(missing(&mut driven), Some(0b101));
    driven.norm_result(1, 0);
    assert_eq!(missing(&mut driven), None);
}

#[test]
fn a_silent_aggregator_is_named_when_time_is_up() {
    let mut driven = Driven::new(parameters());
    // Long idle before: only the wait counts.
    driven.now = Duration::from_secs(3600);
    driven.submit(&[1], &[1.0]);
    let begun = driven.now;
    while driven.worker.failure().is_none() {
        driven.pass(driven.worker.deadline().unwrap());
    }
    let Some(SessionError::Silent { waited }) = driven.worker.failure() else {
        panic!("{:?}", driven.worker.failure())
    };
    assert_eq!(waited, driven.now - begun);
    assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(11), "{waited:?}");
}

#[test]
fn as_long_as_anything_moves_time_is_not_up() {
    // The norms of the next call wait for a worker that is busy with this one's data.
    let mut driven = Driven::new(parameters());
    driven.call(60);
    driven.submit(&[1], &[1.0]);
    for seq in 0..60 {
        driven.fill();
        driven.now += ms(900);
        driven.result(seq);
        driven.tick();
        assert_eq!(driven.worker.failure(), None, "at {:?}", driven.now);
    }
    assert!(matches!(driven.reports.0.last(), Some(Report::Result(..))));
    for _ in 0..11 {
        driven.now += ms(1_000);
        driven.tick();
    }
    assert!(driven.worker.failure().is_some());
}

/// NUDGEs after time-outs are for the oldest packet. One for a later packet, which another worker has asked for once, does not
/// hide who has left.
#[test]
fn a_member_that_has_left_is_named_whatever_packet_its_absence_shows_first() {
    let mut driven = Driven::new(parameters());
    driven.call(4);
    driven.fill();
    driven.worker.handle_members(driven.now, 0b011);
    driven.nudge(0, Kind::Data, 2, 0b011);
    for wait in [100, 200, 400, 800] {
        assert_eq!(driven.worker.failure(), None);
        driven.now += ms(wait);
        driven.nudge(1, Kind::Data, 0, 0b011);
    }
    let failure = driven.worker.failure();
    assert!(matches!(failure, Some(SessionError::Left { members: 0b100, call: 0, .. })), "{failure:?}");
}
