//! What an aggregator does with a packet (P7–P17, P21): the single definition.
//!
//! [`Aggregator`] is generic over [`Kernels`], so that the same code is the model (with
//! [`Scalar`]) and the software parameter server (with SIMD kernels). It neither allocates nor
//! reads a clock while it handles packets; what it sends goes to a [`Sink`].

mod config;
mod counters;
mod job;
mod kernels;
mod slot;

pub use config::{ConfigError, Endpoint, JobConfig, Shard, TableError, check_table};
pub use counters::{DropReason, Event, GlobalCounters, JobCounters, WorkerCounters};
pub use kernels::{Kernels, Scalar};
pub use slot::SlotView;

use crate::wire::{
    FLAG_NUDGE, HEADER_LEN, Header, HeaderError, Kind, MAX_PACKET, MISMATCH_LEN, NORM_LEN, Norm, Nudge,
    Straggler,
};
use crate::{JobId, SlotId, TableId, WorkerId};
use job::{Job, UNUSED};
use std::marker::PhantomData;

/// Where an aggregator's packets go.
pub trait Sink {
    /// One packet to one member.
    fn unicast(&mut self, to: Endpoint, packet: &[u8]);
    /// One packet to each member of a job that gets copies. `members` is never empty and stays the same for a
    /// job until its membership is changed.
    fn multicast(&mut self, job: JobId, members: &[Endpoint], packet: &[u8]);
}

/// How a packet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It changed a slot or was answered: see the event.
    Handled(Event),
    /// It was dropped and changed nothing.
    Dropped(DropReason),
}

/// An aggregator's whole state.
pub struct Aggregator<K: Kernels = Scalar> {
    shard: Shard,
    /// Index into `jobs` by job number; `UNUSED` where there is none.
    index: Vec<u32>,
    jobs: Vec<Option<Box<Job>>>,
    tables: Vec<Option<[u8; 16]>>,
    counters: GlobalCounters,
    memory_limit: usize,
    kernels: PhantomData<K>,
}

impl<K: Kernels> Aggregator<K> {
    /// An empty aggregator whose jobs take at most `memory_limit` bytes, and which serves the slots
    /// of `shard`.
    #[must_use]
    pub fn new(shard: Shard, memory_limit: usize) -> Self {
        Aggregator {
            shard,
            index: vec![UNUSED; 1 << 16],
            jobs: Vec::with_capacity(64),
            tables: vec![None; 256],
            counters: GlobalCounters::default(),
            memory_limit,
            kernels: PhantomData,
        }
    }

    /// Installs a lookup table (P6): 16 values, those of unused indices zero.
    ///
    /// # Errors
    /// [`ConfigError::TableInUse`] if a job uses another table under this id.
    pub fn install_table(&mut self, id: TableId, values: [u8; 16]) -> Result<(), ConfigError> {
        let cell = &mut self.tables[usize::from(id.0)];
        if *cell != Some(values)
            && let Some(job) = self.jobs.iter().flatten().find(|job| job.config.tables.contains(&id))
        {
            return Err(ConfigError::TableInUse { table: id, job: job.config.job });
        }
        *cell = Some(values);
        Ok(())
    }

    /// Removes a lookup table.
    ///
    /// # Errors
    /// [`ConfigError::TableInUse`] if a job uses it.
    pub fn remove_table(&mut self, id: TableId) -> Result<(), ConfigError> {
        if let Some(job) = self.jobs.iter().flatten().find(|job| job.config.tables.contains(&id)) {
            return Err(ConfigError::TableInUse { table: id, job: job.config.job });
        }
        self.tables[usize::from(id.0)] = None;
        Ok(())
    }

    /// The installed table of this id.
    #[must_use]
    pub fn table(&self, id: TableId) -> Option<&[u8; 16]> {
        self.tables[usize::from(id.0)].as_ref()
    }

    /// Installs or changes a job. Its slots keep their state if cookie, workers, quorum, slots
    /// and lane stay the same, and are emptied otherwise (P24). Members below n and counters stay in any case.
    ///
    /// # Errors
    /// [`ConfigError`] if the numbers do not fit together, a table is missing, has changed since the job used
    /// it or n·g overflows the lane (P6), or the slots need more memory than is allowed.
    pub fn install_job(&mut self, config: JobConfig) -> Result<(), ConfigError> {
        config.check()?;
        for &id in &config.tables {
            let table = self.table(id).ok_or(ConfigError::NoTable { table: id, job: config.job })?;
            config.check_sum(table.iter().copied().max().unwrap_or(0))?;
        }
        let place = self.index[usize::from(config.job.0)];
        if place != UNUSED
            && let Some(job) = self.jobs[place as usize].as_mut()
            && job.config.same_slots(&config)
        {
            for &id in &config.tables {
                if self.tables[usize::from(id.0)].is_some_and(|values| job.used_otherwise(id, &values)) {
                    return Err(ConfigError::TableChanged { table: id, job: config.job });
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
            return Err(ConfigError::Memory { job: config.job, needs, free });
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
        Ok(())
    }

    /// Removes a job with its members, slots and counters. Whether there was one.
    pub fn remove_job(&mut self, job: JobId) -> bool {
        let place = std::mem::replace(&mut self.index[usize::from(job.0)], UNUSED);
        place != UNUSED && self.jobs[place as usize].take().is_some()
    }

    /// Sets where a member of a job sends from and is sent to.
    ///
    /// # Errors
    /// [`ConfigError::NoJob`], or [`ConfigError::NoSuchWorker`] beyond the job's n.
    pub fn set_member(&mut self, job: JobId, worker: WorkerId, at: Endpoint) -> Result<(), ConfigError> {
        self.job_with(job, worker)?.set_member(worker, Some(at));
        Ok(())
    }

    /// Sets where answers to a worker of a job go, when that is not where its packets come from: nowhere if
    /// `to` is `None`. `copies` says whether it gets copies of what goes to all. Whatever
    /// [`Self::set_member`] or [`Self::remove_member`] says later of that worker replaces this.
    ///
    /// # Errors
    /// [`ConfigError::NoJob`], or [`ConfigError::NoSuchWorker`] beyond the job's n.
    pub fn set_receiver(
        &mut self,
        job: JobId,
        worker: WorkerId,
        to: Option<Endpoint>,
        copies: bool,
    ) -> Result<(), ConfigError> {
        self.job_with(job, worker)?.set_receiver(worker, to, copies);
        Ok(())
    }

    fn job_with(&mut self, job: JobId, worker: WorkerId) -> Result<&mut Job, ConfigError> {
        let job_ref = self.job_mut(job).ok_or(ConfigError::NoJob { job })?;
        if worker.0 >= job_ref.config.workers {
            return Err(ConfigError::NoSuchWorker { job, worker, workers: job_ref.config.workers });
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

    /// Forgets what all slots hold, as a restart does; configuration and counters stay.
    pub fn forget_slots(&mut self) {
        for job in self.jobs.iter_mut().flatten() {
            job.forget_slots();
        }
    }

    /// Bytes that its jobs take.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.jobs().map(|config| config.memory(self.shard)).sum()
    }

    /// The jobs installed.
    pub fn jobs(&self) -> impl Iterator<Item = &JobConfig> {
        self.jobs.iter().flatten().map(|job| &job.config)
    }

    /// A job's counters.
    #[must_use]
    pub fn job_counters(&self, job: JobId) -> Option<&JobCounters> {
        self.job(job).map(|job| &job.counters)
    }

    /// A job's counters, which begin anew.
    pub fn take_counters(&mut self, job: JobId) -> Option<JobCounters> {
        self.job_mut(job).map(Job::take_counters)
    }

    /// Counters of packets that belong to no job.
    #[must_use]
    pub fn counters(&self) -> &GlobalCounters {
        &self.counters
    }

    /// What a slot holds; `kind` chooses the norm or the data slots.
    #[must_use]
    pub fn slot(&self, job: JobId, kind: Kind, slot: SlotId) -> Option<SlotView<'_>> {
        self.job(job)?.slot_view(kind, slot)
    }

    fn job(&self, job: JobId) -> Option<&Job> {
        let place = self.index[usize::from(job.0)];
        if place == UNUSED { None } else { self.jobs[place as usize].as_deref() }
    }

    fn job_mut(&mut self, job: JobId) -> Option<&mut Job> {
        let place = self.index[usize::from(job.0)];
        if place == UNUSED { None } else { self.jobs[place as usize].as_deref_mut() }
    }

    /// Handles one packet, P7 to P17.
    pub fn handle(&mut self, from: Endpoint, packet: &[u8], sink: &mut impl Sink) -> Outcome {
        let (header, payload) = match Header::parse(packet) {
            Ok(parsed) => parsed,
            Err(error) => {
                let reason = match error {
                    HeaderError::Short(_) => DropReason::Short,
                    HeaderError::Version(_) => DropReason::Version,
                    HeaderError::Kind(_) => DropReason::Kind,
                };
                return self.counters.drop(reason);
            }
        };
        let Some(result_kind) = header.kind.result() else {
            return self.counters.drop(DropReason::Kind);
        };
        let place = self.index[usize::from(header.job.0)];
        if place == UNUSED {
            return self.counters.drop(DropReason::Job);
        }
        let Some(job) = self.jobs[place as usize].as_deref_mut() else {
            return self.counters.drop(DropReason::Job);
        };
        job.counters.count_packet(header.worker, packet.len());
        let admitted = job.admit(from, &header, payload);
        match admitted.and_then(|()| job.aggregate::<K>(&header, result_kind, payload, sink)) {
            Ok(event) => {
                job.counters.count_event(header.worker, event);
                Outcome::Handled(event)
            }
            Err(reason) => {
                job.counters.count_drop(header.worker, reason);
                Outcome::Dropped(reason)
            }
        }
    }
}

/// Builds the answers that are not results.
impl Job {
    fn straggler(&self, header: &Header, sink: &mut impl Sink) {
        let current = self.slot_state(header.kind, header.slot).round;
        let mut packet = [0; MAX_PACKET];
        let answer = Header { kind: Kind::Straggler, flags: 0, count: 0, ..*header };
        let body = Straggler { kind: header.kind, current }.to_bytes();
        let bytes = answer.emit_packet(&mut packet, &body);
        self.answer(header.worker, bytes, sink);
    }

    fn nudge(&self, header: &Header, sink: &mut impl Sink) {
        let seen = self.slot_state(header.kind, header.slot).seen;
        let mut packet = [0; MAX_PACKET];
        let answer = Header { kind: Kind::Nudge, flags: 0, count: 0, ..*header };
        let body = Nudge { kind: header.kind, seen }.to_bytes();
        let bytes = answer.emit_packet(&mut packet, &body);
        self.answer_all(bytes, sink);
    }

    /// Both payloads go out as they came in, whatever tag they carry.
    fn mismatch(&self, header: &Header, refused: &[u8; NORM_LEN], sink: &mut impl Sink) {
        let mut packet = [0; MAX_PACKET];
        let answer = Header { kind: Kind::Mismatch, flags: 0, count: 0, ..*header };
        let mut body = [0; MISMATCH_LEN];
        body[..NORM_LEN].copy_from_slice(self.norm_payload(header.slot));
        body[NORM_LEN..].copy_from_slice(refused);
        let bytes = answer.emit_packet(&mut packet, &body);
        self.answer_all(bytes, sink);
    }

    /// P9 to P17, and what P7 drops for the slot's sake.
    fn aggregate<K: Kernels>(
        &mut self,
        header: &Header,
        result_kind: Kind,
        payload: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Event, DropReason> {
        let state = self.slot_state(header.kind, header.slot);
        let bit = header.worker.bit();
        let nudge = header.flags & FLAG_NUDGE != 0;
        let newer = header.round.newer_than(state.round);
        let fresh = state.seen == 0 || newer;
        if !fresh && header.round != state.round {
            self.straggler(header, sink);
            return Ok(Event::Stale);
        }
        if newer && state.seen != 0 && header.round != state.round.next() && !self.config.skip && !nudge {
            return Err(DropReason::Round);
        }
        let mut form = (header.kind as u8, header.table);
        if header.kind == Kind::Norm {
            let body: &[u8; NORM_LEN] = payload.try_into().unwrap_or(&[0; NORM_LEN]);
            if !fresh && Norm::tag_of(body) != Norm::tag_of(self.norm_payload(header.slot)) {
                self.mismatch(header, body, sink);
                return Ok(Event::Mismatch);
            }
            // A norm slot has its tag for that.
            form = Default::default();
        } else if !fresh && form != state.form {
            return Err(DropReason::Mixed);
        }
        if !fresh && (state.complete || state.seen & bit != 0) {
            let known = state.seen & bit != 0;
            if state.complete {
                let packet = self.result_packet(header.kind, header.slot);
                self.answer(header.worker, packet, sink);
                self.counters.resent += 1;
            } else if nudge {
                self.nudge(header, sink);
                self.counters.nudges += 1;
            }
            return Ok(if known { Event::Duplicate } else { Event::Late });
        }
        self.add::<K>(header, payload, fresh);
        let seen = if fresh { bit } else { state.seen | bit };
        let count = seen.count_ones() as u8;
        let complete = count >= self.config.quorum;
        self.set_slot_state(
            header.kind,
            header.slot,
            slot::SlotState { round: header.round, seen, complete, form },
        );
        if complete {
            let answer = Header { kind: result_kind, flags: 0, worker: WorkerId::NONE, count, ..*header };
            self.seal(header.kind, header.slot, &answer);
            self.answer_all(self.result_packet(header.kind, header.slot), sink);
            self.counters.results += 1;
        } else if nudge {
            self.nudge(header, sink);
            self.counters.nudges += 1;
        }
        Ok(if fresh { Event::Opened } else { Event::Added })
    }
}

const _: () = assert!(HEADER_LEN + crate::wire::RESULT_LEN == MAX_PACKET);
