//! RESULTs that come in one piece: as if they came one by one.

use super::driven::{Driven, Report, ms, parameters};
use std::time::Duration;
use thc_protocol::wire::{FLAG_MARK, Header, Kind, MAX_PACKET};
use thc_protocol::worker::{PacketId, Parameters};
use thc_protocol::{Cookie, Ecn, Policy, Round, SlotId};

/// The RESULT of a seq, full of this byte.
fn result(driven: &Driven, seq: u64, with: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = driven.header(Kind::Result, seq);
    with(&mut header);
    let mut buffer = vec![0; MAX_PACKET];
    header.emit_packet(&mut buffer, &[seq as u8; 1024]).to_vec()
}

/// Two workers of which everything is the same but that one takes all packets in one piece.
fn assert_alike(
    parameters: Parameters,
    before: impl Fn(&mut Driven),
    packets: impl Fn(&Driven) -> Vec<Vec<u8>>,
) -> Driven {
    let [mut single, mut joint] = [(), ()].map(|()| {
        let mut driven = Driven::new(parameters);
        before(&mut driven);
        driven.reports.0.clear();
        driven.take();
        driven.now += ms(1);
        driven
    });
    let packets = packets(&single);
    let segment = packets[0].len();
    for packet in &packets {
        let Driven { worker, now, sent, reports } = &mut single;
        worker.handle(*now, packet, reports, sent);
    }
    let Driven { worker, now, sent, reports } = &mut joint;
    worker.handle_run(*now, Ecn::NotEct, &packets.concat(), segment, reports, sent);
    for driven in [&mut single, &mut joint] {
        driven.tick();
        driven.fill();
    }
    assert_eq!(single.reports.0, joint.reports.0);
    assert_eq!(single.worker.stats(), joint.worker.stats());
    assert_eq!(single.worker.window(), joint.worker.window());
    assert_eq!(single.worker.marks(), joint.worker.marks());
    assert_eq!(single.worker.is_idle(), joint.worker.is_idle());
    assert_eq!(single.worker.shortest_round_trip(), joint.worker.shortest_round_trip());
    assert_eq!(single.take(), joint.take());
    joint
}

fn begin_calls(packets: u32) -> impl Fn(&mut Driven) {
    move |driven| {
        driven.call(packets);
        driven.fill();
    }
}

#[test]
fn each_has_its_event() {
    let driven = assert_alike(parameters(), begin_calls(8), |driven| {
        (0..6).map(|seq| result(driven, seq, |_| ())).collect()
    });
    let place = |packet| PacketId { call: 0, partition: 0, packet };
    let expected: Vec<Report> = (0..6).map(|i| Report::Result(place(i), 3, i as u8)).collect();
    assert_eq!(driven.reports.0, expected);
}

#[test]
fn partitions_calls_and_rounds_end_in_the_middle() {
    let before = |driven: &mut Driven| {
        driven.submit(&[3, 4, 1], &[1.0, 2.0, 3.0]);
        (0..3).for_each(|seq| driven.norm_result(seq, 5f32.to_bits()));
        driven.call(20);
        driven.fill();
    };
    assert_alike(parameters(), before, |driven| (0..8).map(|seq| result(driven, seq, |_| ())).collect());
    let later = |driven: &mut Driven| {
        before(driven);
        (0..13).for_each(|seq| driven.result(seq));
        driven.fill();
    };
    // Slot 15 is followed by slot 0 of the next round.
    assert_alike(parameters(), later, |driven| (13..19).map(|seq| result(driven, seq, |_| ())).collect());
}

#[test]
fn what_is_between_them_is_looked_at_by_itself() {
    let odd: [&dyn Fn(&mut Header); 7] = [
        &|header| header.cookie = Cookie(5),
        &|header| header.count = 2,
        &|header| header.slot = SlotId(header.slot.0 + 1),
        &|header| header.slot = SlotId(u16::MAX),
        &|header| header.round = Round(7),
        &|header| header.flags = FLAG_MARK,
        &|header| header.kind = Kind::Data,
    ];
    for with in odd {
        for at in 0..4 {
            assert_alike(parameters(), begin_calls(8), |driven| {
                (0..4)
                    .map(|seq| {
                        result(driven, seq, |header| {
                            if seq == at {
                                with(header);
                            }
                        })
                    })
                    .collect()
            });
        }
    }
    // Twice, and in another order.
    for order in [[0, 1, 1, 2], [3, 2, 1, 0], [1, 2, 0, 3], [0, 1, 0, 1], [5, 6, 7, 8]] {
        assert_alike(parameters(), begin_calls(8), |driven| {
            order.map(|seq| result(driven, seq, |_| ())).to_vec()
        });
    }
    // The last is shorter, or too short for a header.
    for len in [1, 19, 20, 1043] {
        assert_alike(parameters(), begin_calls(8), |driven| {
            let mut packets: Vec<_> = (0..4).map(|seq| result(driven, seq, |_| ())).collect();
            packets[3].truncate(len);
            packets
        });
    }
}

#[test]
fn packets_that_were_repeated_and_sums_of_fewer_take_their_own_way() {
    let overtaken = |driven: &mut Driven| {
        begin_calls(8)(driven);
        driven.now += ms(1);
        driven.result(6);
        driven.pass(ms(30));
    };
    assert_alike(parameters(), overtaken, |driven| (0..6).map(|seq| result(driven, seq, |_| ())).collect());
    let timed_out = |driven: &mut Driven| {
        begin_calls(8)(driven);
        driven.pass(Duration::from_millis(150));
    };
    assert_alike(parameters(), timed_out, |driven| (0..8).map(|seq| result(driven, seq, |_| ())).collect());
    let quorum = Parameters { quorum: 2, policy: Policy::BestEffort, ..parameters() };
    let late = |driven: &mut Driven| {
        driven.call(8);
        let fewer = result(driven, 2, |header| header.count = 2);
        let Driven { worker, now, sent, reports } = &mut *driven;
        worker.handle(*now, &fewer, reports, sent);
        driven.fill();
    };
    for count in [2, 3] {
        assert_alike(quorum, late, |driven| {
            (0..6).map(|seq| result(driven, seq, |header| header.count = count)).collect()
        });
    }
}

#[test]
fn runs_end_with_a_ports_block_of_slots() {
    let two = Parameters { shards: 2, data_slots: 256, ..parameters() };
    assert_alike(two, begin_calls(120), |driven| (50..80).map(|seq| result(driven, seq, |_| ())).collect());
}

#[test]
fn marks_count_for_each() {
    let marked = Parameters { marks: true, first_window: 8, ..parameters() };
    assert_alike(marked, begin_calls(8), |driven| {
        (0..8).map(|seq| result(driven, seq, |header| header.flags = FLAG_MARK)).collect()
    });
}
