//! The aggregator (P7–P17, P21): the single definition of what becomes of a packet.
//!
//! [`Aggregator`] is generic over [`Kernels`], so that the same code is the model (with
//! [`Scalar`]) and the software parameter server (with SIMD kernels). It neither allocates nor
//! reads a clock while it handles packets; what it sends goes to a [`Sink`].

mod admission;
mod arrival;
mod config;
mod counters;
mod endpoint;
mod error;
mod job;
mod kernels;
mod level;
mod lookup;
mod relay;
mod shard;
mod slot;

pub use config::JobConfig;
pub use counters::{DropReason, Event, GlobalCounters, JobCounters, Outcome, WorkerCounters};
pub use endpoint::{Endpoint, Sink};
pub use error::JobConfigError;
pub use kernels::{Kernels, Scalar};
pub use level::{Level, Racks};
pub use lookup::{Lookup, TableError};
pub use shard::Shard;
pub use slot::SlotView;

use crate::wire::{Header, HeaderError, Kind};
use crate::{Ecn, JobId, SlotId, TableId, WorkerId};
use admission::{Admission, Admissions};
use job::{Job, UNUSED};
use std::marker::PhantomData;

/// An aggregator's whole state.
pub struct Aggregator<K: Kernels = Scalar> {
    shard: Shard,
    /// Index into `jobs` by job number; `UNUSED` where there is none.
    index: Vec<u32>,
    jobs: Vec<Option<Box<Job>>>,
    tables: Vec<Option<Lookup>>,
    counters: GlobalCounters,
    /// Forgotten with every change of the configuration that P7 looks at.
    admissions: Admissions,
    memory_limit: usize,
    /// True if jobs take more than stays in the caches near a core.
    far: bool,
    kernels: PhantomData<K>,
}

/// Bytes of slots that stay in the caches anyway: prefetching them costs more than it gains.
const NEAR: usize = 2 << 20;

impl<K: Kernels> Aggregator<K> {
    /// An empty aggregator that serves the slots of `shard`, and whose jobs take at most `memory_limit`
    /// bytes.
    pub fn new(shard: Shard, memory_limit: usize) -> Self {
        Aggregator {
            shard,
            index: vec![UNUSED; 1 << 16],
            jobs: Vec::with_capacity(64),
            tables: vec![None; 256],
            counters: GlobalCounters::default(),
            admissions: Admissions::NONE,
            memory_limit,
            far: false,
            kernels: PhantomData,
        }
    }

    /// The installed table of this id.
    pub fn table(&self, id: TableId) -> Option<&Lookup> {
        self.tables[usize::from(id.0)].as_ref()
    }

    /// Empties all slots, as a restart does; configuration and counters stay.
    pub fn forget_slots(&mut self) {
        for job in self.jobs.iter_mut().flatten() {
            job.slots.forget();
        }
    }

    /// Bytes that its jobs take.
    pub fn memory(&self) -> usize {
        self.jobs().map(|config| config.memory(self.shard)).sum()
    }

    /// The jobs installed.
    pub fn jobs(&self) -> impl Iterator<Item = &JobConfig> {
        self.jobs.iter().flatten().map(|job| &job.config)
    }

    /// A job's counters.
    pub fn job_counters(&self, job: JobId) -> Option<&JobCounters> {
        self.job(job).map(|job| &job.counters)
    }

    /// A job's counters, which begin anew.
    pub fn take_counters(&mut self, job: JobId) -> Option<JobCounters> {
        self.job_mut(job).map(Job::take_counters)
    }

    /// Counters of packets that belong to no job.
    pub fn counters(&self) -> &GlobalCounters {
        &self.counters
    }

    /// Returns a slot's content; `kind` chooses the norm or the data slots.
    pub fn slot(&self, job: JobId, kind: Kind, slot: SlotId) -> Option<SlotView<'_>> {
        self.job(job)?.slot_view(kind, slot)
    }

    fn job(&self, job: JobId) -> Option<&Job> {
        let place = self.index[usize::from(job.0)];
        if place == UNUSED { None } else { self.jobs[place as usize].as_deref() }
    }

    fn job_mut(&mut self, job: JobId) -> Option<&mut Job> {
        self.admissions = Admissions::NONE;
        let place = self.index[usize::from(job.0)];
        if place == UNUSED { None } else { self.jobs[place as usize].as_deref_mut() }
    }

    /// Installs a lookup table (P6 tables).
    ///
    /// # Errors
    /// [`JobConfigError::TableInUse`] if a job uses another table under this id.
    pub fn install_table(&mut self, id: TableId, table: Lookup) -> Result<(), JobConfigError> {
        let cell = &mut self.tables[usize::from(id.0)];
        if *cell != Some(table)
            && let Some(job) = self.jobs.iter().flatten().find(|job| job.config.tables.contains(&id))
        {
            return Err(JobConfigError::TableInUse { table: id, job: job.config.job });
        }
        *cell = Some(table);
        Ok(())
    }

    /// Removes a lookup table.
    ///
    /// # Errors
    /// [`JobConfigError::TableInUse`] if a job uses it.
    pub fn remove_table(&mut self, id: TableId) -> Result<(), JobConfigError> {
        if let Some(job) = self.jobs.iter().flatten().find(|job| job.config.tables.contains(&id)) {
            return Err(JobConfigError::TableInUse { table: id, job: job.config.job });
        }
        self.tables[usize::from(id.0)] = None;
        Ok(())
    }

    /// Installs or changes a job. Its slots keep their state if cookie, workers, quorum and
    /// slots stay the same, and are emptied otherwise (P24 incarnations). Members below n and counters stay in any case.
    ///
    /// # Errors
    /// [`JobConfigError`] if the numbers do not fit together, a table is missing, has changed since the job used
    /// it or n·g overflows the lane (P6 tables), or the slots need more memory than is allowed.
    pub fn install_job(&mut self, config: JobConfig) -> Result<(), JobConfigError> {
        config.check()?;
        self.admissions = Admissions::NONE;
        for &id in &config.tables {
            let table = self.table(id).ok_or(JobConfigError::NoTable { table: id, job: config.job })?;
            config.check_sum(table)?;
        }
        let place = self.index[usize::from(config.job.0)];
        if place != UNUSED
            && let Some(job) = self.jobs[place as usize].as_mut()
            && job.config.same_slots(&config)
        {
            for &id in &config.tables {
                if self.tables[usize::from(id.0)].is_some_and(|table| job.used_otherwise(id, &table)) {
                    return Err(JobConfigError::TableChanged { table: id, job: config.job });
                }
            }
            job.set_tables(&config, &self.tables);
            job.config = config;
            return Ok(());
        }
        let others = self.jobs.iter().flatten().filter(|job| job.config.job != config.job);
        let others: usize = others.map(|job| job.config.memory(self.shard)).sum();
        let needs = config.memory(self.shard);
        if others + needs > self.memory_limit {
            let free = self.memory_limit.saturating_sub(others);
            return Err(JobConfigError::Memory { job: config.job, needs, free });
        }
        let place = if place == UNUSED {
            match self.jobs.iter().position(Option::is_none) {
                Some(free) => free,
                None => {
                    self.jobs.push(None);
                    self.jobs.len() - 1
                }
            }
        } else {
            place as usize
        };
        // The old slots' memory goes before the new slots' comes.
        let kept = self.jobs[place].take().map(|old| old.without_slots());
        self.index[usize::from(config.job.0)] = place as u32;
        self.jobs[place] = Some(Box::new(Job::new(config, self.shard, &self.tables, kept)));
        self.far = self.memory() > NEAR;
        Ok(())
    }

    /// Removes a job with its members, slots and counters. Returns whether there was one.
    pub fn remove_job(&mut self, job: JobId) -> bool {
        self.admissions = Admissions::NONE;
        let place = std::mem::replace(&mut self.index[usize::from(job.0)], UNUSED);
        let removed = place != UNUSED && self.jobs[place as usize].take().is_some();
        self.far = self.memory() > NEAR;
        removed
    }

    /// Sets where a member of a job sends from and is sent to.
    ///
    /// # Errors
    /// [`JobConfigError::NoJob`], or [`JobConfigError::NoSuchWorker`] beyond the job's n.
    pub fn set_member(&mut self, job: JobId, worker: WorkerId, at: Endpoint) -> Result<(), JobConfigError> {
        self.job_with(job, worker)?.set_member(worker, Some(at));
        Ok(())
    }

    /// Sets where answers to a worker of a job go, when that is not where its packets come from: nowhere if
    /// `to` is `None`. `copies` says whether it gets copies of what goes to all. A later [`Self::set_member`]
    /// or [`Self::remove_member`] of that worker replaces this.
    ///
    /// # Errors
    /// [`JobConfigError::NoJob`], or [`JobConfigError::NoSuchWorker`] beyond the job's n.
    pub fn set_receiver(
        &mut self,
        job: JobId,
        worker: WorkerId,
        to: Option<Endpoint>,
        copies: bool,
    ) -> Result<(), JobConfigError> {
        self.job_with(job, worker)?.set_receiver(worker, to, copies);
        Ok(())
    }

    fn job_with(&mut self, job: JobId, worker: WorkerId) -> Result<&mut Job, JobConfigError> {
        let job_ref = self.job_mut(job).ok_or(JobConfigError::NoJob { job })?;
        if worker.0 >= job_ref.config.workers {
            return Err(JobConfigError::NoSuchWorker { job, worker, workers: job_ref.config.workers });
        }
        Ok(job_ref)
    }

    /// Removes a member: its packets are dropped and it is sent nothing.
    pub fn remove_member(&mut self, job: JobId, worker: WorkerId) {
        if let Some(job) = self.job_mut(job)
            && worker.0 < job.config.workers
        {
            job.set_member(worker, None);
        }
    }

    /// Prefetches the slot of a packet that comes soon. Nothing else changes.
    #[inline]
    pub fn prefetch(&self, packet: &[u8]) {
        let Some(head) = packet.first_chunk().filter(|_| self.far) else { return };
        let pass = self.admissions.get(head);
        if let Some(Some(job)) = self.jobs.get(pass.place as usize) {
            job.slots.prefetch::<K>(Header::place_of(head).1);
        }
    }

    /// Handles one packet, P7 to P17, that no queue could mark.
    #[inline]
    pub fn handle(&mut self, from: Endpoint, packet: &[u8], sink: &mut impl Sink) -> Outcome {
        self.handle_with(from, Ecn::NotEct, packet, sink)
    }

    /// Handles one packet that came with these ECN bits (P46 marks).
    #[inline]
    pub fn handle_with(&mut self, from: Endpoint, ecn: Ecn, packet: &[u8], sink: &mut impl Sink) -> Outcome {
        let Some((head, payload)) = packet.split_first_chunk() else {
            return self.counters.drop(DropReason::Short);
        };
        if !self.admissions.get(head).fits(from, head, packet.len()) {
            if let Some(outcome) = self.relay(from, ecn, packet, sink) {
                return outcome;
            }
            match self.admit(from, packet) {
                Ok(pass) => self.admissions.keep(head, pass),
                Err(reason) => return Outcome::Dropped(reason),
            }
        }
        let Aggregator { admissions, jobs, .. } = self;
        let pass = admissions.get(head);
        // A pass is of a job that is here.
        let Some(Some(job)) = jobs.get_mut(pass.place as usize) else {
            return Outcome::Dropped(DropReason::Job);
        };
        let end = match pass.template().kind {
            Kind::Norm => job.aggregate::<K, true>(pass, ecn, head, payload, sink),
            _ => job.aggregate::<K, false>(pass, ecn, head, payload, sink),
        };
        job.counters.count(pass.template().worker, packet.len(), end);
        match end {
            Ok(event) => Outcome::Handled(event),
            Err(reason) => Outcome::Dropped(reason),
        }
    }

    /// Checks P7 membership up to reason 11. Counts a packet that is dropped.
    #[inline(never)]
    fn admit(&mut self, from: Endpoint, packet: &[u8]) -> Result<Admission, DropReason> {
        let found = Header::parse(packet).map_err(|error| match error {
            HeaderError::Short(_) => DropReason::Short,
            HeaderError::Version(_) => DropReason::Version,
            HeaderError::Kind(_) => DropReason::Kind,
        });
        let found = found.and_then(|(header, payload)| {
            let result = header.kind.result().ok_or(DropReason::Kind)?;
            let place = self.index[usize::from(header.job.0)];
            Ok((header, payload, result, place))
        });
        let (header, payload, result, place) = match found {
            Ok(found) => found,
            Err(reason) => {
                self.counters.drop(reason);
                return Err(reason);
            }
        };
        let Some(Some(job)) = self.jobs.get_mut(place as usize) else {
            self.counters.drop(DropReason::Job);
            return Err(DropReason::Job);
        };
        match job.admit(from, &header, payload) {
            Ok(table) => Ok(Admission::new(from, packet, &header, place, result, table)),
            Err(reason) => {
                job.counters.count(header.worker, packet.len(), Err(reason));
                Err(reason)
            }
        }
    }
}
