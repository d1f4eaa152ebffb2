//! P14, P19 and the maximum of norm slots.

use super::setup::{JOB, Sent, Setup, To, bytes, config, endpoint, expect_handled, norm};
use thc_protocol::aggregator::{Event, JobConfig};
use thc_protocol::wire::{FLAG_NUDGE, Header, Kind, Mismatch, NORM_LEN, Norm};
use thc_protocol::{TableId, WorkerId};

fn single(sent: Vec<Sent>) -> Sent {
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent.into_iter().next().unwrap()
}

#[test]
fn the_maximum_goes_to_all() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut setup = Setup::new(3);
        let values = [1.5f32, 1e30, 1e-30];
        let mut result = Vec::new();
        for worker in order {
            result.extend(setup.norm(worker, 0, 2, norm(values[usize::from(worker)])).1);
        }
        let result = single(result);
        assert_eq!((result.to.clone(), result.header().kind), (setup.to_all(), Kind::NormResult));
        assert_eq!((result.header().count, result.header().worker), (3, WorkerId::NONE));
        assert_eq!(Norm::parse(result.payload()), Some(norm(1e30)));
        assert_eq!(result.packet.len(), 40);
    }
}

#[test]
fn zero_zero_is_zero_and_duplicates_do_not_raise_the_maximum() {
    let mut setup = Setup::new(2);
    setup.norm(0, 0, 0, norm(0.0));
    assert_eq!(setup.norm(0, 0, 0, norm(9.0)), (Event::Duplicate, vec![]));
    let result = single(setup.norm(1, 0, 0, norm(0.0)).1);
    assert_eq!(Norm::parse(result.payload()).unwrap().value, 0);
    let (event, sent) = setup.norm(1, 0, 0, norm(9.0));
    assert_eq!((event, single(sent).packet), (Event::Duplicate, result.packet));
}

#[test]
fn a_nan_wins_and_the_highest_worker_is_named() {
    let mut setup = Setup::new(4);
    let nan = |worker| Norm { value: Norm::non_finite(WorkerId(worker)), ..norm(0.0) };
    setup.norm(0, 0, 0, norm(f32::MAX));
    setup.norm(2, 0, 0, nan(2));
    setup.norm(1, 0, 0, nan(1));
    let result = single(setup.norm(3, 0, 0, norm(f32::INFINITY)).1);
    let value = Norm::parse(result.payload()).unwrap().value;
    assert_eq!(Norm::non_finite_worker(value), Some(WorkerId(2).into()));
}

#[test]
fn only_the_value_of_a_later_packet_counts() {
    // P10: the payload is the first packet's; P11: only the value is compared. Tags are compared, not recomputed:
    // here a packet carries the slot's tag over another length.
    let mut setup = Setup::new(2);
    setup.norm(0, 0, 0, norm(1.0));
    let mut forged = norm(2.0).to_bytes();
    forged[8..12].copy_from_slice(&77u32.to_be_bytes());
    let (event, sent) = expect_handled(setup.packet(setup.header(Kind::Norm, 1, 0, 0), &forged));
    assert_eq!(event, Event::Added);
    assert_eq!(single(sent).payload(), norm(2.0).to_bytes());
}

/// The packet of `refused` on a slot with the norms of `slot` is answered by MISMATCH to all.
fn assert_mismatch(setup: &mut Setup, worker: u8, refused: Norm, slot: Norm, nudge: bool) {
    let header = setup.header(Kind::Norm, worker, 0, 0);
    let header = Header { flags: if nudge { FLAG_NUDGE } else { 0 }, ..header };
    let before = (setup.slot(Kind::Norm, 0).seen, setup.slot(Kind::Norm, 0).values.to_vec());
    let (event, sent) = expect_handled(setup.packet(header, &refused.to_bytes()));
    assert_eq!(event, Event::Mismatch);
    let answer = single(sent);
    assert_eq!(answer.to, setup.to_all());
    assert_eq!(answer.header(), Header { kind: Kind::Mismatch, flags: 0, ..header });
    assert_eq!(Mismatch::parse(answer.payload()), Some(Mismatch { slot, refused }));
    assert_eq!(before, (setup.slot(Kind::Norm, 0).seen, setup.slot(Kind::Norm, 0).values.to_vec()));
}

#[test]
fn another_collective_is_refused_before_and_after_completion() {
    let other = Norm { length: 5001, ..norm(3.0) }.with_tag(2);
    let mut setup = Setup::new(3);
    setup.norm(0, 0, 0, norm(1.0));
    assert_mismatch(&mut setup, 1, other, norm(1.0), false);
    // Also of a worker that is in the slot, and with NUDGE: MISMATCH is the answer.
    assert_mismatch(&mut setup, 0, other, norm(1.0), true);
    setup.norm(1, 0, 0, norm(4.0));
    assert_mismatch(&mut setup, 2, other, norm(4.0), true);
    assert_eq!(setup.norm(2, 0, 0, norm(2.0)).0, Event::Added);
    assert!(setup.slot(Kind::Norm, 0).complete);
    assert_mismatch(&mut setup, 2, other, norm(4.0), false);
    assert_eq!(setup.events(2), [(Event::Added, 1), (Event::Mismatch, 2)]);
    assert_eq!(setup.aggregator.job_counters(JOB).unwrap().nudges, 0);
}

#[test]
fn every_field_but_the_value_tells_collectives_apart() {
    let base = norm(1.0);
    for other in [
        Norm { length: 1, ..base }.with_tag(2),
        Norm { call: 8, ..base }.with_tag(2),
        Norm { table: TableId(0), ..base }.with_tag(2),
        Norm { mode: 1, ..base }.with_tag(2),
        Norm { key: 0, ..base }.with_tag(2),
        // The number of partitions is in the tag alone.
        base.with_tag(3),
    ] {
        let mut setup = Setup::new(2);
        setup.norm(0, 0, 0, base);
        assert_mismatch(&mut setup, 1, other, base, false);
    }
    let mut setup = Setup::new(2);
    setup.norm(0, 0, 0, base);
    assert_eq!(setup.norm(1, 0, 0, norm(0.5)).0, Event::Added);
}

#[test]
fn a_quorum_completes_beside_a_mismatch() {
    let mut setup = Setup::with_config(JobConfig { quorum: 2, ..config(3) });
    setup.norm(0, 0, 0, norm(1.0));
    let other = Norm { key: 1, ..norm(8.0) }.with_tag(2);
    assert_mismatch(&mut setup, 1, other, norm(1.0), false);
    let result = single(setup.norm(2, 0, 0, norm(2.0)).1);
    assert_eq!(result.header().count, 2);
    assert_mismatch(&mut setup, 1, other, norm(2.0), false);
    // The right collective, late, gets the result.
    let (event, sent) = setup.norm(1, 0, 0, norm(9.0));
    assert_eq!((event, single(sent).to), (Event::Late, To::One(endpoint(1))));
}

#[test]
fn a_newer_round_is_another_collective_without_mismatch() {
    let mut setup = Setup::new(2);
    setup.norm(0, 0, 0, norm(1.0));
    let next = Norm { call: 8, ..norm(0.25) }.with_tag(2);
    assert_eq!(setup.norm(1, 1, 0, next), (Event::Opened, vec![]));
    assert_eq!(setup.slot(Kind::Norm, 0).values, next.to_bytes());
    // And the older is stale, not mismatched.
    let (event, sent) = setup.norm(0, 0, 0, norm(1.0));
    assert_eq!((event, single(sent).header().kind), (Event::Stale, Kind::Straggler));
}

#[test]
fn mismatch_carries_the_payloads_byte_for_byte() {
    // Also where the tag is not the hash of the fields (a faulty sender).
    let mut setup = Setup::new(2);
    let mut first = norm(1.0).to_bytes();
    first[0] ^= 0x80;
    let mut second = norm(2.0).to_bytes();
    second[3] ^= 1;
    let packets = [first, second].map(|payload| payload.to_vec());
    for (worker, payload) in (0u8..).zip(&packets) {
        let packet = bytes(setup.header(Kind::Norm, worker, 0, 1), payload);
        let (_, sent) = expect_handled(setup.raw(endpoint(worker), &packet));
        if worker == 1 {
            let answer = single(sent);
            assert_eq!(answer.payload(), packets.concat());
            assert_eq!(answer.payload().len(), 2 * NORM_LEN);
        }
    }
}
