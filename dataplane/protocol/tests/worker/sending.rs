//! P1, P4, P8, P18, P21: what is sent, in which order, and within which window.

use super::driven::{Driven, Report, parameters};
use thc_protocol::wire::{Choice, Form, HEADER_LEN, Header, Kind, Norm, Table, Tables};
use thc_protocol::worker::{PacketId, Parameters};
use thc_protocol::{Lane, SlotId, TableId, WorkerId};

#[test]
fn norms_of_all_partitions_go_out_at_once_with_the_whole_descriptor() {
    let mut driven = Driven::new(parameters());
    assert_eq!(driven.submit(&[4, 2, 1], &[1.0, 0.0, 3.5]), 0);
    let packets: Vec<Vec<u8>> = driven.sent.0.drain(..).flat_map(|(_, packets)| packets).collect();
    assert_eq!(packets.len(), 3);
    for (i, packet) in packets.iter().enumerate() {
        let (header, payload) = Header::parse(packet).unwrap();
        let expected = Header {
            slot: SlotId(i as u16),
            ..Header::new(Kind::Norm, 3, parameters().job, WorkerId(1), parameters().cookie)
        };
        assert_eq!(header, expected);
        let value = [1.0f32, 0.0, 3.5][i].to_bits();
        let norm = Norm { tag: 0, value, length: 7 * 1024, call: 0, table: TableId(9), mode: 0, key: 0xFACE };
        assert_eq!(Norm::parse(payload), Some(norm.with_tag(3)));
    }
    assert_eq!(driven.submit_as(Choice::Raw, &[1], &[1.0]), 1);
    let (_, packets) = driven.sent.0.remove(0);
    let norm = Norm::parse(&packets[0][HEADER_LEN..]).unwrap();
    assert_eq!((norm.call, norm.mode, norm.table), (1, 1, TableId(0)));
}

#[test]
fn data_wait_for_every_norm_of_their_call_and_skip_partitions_of_zero() {
    let mut driven = Driven::new(parameters());
    driven.submit(&[1, 2, 1], &[1.0, 0.0, 1.0]);
    driven.take();
    for (seq, value) in [(2, 4.0f32), (0, 2.0)] {
        driven.norm_result(seq, value.to_bits());
        assert_eq!(driven.worker.next_data(), None);
        assert_eq!(driven.reports.0, []);
    }
    driven.norm_result(1, 0);
    assert_eq!(driven.reports.0, [Report::Norms(0, vec![2f32.to_bits(), 0, 4f32.to_bits()])]);
    assert_eq!(driven.worker.next_data(), Some(PacketId { call: 0, partition: 0, packet: 0 }));
    driven.fill();
    let packets: Vec<Vec<u8>> = driven.sent.0.drain(..).flat_map(|(_, packets)| packets).collect();
    let header = Header::parse(&packets[1]).unwrap().0;
    assert_eq!((header.kind, header.table, header.slot), (Kind::Data, TableId(9), SlotId(1)));
    assert_eq!((packets.len(), packets[1].len()), (2, HEADER_LEN + 512));
    driven.result(0);
    driven.result(1);
    assert_eq!(driven.reports.0[2], Report::Result(PacketId { call: 0, partition: 2, packet: 0 }, 3, 1));
    assert!(driven.worker.is_idle());
}

#[test]
fn raw_packets_are_raw() {
    let form = Form::new(4, Lane::Bits16).unwrap();
    let tables = Tables::one(Table { id: TableId(9), form, ..Table::default() });
    let mut driven = Driven::new(Parameters { tables, ..parameters() });
    driven.submit_as(Choice::Raw, &[2], &[1.0]);
    driven.norm_result(0, 1f32.to_bits());
    driven.take();
    driven.fill();
    let packets: Vec<Vec<u8>> = driven.sent.0.drain(..).flat_map(|(_, packets)| packets).collect();
    let header = Header::parse(&packets[1]).unwrap().0;
    assert_eq!((header.kind, header.table, packets[1].len()), (Kind::Raw, TableId(0), HEADER_LEN + 1024));
    // A RESULT is no answer to RAW.
    driven.result(0);
    assert_eq!(driven.reports.0.len(), 1);
    driven.handle(driven.header(Kind::RawResult, 0), &[7; 1024]);
    assert_eq!(driven.reports.0[1], Report::Result(PacketId::default(), 3, 7));
    // With 16-bit lanes DATA are half as long.
    driven.call(1);
    driven.fill();
    assert_eq!(driven.sent.0[0].1[0].len(), HEADER_LEN + 256);
}

#[test]
fn a_seq_is_sent_only_once_the_one_a_window_before_is_finished() {
    let mut driven = Driven::new(parameters());
    driven.call(40);
    driven.fill();
    assert_eq!(driven.seqs(), (0..8).collect::<Vec<_>>());
    // Later results open nothing; the lowest does, and all that is finished above it.
    for seq in [3, 1, 2] {
        driven.result(seq);
        driven.fill();
        assert_eq!(driven.seqs(), []);
    }
    driven.result(0);
    driven.fill();
    assert_eq!(driven.seqs(), [8, 9, 10, 11]);
    driven.result(4);
    driven.fill();
    assert_eq!(driven.seqs(), [12]);
}

#[test]
fn a_run_waits_until_all_of_it_has_room_while_results_are_to_come() {
    let mut driven = Driven::new(Parameters { data_slots: 1024, ..parameters() });
    let runs = |driven: &mut Driven| {
        driven.fill();
        std::mem::take(&mut driven.sent.0).iter().map(|(_, run)| run.len()).collect::<Vec<_>>()
    };
    driven.call(576);
    assert_eq!(runs(&mut driven), [64; 8]);
    (0..63).for_each(|seq| driven.result(seq));
    assert_eq!(runs(&mut driven), []);
    driven.result(63);
    assert_eq!(runs(&mut driven), [64]);
    // A run that is a large part of the window does not wait.
    let mut driven = Driven::new(Parameters { data_slots: 128, ..parameters() });
    driven.call(100);
    assert_eq!(runs(&mut driven), [64]);
    driven.result(0);
    assert_eq!(runs(&mut driven), [1]);
}

#[test]
fn norms_have_a_window_of_their_own() {
    let mut driven = Driven::new(parameters());
    driven.submit(&[1; 6], &[0.0; 6]);
    driven.submit(&[1], &[1.0]);
    let norms = |driven: &mut Driven| driven.take().iter().map(|sent| sent.1).collect::<Vec<_>>();
    assert_eq!(norms(&mut driven), [0, 1, 2, 3]);
    driven.norm_result(0, 0);
    driven.norm_result(1, 0);
    driven.tick();
    assert_eq!(norms(&mut driven), [4, 5]);
    driven.norm_result(2, 0);
    driven.tick();
    assert_eq!(norms(&mut driven), [6]);
}

#[test]
fn a_limit_below_the_window_holds() {
    let mut driven = Driven::new(parameters());
    driven.worker.set_limit(3);
    driven.call(10);
    driven.fill();
    assert_eq!(driven.seqs(), [0, 1, 2]);
    driven.result(0);
    driven.fill();
    assert_eq!(driven.seqs(), [3]);
    driven.worker.set_limit(1000);
    driven.fill();
    assert_eq!(driven.seqs(), [4, 5, 6, 7, 8]);
    driven.worker.set_limit(0);
    (1..9).for_each(|seq| driven.result(seq));
    driven.fill();
    assert_eq!(driven.seqs(), [9]);
}

#[test]
fn what_was_sent_is_kept_until_a_window_later_is_finished() {
    let mut driven = Driven::new(parameters());
    driven.call(100);
    for seq in 0..100u64 {
        driven.fill();
        driven.take();
        // S − W = W seqs below the lowest unfinished are still there for whoever asks.
        for old in seq.saturating_sub(8)..seq {
            driven.nudge(0, Kind::Data, old, 0b001);
            assert_eq!(driven.take(), [(Kind::Data, old, false)], "{old} at {seq}");
        }
        driven.result(seq);
    }
    assert!(driven.worker.is_idle());
}

#[test]
fn what_is_kept_is_what_was_sent() {
    let mut driven = Driven::new(parameters());
    driven.call(3);
    driven.fill();
    let original = driven.sent.0.remove(0).1;
    driven.nudge(2, Kind::Data, 1, 0b100);
    assert_eq!(driven.sent.0.remove(0).1, [original[1].clone()]);
}

#[test]
fn runs_end_with_the_ring_and_with_the_shards_block() {
    let wide = Parameters { data_slots: 320, shards: 2, norm_slots: 256, ..parameters() };
    let mut driven = Driven::new(wide);
    driven.submit(&[1; 130], &[0.0; 130]);
    driven.submit(&[400], &[1.0]);
    driven.tick();
    // Norm slots 0 to 63 and 128 to 191 are shard 0's.
    let runs = |driven: &mut Driven| {
        driven.sent.0.drain(..).map(|(shard, run)| (shard, run.len())).collect::<Vec<_>>()
    };
    assert_eq!(runs(&mut driven), [(0, 64), (1, 64)]);
    (0..128).for_each(|seq| driven.norm_result(seq, 0));
    driven.tick();
    // NORMs of two calls are one run.
    assert_eq!(runs(&mut driven), [(0, 3)]);
    (128..130).for_each(|seq| driven.norm_result(seq, 0));
    driven.norm_result(130, 1f32.to_bits());
    driven.fill();
    assert_eq!(runs(&mut driven), [(0, 64), (1, 64), (0, 32)]);
    (0..150).for_each(|seq| driven.result(seq));
    driven.fill();
    // 160..192 of shard 0, 192..256 of shard 1, 256..310 of shard 0.
    assert_eq!(runs(&mut driven), [(0, 32), (1, 64), (0, 54)]);
    (150..310).for_each(|seq| driven.result(seq));
    driven.fill();
    // To the end of the ring at 320, and from its beginning.
    assert_eq!(runs(&mut driven), [(0, 10), (0, 64), (1, 16)]);
}

#[test]
fn runs_of_one_shard_cross_blocks() {
    let mut driven = Driven::new(Parameters { data_slots: 320, shards: 1, ..parameters() });
    driven.submit(&[400], &[1.0]);
    driven.take();
    driven.norm_result(0, 1f32.to_bits());
    let mut runs = |results: std::ops::Range<u64>| {
        results.for_each(|seq| driven.result(seq));
        driven.fill();
        driven.sent.0.drain(..).map(|(_, run)| run.len()).collect::<Vec<_>>()
    };
    assert_eq!(runs(0..0), [64, 64, 32]);
    assert_eq!(runs(0..62), [62]);
    assert_eq!(runs(62..150), [64, 24]);
    // To the end of the ring at 320, and from its beginning.
    assert_eq!(runs(150..220), [10, 60]);
}

#[test]
fn several_calls_follow_each_other_in_one_stream() {
    let mut driven = Driven::new(parameters());
    assert_eq!(
        (driven.submit(&[2], &[1.0]), driven.submit(&[3], &[1.0]), driven.submit(&[1], &[0.0])),
        (0, 1, 2)
    );
    driven.take();
    // The second call's norms come first: its data still wait for the first call's.
    driven.norm_result(1, 1f32.to_bits());
    assert_eq!(driven.worker.next_data(), None);
    driven.norm_result(2, 0);
    driven.norm_result(0, 1f32.to_bits());
    driven.fill();
    assert_eq!(driven.seqs(), [0, 1, 2, 3, 4]);
    assert!(!driven.worker.is_idle());
    for seq in [4, 2, 3] {
        driven.result(seq);
    }
    assert!(!driven.worker.is_idle());
    driven.result(0);
    driven.result(1);
    assert!(driven.worker.is_idle());
    let places: Vec<_> = driven
        .reports
        .0
        .iter()
        .filter_map(|report| match report {
            Report::Result(place, ..) => Some((place.call, place.packet)),
            _ => None,
        })
        .collect();
    assert_eq!(places, [(1, 2), (1, 0), (1, 1), (0, 0), (0, 1)]);
}
