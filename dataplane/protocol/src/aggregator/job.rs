//! A job's members, receivers and tables.

use super::slot::{SlotView, Slots};
use super::{DropReason, Endpoint, JobConfig, JobCounters, Lookup, Shard, Sink};
use crate::wire::{Form, HEADER_LEN, Header, Kind};
use crate::{Ecn, JobId, MAX_WORKERS, SlotId, TableId, WorkerId};

/// Marks a job number without a job.
pub(super) const UNUSED: u32 = u32::MAX;

/// Ids of tables.
const TABLES: usize = 256;

/// The address of packets to a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receiver {
    /// Answers to it alone.
    to: Option<Endpoint>,
    /// True if it gets copies of what goes to all.
    copies: bool,
}

/// All receivers of a job.
pub(super) struct Receivers {
    job: JobId,
    each: [Receiver; MAX_WORKERS],
    /// The multicast group: the workers that get copies, in the order of their numbers.
    group: Vec<Endpoint>,
}

impl Receivers {
    fn new(job: JobId, each: [Receiver; MAX_WORKERS]) -> Receivers {
        let mut receivers = Receivers { job, each, group: Vec::with_capacity(MAX_WORKERS) };
        receivers.regroup();
        receivers
    }

    fn regroup(&mut self) {
        self.group.clear();
        self.group.extend(self.each.iter().filter(|receiver| receiver.copies).filter_map(|r| r.to));
    }

    /// Sends a packet to one worker.
    #[inline]
    pub fn answer(&self, worker: WorkerId, ecn: Ecn, packet: &[u8], sink: &mut impl Sink) {
        if let Some(Receiver { to: Some(to), .. }) = self.each.get(usize::from(worker.0)) {
            sink.unicast(*to, ecn, packet);
        }
    }

    /// Sends a packet to all that get copies.
    #[inline]
    pub fn answer_all(&self, ecn: Ecn, packet: &[u8], sink: &mut impl Sink) {
        if !self.group.is_empty() {
            sink.multicast(self.job, &self.group, ecn, packet);
        }
    }
}

/// The parts of a job that outlive its slots.
pub(super) struct Kept {
    counters: JobCounters,
    members: [Option<Endpoint>; MAX_WORKERS],
    receivers: [Receiver; MAX_WORKERS],
}

pub(super) struct Job {
    pub config: JobConfig,
    pub counters: JobCounters,
    members: [Option<Endpoint>; MAX_WORKERS],
    pub receivers: Receivers,
    /// The tables it may use, by id.
    tables: Vec<Option<Lookup>>,
    /// These tables, and those that were removed since: slots may be half filled with their values.
    used: Vec<Option<Lookup>>,
    pub slots: Slots,
}

impl JobConfig {
    /// Bytes that it takes in a shard: the shard's slots, and some 20 KiB for everything else.
    pub fn memory(&self, shard: Shard) -> usize {
        size_of::<Job>()
            + JobCounters::memory()
            + MAX_WORKERS * size_of::<Endpoint>()
            + 2 * TABLES * size_of::<Option<Lookup>>()
            + self.tables.len() * size_of::<TableId>()
            + Slots::memory(self, shard)
    }

    /// Bytes that it takes in all shards together.
    pub fn memory_of_all(&self, shards: u8) -> usize {
        Shard::split(shards).map(|shard| self.memory(shard)).sum()
    }
}

impl Job {
    /// A job with empty slots, and with what it keeps of the job that it replaces.
    pub fn new(config: JobConfig, shard: Shard, tables: &[Option<Lookup>], kept: Option<Kept>) -> Job {
        let Kept { counters, mut members, mut receivers } = kept.unwrap_or_else(|| Kept {
            counters: JobCounters::new(),
            members: [None; MAX_WORKERS],
            receivers: [Receiver::default(); MAX_WORKERS],
        });
        members[usize::from(config.workers)..].fill(None);
        receivers[usize::from(config.workers)..].fill(Receiver::default());
        let mut job = Job {
            counters,
            members,
            receivers: Receivers::new(config.job, receivers),
            tables: vec![None; TABLES],
            used: vec![None; TABLES],
            slots: Slots::new(&config, shard),
            config: config.clone(),
        };
        job.set_tables(&config, tables);
        job
    }

    pub fn without_slots(self) -> Kept {
        Kept { counters: self.counters, members: self.members, receivers: self.receivers.each }
    }

    pub fn set_tables(&mut self, config: &JobConfig, tables: &[Option<Lookup>]) {
        self.tables.fill(None);
        for id in &config.tables {
            let id = usize::from(id.0);
            self.tables[id] = tables[id].and_then(|table| config.level.lookup(&table));
            self.used[id] = tables[id];
        }
    }

    /// Returns whether slots may hold values of a table under this id that differ from these (P6 tables).
    pub fn used_otherwise(&self, id: TableId, table: &Lookup) -> bool {
        self.used[usize::from(id.0)].is_some_and(|used| used != *table)
    }

    pub fn set_member(&mut self, worker: WorkerId, at: Option<Endpoint>) {
        self.members[usize::from(worker.0)] = at;
        self.set_receiver(worker, at, at.is_some());
    }

    pub fn set_receiver(&mut self, worker: WorkerId, to: Option<Endpoint>, copies: bool) {
        self.receivers.each[usize::from(worker.0)] = Receiver { to, copies };
        self.receivers.regroup();
    }

    pub fn take_counters(&mut self) -> JobCounters {
        std::mem::replace(&mut self.counters, JobCounters::new())
    }

    /// Checks P7 membership from reason 5 on, except for what depends on the slot's state. Returns the table for DATA, and any
    /// table for other kinds.
    pub fn admit(&self, from: Endpoint, header: &Header, payload: &[u8]) -> Result<Lookup, DropReason> {
        self.admit_member(from, header)?;
        let table = match header.kind {
            Kind::Data => self.tables[usize::from(header.table.0)],
            _ => Some(Lookup::default()),
        };
        // The length of DATA follows from its table.
        if table.is_some_and(|table| payload.len() != header.kind.payload_len(table.form)) {
            return Err(DropReason::Length);
        }
        if self.slots.get(header.kind, header.slot).is_none() {
            return Err(DropReason::Slot);
        }
        table.ok_or(DropReason::Table)
    }

    /// Checks P7 membership from reason 5 to 8.
    fn admit_member(&self, from: Endpoint, header: &Header) -> Result<(), DropReason> {
        if header.cookie != self.config.cookie {
            return Err(DropReason::Cookie);
        }
        let Some(Some(member)) = self.members.get(usize::from(header.worker.0)) else {
            return Err(DropReason::Member);
        };
        if !member.admits(&from) {
            return Err(DropReason::Source);
        }
        if header.num_workers != self.config.workers {
            return Err(DropReason::Workers);
        }
        Ok(())
    }

    /// P37 roots: checks a MISMATCH that a rack sends.
    pub fn admit_mismatch(&self, from: Endpoint, header: &Header, payload: &[u8]) -> Result<(), DropReason> {
        self.admit_member(from, header)?;
        if payload.len() != header.kind.payload_len(Form::USUAL) {
            return Err(DropReason::Length);
        }
        self.slots.get(Kind::Norm, header.slot).map(|_| ()).ok_or(DropReason::Slot)
    }

    pub fn slot_view(&self, kind: Kind, slot: SlotId) -> Option<SlotView<'_>> {
        let (state, packet) = self.slots.get(kind, slot)?;
        Some(SlotView {
            round: state.round,
            seen: state.seen,
            complete: state.complete,
            mark: state.mark,
            values: &packet[HEADER_LEN..],
        })
    }
}
