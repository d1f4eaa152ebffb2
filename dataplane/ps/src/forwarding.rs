//! The forwarding state: rows as in a switch's tables, which define all that the shards do.
//!
//! Rows are changed in a [`Store`], and [`Forwarding::commit`] sends the shards the changes of what the rows mean
//! ([`View`]). The rows come from a controller by P4Runtime, or from the control
//! thread for static jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thc_protocol::aggregator::{JobConfigError, Level};
use thc_protocol::wire::{HEADER_LEN, Header, Kind, PENDING_LEN, Pending};
use thc_protocol::{JobId, WorkerId};

use crate::rows::{Held, JobView, Levels, Program, RowChange, Store, Used, View, check, control_kinds};
use crate::shards::Shards;
use crate::state::SessionView;
use crate::stats::JobSummary;

/// The rows, and the view of them that the shards have.
#[derive(Debug)]
pub struct Forwarding {
    program: &'static Program,
    store: Arc<Store>,
    /// Bytes that jobs may take.
    memory_limit: usize,
    /// The view at the last commit.
    committed: View,
    /// The levels of static jobs among racks, which no row has.
    levels: Levels,
    /// The tables that may be in slots.
    used: Used,
    /// Jobs whose row was removed since the last commit.
    renewed: BTreeSet<JobId>,
    shards: Shards,
    /// Sessions that have begun, by counter index.
    begun: BTreeMap<u16, u64>,
    /// The last job of each index that none has now.
    ended: BTreeMap<u16, JobSummary>,
}

/// The forwarding state that threads share. It is locked while shards follow changes.
#[derive(Clone, Debug)]
pub struct SharedForwarding(Arc<Mutex<Forwarding>>);

impl SharedForwarding {
    /// Empty; jobs may take `memory_limit` bytes in all shards together.
    #[must_use]
    pub fn new(shards: Shards, memory_limit: usize) -> SharedForwarding {
        SharedForwarding(Arc::new(Mutex::new(Forwarding {
            program: Program::get(),
            store: Arc::default(),
            memory_limit,
            committed: View::default(),
            levels: Levels::new(),
            used: Used::default(),
            renewed: BTreeSet::new(),
            shards,
            begun: BTreeMap::new(),
            ended: BTreeMap::new(),
        })))
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, Forwarding> {
        // A panic leaves whole rows: each change is one exchange.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Forwarding {
    /// The rows as they are now, which later changes do not affect.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// The rows.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Sessions that have begun of jobs with this counter index.
    #[must_use]
    fn sessions_begun(&self, index: u16) -> u64 {
        self.begun.get(&index).copied().unwrap_or(0)
    }

    /// Makes a change, which the shards follow at the next [`Self::commit`], and returns its inverse.
    pub fn exchange(&mut self, change: RowChange) -> RowChange {
        if let RowChange::Row(table, key, None) = &change
            && *table == self.program.known.jobs
        {
            self.renewed.insert(JobId(key[0] as u16));
        }
        Arc::make_mut(&mut self.store).exchange(change)
    }

    /// Sets this server's level in a job, from the next [`Self::commit`] on.
    pub fn set_level(&mut self, job: JobId, level: Level) {
        self.levels.insert(job, level);
    }

    /// Checks whether the rows are consistent; the error names `job` if memory is short.
    ///
    /// # Errors
    /// The first [`JobConfigError`].
    pub fn check(&self, job: Option<JobId>) -> Result<(), JobConfigError> {
        let held = Held {
            memory: (self.memory_limit, self.shards.count()),
            committed: &self.committed,
            used: &self.used,
            renewed: &self.renewed,
        };
        check(self.program, &self.store, &self.levels, &held, job)
    }

    /// Restores `store`, the rows of the last commit.
    pub fn restore(&mut self, store: Arc<Store>) {
        self.renewed.clear();
        self.store = store;
    }

    /// The jobs to report: those that run, and the last job of each index that no job has now.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobSummary> {
        let running = self.committed.jobs.values().map(|view| self.summary(view));
        running.chain(self.ended.values().cloned()).collect()
    }

    /// P25 LEAVE: PENDING without the members at these addresses, for the other members of their sessions. Without
    /// addresses, PENDING for the members of all sessions.
    #[must_use]
    pub fn absence_notices(&self, gone: &[SocketAddr]) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut notices = Vec::new();
        for JobView { config, members, .. } in self.committed.jobs.values() {
            let members = (0u8..).map(WorkerId).zip(members);
            let members = members.filter_map(|(worker, member)| Some((worker, member.from?)));
            let (absent, here): (Vec<_>, Vec<_>) = members.partition(|(_, at)| gone.contains(at));
            if absent.is_empty() && !gone.is_empty() {
                continue;
            }
            let joined = here.iter().map(|(worker, _)| worker.bit()).sum();
            for (worker, at) in here {
                let header = Header::new(Kind::Pending, config.workers, config.job, worker, config.cookie);
                let mut notice = vec![0; HEADER_LEN + PENDING_LEN];
                header.emit_packet(&mut notice, &Pending { joined }.to_bytes());
                notices.push((at, notice));
            }
        }
        notices
    }

    fn summary(&self, view: &JobView) -> JobSummary {
        JobSummary {
            job: view.config.job,
            workers: view.config.workers,
            quorum: view.config.quorum,
            index: view.index,
            view: SessionView {
                running: true,
                joined: view.admitted_workers(),
                begun: self.sessions_begun(view.index),
            },
        }
    }

    /// Sends the shards all changes of what the rows mean, and waits until they have followed. Returns whether they have;
    /// if not, the server is about to stop.
    #[must_use]
    pub fn commit(&mut self) -> bool {
        let new = View::new(self.program, &self.store, &self.levels);
        let changes = self.committed.changes_to(&new, &std::mem::take(&mut self.renewed));
        for view in &changes.jobs {
            let job = view.config.job;
            if changes.gone.contains(&job) || !self.committed.jobs.contains_key(&job) {
                *self.begun.entry(view.index).or_default() += 1;
            }
        }
        self.shards.take_kinds(control_kinds(self.program, &self.store));
        self.used.follow(&changes, &new);
        if !changes.is_empty() && !self.shards.follow(changes) {
            return false;
        }
        for old in self.committed.jobs.values() {
            let mut summary = self.summary(old);
            summary.view = SessionView { running: false, joined: 0, ..summary.view };
            self.ended.insert(old.index, summary);
        }
        for view in new.jobs.values() {
            self.ended.remove(&view.index);
        }
        self.committed = new;
        true
    }
}
