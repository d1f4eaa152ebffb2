//! P1, P4, P8, P18, P21: what is sent, in which order, and within which window.

use super::desk::{Desk, Report, parameters};
use thc_protocol::wire::{Choice, Form, HEADER_LEN, Header, Kind, Norm, Table, Tables};
use thc_protocol::worker::{Parameters, Place};
use thc_protocol::{Lane, Round, SlotId, TableId, WorkerId};

#[test]
fn norms_of_all_partitions_go_out_at_once_with_the_whole_descriptor() {
    let mut desk = Desk::new(parameters());
    assert_eq!(desk.submit(&[4, 2, 1], &[1.0, 0.0, 3.5]), 0);
    let packets: Vec<Vec<u8>> = desk.sent.0.drain(..).flat_map(|(_, packets)| packets).collect();
    assert_eq!(packets.len(), 3);
    for (i, packet) in packets.iter().enumerate() {
        let (header, payload) = Header::parse(packet).unwrap();
        let expected = Header {
            kind: Kind::Norm,
            flags: 0,
            num_workers: 3,
            job: parameters().job,
            worker: WorkerId(1),
            table: TableId(0),
            cookie: parameters().cookie,
            round: Round(0),
            slot: SlotId(i as u16),
            count: 0,
        };
        assert_eq!(header, expected);
        let value = [1.0f32, 0.0, 3.5][i].to_bits();
        let norm = Norm { tag: 0, value, length: 7 * 1024, call: 0, table: TableId(9), mode: 0, key: 0xFACE };
        assert_eq!(Norm::parse(payload), Some(norm.tagged(3)));
    }
    assert_eq!(desk.submit_as(Choice::Raw, &[1], &[1.0]), 1);
    let (_, packets) = desk.sent.0.remove(0);
    let norm = Norm::parse(&packets[0][HEADER_LEN..]).unwrap();
    assert_eq!((norm.call, norm.mode, norm.table), (1, 1, TableId(0)));
}

#[test]
fn data_wait_for_every_norm_of_their_call_and_skip_partitions_of_zero() {
    let mut desk = Desk::new(parameters());
    desk.submit(&[1, 2, 1], &[1.0, 0.0, 1.0]);
    desk.take();
    for (seq, value) in [(2, 4.0f32), (0, 2.0)] {
        desk.norm_result(seq, value.to_bits());
        assert_eq!(desk.worker.next_data(), None);
        assert_eq!(desk.reports.0, []);
    }
    desk.norm_result(1, 0);
    assert_eq!(desk.reports.0, [Report::Norms(0, vec![2f32.to_bits(), 0, 4f32.to_bits()])]);
    assert_eq!(desk.worker.next_data(), Some(Place { call: 0, partition: 0, packet: 0 }));
    desk.fill();
    let packets: Vec<Vec<u8>> = desk.sent.0.drain(..).flat_map(|(_, packets)| packets).collect();
    let header = Header::parse(&packets[1]).unwrap().0;
    assert_eq!((header.kind, header.table, header.slot), (Kind::Data, TableId(9), SlotId(1)));
    assert_eq!((packets.len(), packets[1].len()), (2, HEADER_LEN + 512));
    desk.result(0);
    desk.result(1);
    assert_eq!(desk.reports.0[2], Report::Result(Place { call: 0, partition: 2, packet: 0 }, 3, 1));
    assert_eq!(desk.worker.pending(), 0);
}

#[test]
fn raw_packets_are_raw() {
    let form = Form::new(4, Lane::Bits16).unwrap();
    let tables = Tables::one(Table { id: TableId(9), form, ..Table::default() });
    let mut desk = Desk::new(Parameters { tables, ..parameters() });
    desk.submit_as(Choice::Raw, &[2], &[1.0]);
    desk.norm_result(0, 1f32.to_bits());
    desk.take();
    desk.fill();
    let packets: Vec<Vec<u8>> = desk.sent.0.drain(..).flat_map(|(_, packets)| packets).collect();
    let header = Header::parse(&packets[1]).unwrap().0;
    assert_eq!((header.kind, header.table, packets[1].len()), (Kind::Raw, TableId(0), HEADER_LEN + 1024));
    // A RESULT is no answer to RAW.
    desk.result(0);
    assert_eq!(desk.reports.0.len(), 1);
    desk.handle(desk.header(Kind::RawResult, 0), &[7; 1024]);
    assert_eq!(desk.reports.0[1], Report::Result(Place::default(), 3, 7));
    // With 16-bit lanes DATA are half as long.
    desk.call(1);
    desk.fill();
    assert_eq!(desk.sent.0[0].1[0].len(), HEADER_LEN + 256);
}

#[test]
fn a_seq_is_sent_only_once_the_one_a_window_before_is_finished() {
    let mut desk = Desk::new(parameters());
    desk.call(40);
    desk.fill();
    assert_eq!(desk.seqs(), (0..8).collect::<Vec<_>>());
    // Later results open nothing; the lowest does, and all that is finished above it.
    for seq in [3, 1, 2] {
        desk.result(seq);
        desk.fill();
        assert_eq!(desk.seqs(), []);
    }
    desk.result(0);
    desk.fill();
    assert_eq!(desk.seqs(), [8, 9, 10, 11]);
    desk.result(4);
    desk.fill();
    assert_eq!(desk.seqs(), [12]);
}

#[test]
fn norms_have_a_window_of_their_own() {
    let mut desk = Desk::new(parameters());
    desk.submit(&[1; 6], &[0.0; 6]);
    desk.submit(&[1], &[1.0]);
    let norms = |desk: &mut Desk| desk.take().iter().map(|sent| sent.1).collect::<Vec<_>>();
    assert_eq!(norms(&mut desk), [0, 1, 2, 3]);
    desk.norm_result(0, 0);
    desk.norm_result(1, 0);
    desk.tick();
    assert_eq!(norms(&mut desk), [4, 5]);
    desk.norm_result(2, 0);
    desk.tick();
    assert_eq!(norms(&mut desk), [6]);
}

#[test]
fn a_limit_below_the_window_holds() {
    let mut desk = Desk::new(parameters());
    desk.worker.set_limit(3);
    desk.call(10);
    desk.fill();
    assert_eq!(desk.seqs(), [0, 1, 2]);
    desk.result(0);
    desk.fill();
    assert_eq!(desk.seqs(), [3]);
    desk.worker.set_limit(1000);
    desk.fill();
    assert_eq!(desk.seqs(), [4, 5, 6, 7, 8]);
    desk.worker.set_limit(0);
    (1..9).for_each(|seq| desk.result(seq));
    desk.fill();
    assert_eq!(desk.seqs(), [9]);
}

#[test]
fn what_was_sent_is_kept_until_a_window_later_is_finished() {
    let mut desk = Desk::new(parameters());
    desk.call(100);
    for seq in 0..100u64 {
        desk.fill();
        desk.take();
        // S − W = W seqs below the lowest unfinished are still there for whoever asks.
        for old in seq.saturating_sub(8)..seq {
            desk.nudge(0, Kind::Data, old, 0b001);
            assert_eq!(desk.take(), [(Kind::Data, old, false)], "{old} at {seq}");
        }
        desk.result(seq);
    }
    assert_eq!(desk.worker.pending(), 0);
}

#[test]
fn what_is_kept_is_what_was_sent() {
    let mut desk = Desk::new(parameters());
    desk.call(3);
    desk.fill();
    let original = desk.sent.0.remove(0).1;
    desk.nudge(2, Kind::Data, 1, 0b100);
    assert_eq!(desk.sent.0.remove(0).1, [original[1].clone()]);
}

#[test]
fn runs_end_with_the_ring_and_with_the_shards_block() {
    let wide = Parameters { data_slots: 320, shards: 2, norm_slots: 256, ..parameters() };
    let mut desk = Desk::new(wide);
    desk.submit(&[1; 130], &[0.0; 130]);
    desk.submit(&[400], &[1.0]);
    desk.tick();
    // Norm slots 0 to 63 and 128 to 191 are shard 0's.
    let runs =
        |desk: &mut Desk| desk.sent.0.drain(..).map(|(shard, run)| (shard, run.len())).collect::<Vec<_>>();
    assert_eq!(runs(&mut desk), [(0, 64), (1, 64)]);
    (0..128).for_each(|seq| desk.norm_result(seq, 0));
    desk.tick();
    assert_eq!(runs(&mut desk), [(0, 2), (0, 1)]);
    (128..130).for_each(|seq| desk.norm_result(seq, 0));
    desk.norm_result(130, 1f32.to_bits());
    desk.fill();
    assert_eq!(runs(&mut desk), [(0, 64), (1, 64), (0, 32)]);
    (0..150).for_each(|seq| desk.result(seq));
    desk.fill();
    // 160..192 of shard 0, 192..256 of shard 1, 256..310 of shard 0.
    assert_eq!(runs(&mut desk), [(0, 32), (1, 64), (0, 54)]);
    (150..310).for_each(|seq| desk.result(seq));
    desk.fill();
    // To the end of the ring at 320, and from its beginning.
    assert_eq!(runs(&mut desk), [(0, 10), (0, 64), (1, 16)]);
}

#[test]
fn several_calls_follow_each_other_in_one_stream() {
    let mut desk = Desk::new(parameters());
    assert_eq!((desk.submit(&[2], &[1.0]), desk.submit(&[3], &[1.0]), desk.submit(&[1], &[0.0])), (0, 1, 2));
    desk.take();
    // The second call's norms come first: its data still wait for the first call's.
    desk.norm_result(1, 1f32.to_bits());
    assert_eq!(desk.worker.next_data(), None);
    desk.norm_result(2, 0);
    desk.norm_result(0, 1f32.to_bits());
    desk.fill();
    assert_eq!(desk.seqs(), [0, 1, 2, 3, 4]);
    assert_eq!(desk.worker.pending(), 3);
    for seq in [4, 2, 3] {
        desk.result(seq);
    }
    assert_eq!(desk.worker.pending(), 3);
    desk.result(0);
    desk.result(1);
    assert_eq!(desk.worker.pending(), 0);
    let places: Vec<_> = desk
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

#[test]
fn a_call_without_partitions_ends_in_its_turn() {
    let mut desk = Desk::new(parameters());
    desk.submit(&[], &[]);
    assert_eq!(desk.worker.deadline(), Some(std::time::Duration::ZERO));
    desk.tick();
    assert_eq!((desk.reports.0.pop(), desk.worker.pending()), (Some(Report::Norms(0, vec![])), 0));
    desk.submit(&[1], &[0.0]);
    desk.submit(&[], &[]);
    desk.tick();
    assert_eq!((desk.reports.0.len(), desk.worker.pending()), (0, 2));
    desk.norm_result(0, 0);
    desk.tick();
    assert_eq!(desk.reports.0, [Report::Norms(1, vec![0]), Report::Norms(2, vec![])]);
    assert_eq!(desk.worker.pending(), 0);
}
