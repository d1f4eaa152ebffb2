//! P8–P13: slots, rounds, duplicates, completion, frozen results, quorum; DATA and RAW arithmetic.

use super::setup::{
    JOB, Sent, Setup, TABLE, To, VALUES, config, endpoint, expect_handled, lookup, norm, wide,
};
use thc_protocol::aggregator::{DropReason, Event, JobConfig, Lookup, Outcome};
use thc_protocol::wire::{FLAG_NUDGE, Form, Header, Kind, Norm};
use thc_protocol::{Lane, Round, TableId, WorkerId};

fn single(sent: Vec<Sent>) -> Sent {
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent.into_iter().next().unwrap()
}

#[test]
fn newer_is_serial_number_arithmetic() {
    let half = 1u32 << 31;
    for base in [0, 1, 5, half - 1, half, half + 1, u32::MAX - 1, u32::MAX] {
        let round = Round(base);
        assert!(!round.newer_than(round));
        for ahead in [1, 2, 1000, half - 1] {
            assert!(Round(base.wrapping_add(ahead)).newer_than(round), "{base} + {ahead}");
            assert!(!round.newer_than(Round(base.wrapping_add(ahead))), "{base} + {ahead}");
        }
        // Exactly half way round is older both ways: never newer.
        assert!(!Round(base.wrapping_add(half)).newer_than(round));
        assert!(!Round(base.wrapping_add(half + 1)).newer_than(round));
    }
}

#[test]
fn an_empty_slot_takes_any_round() {
    for round in [0, 1, 1 << 31, u32::MAX] {
        let mut setup = Setup::new(2);
        assert_eq!(setup.data(0, round, 5, 2), (Event::Opened, vec![]));
        let slot = setup.slot(Kind::Data, 5);
        assert_eq!((slot.round, slot.seen, slot.complete), (Round(round), 1, false));
        assert!(slot.values.iter().all(|&lane| lane == VALUES[2]));
    }
}

#[test]
fn values_are_looked_up_and_added_once_each() {
    let mut setup = Setup::new(3);
    let mut expected = [0u8; 1024];
    for worker in 0..3u8 {
        let payload: Vec<u8> = (0..512u32).map(|i| (i * 37 + u32::from(worker) * 91 + i / 7) as u8).collect();
        for (pair, byte) in expected.chunks_exact_mut(2).zip(&payload) {
            pair[0] += VALUES[usize::from(byte >> 4)];
            pair[1] += VALUES[usize::from(byte & 15)];
        }
        let header = setup.header(Kind::Data, worker, 4, 1);
        let (event, sent) = expect_handled(setup.packet(header, &payload));
        assert_eq!(event, if worker == 0 { Event::Opened } else { Event::Added });
        if worker < 2 {
            assert_eq!(sent, vec![]);
            assert_eq!(expect_handled(setup.packet(header, &payload)), (Event::Duplicate, vec![]));
        } else {
            let result = single(sent);
            assert_eq!(result.to, setup.to_all());
            assert_eq!(result.payload(), expected);
            let header = Header { kind: Kind::Result, worker: WorkerId::NONE, count: 3, ..header };
            assert_eq!(result.header(), header);
        }
    }
    assert_eq!(setup.slot(Kind::Data, 1).seen, 0b111);
    assert_eq!(setup.aggregator.job_counters(JOB).unwrap().results, 1);
}

#[test]
fn a_newer_round_overwrites_complete_and_incomplete_slots() {
    let mut setup = Setup::new(2);
    // Incomplete: worker 0 alone in round 7.
    setup.data(0, 7, 0, 15);
    assert_eq!(setup.data(1, 8, 0, 1), (Event::Opened, vec![]));
    let slot = setup.slot(Kind::Data, 0);
    assert_eq!((slot.round, slot.seen, slot.complete), (Round(8), 0b10, false));
    assert!(slot.values.iter().all(|&lane| lane == VALUES[1]));
    // Complete.
    let (event, sent) = setup.data(0, 8, 0, 2);
    assert_eq!((event, single(sent).payload()[1000]), (Event::Added, VALUES[1] + VALUES[2]));
    assert!(setup.slot(Kind::Data, 0).complete);
    assert_eq!(setup.data(0, 9, 0, 3), (Event::Opened, vec![]));
    let slot = setup.slot(Kind::Data, 0);
    assert_eq!((slot.round, slot.seen, slot.complete), (Round(9), 0b01, false));
    assert!(slot.values.iter().all(|&lane| lane == VALUES[3]));
}

#[test]
fn rounds_wrap() {
    let mut setup = Setup::new(2);
    for round in [u32::MAX - 1, u32::MAX, 0, 1] {
        assert_eq!(setup.data(0, round, 0, 1), (Event::Opened, vec![]));
        let (event, sent) = setup.data(1, round, 0, 2);
        assert_eq!(event, Event::Added);
        assert_eq!(single(sent).header().round, Round(round));
    }
    // What the wrap has passed is old.
    assert_eq!(setup.data(0, u32::MAX, 0, 1).0, Event::Stale);
    // Half the circle ahead is not newer; one less is.
    assert_eq!(setup.data(0, 1 + (1 << 31), 0, 1).0, Event::Stale);
    assert_eq!(setup.nudging_data(0, 1 + (1 << 31) - 1, 0, 1).0, Event::Opened);
}

/// P9: nothing but the next round opens a slot anew, unless the job may skip or the packet has waited long.
#[test]
fn a_round_too_far_ahead_is_dropped() {
    let half = 1u32 << 31;
    for (round, complete) in [(5, false), (5, true), (u32::MAX, false), (u32::MAX - 1, true)] {
        for skip in [false, true] {
            let filled = || {
                let mut setup = Setup::with_config(JobConfig { skip, ..config(2) });
                setup.data(0, round, 3, 1);
                setup.norm(0, round, 3, norm(1.0));
                if complete {
                    setup.data(1, round, 3, 2);
                    setup.norm(1, round, 3, norm(1.0));
                }
                setup
            };
            for ahead in [1, 2, 3, 1000, half - 1] {
                let far = round.wrapping_add(ahead);
                let mut setup = filled();
                for (kind, payload) in [(Kind::Data, vec![0x33; 512]), (Kind::Raw, vec![7; 1024])] {
                    let mut setup = filled();
                    let header = setup.header(kind, 1, far, 3);
                    let (outcome, sent) = setup.packet(header, &payload);
                    assert_eq!(sent, vec![]);
                    if ahead == 1 || skip {
                        assert_eq!(outcome, Outcome::Handled(Event::Opened), "{round} + {ahead}");
                        assert_eq!(setup.slot(Kind::Data, 3).round, Round(far));
                        continue;
                    }
                    assert_eq!(outcome, Outcome::Dropped(DropReason::Round), "{round} + {ahead}");
                    let slot = setup.slot(Kind::Data, 3);
                    assert_eq!((slot.round, slot.complete), (Round(round), complete));
                    assert_eq!(slot.values[0], VALUES[1] + if complete { VALUES[2] } else { 0 });
                    // The slot goes on as if nothing had come.
                    assert_eq!(setup.data(1, round, 3, 2).1.len(), 1);
                    // With NUDGE it is heard.
                    let header = Header { flags: FLAG_NUDGE, ..header };
                    let (event, sent) = expect_handled(setup.packet(header, &payload));
                    assert_eq!((event, single(sent).header().kind), (Event::Opened, Kind::Nudge));
                    assert_eq!(setup.slot(Kind::Data, 3).round, Round(far));
                }
                // A norm that would be refused for its tag, too.
                let header = setup.header(Kind::Norm, 1, far, 3);
                let outcome = setup.packet(header, &Norm { call: 99, ..norm(1.0) }.with_tag(2).to_bytes()).0;
                let expected = if ahead == 1 || skip {
                    Outcome::Handled(Event::Opened)
                } else {
                    Outcome::Dropped(DropReason::Round)
                };
                assert_eq!(outcome, expected, "norm {round} + {ahead}");
            }
        }
    }
}

/// P14: a round of a data slot is of one kind and one table.
#[test]
fn a_slot_mixes_neither_kinds_nor_tables() {
    let other = TableId(9);
    let with_tables = || {
        let mut setup = Setup::with_config(JobConfig { tables: vec![TABLE], ..config(2) });
        setup
            .aggregator
            .install_table(other, lookup([0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
            .unwrap();
        setup.aggregator.install_job(JobConfig { tables: vec![TABLE, other], ..config(2) }).unwrap();
        setup
    };
    let forms = [(Kind::Data, TABLE), (Kind::Data, other), (Kind::Raw, TableId(0)), (Kind::Raw, TABLE)];
    let payload = |kind: Kind| vec![0x11; kind.payload_len(Form::USUAL)];
    for (a, first) in forms.into_iter().enumerate() {
        for (b, second) in forms.into_iter().enumerate() {
            let mut setup = with_tables();
            let header = |setup: &Setup, worker, (kind, table): (Kind, TableId)| Header {
                table,
                ..setup.header(kind, worker, 4, 2)
            };
            expect_handled(setup.packet(header(&setup, 0, first), &payload(first.0)));
            let before = setup.slot(Kind::Data, 2).values.to_vec();
            for flags in [FLAG_NUDGE, 0] {
                let header = Header { flags, ..header(&setup, 1, second) };
                let (outcome, sent) = setup.packet(header, &payload(second.0));
                if a == b {
                    assert!(matches!(outcome, Outcome::Handled(_)) && sent.len() == 1);
                    continue;
                }
                assert_eq!(
                    (outcome, sent),
                    (Outcome::Dropped(DropReason::Mixed), vec![]),
                    "{first:?} {second:?}"
                );
                let slot = setup.slot(Kind::Data, 2);
                assert_eq!((slot.seen, slot.values), (1, &before[..]));
            }
            // A complete slot answers no other form either, and the next round may be of any.
            let result = single(expect_handled(setup.packet(header(&setup, 1, first), &payload(first.0))).1);
            assert_eq!(result.header().table, first.1);
            if a != b {
                let outcome = setup.packet(header(&setup, 0, second), &payload(second.0)).0;
                assert_eq!(outcome, Outcome::Dropped(DropReason::Mixed));
            }
            let next = Header { round: Round(5), ..header(&setup, 0, second) };
            assert_eq!(expect_handled(setup.packet(next, &payload(second.0))).0, Event::Opened);
            assert_eq!(
                setup.aggregator.job_counters(JOB).unwrap().worker(WorkerId(1)).drops[12],
                if a == b { 0 } else { 2 }
            );
        }
    }
}

#[test]
fn a_duplicate_is_never_added_and_gets_the_result_alone() {
    let mut setup = Setup::new(3);
    setup.data(0, 0, 0, 1);
    // Even with other contents it is not added.
    assert_eq!(setup.data(0, 0, 0, 9), (Event::Duplicate, vec![]));
    setup.data(1, 0, 0, 2);
    let result = single(setup.data(2, 0, 0, 3).1);
    assert_eq!(result.payload()[0], VALUES[1] + VALUES[2] + VALUES[3]);
    for worker in [2, 0, 1, 0] {
        let (event, sent) = setup.data(worker, 0, 0, 9);
        assert_eq!(event, Event::Duplicate);
        let again = single(sent);
        assert_eq!(again.to, To::One(endpoint(worker)));
        assert_eq!(again.packet, result.packet);
    }
    let counters = setup.aggregator.job_counters(JOB).unwrap();
    assert_eq!((counters.results, counters.resent), (1, 4));
    assert_eq!(setup.events(0), [(Event::Opened, 1), (Event::Duplicate, 3)]);
    assert_eq!(setup.events(1), [(Event::Added, 1), (Event::Duplicate, 1)]);
}

#[test]
fn a_quorum_completes_and_the_late_get_the_same_result() {
    let mut setup = Setup::with_config(JobConfig { quorum: 2, ..config(4) });
    assert_eq!(setup.data(3, 0, 0, 1), (Event::Opened, vec![]));
    let result = single(setup.data(1, 0, 0, 2).1);
    assert_eq!((result.to.clone(), result.header().count), (setup.to_all(), 2));
    for (worker, event) in [(0, Event::Late), (0, Event::Late), (2, Event::Late), (3, Event::Duplicate)] {
        let (what, sent) = setup.data(worker, 0, 0, 15);
        assert_eq!(what, event);
        let copy = single(sent);
        assert_eq!((copy.to, copy.packet), (To::One(endpoint(worker)), result.packet.clone()));
    }
    // The late never join `seen`.
    assert_eq!(setup.slot(Kind::Data, 0).seen, 0b1010);
    assert_eq!(setup.events(0), [(Event::Late, 2)]);
}

#[test]
fn one_worker_completes_alone() {
    let mut setup = Setup::new(1);
    let (event, sent) = setup.data(0, 9, 3, 4);
    assert_eq!((event, single(sent).payload()[5]), (Event::Opened, VALUES[4]));
    let mut setup = Setup::with_config(JobConfig { quorum: 1, ..config(3) });
    let (event, sent) = setup.data(2, 9, 3, 4);
    assert_eq!((event, single(sent).header().count), (Event::Opened, 1));
    // Its NUDGE is answered by the result, not by a NUDGE.
    let (event, sent) = setup.nudging_data(2, 10, 3, 4);
    assert_eq!((event, single(sent).header().kind), (Event::Opened, Kind::Result));
}

#[test]
fn sixty_four_workers_fill_seen() {
    // 64 · 3 = 192 fits 8 bits.
    let mut setup = Setup::with_config(JobConfig { tables: vec![], ..config(64) });
    let thin = TableId(4);
    setup.aggregator.install_table(thin, lookup([0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap();
    setup.aggregator.install_job(JobConfig { tables: vec![thin], ..config(64) }).unwrap();
    for worker in 0..64 {
        let header = Header { table: thin, ..setup.header(Kind::Data, worker, 0, 0) };
        let (event, sent) = expect_handled(setup.packet(header, &[0x33; 512]));
        assert_eq!(event, if worker == 0 { Event::Opened } else { Event::Added });
        if worker == 63 {
            let result = single(sent);
            assert_eq!(result.header().count, 64);
            assert!(result.payload().iter().all(|&lane| lane == 192));
        } else {
            assert_eq!(sent, vec![]);
        }
    }
    assert_eq!(setup.slot(Kind::Data, 0).seen, u64::MAX);
}

#[test]
fn sixteen_bit_lanes() {
    let mut setup = Setup::with_table(wide(), 20);
    let mut expected = [0u16; 512];
    for worker in 0..20u8 {
        let payload: Vec<u8> = (0..256u32).map(|i| (i * 53 + u32::from(worker) * 17) as u8).collect();
        for (pair, byte) in expected.chunks_exact_mut(2).zip(&payload) {
            pair[0] += u16::from(VALUES[usize::from(byte >> 4)]);
            pair[1] += u16::from(VALUES[usize::from(byte & 15)]);
        }
        let (_, sent) = expect_handled(setup.packet(setup.header(Kind::Data, worker, 0, 2), &payload));
        if worker == 19 {
            let result = single(sent);
            let lanes: Vec<u16> =
                result.payload().chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
            assert_eq!(lanes, expected);
            assert!(expected.iter().any(|&lane| lane > 255));
        }
    }
}

/// P2: indices and sums of every form, read bit by bit.
#[test]
fn every_form_adds_what_its_indices_name() {
    let bits = |bytes: &[u8], width: usize| -> Vec<u32> {
        let all: Vec<u32> =
            bytes.iter().flat_map(|b| (0..8).rev().map(move |i| u32::from(b >> i & 1))).collect();
        all.chunks(width).map(|bits| bits.iter().fold(0, |value, bit| value << 1 | bit)).collect()
    };
    // P44 has those of 5 to 7 and 9 to 15 bits a sum.
    let widths = (1..=4).chain([8]);
    for form in widths.flat_map(|width| (4..=16).filter_map(move |lane| Form::with_sums(width, lane))) {
        let width = form.width();
        let mut values = [0; 16];
        (0u8..).zip(&mut values).take(1 << width.min(4)).for_each(|(z, value)| *value = z);
        let table = Lookup { form, values: if form.is_identity() { [0; 16] } else { values } };
        // As many as sums of few bits take.
        let workers = (form.max_sum() / ((1 << width) - 1)).min(3) as u8;
        let mut setup = Setup::with_table(table, workers);
        let mut expected = vec![0; form.coordinates()];
        for worker in 0..workers {
            let payload: Vec<u8> =
                (0..form.data_len() as u32).map(|i| (i * 53 + u32::from(worker) * 17) as u8).collect();
            let indices = bits(&payload, width.into());
            assert_eq!(indices.len(), form.coordinates(), "{form}");
            expected.iter_mut().zip(indices).for_each(|(sum, index)| *sum += index);
            let (_, sent) = expect_handled(setup.packet(setup.header(Kind::Data, worker, 0, 2), &payload));
            if worker + 1 == workers {
                let result = single(sent);
                assert_eq!(result.packet.len(), 20 + form.result_len(), "{form}");
                let payload = result.payload();
                assert_eq!(bits(payload, form.sums().into()), expected, "{form}");
            }
        }
    }
}

/// Slots take packets of any form of the job, one after the other, and answer with what is theirs.
#[test]
fn a_slot_changes_its_form_with_its_round() {
    let mut setup = Setup::new(2);
    let half = Lookup {
        form: Form::new(1, Lane::Bits4).unwrap(),
        ..lookup([0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    };
    setup.aggregator.install_table(TableId(9), half).unwrap();
    setup.aggregator.install_job(JobConfig { tables: vec![TABLE, TableId(9)], ..config(2) }).unwrap();
    for round in 0..6 {
        let (table, payload, sums) = match round % 2 {
            0 => (TABLE, vec![0x11; 512], vec![2 * VALUES[1]; 1024]),
            _ => (TableId(9), vec![0xFF; 128], vec![0x22; 512]),
        };
        for worker in 0..2 {
            let header = Header { table, ..setup.header(Kind::Data, worker, round, 1) };
            let (event, sent) = expect_handled(setup.packet(header, &payload));
            assert_eq!(event, if worker == 0 { Event::Opened } else { Event::Added });
            if worker == 1 {
                assert_eq!(single(sent).payload(), sums);
            }
        }
        // Again, to one.
        let header = Header { table, ..setup.header(Kind::Data, 0, round, 1) };
        let (event, sent) = expect_handled(setup.packet(header, &payload));
        assert_eq!((event, single(sent).payload()), (Event::Duplicate, &sums[..]));
    }
}

#[test]
fn raw_words_add_and_wrap() {
    let mut setup = Setup::new(3);
    let words = [
        [i32::MAX, -1, 0, i32::MIN, 0x0102_0304],
        [1, -1, 0, i32::MIN, 0x1010_1010],
        [i32::MAX, 5, 0, -1, 0x0102_0304],
    ];
    let mut result = Vec::new();
    for (worker, words) in (0u8..).zip(words) {
        let payload: Vec<u8> = (0..256).flat_map(|i| words[i % 5].to_be_bytes()).collect();
        let (_, sent) = expect_handled(setup.packet(setup.header(Kind::Raw, worker, 0, 0), &payload));
        result.extend(sent);
    }
    let result = single(result);
    assert_eq!(result.header().kind, Kind::RawResult);
    for (i, word) in result.payload().chunks_exact(4).enumerate() {
        let expected = words.iter().fold(0i32, |sum, of| sum.wrapping_add(of[i % 5]));
        assert_eq!(word, expected.to_be_bytes());
    }
}

#[test]
fn data_and_raw_share_the_slots() {
    let mut setup = Setup::new(2);
    setup.data(0, 3, 0, 1);
    let (event, sent) = expect_handled(setup.packet(setup.header(Kind::Raw, 0, 2, 0), &[0; 1024]));
    assert_eq!((event, single(sent).header().kind), (Event::Stale, Kind::Straggler));
    let (event, _) = expect_handled(setup.packet(setup.header(Kind::Raw, 0, 4, 0), &[7; 1024]));
    assert_eq!(event, Event::Opened);
    assert_eq!(setup.slot(Kind::Data, 0).values, [7; 1024]);
    assert_eq!(setup.data(1, 3, 0, 1).0, Event::Stale);
}

#[test]
fn forgotten_slots_are_empty_and_complete_again_to_the_same_result() {
    let mut setup = Setup::new(2);
    setup.data(0, 5, 0, 1);
    let result = single(setup.data(1, 5, 0, 2).1);
    setup.aggregator.forget_slots();
    let slot = setup.slot(Kind::Data, 0);
    assert_eq!((slot.seen, slot.complete), (0, false));
    // An older round opens it as well, and the newer then overwrites that.
    assert_eq!(setup.data(1, 4, 0, 9), (Event::Opened, vec![]));
    assert_eq!(setup.data(1, 5, 0, 2), (Event::Opened, vec![]));
    assert_eq!(single(setup.data(0, 5, 0, 1).1), result);
    // Counters outlive it.
    assert_eq!(setup.aggregator.job_counters(JOB).unwrap().results, 2);
}
