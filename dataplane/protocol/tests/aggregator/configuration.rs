//! Jobs, tables, members: P6, what reconfiguration keeps, the memory limit.

use super::setup::{JOB, Setup, TABLE, To, USUAL, VALUES, config, endpoint, lookup, wide};
use thc_protocol::aggregator::{
    Aggregator, DropReason, Event, JobConfig, JobConfigError, Lookup, Outcome, Shard, TableError,
};
use thc_protocol::wire::{Form, Kind};
use thc_protocol::{Cookie, JobId, Lane, SlotId, TableId, WorkerId};

fn empty() -> Aggregator {
    let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 24);
    aggregator.install_table(TABLE, USUAL).unwrap();
    aggregator
}

#[test]
fn numbers_out_of_range_are_refused() {
    let mut it = empty();
    let good = config(4);
    for workers in [0, 65, 255] {
        let bad = JobConfig { workers, quorum: 1, ..good.clone() };
        assert_eq!(it.install_job(bad), Err(JobConfigError::Workers { job: JOB, workers }));
    }
    for quorum in [0, 5, 255] {
        let bad = JobConfig { quorum, ..good.clone() };
        assert_eq!(it.install_job(bad), Err(JobConfigError::Quorum { job: JOB, quorum, workers: 4 }));
    }
    for slots in [0, 1, 3, 65535, 65537, 65538, u32::MAX] {
        let bad = JobConfig { data_slots: slots, ..good.clone() };
        assert_eq!(it.install_job(bad), Err(JobConfigError::Slots { job: JOB, what: "data", slots }));
        let bad = JobConfig { norm_slots: slots, ..good.clone() };
        assert_eq!(it.install_job(bad), Err(JobConfigError::Slots { job: JOB, what: "norm", slots }));
    }
    assert_eq!(it.jobs().count(), 0);
    for (data_slots, norm_slots) in [(2, 2), (4096, 65536)] {
        let fits = JobConfig { data_slots, norm_slots, ..good.clone() };
        assert_eq!(it.install_job(fits), Ok(()));
    }
}

#[test]
fn sums_must_fit_the_lane() {
    // g = 30: 8 · 30 = 240 fits, 9 · 30 = 270 does not.
    let mut it = empty();
    assert_eq!(it.install_job(config(8)), Ok(()));
    let error = it.install_job(config(9)).unwrap_err();
    let expected =
        JobConfigError::LaneOverflow { job: JOB, workers: 9, granularity: 30, sum: 270, bits: 8, max: 255 };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("270") && error.to_string().contains("wider"));
    // The job that was there stays.
    assert_eq!(it.jobs().next().unwrap().workers, 8);
    let of_wide = |tables: &[TableId]| JobConfig { tables: tables.to_vec(), ..config(64) };
    it.install_table(TableId(10), wide()).unwrap();
    assert_eq!(it.install_job(of_wide(&[TableId(10)])), Ok(()));
    // In lanes of 4 bits 5 · 3 = 15 does, and 6 · 3 does not.
    let half = Lookup {
        form: Form::new(2, Lane::Bits4).unwrap(),
        ..lookup([0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    };
    it.install_table(TableId(11), half).unwrap();
    let of_half = |workers| JobConfig { tables: vec![TableId(11)], ..config(workers) };
    assert_eq!(it.install_job(of_half(5)), Ok(()));
    assert!(matches!(it.install_job(of_half(6)), Err(JobConfigError::LaneOverflow { sum: 18, max: 15, .. })));
    // Every table counts, and 255 · 64 still fits 16 bits.
    it.install_table(TableId(9), lookup([255; 16])).unwrap();
    let two = JobConfig { tables: vec![TABLE, TableId(9)], ..config(2) };
    assert!(matches!(it.install_job(two), Err(JobConfigError::LaneOverflow { granularity: 255, .. })));
    it.install_table(TableId(12), Lookup { form: Form::new(8, Lane::Bits16).unwrap(), values: [0; 16] })
        .unwrap();
    assert_eq!(it.install_job(of_wide(&[TableId(10), TableId(12)])), Ok(()));
}

#[test]
fn tables_are_installed_first_and_fixed_while_in_use() {
    let mut it = empty();
    let other = TableId(4);
    let bad = JobConfig { tables: vec![TABLE, other], ..config(2) };
    assert_eq!(it.install_job(bad), Err(JobConfigError::NoTable { table: other, job: JOB }));
    it.install_job(config(2)).unwrap();
    assert_eq!(
        it.install_table(TABLE, lookup([9; 16])),
        Err(JobConfigError::TableInUse { table: TABLE, job: JOB })
    );
    assert_eq!(it.install_table(TABLE, USUAL), Ok(()));
    assert_eq!(it.remove_table(TABLE), Err(JobConfigError::TableInUse { table: TABLE, job: JOB }));
    assert_eq!(it.table(TABLE), Some(&USUAL));
    assert_eq!(it.install_table(other, lookup([1; 16])), Ok(()));
    assert_eq!(it.install_table(other, lookup([2; 16])), Ok(()));
    assert_eq!(it.remove_table(other), Ok(()));
    assert_eq!(it.table(other), None);
    assert!(it.remove_job(JOB));
    assert!(!it.remove_job(JOB));
    assert_eq!(it.remove_table(TABLE), Ok(()));
}

#[test]
fn members_must_be_of_the_job() {
    let mut it = empty();
    assert_eq!(it.set_member(JOB, WorkerId(0), endpoint(0)), Err(JobConfigError::NoJob { job: JOB }));
    it.install_job(config(3)).unwrap();
    let error = it.set_member(JOB, WorkerId(3), endpoint(0)).unwrap_err();
    assert_eq!(error, JobConfigError::NoSuchWorker { job: JOB, worker: WorkerId(3), workers: 3 });
    assert!(error.to_string().contains("0 to 2"));
    assert!(it.set_member(JOB, WorkerId(255), endpoint(0)).is_err());
    it.remove_member(JOB, WorkerId(255));
    it.remove_member(JobId(1), WorkerId(0));
}

#[test]
fn the_same_shape_keeps_the_slots() {
    let mut setup = Setup::new(2);
    setup.data(0, 3, 1, 2);
    setup.aggregator.install_table(TableId(8), lookup([0; 16])).unwrap();
    setup.aggregator.install_job(JobConfig { tables: vec![TABLE, TableId(8)], ..config(2) }).unwrap();
    assert_eq!(setup.slot(Kind::Data, 1).seen, 1);
    // And the new table may be used, the old no more once it is taken away.
    setup.aggregator.install_job(JobConfig { tables: vec![TableId(8)], ..config(2) }).unwrap();
    let header = setup.header(Kind::Data, 1, 3, 1);
    let dropped = Outcome::Dropped(DropReason::Table);
    assert_eq!(setup.packet(header, &[0; 512]).0, dropped);
    setup.aggregator.install_job(config(2)).unwrap();
    assert_eq!(setup.data(1, 3, 1, 2).1[0].payload()[0], 2 * VALUES[2]);
}

#[test]
fn another_shape_or_cookie_empties_the_slots_and_keeps_members_and_counters() {
    for change in [
        JobConfig { cookie: Cookie(1), ..config(3) },
        JobConfig { quorum: 1, ..config(3) },
        JobConfig { data_slots: 16, ..config(3) },
        JobConfig { norm_slots: 8, ..config(3) },
    ] {
        let mut setup = Setup::new(3);
        setup.data(0, 3, 1, 2);
        setup.norm(1, 3, 1, super::setup::norm(1.0));
        setup.aggregator.install_job(change.clone()).unwrap();
        assert_eq!((setup.slot(Kind::Data, 1).seen, setup.slot(Kind::Norm, 1).seen), (0, 0), "{change:?}");
        assert_eq!(setup.events(0), [(Event::Opened, 1)]);
        let mut header = setup.header(Kind::Raw, 2, 0, 0);
        header.cookie = change.cookie;
        header.flags = 1;
        let (_, sent) = setup.packet(header, &[0; 1024]);
        assert_eq!(sent[0].to, setup.to_all(), "{change:?}");
    }
}

#[test]
fn fewer_workers_drop_the_members_above() {
    let mut setup = Setup::new(3);
    setup.aggregator.install_job(config(2)).unwrap();
    setup.workers = 2;
    setup.data(0, 0, 0, 1);
    let (_, sent) = setup.data(1, 0, 0, 1);
    assert_eq!(sent[0].to, To::All(JOB, vec![endpoint(0), endpoint(1)]));
    // Growing again does not bring the third back.
    setup.aggregator.install_job(config(3)).unwrap();
    setup.workers = 3;
    let header = setup.header(Kind::Data, 2, 0, 0);
    let dropped = Outcome::Dropped(DropReason::Member);
    assert_eq!(setup.packet(header, &[0; 512]).0, dropped);
}

#[test]
fn jobs_are_apart() {
    let mut setup = Setup::new(2);
    let other = JobId(0xFFFF);
    setup.aggregator.install_job(JobConfig { job: other, cookie: Cookie(77), ..config(2) }).unwrap();
    for worker in 0..2 {
        setup.aggregator.set_member(other, WorkerId(worker), endpoint(worker + 10)).unwrap();
    }
    setup.data(0, 0, 0, 1);
    let mut header = setup.header(Kind::Data, 1, 0, 0);
    (header.job, header.cookie) = (other, Cookie(77));
    let packet = super::setup::bytes(header, &[0x22; 512]);
    let (outcome, sent) = setup.raw(endpoint(11), &packet);
    assert_eq!((outcome, sent), (Outcome::Handled(Event::Opened), vec![]));
    assert_eq!(setup.slot(Kind::Data, 0).seen, 0b01);
    assert_eq!(setup.aggregator.slot(other, Kind::Data, header.slot).unwrap().seen, 0b10);
    assert!(setup.aggregator.remove_job(other));
    assert_eq!(setup.slot(Kind::Data, 0).seen, 0b01);
    assert!(setup.aggregator.slot(other, Kind::Data, header.slot).is_none());
    assert!(setup.aggregator.job_counters(other).is_none());
}

#[test]
fn the_memory_limit_holds_for_all_jobs_together() {
    let size = config(2).memory(Shard::WHOLE);
    let mut it = Aggregator::<thc_protocol::aggregator::Scalar>::new(Shard::WHOLE, 3 * size);
    it.install_table(TABLE, USUAL).unwrap();
    for job in 0..3 {
        it.install_job(JobConfig { job: JobId(job), ..config(2) }).unwrap();
    }
    let error = it.install_job(JobConfig { job: JobId(3), ..config(2) }).unwrap_err();
    assert_eq!(error, JobConfigError::Memory { job: JobId(3), needs: size, free: 0 });
    // A job that is replaced frees its own; one that grows too far stays as it was.
    it.install_job(JobConfig { job: JobId(1), cookie: Cookie(5), ..config(2) }).unwrap();
    let big = JobConfig { job: JobId(1), data_slots: 65536, ..config(2) };
    assert!(matches!(it.install_job(big), Err(JobConfigError::Memory { free, .. }) if free == size));
    assert!(it.remove_job(JobId(0)));
    it.install_job(JobConfig { job: JobId(3), ..config(2) }).unwrap();
    let mut jobs: Vec<u16> = it.jobs().map(|job| job.job.0).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, [1, 2, 3]);
    assert_eq!(it.jobs().find(|job| job.job.0 == 1).unwrap().cookie, Cookie(5));
}

#[test]
fn merged_counters_add_up() {
    let mut a = Setup::new(2);
    a.data(0, 0, 0, 1);
    a.data(1, 0, 0, 1);
    a.data(1, 0, 0, 1);
    let mut b = Setup::new(2);
    b.nudging_data(1, 0, 0, 1);
    let mut sum = a.aggregator.job_counters(JOB).unwrap().clone();
    sum.merge(b.aggregator.job_counters(JOB).unwrap());
    assert_eq!((sum.results, sum.resent, sum.nudges), (1, 1, 1));
    let one = sum.worker(WorkerId(1));
    assert_eq!((one.packets, one.bytes), (3, 3 * 532));
    assert_eq!(one.events[Event::Opened as usize], 1);
    assert_eq!(one.events[Event::Duplicate as usize], 1);
}

/// P6: a table that was taken away from a job comes back as it was or not at all, since slots may be half filled
/// with its values.
#[test]
fn a_table_comes_back_to_a_job_as_it_was() {
    let mut it = Setup::new(2);
    let without = JobConfig { tables: vec![], ..config(2) };
    it.data(0, 0, 1, 15);
    it.aggregator.install_job(without.clone()).unwrap();
    it.aggregator.install_table(TABLE, lookup([0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap();
    let changed = Err(JobConfigError::TableChanged { table: TABLE, job: JOB });
    assert_eq!(it.aggregator.install_job(config(2)), changed);
    let dropped = it.packet(it.header(Kind::Data, 1, 0, 1), &[0; 512]).0;
    assert_eq!(dropped, Outcome::Dropped(DropReason::Table));
    it.aggregator.install_table(TABLE, USUAL).unwrap();
    it.aggregator.install_job(config(2)).unwrap();
    assert_eq!(it.data(1, 0, 1, 15).0, Event::Added);
    assert_eq!(it.slot(Kind::Data, 1).values[0], 60);
    // With empty slots it may be another.
    it.aggregator.install_job(without).unwrap();
    it.aggregator.install_table(TABLE, lookup([0; 16])).unwrap();
    assert_eq!(it.aggregator.install_job(config(2)), changed);
    assert_eq!(it.aggregator.install_job(JobConfig { cookie: Cookie(1), ..config(2) }), Ok(()));
}

#[test]
fn values_of_a_table_are_checked() {
    let with = |at: usize, value: u8| {
        let mut values = VALUES;
        values[at] = value;
        values
    };
    let mut short = [0; 16];
    for (used, values) in [(2, &[0, 1][..]), (4, &[0, 1, 2, 255]), (8, &[0, 1, 2, 3, 9, 10, 11, 12])] {
        short = [0; 16];
        short[..used].copy_from_slice(values);
        assert_eq!(lookup(short).check(), Ok(()));
    }
    assert_eq!(USUAL.check(), Ok(()));
    assert_eq!(lookup([0; 16]).check(), Err(TableError::Zero));
    let wrong = |index, value, used| Err(TableError::Value { index, value, used });
    assert_eq!(lookup(with(0, 1)).check(), wrong(0, 1, 16));
    assert_eq!(lookup(with(5, VALUES[4])).check(), wrong(5, VALUES[4], 16));
    assert_eq!(lookup(with(15, 0)).check(), wrong(15, 0, 16));
    short[9] = 200;
    assert_eq!(lookup(short).check(), wrong(8, 0, 16));
    short = [0; 16];
    short[0] = 5;
    assert_eq!(lookup(short).check(), wrong(0, 5, 2));
    // As many values as indices name, and none where the index is the value.
    let of = |width, lane, values| Lookup { form: Form::new(width, lane).unwrap(), values }.check();
    let four = [0, 1, 2, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for width in 2..=4 {
        assert_eq!(of(width, Lane::Bits16, four), Ok(()));
    }
    assert_eq!(of(1, Lane::Bits8, four), Err(TableError::Width { used: 4, width: 1 }));
    assert_eq!(of(3, Lane::Bits8, VALUES), Err(TableError::Width { used: 16, width: 3 }));
    assert_eq!(of(8, Lane::Bits16, four), Err(TableError::Width { used: 4, width: 8 }));
    assert_eq!(of(8, Lane::Bits16, [0; 16]), Ok(()));
}

/// P21: every slot is one shard's, and has a place of its own there.
#[test]
fn slots_have_dense_places_in_their_shards() {
    for count in [0, 1, 2, 3, 7, 64] {
        for slots in [2u32, 64, 66, 1000, 4096, 65536] {
            let mut places = vec![0; usize::from(count.max(1))];
            for slot in 0..slots {
                let slot = SlotId(slot as u16);
                let mine: Vec<Shard> = Shard::split(count).filter(|shard| shard.serves(slot)).collect();
                let [shard] = mine[..] else { panic!("{mine:?}") };
                let next = &mut places[usize::from(shard.index)];
                for other in Shard::split(count) {
                    let place = (other == shard).then_some(*next);
                    assert_eq!(other.find(slot), place, "slot {slot} of {slots}, {other:?}");
                }
                *next += 1;
            }
            let shares: Vec<usize> = Shard::split(count).map(|shard| shard.share(slots) as usize).collect();
            assert_eq!(shares, places, "{slots} slots, {count} shards");
        }
    }
}

/// Answers may go elsewhere than packets come from, or nowhere.
#[test]
fn receivers_may_differ_from_members() {
    let mut it = Setup::new(3);
    it.aggregator.set_receiver(JOB, WorkerId(0), Some(endpoint(7)), true).unwrap();
    it.aggregator.set_receiver(JOB, WorkerId(1), Some(endpoint(1)), false).unwrap();
    it.aggregator.set_receiver(JOB, WorkerId(2), None, true).unwrap();
    it.data(0, 0, 0, 1);
    it.data(1, 0, 0, 1);
    let sent = it.data(2, 0, 0, 1).1;
    assert_eq!(
        sent.iter().map(|sent| sent.to.clone()).collect::<Vec<_>>(),
        [To::All(JOB, vec![endpoint(7)])]
    );
    let resent = |it: &mut Setup, worker| {
        let sent = it.data(worker, 0, 0, 1).1;
        sent.into_iter().map(|sent| sent.to).collect::<Vec<_>>()
    };
    assert_eq!(resent(&mut it, 0), [To::One(endpoint(7))]);
    assert_eq!(resent(&mut it, 1), [To::One(endpoint(1))]);
    assert_eq!(resent(&mut it, 2), []);
    // New slots keep receivers, and nobody at all may be one.
    it.aggregator.install_job(JobConfig { cookie: Cookie(1), ..config(3) }).unwrap();
    it.aggregator.install_job(config(3)).unwrap();
    it.aggregator.set_receiver(JOB, WorkerId(0), Some(endpoint(7)), false).unwrap();
    for worker in 0..3 {
        assert_eq!(it.data(worker, 5, 0, 1).1, []);
    }
    it.aggregator.set_member(JOB, WorkerId(2), endpoint(2)).unwrap();
    assert_eq!(it.data(2, 6, 0, 1).1, []);
    assert_eq!(
        it.aggregator.set_receiver(JOB, WorkerId(3), None, false),
        Err(JobConfigError::NoSuchWorker { job: JOB, worker: WorkerId(3), workers: 3 })
    );
}

#[test]
fn counters_can_be_taken() {
    let mut it = Setup::new(2);
    it.data(0, 0, 1, 15);
    let taken = it.aggregator.take_counters(JOB).unwrap();
    assert_eq!(taken.worker(WorkerId(0)).packets, 1);
    assert_eq!(it.events(0), []);
    assert_eq!(it.aggregator.take_counters(JobId(1)), None);
    assert_eq!(it.data(0, 0, 1, 15).0, Event::Duplicate);
}
