//! The state of the shards, as a function of the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use thc_p4::rows::address_of_number;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, JobConfigError, Kernels, Level, Lookup};
use thc_protocol::wire::Form;
use thc_protocol::{Cookie, JobId, TableId, WorkerId};

use super::entry::Entry;
use super::program::Program;
use super::store::Store;
use crate::kinds::kind_bit;

/// The levels of an aggregator in jobs with racks.
pub type Levels = BTreeMap<JobId, Level>;

/// A worker of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    /// The source of its packets; without it, they are dropped.
    pub from: Option<SocketAddr>,
    /// The destination of answers to it.
    pub to: Option<SocketAddr>,
    /// True if it gets copies of what goes to all.
    pub copies: bool,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// As an aggregator takes it.
    pub config: JobConfig,
    /// Which counters are its.
    pub index: u16,
    /// Slots of another epoch are empty.
    pub epoch: u32,
    /// The members by worker, 0 to n − 1.
    pub members: Vec<MemberView>,
}

impl JobView {
    /// Returns whether a job that changes from this to `new` keeps the content of its slots.
    #[must_use]
    fn keeps_slots(&self, new: &JobView) -> bool {
        self.epoch == new.epoch && self.config.same_slots(&new.config)
    }

    /// One bit per worker whose packets are let in.
    #[must_use]
    pub fn admitted_workers(&self) -> u64 {
        let members = (0u8..).map(WorkerId).zip(&self.members);
        members.filter(|(_, member)| member.from.is_some()).map(|(worker, _)| worker.bit()).sum()
    }
}

/// Everything that shards hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Lookup tables.
    pub tables: BTreeMap<u8, Lookup>,
    /// Jobs.
    pub jobs: BTreeMap<JobId, JobView>,
}

/// The changes that turn one view into another, in their order.
#[derive(Clone, Debug, Default)]
pub struct ViewChanges {
    /// Jobs that go, or come back below with empty slots.
    pub gone: Vec<JobId>,
    /// Tables that come, or have other values.
    pub tables: Vec<(TableId, Lookup)>,
    /// Jobs that come or change.
    pub jobs: Vec<JobView>,
    /// Tables that go.
    pub unused: Vec<TableId>,
}

/// Values by table and job that may be in the job's slots. A table that is removed from the job stays here as
/// long as the job keeps its slots (P6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used(BTreeMap<JobId, BTreeMap<u8, Lookup>>);

impl Used {
    /// Follows the shards, which have made these changes and hold `view` now.
    pub fn follow(&mut self, changes: &ViewChanges, view: &View) {
        for job in &changes.gone {
            self.0.remove(job);
        }
        for JobView { config, .. } in &changes.jobs {
            let used = self.0.entry(config.job).or_default();
            let held = config.tables.iter().filter_map(|id| Some((id.0, *view.tables.get(&id.0)?)));
            used.extend(held);
        }
    }

    /// A table that a job has used and that now has other values, or none although the job may still use it.
    fn broken_table(&self, program: &Program, store: &Store, job: JobId) -> Option<TableId> {
        let known = program.known;
        let kept = |&id: &u8, used: &Lookup| match store.row(known.lookup, &[id.into()]) {
            Some(entry) => lookup(program, entry).as_ref() == Some(used),
            None => store.row(known.job_tables, &[job.0.into(), id.into()]).is_none(),
        };
        let used = self.0.get(&job).into_iter().flatten();
        used.into_iter().find(|(id, used)| !kept(id, used)).map(|(&id, _)| TableId(id))
    }
}

impl ViewChanges {
    /// Returns whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let ViewChanges { gone, tables, jobs, unused } = self;
        gone.is_empty() && tables.is_empty() && jobs.is_empty() && unused.is_empty()
    }

    /// Makes the changes in an aggregator in the state from which they were computed.
    ///
    /// # Errors
    /// The first [`JobConfigError`]; checked rows cause none.
    pub fn apply<K: Kernels>(&self, aggregator: &mut Aggregator<K>) -> Result<(), JobConfigError> {
        // Removed jobs make room for new ones.
        for &job in &self.gone {
            aggregator.remove_job(job);
        }
        for &(id, table) in &self.tables {
            aggregator.install_table(id, table)?;
        }
        for view in &self.jobs {
            let job = view.config.job;
            aggregator.install_job(view.config.clone())?;
            for (worker, member) in (0u8..).map(WorkerId).zip(&view.members) {
                match member.from {
                    Some(from) => aggregator.set_member(job, worker, Endpoint::udp(from))?,
                    None => aggregator.remove_member(job, worker),
                }
                aggregator.set_receiver(job, worker, member.to.map(Endpoint::udp), member.copies)?;
            }
        }
        self.unused.iter().try_for_each(|&table| aggregator.remove_table(table))
    }
}

impl View {
    /// The view of these rows.
    #[must_use]
    pub fn new(program: &Program, store: &Store, levels: &Levels) -> View {
        let tables = store.rows(program.known.lookup);
        let tables =
            tables.filter_map(|(key, entry)| Some((key[0] as u8, lookup(program, entry)?))).collect();
        let mut jobs = BTreeMap::new();
        for (key, row) in store.rows(program.known.jobs) {
            let config = config(program, store, levels, key[0], row);
            let group = store.group(program.param(row, "group") as u32);
            let copies: Vec<u32> =
                group.map_or(&[][..], |g| &g.replicas).iter().map(|r| r.instance).collect();
            let member = |worker: u8| {
                let key = [key[0], worker.into()];
                let at = |table| store.row(table, &key).map(|entry| address(program, entry));
                MemberView {
                    from: at(program.known.members),
                    to: at(program.known.addresses),
                    copies: copies.contains(&worker.into()),
                }
            };
            let view = JobView {
                index: program.param(row, "index") as u16,
                epoch: program.param(row, "epoch") as u32,
                members: (0..config.workers).map(member).collect(),
                config,
            };
            jobs.insert(view.config.job, view);
        }
        View { tables, jobs }
    }

    /// The changes from this to `new`. Slots of the jobs in `renewed` are emptied in any case.
    #[must_use]
    pub fn changes_to(&self, new: &View, renewed: &BTreeSet<JobId>) -> ViewChanges {
        let mut changes = ViewChanges::default();
        changes
            .unused
            .extend(self.tables.keys().filter(|id| !new.tables.contains_key(id)).map(|&id| TableId(id)));
        for (&id, table) in &new.tables {
            if self.tables.get(&id) != Some(table) {
                changes.tables.push((TableId(id), *table));
            }
        }
        for (&job, old) in &self.jobs {
            let stays = new.jobs.get(&job).is_some_and(|new| old.keeps_slots(new));
            if !stays || renewed.contains(&job) {
                changes.gone.push(job);
            }
        }
        for (job, view) in &new.jobs {
            if changes.gone.contains(job) || self.jobs.get(job) != Some(view) {
                changes.jobs.push(view.clone());
            }
        }
        changes
    }
}

/// The state that rows are checked against.
pub struct Held<'a> {
    /// Bytes that jobs may take in all shards together, and how many shards there are.
    pub memory: (usize, u8),
    /// The view of the last commit.
    pub committed: &'a View,
    /// The tables that may be in slots.
    pub used: &'a Used,
    /// Jobs whose slots are emptied in any case.
    pub renewed: &'a BTreeSet<JobId>,
}

/// Checks that every job's numbers are consistent (P6), that all jobs fit the memory, and that no table
/// changes under a job that keeps its slots. The error names `job` if memory is short.
///
/// # Errors
/// The first [`JobConfigError`].
pub fn check(
    program: &Program,
    store: &Store,
    levels: &Levels,
    held: &Held<'_>,
    job: Option<JobId>,
) -> Result<(), JobConfigError> {
    let (memory, shards) = held.memory;
    let mut needs = BTreeMap::new();
    for (key, row) in store.rows(program.known.jobs) {
        let config = config(program, store, levels, key[0], row);
        config.check()?;
        let before = held.committed.jobs.get(&config.job).filter(|_| !held.renewed.contains(&config.job));
        let epoch = program.param(row, "epoch") as u32;
        if before.is_some_and(|before| before.epoch == epoch && before.config.same_slots(&config))
            && let Some(table) = held.used.broken_table(program, store, config.job)
        {
            return Err(JobConfigError::TableInUse { table, job: config.job });
        }
        for &TableId(table) in &config.tables {
            let row = store.row(program.known.lookup, &[table.into()]);
            let table = row.and_then(|entry| lookup(program, entry)).unwrap_or_default();
            config.check_sum(&table)?;
        }
        needs.insert(config.job, config.memory_of_all(shards));
    }
    let total: usize = needs.values().sum();
    if total > memory {
        let named = job.filter(|job| needs.contains_key(job)).or(needs.keys().last().copied());
        let job = named.unwrap_or(JobId(0));
        let needed = needs.get(&job).copied().unwrap_or(0);
        return Err(JobConfigError::Memory {
            job,
            needs: needed,
            free: memory.saturating_sub(total - needed),
        });
    }
    Ok(())
}

fn config(program: &Program, store: &Store, levels: &Levels, job: u128, row: &Entry) -> JobConfig {
    let param = |name| program.param(row, name);
    let job = JobId(job as u16);
    let known = program.known;
    let allowed = store.rows_of(known.job_tables, job.0.into()).map(|(key, _)| key[1]);
    // Without its values a table is as good as not allowed.
    let tables = allowed.filter(|&table| store.row(known.lookup, &[table]).is_some());
    JobConfig {
        job,
        cookie: Cookie(param("cookie") as u32),
        workers: param("workers") as u8,
        quorum: param("quorum") as u8,
        skip: param("skip") != 0,
        data_slots: param("data_slots") as u32,
        norm_slots: param("norm_slots") as u32,
        tables: tables.map(|table| TableId(table as u8)).collect(),
        level: levels.get(&job).copied().unwrap_or_default(),
    }
}

/// The lookup table of a row; none if there is no such form.
#[must_use]
pub fn lookup(program: &Program, entry: &Entry) -> Option<Lookup> {
    let number = |name| u8::try_from(program.param(entry, name)).ok();
    let form = Form::with_sums(number("width")?, number("lane")?)?;
    Some(Lookup { form, values: program.param(entry, "values").to_be_bytes() })
}

fn address(program: &Program, entry: &Entry) -> SocketAddr {
    let ip = address_of_number(program.param(entry, "address"));
    SocketAddr::from((ip, program.param(entry, "udp_port") as u16))
}

/// Kinds of packets that rows send to the control plane, as bits of [`kind_bit`].
#[must_use]
pub fn control_kinds(program: &Program, store: &Store) -> u8 {
    let rows = store.rows(program.known.control_plane);
    rows.filter_map(|(key, _)| u8::try_from(key[0]).ok()).map(kind_bit).fold(0, |bits, bit| bits | bit)
}
