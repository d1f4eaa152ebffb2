//! A job's members and slots.
//!
//! Each slot's memory is a packet with room for the header in front, so that a completed slot is its
//! RESULT: the header is written once, and copies need no work.

use super::slot::{SlotState, SlotView};
use super::{DropReason, Endpoint, JobConfig, JobCounters, Kernels, Shard, Sink};
use crate::wire::{HEADER_LEN, Header, Kind, MAX_PACKET, NORM_LEN};
use crate::{MAX_WORKERS, SlotId, TableId, WorkerId};
use std::ops::Range;

/// Marks a job number without a job.
pub(super) const UNUSED: u32 = u32::MAX;

/// Ids of tables.
const TABLES: usize = 256;
const NORM_PACKET: usize = HEADER_LEN + NORM_LEN;
/// A data slot's packet, placed so that its lanes begin a cache line: vectors that straddle two are slow.
#[derive(Clone)]
#[repr(C, align(64))]
struct DataPacket {
    ahead: [u8; 64 - HEADER_LEN],
    packet: [u8; MAX_PACKET],
}

/// Where P3 has the value.
const NORM_VALUE: Range<usize> = 4..8;

/// Where packets to a worker go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receiver {
    /// Answers to it alone.
    to: Option<Endpoint>,
    /// Whether it gets copies of what goes to all.
    copies: bool,
}

/// What outlives a job's slots.
pub(super) struct Kept {
    counters: JobCounters,
    members: [Option<Endpoint>; MAX_WORKERS],
    receivers: [Receiver; MAX_WORKERS],
}

pub(super) struct Job {
    pub config: JobConfig,
    pub counters: JobCounters,
    members: [Option<Endpoint>; MAX_WORKERS],
    receivers: [Receiver; MAX_WORKERS],
    /// Who gets copies, in the order of the workers' numbers: the multicast group.
    group: Vec<Endpoint>,
    /// The tables it may use, by id.
    tables: Vec<Option<[u8; 16]>>,
    /// Those and the ones that were taken away again: slots may be half filled with their values (P6).
    used: Vec<Option<[u8; 16]>>,
    shard: Shard,
    data: Vec<SlotState>,
    norm: Vec<SlotState>,
    data_packets: Vec<DataPacket>,
    norm_packets: Vec<u8>,
}

/// The slots of a job that are a shard's: data, norm.
fn shares(config: &JobConfig, shard: Shard) -> (usize, usize) {
    (shard.share(config.data_slots) as usize, shard.share(config.norm_slots) as usize)
}

/// Bytes that [`Job::new`] allocates, the job itself included.
pub(super) fn memory(config: &JobConfig, shard: Shard) -> usize {
    let (s, n) = shares(config, shard);
    size_of::<Job>()
        + JobCounters::memory()
        + MAX_WORKERS * size_of::<Endpoint>()
        + 2 * TABLES * size_of::<Option<[u8; 16]>>()
        + config.tables.len() * size_of::<TableId>()
        + s * (size_of::<SlotState>() + size_of::<DataPacket>())
        + n * (size_of::<SlotState>() + NORM_PACKET)
}

impl Job {
    /// A job with empty slots, and with what is kept of the job that it replaces.
    pub fn new(config: JobConfig, shard: Shard, tables: &[Option<[u8; 16]>], kept: Option<Kept>) -> Job {
        let (s, n) = shares(&config, shard);
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
            receivers,
            group: Vec::with_capacity(MAX_WORKERS),
            tables: vec![None; TABLES],
            used: vec![None; TABLES],
            shard,
            data: vec![SlotState::default(); s],
            norm: vec![SlotState::default(); n],
            data_packets: vec![DataPacket { ahead: [0; _], packet: [0; _] }; s],
            norm_packets: vec![0; n * NORM_PACKET],
            config: config.clone(),
        };
        job.set_tables(&config, tables);
        job.regroup();
        job
    }

    pub fn without_slots(self) -> Kept {
        Kept { counters: self.counters, members: self.members, receivers: self.receivers }
    }

    pub fn set_tables(&mut self, config: &JobConfig, tables: &[Option<[u8; 16]>]) {
        self.tables.fill(None);
        for id in &config.tables {
            let id = usize::from(id.0);
            self.tables[id] = tables[id];
            self.used[id] = tables[id];
        }
    }

    /// Whether slots may hold values of a table under this id that differ from these (P6).
    pub fn used_otherwise(&self, id: TableId, values: &[u8; 16]) -> bool {
        self.used[usize::from(id.0)].is_some_and(|used| used != *values)
    }

    pub fn set_member(&mut self, worker: WorkerId, at: Option<Endpoint>) {
        self.members[usize::from(worker.0)] = at;
        self.set_receiver(worker, at, at.is_some());
    }

    pub fn set_receiver(&mut self, worker: WorkerId, to: Option<Endpoint>, copies: bool) {
        self.receivers[usize::from(worker.0)] = Receiver { to, copies };
        self.regroup();
    }

    fn regroup(&mut self) {
        self.group.clear();
        self.group.extend(self.receivers.iter().filter(|receiver| receiver.copies).filter_map(|r| r.to));
    }

    pub fn take_counters(&mut self) -> JobCounters {
        std::mem::replace(&mut self.counters, JobCounters::new())
    }

    pub fn forget_slots(&mut self) {
        self.data.fill(SlotState::default());
        self.norm.fill(SlotState::default());
    }

    /// P7 from reason 5 on.
    #[inline]
    pub fn admit(&self, from: Endpoint, header: &Header, payload: &[u8]) -> Result<(), DropReason> {
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
        if payload.len() != header.kind.payload_len(self.config.lane) {
            return Err(DropReason::Length);
        }
        let norm = header.kind == Kind::Norm;
        let slots = if norm { self.config.norm_slots } else { self.config.data_slots };
        if u32::from(header.slot.0) >= slots || !self.shard.serves(header.slot) {
            return Err(DropReason::Slot);
        }
        if header.kind == Kind::Data && self.tables[usize::from(header.table.0)].is_none() {
            return Err(DropReason::Table);
        }
        Ok(())
    }

    #[inline]
    pub fn slot_state(&self, kind: Kind, slot: SlotId) -> SlotState {
        let slots = if kind == Kind::Norm { &self.norm } else { &self.data };
        slots[self.shard.place(slot)]
    }

    #[inline]
    pub fn set_slot_state(&mut self, kind: Kind, slot: SlotId, state: SlotState) {
        let place = self.shard.place(slot);
        let slots = if kind == Kind::Norm { &mut self.norm } else { &mut self.data };
        slots[place] = state;
    }

    pub fn slot_view(&self, kind: Kind, slot: SlotId) -> Option<SlotView<'_>> {
        let all = if kind == Kind::Norm { self.config.norm_slots } else { self.config.data_slots };
        if u32::from(slot.0) >= all || !self.shard.serves(slot) {
            return None;
        }
        let state = self.slot_state(kind, slot);
        let packet = self.result_packet(kind, slot);
        Some(SlotView {
            round: state.round,
            seen: state.seen,
            complete: state.complete,
            values: &packet[HEADER_LEN..],
        })
    }

    /// The slot's packet; a RESULT once the slot is complete.
    #[inline]
    pub fn result_packet(&self, kind: Kind, slot: SlotId) -> &[u8] {
        let slot = self.shard.place(slot);
        if kind == Kind::Norm {
            &self.norm_packets[slot * NORM_PACKET..][..NORM_PACKET]
        } else {
            &self.data_packets[slot].packet
        }
    }

    #[inline]
    fn packet_mut(&mut self, kind: Kind, slot: SlotId) -> &mut [u8] {
        let slot = self.shard.place(slot);
        if kind == Kind::Norm {
            &mut self.norm_packets[slot * NORM_PACKET..][..NORM_PACKET]
        } else {
            &mut self.data_packets[slot].packet
        }
    }

    /// The P3 payload a norm slot holds.
    pub fn norm_payload(&self, slot: SlotId) -> &[u8; NORM_LEN] {
        let packet = self.result_packet(Kind::Norm, slot);
        packet[HEADER_LEN..].try_into().unwrap_or(&[0; NORM_LEN])
    }

    /// P10, P11: the values of a packet go into its slot.
    #[inline(always)]
    pub fn add<K: Kernels>(&mut self, header: &Header, payload: &[u8], fresh: bool) {
        if header.kind == Kind::Data {
            let lanes = &mut self.data_packets[self.shard.place(header.slot)].packet[HEADER_LEN..];
            if let Some(table) = &self.tables[usize::from(header.table.0)] {
                K::lookup(self.config.lane, !fresh, lanes, table, payload);
            }
            return;
        }
        let lanes = &mut self.packet_mut(header.kind, header.slot)[HEADER_LEN..];
        match header.kind {
            Kind::Norm if !fresh => {
                // As big-endian bytes order like the u32; the rest stays that of the first (P10).
                if payload[NORM_VALUE] > lanes[NORM_VALUE] {
                    lanes[NORM_VALUE].copy_from_slice(&payload[NORM_VALUE]);
                }
            }
            _ if fresh => lanes.copy_from_slice(payload),
            _ => K::raw_add(lanes, payload),
        }
    }

    /// P13: writes the header in front of the lanes; the slot is its RESULT from now on.
    #[inline]
    pub fn seal(&mut self, kind: Kind, slot: SlotId, header: &Header) {
        header.emit(self.packet_mut(kind, slot));
    }

    #[inline]
    pub fn answer(&self, worker: WorkerId, packet: &[u8], sink: &mut impl Sink) {
        if let Some(Receiver { to: Some(to), .. }) = self.receivers.get(usize::from(worker.0)) {
            sink.unicast(*to, packet);
        }
    }

    #[inline]
    pub fn answer_all(&self, packet: &[u8], sink: &mut impl Sink) {
        if !self.group.is_empty() {
            sink.multicast(self.config.job, &self.group, packet);
        }
    }
}
