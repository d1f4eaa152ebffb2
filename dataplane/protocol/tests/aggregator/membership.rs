//! P7: who is let in, in which order the checks come, and that a dropped packet changes nothing.

use super::setup::{COOKIE, JOB, Setup, TABLE, bytes, config, endpoint, lookup, norm, wide};
use std::net::{Ipv4Addr, SocketAddr};
use thc_protocol::aggregator::{DropReason, Endpoint, Event, JobConfig, Lookup, Outcome, Shard};
use thc_protocol::wire::{Form, Header, Kind};
use thc_protocol::{Cookie, JobId, Round, SlotId, TableId, WorkerId};

/// A packet of worker 1 with a fault for every reason from `first` on, so that only the check for
/// `first`, coming before the others, can have dropped it. Also where it comes from.
fn faulty(setup: &Setup, first: DropReason) -> (Endpoint, Vec<u8>) {
    let has = |reason: DropReason| reason as u8 >= first as u8;
    // DATA has opened the slot. A fault of the table is one of DATA, too.
    let kind = if first as u8 > DropReason::Table as u8 { Kind::Raw } else { Kind::Data };
    let mut header = setup.header(kind, 1, 0, 0);
    let mut from = endpoint(1);
    let mut length = kind.payload_len(Form::USUAL);
    if has(DropReason::Job) {
        header.job = JobId(9);
    }
    if has(DropReason::Cookie) {
        header.cookie = Cookie(COOKIE.0 ^ 1);
    }
    if has(DropReason::Member) {
        header.worker = WorkerId(40);
    }
    if has(DropReason::Source) {
        from = endpoint(77);
    }
    if has(DropReason::Workers) {
        header.num_workers += 1;
    }
    if has(DropReason::Length) {
        length = 511;
    }
    if has(DropReason::Slot) {
        header.slot = SlotId(8);
    }
    // How long packets of another table are, nobody can say.
    if has(DropReason::Table) && first != DropReason::Length {
        header.table = TableId(TABLE.0 + 1);
    }
    if has(DropReason::Round) {
        header.round = Round(2);
    }
    let mut packet = bytes(header, &vec![0x11; length]);
    if has(DropReason::Kind) {
        packet[1] = 0x77;
    }
    if has(DropReason::Version) {
        packet[0] = 1;
    }
    if has(DropReason::Short) {
        packet.truncate(19);
    }
    (from, packet)
}

#[test]
fn the_first_check_that_fails_is_the_reason() {
    for reason in DropReason::ALL {
        let mut setup = Setup::new(3);
        setup.data(0, 0, 0, 1);
        let (from, packet) = faulty(&setup, reason);
        assert_eq!(setup.raw(from, &packet), (Outcome::Dropped(reason), vec![]), "{reason:?}");
    }
}

/// What was let in just before does not help a packet that is unlike it.
#[test]
fn so_it_is_behind_a_packet_that_was_let_in() {
    for reason in DropReason::ALL {
        let mut setup = Setup::new(3);
        setup.data(0, 0, 0, 1);
        let (from, packet) = faulty(&setup, reason);
        assert_eq!(setup.data(1, 0, 0, 1).0, Event::Added);
        assert_eq!(setup.raw(from, &packet), (Outcome::Dropped(reason), vec![]), "{reason:?}");
    }
    let mut setup = Setup::new(3);
    setup.data(1, 0, 0, 1);
    let good = bytes(setup.header(Kind::Data, 1, 0, 0), &[0x11; 512]);
    assert_eq!(setup.raw(endpoint(1), &good).0, Outcome::Handled(Event::Duplicate));
    for place in [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11] {
        let mut packet = good.clone();
        packet[place] ^= 1;
        assert!(matches!(setup.raw(endpoint(1), &packet).0, Outcome::Dropped(_)), "byte {place}");
    }
    for length in [511, 513] {
        let packet = bytes(setup.header(Kind::Data, 1, 0, 0), &vec![0x11; length]);
        assert_eq!(setup.raw(endpoint(1), &packet).0, Outcome::Dropped(DropReason::Length));
    }
    assert_eq!(setup.raw(endpoint(2), &good).0, Outcome::Dropped(DropReason::Source));
    assert_eq!(setup.raw(endpoint(1), &good).0, Outcome::Handled(Event::Duplicate));
}

/// The next packet after a change is looked at as if it were the first.
#[test]
fn what_was_let_in_before_a_change_is_not_let_in_for_that() {
    type Change = fn(&mut Setup);
    let changes: [(DropReason, Change); 8] = [
        (DropReason::Job, |it| assert!(it.aggregator.remove_job(JOB))),
        (DropReason::Cookie, |it| {
            let other = JobConfig { cookie: Cookie(COOKIE.0 ^ 1), ..config(3) };
            it.aggregator.install_job(other).unwrap();
        }),
        (DropReason::Member, |it| it.aggregator.remove_member(JOB, WorkerId(1))),
        (DropReason::Source, |it| it.aggregator.set_member(JOB, WorkerId(1), endpoint(9)).unwrap()),
        (DropReason::Workers, |it| it.aggregator.install_job(config(4)).unwrap()),
        (DropReason::Length, |it| {
            assert!(it.aggregator.remove_job(JOB));
            it.aggregator.install_table(TABLE, wide()).unwrap();
            it.aggregator.install_job(config(3)).unwrap();
            (0..3).for_each(|w| it.aggregator.set_member(JOB, WorkerId(w), endpoint(w)).unwrap());
        }),
        (DropReason::Slot, |it| {
            it.aggregator.install_job(JobConfig { data_slots: 2, ..config(3) }).unwrap();
        }),
        (DropReason::Table, |it| {
            it.aggregator.install_job(JobConfig { tables: vec![], ..config(3) }).unwrap();
        }),
    ];
    for (reason, change) in changes {
        let mut setup = Setup::new(3);
        assert_eq!(setup.data(1, 0, 4, 1).0, Event::Opened);
        change(&mut setup);
        let again = bytes(setup.header(Kind::Data, 1, 0, 4), &[0x11; 512]);
        assert_eq!(setup.raw(endpoint(1), &again), (Outcome::Dropped(reason), vec![]), "{reason:?}");
    }
}

/// Saying that a packet comes changes nothing, whatever it is.
#[test]
fn packets_may_be_expected() {
    for slots in [8, 4096] {
        let mut setup = Setup::with_config(JobConfig { data_slots: slots, ..config(3) });
        setup.data(0, 0, 0, 1);
        for reason in DropReason::ALL {
            setup.aggregator.prefetch(&faulty(&setup, reason).1);
        }
        assert_eq!(setup.data(0, 0, 0, 1).0, Event::Duplicate);
    }
}

#[test]
fn drops_are_counted_where_job_and_worker_are_known() {
    let mut setup = Setup::new(3);
    setup.data(0, 0, 0, 1);
    for (times, reason) in DropReason::ALL.into_iter().enumerate() {
        let (from, packet) = faulty(&setup, reason);
        for _ in 0..=times {
            setup.raw(from, &packet);
        }
    }
    assert_eq!(setup.aggregator.counters().drops, [1, 2, 3, 4]);
    let counters = setup.aggregator.job_counters(JOB).unwrap();
    // Cookie and Member drops name worker 40, the rest worker 1.
    let mut stranger = [0; DropReason::ALL.len()];
    stranger[DropReason::Cookie as usize] = 5;
    stranger[DropReason::Member as usize] = 6;
    assert_eq!(counters.worker(WorkerId(40)).drops, stranger);
    assert_eq!(counters.worker(WorkerId(40)).packets, 11);
    let mut member = [0; DropReason::ALL.len()];
    for reason in &DropReason::ALL[6..] {
        member[*reason as usize] = *reason as u64 + 1;
    }
    assert_eq!(counters.worker(WorkerId(1)).drops, member);
    assert_eq!(counters.worker(WorkerId(1)).events, [0; Event::ALL.len()]);
    assert_eq!(counters.worker(WorkerId(1)).packets, 7 + 8 + 9 + 10 + 11 + 12 + 13);
    // Source, Workers and Length came with a payload that is one byte short, Round and Mixed as RAW.
    let bytes = (7 + 8 + 9) * 531 + (10 + 11) * 532 + (12 + 13) * 1044;
    assert_eq!(counters.worker(WorkerId(1)).bytes, bytes);
    assert_eq!((counters.results, counters.resent, counters.nudges), (0, 0, 0));
}

#[test]
fn numbers_from_64_on_share_one_set_of_counters() {
    let mut setup = Setup::new(3);
    for worker in [64, 65, 255] {
        let header = setup.header(Kind::Data, worker, 0, 0);
        let packet = bytes(header, &[0; 512]);
        assert_eq!(setup.raw(endpoint(0), &packet).0, Outcome::Dropped(DropReason::Member));
    }
    let counters = setup.aggregator.job_counters(JOB).unwrap();
    assert_eq!(counters.worker(WorkerId(64)), counters.worker(WorkerId(255)));
    assert_eq!(counters.worker(WorkerId(200)).drops[DropReason::Member as usize], 3);
    assert_eq!(counters.worker(WorkerId(63)).packets, 0);
}

#[test]
fn only_norm_data_and_raw_are_aggregated() {
    let mut setup = Setup::new(2);
    for byte in 0..=255u8 {
        if matches!(byte, 1..=3) {
            continue;
        }
        let header = setup.header(Kind::Data, 0, 0, 0);
        let mut packet = bytes(header, &[0; 512]);
        packet[1] = byte;
        assert_eq!(
            setup.raw(endpoint(0), &packet),
            (Outcome::Dropped(DropReason::Kind), vec![]),
            "{byte:#x}"
        );
    }
    // All kinds together are counted as bad kinds, whatever job they name.
    assert_eq!(setup.aggregator.counters().drops[DropReason::Kind as usize], 253);
}

#[test]
fn a_member_entry_says_from_where() {
    let mut setup = Setup::new(2);
    let packet = bytes(setup.header(Kind::Data, 0, 0, 0), &[0; 512]);
    let good = endpoint(0);
    let other_port = Endpoint::udp(SocketAddr::from((good.addr.ip(), good.addr.port() + 1)));
    let other_address = Endpoint::udp(SocketAddr::from((Ipv4Addr::new(10, 9, 9, 9), good.addr.port())));
    for from in [other_port, other_address, endpoint(1)] {
        assert_eq!(setup.raw(from, &packet).0, Outcome::Dropped(DropReason::Source));
    }
    // An ingress port of 0 in the entry means any.
    assert_eq!(setup.raw(Endpoint { ingress: 9, ..good }, &packet).0, Outcome::Handled(Event::Opened));
    setup.aggregator.set_member(JOB, WorkerId(0), Endpoint { ingress: 5, ..good }).unwrap();
    for (ingress, expected) in [
        (0, Outcome::Dropped(DropReason::Source)),
        (4, Outcome::Dropped(DropReason::Source)),
        (5, Outcome::Handled(Event::Duplicate)),
    ] {
        assert_eq!(setup.raw(Endpoint { ingress, ..good }, &packet).0, expected);
    }
}

#[test]
fn a_removed_member_is_dropped_and_gets_nothing() {
    let mut setup = Setup::new(3);
    setup.aggregator.remove_member(JOB, WorkerId(1));
    let packet = bytes(setup.header(Kind::Data, 1, 0, 0), &[0; 512]);
    assert_eq!(setup.raw(endpoint(1), &packet).0, Outcome::Dropped(DropReason::Member));
    let (_, sent) = setup.nudging_data(0, 0, 0, 1);
    assert_eq!(sent[0].to, super::setup::To::All(JOB, vec![endpoint(0), endpoint(2)]));
}

#[test]
fn every_kind_has_its_length() {
    for form in Form::ALL {
        let values =
            if form.is_identity() { [0; 16] } else { [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] };
        let mut setup = Setup::with_table(Lookup { form, values }, 2);
        for kind in [Kind::Norm, Kind::Data, Kind::Raw] {
            let right = kind.payload_len(form);
            for length in
                [0, 1, 19, 20, 21, 64, 128, 192, 255, 256, 257, 384, 511, 512, 513, 1023, 1024, 1025, 1480]
            {
                // DATA and RAW do not share a slot's round (P14).
                let packet = bytes(setup.header(kind, 0, 0, kind as u16), &vec![0; length]);
                let let_in = matches!(setup.raw(endpoint(0), &packet).0, Outcome::Handled(_));
                assert_eq!(let_in, length == right, "{kind:?} of {length} bytes, {form}");
            }
        }
    }
}

#[test]
fn norm_and_data_slots_are_numbered_apart() {
    let mut setup = Setup::new(2);
    for (kind, slot, let_in) in [
        (Kind::Norm, 3, true),
        (Kind::Norm, 4, false),
        (Kind::Data, 7, true),
        (Kind::Data, 8, false),
        (Kind::Raw, 6, true),
        (Kind::Raw, 8, false),
        (Kind::Data, 65535, false),
    ] {
        let length = kind.payload_len(Form::USUAL);
        let (outcome, _) = setup.packet(setup.header(kind, 0, 0, slot), &vec![0; length]);
        let expected =
            if let_in { Outcome::Handled(Event::Opened) } else { Outcome::Dropped(DropReason::Slot) };
        assert_eq!(outcome, expected, "{kind:?} to slot {slot}");
    }
}

#[test]
fn tables_must_be_the_jobs_and_only_data_names_one() {
    let mut setup = Setup::new(2);
    setup.aggregator.install_table(TableId(4), lookup([1; 16])).unwrap();
    for table in (0..=255).filter(|&table| table != TABLE.0) {
        let header = Header { table: TableId(table), ..setup.header(Kind::Data, 0, 0, 0) };
        // How long its packets are to be is not known then.
        for length in [512, 1] {
            assert_eq!(setup.packet(header, &[0; 512][..length]).0, Outcome::Dropped(DropReason::Table));
        }
    }
    let header = Header { table: TableId(99), ..setup.header(Kind::Raw, 0, 0, 0) };
    assert_eq!(setup.packet(header, &[0; 1024]).0, Outcome::Handled(Event::Opened));
    let header = Header { table: TableId(99), ..setup.header(Kind::Norm, 0, 0, 0) };
    assert_eq!(setup.packet(header, &norm(1.0).to_bytes()).0, Outcome::Handled(Event::Opened));
}

#[test]
fn shards_drop_each_others_slots() {
    // P21: blocks of 64 slots go round the shards.
    let wide = JobConfig { data_slots: 512, norm_slots: 256, ..config(2) };
    for index in 0..3 {
        let mut setup = Setup::shard(wide.clone(), Shard { index, count: 3 });
        for slot in 0..512u16 {
            let mine = slot / 64 % 3 == u16::from(index);
            let expected =
                if mine { Outcome::Handled(Event::Opened) } else { Outcome::Dropped(DropReason::Slot) };
            assert_eq!(setup.packet(setup.header(Kind::Raw, 0, 0, slot), &[0; 1024]).0, expected, "{slot}");
            if slot < 256 {
                let norm = norm(1.0).to_bytes();
                assert_eq!(setup.packet(setup.header(Kind::Norm, 0, 0, slot), &norm).0, expected, "{slot}");
            }
        }
    }
}

#[test]
fn unknown_flags_and_the_reserved_byte_are_ignored() {
    let mut setup = Setup::new(2);
    let header = Header { flags: 0xFA, count: 9, ..setup.header(Kind::Data, 0, 0, 0) };
    let mut packet = bytes(header, &[0; 512]);
    packet[19] = 0xFF;
    assert_eq!(setup.raw(endpoint(0), &packet), (Outcome::Handled(Event::Opened), vec![]));
    let (_, sent) = setup.data(1, 0, 0, 0);
    assert_eq!((sent[0].packet[2], sent[0].packet[18], sent[0].packet[19]), (0, 2, 0));
}
