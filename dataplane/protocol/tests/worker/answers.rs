//! What a worker takes from the network, and what it does not.

use super::driven::{Driven, Report, parameters};
use thc_protocol::wire::{FLAG_ROOT, Header, Kind, Norm, Nudge, Straggler};
use thc_protocol::worker::{CallError, PacketId, Parameters, SessionError};
use thc_protocol::{Cookie, JobId, Policy, Round, SlotId, WorkerId};

#[test]
fn packets_of_others_are_counted_and_change_nothing() {
    let mut driven = Driven::new(parameters());
    driven.call(2);
    driven.fill();
    driven.reports.0.clear();
    let good = driven.header(Kind::Result, 0);
    let bad = [
        (Header { job: JobId(1), ..good }, 1024),
        (Header { cookie: Cookie(1), ..good }, 1024),
        (good, 1023),
        (good, 1025),
        // A sum of fewer than the quorum or more than there are.
        (Header { count: 0, ..good }, 1024),
        (Header { count: 2, ..good }, 1024),
        (Header { count: 4, ..good }, 1024),
        // Upstream and control kinds.
        (Header { kind: Kind::Data, ..good }, 512),
        (Header { kind: Kind::Norm, ..good }, 20),
        (Header { kind: Kind::Welcome, ..good }, 80),
        (Header { kind: Kind::Bye, ..good }, 0),
    ];
    for (i, (header, length)) in (1..).zip(bad) {
        driven.handle(header, &vec![0; length]);
        assert_eq!((driven.worker.stats().foreign, driven.reports.0.len()), (i, 0), "{header:?}");
    }
    let foreign = driven.worker.stats().foreign;
    driven.worker.handle(driven.now, &[1, 2, 3], &mut driven.reports, &mut driven.sent);
    assert_eq!(driven.worker.stats().foreign, foreign + 1);
    driven.result(0);
    assert_eq!(driven.reports.0.len(), 1);
}

#[test]
fn a_result_counts_once_and_only_for_what_is_outstanding() {
    let mut driven = Driven::new(parameters());
    driven.call(20);
    driven.fill();
    driven.reports.0.clear();
    let good = driven.header(Kind::Result, 3);
    driven.result(3);
    driven.result(3);
    for header in [
        // Never sent, another round, a slot beyond the ring.
        Header { slot: SlotId(9), ..good },
        Header { round: Round(1), slot: SlotId(1), ..good },
        Header { round: Round(u32::MAX), slot: SlotId(1), ..good },
        Header { slot: SlotId(16), ..good },
        Header { slot: SlotId(65535), ..good },
        // The other kind of sum.
        Header { kind: Kind::RawResult, slot: SlotId(1), ..good },
    ] {
        driven.handle(header, &[0; 1024]);
    }
    assert_eq!(driven.reports.0, [Report::Result(PacketId { call: 0, partition: 0, packet: 3 }, 3, 3)]);
    driven.norm_result(0, 5);
    driven.norm_result(5, 5);
    assert_eq!(driven.reports.0.len(), 1);
}

#[test]
fn a_nan_fails_its_call_and_the_next_goes_on() {
    let mut driven = Driven::new(parameters());
    driven.submit(&[2, 2], &[1.0, 1.0]);
    driven.submit(&[1], &[1.0]);
    driven.take();
    driven.norm_result(1, Norm::non_finite(WorkerId(2)));
    assert_eq!(driven.reports.0, []);
    driven.norm_result(0, 1f32.to_bits());
    let error = CallError::NonFinite { worker: WorkerId(2).into() };
    assert_eq!(driven.reports.0, [Report::Failed(0, error)]);
    assert!(error.to_string().contains("worker 2 has a NaN"));
    assert!(!driven.worker.is_idle());
    driven.norm_result(2, 1f32.to_bits());
    driven.fill();
    // Nothing of the failed call took a seq.
    assert_eq!(driven.seqs(), [0]);
    driven.result(0);
    assert!(driven.worker.is_idle());
    assert_eq!(driven.worker.failure(), None);
}

#[test]
fn an_own_nan_that_the_quorum_left_out_takes_its_seqs_and_sends_nothing() {
    let mut driven = Driven::new(Parameters { quorum: 2, ..parameters() });
    let nan = f32::from_bits(Norm::non_finite(WorkerId(1)));
    driven.submit(&[1], &[1.0]);
    driven.submit(&[9, 3], &[1.0, nan]);
    driven.submit(&[1], &[1.0]);
    (0..4).for_each(|seq| driven.norm_result(seq, 1f32.to_bits()));
    let error = CallError::NonFinite { worker: WorkerId(1).into() };
    assert_eq!(driven.reports.0[1], Report::Failed(1, error));
    driven.take();
    driven.fill();
    // Call 0 has seq 0, call 1 seqs 1 to 12, of which the window reaches to 7.
    assert_eq!(driven.seqs(), [0]);
    driven.result(0);
    driven.fill();
    assert_eq!(driven.seqs(), [13]);
    // Nobody can have these of this worker.
    driven.nudge(0, Kind::Data, 5, 0b001);
    assert_eq!(driven.take(), []);
    driven.result(13);
    assert!(driven.worker.is_idle());
}

#[test]
fn stragglers_give_up_data_where_others_may_have_gone_on() {
    let place = PacketId { call: 0, partition: 0, packet: 1 };
    for (policy, quorum) in [(Policy::Reliable, 2), (Policy::BestEffort, 3), (Policy::BestEffort, 2)] {
        let mut driven = Driven::new(Parameters { policy, quorum, ..parameters() });
        driven.call(3);
        driven.fill();
        driven.reports.0.clear();
        driven.straggler(Kind::Data, 1);
        driven.straggler(Kind::Data, 1);
        assert_eq!(driven.reports.0, [Report::Lost(place)], "{policy:?}, quorum {quorum}");
        assert_eq!(driven.worker.stats().data.given_up, 1);
        // One for what is finished, or never was, says nothing.
        driven.result(0);
        driven.straggler(Kind::Data, 0);
        driven.straggler(Kind::Data, 9);
        assert_eq!(driven.worker.stats().data.given_up, 1);
        assert_eq!((driven.worker.stats().stragglers, driven.worker.failure()), (4, None));
    }
}

/// P18: where nobody can go on without this worker, a slot that has is not to be waited for.
#[test]
fn a_straggler_that_cannot_be_ends_the_session_at_once() {
    let mut driven = Driven::new(parameters());
    driven.call(3);
    driven.fill();
    driven.reports.0.clear();
    driven.result(0);
    // What is finished, or was never sent, is nobody's loss.
    driven.straggler(Kind::Data, 0);
    driven.straggler(Kind::Data, 9);
    assert_eq!(driven.worker.failure(), None);
    driven.straggler(Kind::Data, 1);
    let overtaken = |slot| SessionError::Overtaken { slot: SlotId(slot), round: Round(0), current: Round(1) };
    assert_eq!(driven.worker.failure(), Some(overtaken(1)));
    let text = overtaken(1).to_string();
    assert!(text.contains("slot 1") && text.contains("round 0") && text.contains("join anew"), "{text}");
    assert_eq!(driven.worker.stats().data.given_up, 0);
    // Norms are waited for under either policy.
    for policy in [Policy::Reliable, Policy::BestEffort] {
        let mut driven = Driven::new(Parameters { policy, ..parameters() });
        driven.call(1);
        driven.submit(&[1], &[1.0]);
        driven.straggler(Kind::Norm, 0);
        assert_eq!(driven.worker.failure(), None);
        driven.straggler(Kind::Norm, 1);
        assert_eq!(driven.worker.failure(), Some(overtaken(1)));
    }
}

#[test]
fn a_maximum_that_no_worker_may_send_is_asked_for_again_and_believed_when_it_comes_again() {
    let two = 2f32.to_bits();
    for value in [1, 0x7C80_0001, 0x7F80_0000, 0x8000_0000, 0x7FC0_0003, 0x7FC0_0100, u32::MAX] {
        let mut driven = Driven::new(parameters());
        driven.submit(&[1], &[1.0]);
        driven.submit(&[1, 1], &[1.0, 1.0]);
        driven.take();
        // Damaged on its way here alone.
        driven.norm_result(0, value);
        assert_eq!(driven.take(), [(Kind::Norm, 0, false)]);
        assert_eq!(driven.reports.0, []);
        driven.norm_result(0, two);
        assert_eq!(driven.reports.0, [Report::Norms(0, vec![two])]);
        // It is what the slot holds, so all have it.
        driven.norm_result(1, two);
        driven.norm_result(2, value);
        driven.norm_result(2, value);
        let error = CallError::Norm { partition: 1, value };
        assert_eq!(driven.reports.0[1..], [Report::Failed(1, error)]);
        assert!(error.to_string().contains(&format!("{value:#010x}")));
        driven.fill();
        driven.result(0);
        assert_eq!((driven.worker.is_idle(), driven.worker.failure()), (true, None));
        assert_eq!(driven.worker.stats().data.sent, 1, "nothing of the failed call");
    }
}

#[test]
fn a_maximum_below_the_own_norm_ends_the_session_with_full_quorum_alone() {
    let (own, less) = (2f32.to_bits(), 1f32.to_bits());
    let mut driven = Driven::new(parameters());
    driven.submit(&[1], &[2.0]);
    driven.norm_result(0, less);
    assert_eq!((driven.worker.failure(), driven.reports.0.len()), (None, 0));
    driven.norm_result(0, less);
    let error = SessionError::NormLost { partition: 0, own, maximum: less };
    assert_eq!(driven.worker.failure(), Some(error));
    assert_eq!(driven.reports.0, []);
    // So does an own NaN that nobody has heard of.
    let mut driven = Driven::new(parameters());
    driven.submit(&[1], &[f32::from_bits(Norm::non_finite(WorkerId(1)))]);
    (0..2).for_each(|_| driven.norm_result(0, less));
    assert!(matches!(driven.worker.failure(), Some(SessionError::NormLost { .. })));
    // Of a quorum it need not be part.
    let mut driven = Driven::new(Parameters { quorum: 2, ..parameters() });
    driven.submit(&[1], &[2.0]);
    driven.norm_result(0, less);
    assert_eq!(driven.reports.0, [Report::Norms(0, vec![less])]);
}

#[test]
fn a_packet_whose_sum_was_there_before_it_was_sent_was_late() {
    let mut driven = Driven::new(Parameters { quorum: 2, ..parameters() });
    driven.call(3);
    driven.reports.0.clear();
    let result = |driven: &mut Driven, seq: u64, count| {
        let header = Header { count, ..driven.header(Kind::Result, seq) };
        driven.handle(header, &[7; 1024]);
    };
    result(&mut driven, 1, 2);
    assert_eq!(driven.reports.0, []);
    driven.fill();
    (0..3).for_each(|seq| result(&mut driven, seq, 2));
    let at = |packet| PacketId { call: 0, partition: 0, packet };
    let expected = [
        Report::Result(at(0), 2, 7),
        Report::Result(at(1), 2, 7),
        Report::Late(at(1)),
        Report::Result(at(2), 2, 7),
    ];
    assert_eq!(driven.reports.0, expected);
}

#[test]
fn a_norm_that_a_quorum_has_gone_past_is_left_out_and_the_session_goes_on() {
    let mut driven = Driven::new(Parameters { quorum: 2, ..parameters() });
    driven.call(1);
    driven.submit(&[1, 2], &[1.0, 1.0]);
    driven.submit(&[1], &[1.0]);
    driven.reports.0.clear();
    // Not one that is finished.
    driven.straggler(Kind::Norm, 0);
    assert_eq!(driven.reports.0, []);
    driven.straggler(Kind::Norm, 1);
    driven.straggler(Kind::Norm, 1);
    assert_eq!(driven.reports.0, [Report::LeftOut(1, 0)]);
    let one = 1f32.to_bits();
    driven.norm_result(2, one);
    driven.norm_result(3, one);
    assert_eq!(driven.reports.0[1..], [Report::Norms(1, vec![0, one]), Report::Norms(2, vec![one])]);
    // The others send its packet, which has seq 1.
    driven.take();
    driven.fill();
    assert_eq!(driven.seqs(), [0, 2, 3, 4]);
    (0..5).for_each(|seq| driven.result(seq));
    assert_eq!((driven.worker.is_idle(), driven.worker.failure()), (true, None));
    assert_eq!(driven.worker.stats().left_out, 1);
}

#[test]
fn with_a_quorum_seqs_do_not_depend_on_norms() {
    let nan = Norm::non_finite(WorkerId(0));
    for quorum in [2, 3] {
        let mut driven = Driven::new(Parameters { quorum, ..parameters() });
        // The second partition is zero; the second call fails on all.
        driven.submit(&[1, 2, 1], &[1.0, 0.0, 1.0]);
        driven.submit(&[2], &[1.0]);
        driven.submit(&[1], &[1.0]);
        let one = 1f32.to_bits();
        for (seq, value) in (0..).zip([one, 0, one, nan, one]) {
            driven.norm_result(seq, value);
            driven.tick();
        }
        driven.take();
        driven.fill();
        let expected: &[u64] = if quorum == 2 { &[0, 3, 6] } else { &[0, 1, 2] };
        assert_eq!(driven.seqs(), expected, "quorum {quorum}");
        assert_eq!(
            driven.reports.0[1],
            Report::Failed(1, CallError::NonFinite { worker: WorkerId(0).into() })
        );
        expected.iter().for_each(|&seq| driven.result(seq));
        assert!(driven.worker.is_idle());
    }
}

#[test]
fn an_own_nan_that_was_left_out_fails_the_call_here() {
    let mut driven = Driven::new(Parameters { quorum: 2, ..parameters() });
    driven.submit(&[1], &[f32::from_bits(Norm::non_finite(WorkerId(1)))]);
    driven.straggler(Kind::Norm, 0);
    let error = CallError::NonFinite { worker: WorkerId(1).into() };
    assert_eq!(driven.reports.0, [Report::LeftOut(0, 0), Report::Failed(0, error)]);
    driven.call(1);
    driven.fill();
    assert_eq!(driven.seqs(), [1]);
}

#[test]
fn what_no_aggregator_says_is_counted_and_changes_nothing() {
    let mut driven = Driven::new(parameters());
    driven.call(3);
    driven.fill();
    driven.submit(&[1], &[1.0]);
    driven.reports.0.clear();
    let of = |kind, like: Header| Header { kind, count: 0, ..like };
    let (data, norm) = (driven.header(Kind::Result, 0), driven.header(Kind::NormResult, 1));
    let straggler = Straggler { kind: Kind::Data, current: Round(1) }.to_bytes();
    let nudge = Nudge { kind: Kind::Data, seen: 0 }.to_bytes();
    let packets = [
        // Of another number of workers, from a root where there is none, to somebody else.
        (Header { num_workers: 0, ..data }, &[0; 1024][..]),
        (Header { num_workers: 2, ..data }, &[0; 1024]),
        (Header { flags: FLAG_ROOT, ..data }, &[0; 1024]),
        (Header { worker: WorkerId(1), ..data }, &[0; 1024]),
        (Header { num_workers: 2, ..norm }, &[0; 20]),
        (Header { flags: FLAG_ROOT, ..norm }, &[0; 20]),
        (Header { worker: WorkerId(0), ..of(Kind::Straggler, data) }, &straggler),
        (of(Kind::Straggler, data), &straggler),
        (Header { worker: WorkerId(1), flags: FLAG_ROOT, ..of(Kind::Straggler, data) }, &straggler),
        (Header { worker: WorkerId(3), ..of(Kind::Nudge, data) }, &nudge),
        (Header { worker: WorkerId(3), ..of(Kind::Mismatch, norm) }, &[0; 40]),
    ];
    driven.take();
    for (i, (header, payload)) in (1..).zip(packets) {
        driven.handle(header, payload);
        assert_eq!((driven.worker.stats().foreign, driven.worker.failure()), (i, None), "{header:?}");
    }
    assert_eq!((driven.take(), driven.reports.0.len()), (vec![], 0));
    driven.result(0);
    assert_eq!(driven.reports.0.len(), 1);
}
