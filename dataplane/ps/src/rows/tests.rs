//! What rows mean for the shards.
#![allow(clippy::unwrap_used)]

use super::view::MemberView;
use super::*;
use crate::kinds::kind_bit;
use std::collections::{BTreeMap, BTreeSet};
use thc_protocol::aggregator::{Endpoint, JobConfig, JobConfigError, Lookup};
use thc_protocol::wire::Form;
use thc_protocol::{Cookie, JobId, Lane, TableId, WorkerId};

const JOB: JobId = JobId(7);
const VALUES: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 24, 30];
const USUAL: Lookup = Lookup { form: Form::USUAL, values: VALUES };

fn config(workers: u8) -> JobConfig {
    JobConfig {
        data_slots: 16,
        norm_slots: 4,
        ..JobConfig::new(JOB, Cookie(0x5eed), workers, vec![TableId(3)])
    }
}

fn endpoint(worker: u8) -> Endpoint {
    Endpoint::udp(std::net::SocketAddr::from(([10, 0, 0, worker + 1], 4000)))
}

/// A store with a session of two workers under index 2.
fn session() -> Store {
    let mut store = Store::default();
    let rows = StaticRows::default();
    store.exchange(rows.table(TableId(3), &USUAL));
    let members = [(WorkerId(0), endpoint(0)), (WorkerId(1), endpoint(1))];
    for change in rows.session(2, 1, &config(2), &members) {
        store.exchange(change);
    }
    store
}

fn view(store: &Store) -> View {
    View::new(Program::get(), store, &BTreeMap::new())
}

fn changes(from: &View, to: &View) -> ViewChanges {
    from.changes_to(to, &BTreeSet::new())
}

fn tables() -> program::Known {
    Program::get().known
}

fn row(table: u32, key: &[u128], entry: Option<Entry>) -> RowChange {
    RowChange::Row(table, key.to_vec(), entry)
}

#[test]
fn a_session_is_what_its_rows_say() {
    let view = view(&session());
    assert_eq!(view.tables[&3], USUAL);
    let job = &view.jobs[&JOB];
    assert_eq!(job.config, config(2));
    assert_eq!((job.index, job.epoch, job.admitted_workers()), (2, 1, 0b11));
    let member = |worker| MemberView {
        from: Some(endpoint(worker).addr),
        to: Some(endpoint(worker).addr),
        copies: true,
    };
    assert_eq!(job.members, [member(0), member(1)]);
}

#[test]
fn only_differences_are_sent() {
    let mut store = session();
    let before = view(&store);
    assert!(changes(&before, &before).is_empty());
    let all = changes(&View::default(), &before);
    assert_eq!((all.gone.len(), all.unused.len(), all.tables.len(), all.jobs.len()), (0, 0, 1, 1));
    // A member moves: the job is sent anew, its slots stay.
    for change in StaticRows::default().member(JOB, WorkerId(1), endpoint(9).addr) {
        store.exchange(change);
    }
    let moved = changes(&before, &view(&store));
    assert_eq!((moved.gone.len(), moved.tables.len(), moved.jobs.len()), (0, 0, 1));
    assert_eq!(moved.jobs[0].members[1].from, Some(endpoint(9).addr));
    // Rows of nobody change nothing.
    let before = view(&store);
    store.exchange(row(tables().members, &[8, 1], Some(Entry::default())));
    store.exchange(row(tables().own_address, &[1, 1], Some(Entry::default())));
    store.exchange(RowChange::Group(77, Some(MulticastGroup::default())));
    assert!(changes(&before, &view(&store)).is_empty());
}

#[test]
fn another_epoch_or_another_shape_empties_the_slots() {
    let store = session();
    let before = view(&store);
    let held = store.row(tables().jobs, &[7]).unwrap();
    let with = |name: &str, value: u128| {
        let (id, action) = Program::get().action("set_job").unwrap();
        let params = action.params.iter().zip(&held.params);
        let params = params.map(|(param, &held)| if param.name == name { value } else { held }).collect();
        let mut changed = store.clone();
        changed.exchange(row(tables().jobs, &[7], Some(Entry { action: id, params, ..Entry::default() })));
        changes(&before, &view(&changed))
    };
    for (name, value) in [("epoch", 2), ("cookie", 1), ("quorum", 1), ("workers", 3), ("data_slots", 32)] {
        let changes = with(name, value);
        assert_eq!((&changes.gone[..], changes.jobs.len()), (&[JOB][..], 1), "{name}");
    }
    for (name, value) in [("index", 5), ("group", 9)] {
        let changes = with(name, value);
        assert_eq!((changes.gone.len(), changes.jobs.len()), (0, 1), "{name}");
    }
    // Where slots lie in a switch means nothing here.
    assert!(with("data_base", 512).is_empty());
    // A row that was away for a moment.
    let renewed = before.changes_to(&before, &BTreeSet::from([JOB]));
    assert_eq!((&renewed.gone[..], renewed.jobs.len()), (&[JOB][..], 1));
}

#[test]
fn tables_come_and_go_under_a_job() {
    let mut store = session();
    let committed = view(&store);
    let mut used = Used::default();
    used.follow(&changes(&View::default(), &committed), &committed);
    let mut other = USUAL;
    other.values[15] = 40;
    let refused = Err(JobConfigError::TableInUse { table: TableId(3), job: JOB });
    let none = BTreeSet::new();
    let checked = |store: &Store, renewed: &BTreeSet<JobId>| {
        let held = Held { memory: (1 << 20, 1), committed: &committed, used: &used, renewed };
        check(Program::get(), store, &BTreeMap::new(), &held, None)
    };
    // Neither other values nor none, unless the job goes in between.
    let held = store.exchange(StaticRows::default().table(TableId(3), &other));
    assert_eq!(checked(&store, &none), refused);
    assert_eq!(checked(&store, &BTreeSet::from([JOB])), Ok(()));
    assert_eq!(changes(&committed, &view(&store)).tables, [(TableId(3), other)]);
    store.exchange(row(tables().lookup, &[3], None));
    assert_eq!(checked(&store, &none), refused);
    // Taken away from the job, its values may go, and come back only as they were.
    store.exchange(row(tables().job_tables, &[7, 3], None));
    assert_eq!(checked(&store, &none), Ok(()));
    let without = view(&store);
    assert_eq!(without.jobs[&JOB].config.tables, []);
    let taken = changes(&committed, &without);
    assert_eq!((&taken.unused[..], taken.jobs.len(), taken.gone.len()), (&[TableId(3)][..], 1, 0));
    store.exchange(StaticRows::default().table(TableId(3), &other));
    assert_eq!(checked(&store, &none), refused);
    store.exchange(held);
    assert_eq!(checked(&store, &none), Ok(()));
    // Without values a table is as good as not allowed.
    store.exchange(row(tables().lookup, &[3], None));
    store.exchange(row(tables().job_tables, &[7, 3], Some(Entry::default())));
    assert!(changes(&without, &view(&store)).is_empty());
}

#[test]
fn members_addresses_and_groups_are_apart() {
    let mut store = session();
    store.exchange(row(tables().members, &[7, 0], None));
    store.exchange(row(tables().addresses, &[7, 1], None));
    let replica = |instance| Replica { port: 9, port_bytes: None, instance };
    store.exchange(RowChange::Group(
        3,
        Some(MulticastGroup { replicas: vec![replica(1)], ..MulticastGroup::default() }),
    ));
    let job = view(&store).jobs.remove(&JOB).unwrap();
    assert_eq!(job.members[0], MemberView { from: None, to: Some(endpoint(0).addr), copies: false });
    assert_eq!(job.members[1], MemberView { from: Some(endpoint(1).addr), to: None, copies: true });
    assert_eq!(job.admitted_workers(), 0b10);
}

#[test]
fn the_end_of_a_session_takes_all_its_rows() {
    let mut store = session();
    for change in StaticRows::default().end(2, JOB, 2) {
        store.exchange(change);
    }
    let view = view(&store);
    assert!(view.jobs.is_empty());
    assert_eq!(store.len(tables().members) + store.len(tables().addresses) + store.group_count(), 0);
    // Its table may serve the next session.
    assert_eq!(view.tables.len(), 1);
}

#[test]
fn rows_must_fit_together() {
    let program = Program::get();
    let limit = 1 << 20;
    let (committed, used, renewed) = (View::default(), Used::default(), BTreeSet::new());
    let checked = |store: &Store, memory| {
        let held = Held { memory: (memory, 3), committed: &committed, used: &used, renewed: &renewed };
        check(program, store, &BTreeMap::new(), &held, Some(JOB))
    };
    let mut store = session();
    assert_eq!(checked(&store, limit), Ok(()));
    let needs = config(2).memory_of_all(3);
    assert_eq!(checked(&store, needs), Ok(()));
    assert_eq!(checked(&store, needs - 1), Err(JobConfigError::Memory { job: JOB, needs, free: needs - 1 }));
    let large = Lookup { values: [200; 16], ..USUAL };
    store.exchange(StaticRows::default().table(TableId(3), &large));
    let error = checked(&store, limit).unwrap_err();
    assert!(matches!(error, JobConfigError::LaneOverflow { sum: 400, .. }), "{error}");
    // In wider lanes it fits.
    let wide = Lookup { form: Form::new(4, Lane::Bits16).unwrap(), ..large };
    store.exchange(StaticRows::default().table(TableId(3), &wide));
    assert_eq!(checked(&store, limit), Ok(()));
    let entry =
        program.entry("set_job", &[("workers", 2), ("quorum", 3), ("data_slots", 2), ("norm_slots", 2)]);
    store.exchange(row(tables().jobs, &[9], Some(entry)));
    let error = checked(&store, limit).unwrap_err();
    assert!(matches!(error, JobConfigError::Quorum { job: JobId(9), quorum: 3, .. }), "{error}");
}

#[test]
fn only_kinds_with_a_row_go_to_the_control_plane() {
    let mut store = Store::default();
    let kinds = |store: &Store| control_kinds(Program::get(), store);
    assert_eq!(kinds(&store), 0);
    for change in StaticRows::default().control_plane() {
        store.exchange(change);
    }
    assert_eq!(kinds(&store), 3);
    store.exchange(row(tables().control_plane, &[0x21], None));
    assert_eq!(kinds(&store), kind_bit(0x22));
    assert_eq!((kind_bit(0x21), kind_bit(0x22), kind_bit(2)), (1, 2, 0));
}

#[test]
fn no_entry_shows_its_parameters() {
    let text = format!("{:?}", session().row(tables().jobs, &[7]).unwrap());
    assert!(!text.contains("5eed") && !text.contains(&0x5eed.to_string()), "{text}");
}
