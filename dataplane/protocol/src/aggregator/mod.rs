//! What an aggregator does with a packet (P7–P17, P21): the single definition.
//!
//! [`Aggregator`] is generic over [`Kernels`], so that the same code is the model (with
//! [`Scalar`]) and the software parameter server (with SIMD kernels). It neither allocates nor
//! reads a clock while it handles packets; what it sends goes to a [`Sink`].

mod admission;
mod config;
mod counters;
mod endpoint;
mod error;
mod job;
mod kernels;
mod level;
mod lookup;
mod relay;
mod setup;
mod shard;
mod sink;
mod slot;

pub use config::JobConfig;
pub use counters::{DropReason, Event, GlobalCounters, JobCounters, Outcome, WorkerCounters};
pub use endpoint::Endpoint;
pub use error::JobConfigError;
pub use kernels::{Kernels, Scalar};
pub use level::{Level, Racks};
pub use lookup::{Lookup, TableError};
pub use shard::Shard;
pub use sink::Sink;
pub use slot::SlotView;

use crate::wire::{
    FLAG_MARK, FLAG_NUDGE, HEADER_LEN, Header, HeaderError, Kind, MAX_PACKET, MISMATCH_LEN, NORM_LEN, Norm,
    Nudge, Straggler,
};
use crate::{Ecn, JobId, Round, SlotId, TableId, WorkerId};
use admission::{Admission, Admissions};
use job::{Job, Receivers, UNUSED};
use level::{port_of, rack_mismatch};
use slot::SlotState;
use std::marker::PhantomData;
use std::ops::Range;

/// An aggregator's whole state.
pub struct Aggregator<K: Kernels = Scalar> {
    shard: Shard,
    /// Index into `jobs` by job number; `UNUSED` where there is none.
    index: Vec<u32>,
    jobs: Vec<Option<Box<Job>>>,
    tables: Vec<Option<Lookup>>,
    counters: GlobalCounters,
    /// To be forgotten with every change of what P7 looks at.
    admissions: Admissions,
    memory_limit: usize,
    /// Whether jobs take more than stays in the caches near a core.
    far: bool,
    kernels: PhantomData<K>,
}

/// Bytes of slots that stay in the caches anyway: prefetching them costs more than it gains.
const NEAR: usize = 2 << 20;

impl<K: Kernels> Aggregator<K> {
    /// An empty aggregator that serves the slots of `shard`, and whose jobs take at most `memory_limit`
    /// bytes.
    #[must_use]
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
    #[must_use]
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
        self.admissions = Admissions::NONE;
        let place = self.index[usize::from(job.0)];
        if place == UNUSED { None } else { self.jobs[place as usize].as_deref_mut() }
    }

    /// Says that a packet comes soon, so that its slot may be prefetched. Nothing else changes.
    #[inline]
    pub fn expect(&self, packet: &[u8]) {
        let Some(head) = packet.first_chunk().filter(|_| self.far) else { return };
        let pass = self.admissions.get(head);
        if let Some(Some(job)) = self.jobs.get(pass.place as usize) {
            job.slots.expect::<K>(Header::place_of(head).1);
        }
    }

    /// Handles one packet, P7 to P17, that no queue could mark.
    #[inline]
    pub fn handle(&mut self, from: Endpoint, packet: &[u8], sink: &mut impl Sink) -> Outcome {
        self.handle_with(from, Ecn::NotEct, packet, sink)
    }

    /// The same of one that came with these bits (P46).
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

    /// P7 up to reason 11. A packet that is dropped is counted here.
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

/// Where P3 has the value.
const NORM_VALUE: Range<usize> = 4..8;

/// The header of the answer to a packet: its kind, naming the sender.
fn answer(header: &Header, kind: Kind) -> Header {
    Header { kind, flags: 0, count: 0, ..*header }
}

/// Answers that are not results.
impl Receivers {
    #[cold]
    fn straggler(&self, header: &Header, current: Round, sink: &mut impl Sink) {
        let mut packet = [0; MAX_PACKET];
        let body = Straggler { kind: header.kind, current }.to_bytes();
        let bytes = answer(header, Kind::Straggler).emit_packet(&mut packet, &body);
        self.answer(header.worker, Ecn::NotEct, bytes, sink);
    }

    #[cold]
    fn nudge(&self, header: &Header, seen: u64, sink: &mut impl Sink) {
        let mut packet = [0; MAX_PACKET];
        let body = Nudge { kind: header.kind, seen }.to_bytes();
        let bytes = answer(header, Kind::Nudge).emit_packet(&mut packet, &body);
        self.answer_all(Ecn::NotEct, bytes, sink);
    }

    /// Both payloads go out as they came in, whatever tag they carry.
    #[cold]
    fn mismatch(
        &self,
        header: &Header,
        held: &[u8; NORM_LEN],
        refused: &[u8; NORM_LEN],
        sink: &mut impl Sink,
    ) {
        let mut packet = [0; MAX_PACKET];
        let mut body = [0; MISMATCH_LEN];
        body[..NORM_LEN].copy_from_slice(held);
        body[NORM_LEN..].copy_from_slice(refused);
        let bytes = answer(header, Kind::Mismatch).emit_packet(&mut packet, &body);
        self.answer_all(Ecn::NotEct, bytes, sink);
    }
}

/// The flags of a slot with that mark.
#[inline]
const fn mark_of(mark: bool) -> u8 {
    if mark { FLAG_MARK } else { 0 }
}

/// The P3 payload of a packet that has one.
fn norm_payload(payload: &[u8]) -> &[u8; NORM_LEN] {
    payload.try_into().unwrap_or(&[0; NORM_LEN])
}

/// A packet for a slot that is open.
struct Arrival<'a> {
    pass: &'a Admission,
    head: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
    /// What its answer carries (P46).
    answered: Ecn,
}

impl Arrival<'_> {
    /// Answers a packet that adds nothing to its slot: of an earlier round, of another call, or one that the slot has. `None` if it is
    /// to be added.
    #[inline(always)]
    fn repeat<const NORM: bool>(
        &self,
        (level, receivers, counters): (&Level, &Receivers, &mut JobCounters),
        state: &SlotState,
        packet: &mut [u8],
        sink: &mut impl Sink,
    ) -> Option<Event> {
        let Arrival { pass, head, payload, answered } = *self;
        let like = pass.template();
        let (round, slot) = Header::place_of(head);
        if round != state.round {
            receivers.straggler(&pass.header(head), state.round, sink);
            return Some(Event::Stale);
        }
        if NORM {
            let (held, body) = (norm_payload(&packet[HEADER_LEN..]), norm_payload(payload));
            if Norm::tag_of(body) != Norm::tag_of(held) {
                match level {
                    Level::Rack { .. } => rack_mismatch(level, &pass.header(head), held, body, sink),
                    _ => receivers.mismatch(&pass.header(head), held, body, sink),
                }
                return Some(Event::Mismatch);
            }
        }
        let known = state.seen & pass.bit != 0;
        if state.complete {
            if let &Level::Rack { root, ports, .. } = level {
                Header::set_flags(packet, like.flags & FLAG_NUDGE | mark_of(state.mark));
                sink.unicast(port_of(root, ports, slot), answered, packet);
            } else {
                let result = packet.get(..pass.answer_len).unwrap_or(packet);
                receivers.answer(like.worker, answered, result, sink);
            }
            counters.resent += 1;
            return Some(if known { Event::Duplicate } else { Event::Late });
        }
        if known && like.flags & FLAG_NUDGE != 0 {
            receivers.nudge(&pass.header(head), state.seen, sink);
            counters.nudges += 1;
        }
        known.then_some(Event::Duplicate)
    }
}

impl Job {
    /// P9 to P17, and P7's checks of the slot's state, for a norm slot or a data slot.
    #[inline(always)]
    fn aggregate<K: Kernels, const NORM: bool>(
        &mut self,
        pass: &Admission,
        ecn: Ecn,
        head: &[u8; HEADER_LEN],
        payload: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Event, DropReason> {
        let Job { config, counters, receivers, slots, .. } = self;
        let (round, slot) = Header::place_of(head);
        let (state, packet) = slots.get_mut::<NORM>(slot).ok_or(DropReason::Slot)?;
        // Of the slot's round other packets have the same length of results (P14).
        let packet = packet.get_mut(..pass.slot_len).ok_or(DropReason::Length)?;
        let like = pass.template();
        let nudge = like.flags & FLAG_NUDGE != 0;
        // P46: of data, who may be told of a queue's mark is; norms know none.
        let answered = if NORM { Ecn::NotEct } else { ecn.of_answer() };
        // A norm slot has its tag for that.
        let head_of = if NORM { Default::default() } else { (like.kind as u8, like.table) };
        let newer = round.newer_than(state.round);
        let fresh = state.seen == 0 || newer;
        if fresh {
            let ahead = newer && state.seen != 0 && round != state.round.next();
            if ahead && !config.skip && !nudge {
                return Err(DropReason::Round);
            }
        } else {
            if !NORM && round == state.round && head_of != state.head {
                return Err(DropReason::Mixed);
            }
            let (arrival, of) =
                (Arrival { pass, head, payload, answered }, (&config.level, &*receivers, &mut *counters));
            if let Some(event) = arrival.repeat::<NORM>(of, state, packet, sink) {
                return Ok(event);
            }
        }
        // P10, P11: the values go into the slot.
        let lanes = &mut packet[HEADER_LEN..];
        match like.kind {
            Kind::Data => K::lookup(pass.table.form, !fresh, lanes, &pass.table.values, payload),
            _ if fresh => lanes.copy_from_slice(payload),
            _ if NORM => {
                // As big-endian bytes order like the u32; the rest stays that of the first (P10).
                if payload[NORM_VALUE] > lanes[NORM_VALUE] {
                    lanes[NORM_VALUE].copy_from_slice(&payload[NORM_VALUE]);
                }
            }
            _ => K::raw_add(lanes, payload),
        }
        let more = if let Level::Root(_) = config.level { Header::count_of(head).max(1) } else { 1 };
        let (seen, members, count) = if fresh { (0, 0, 0) } else { (state.seen, state.members, state.count) };
        let (seen, members, count) = (seen | pass.bit, members.wrapping_add(1), count.saturating_add(more));
        let complete = members >= config.quorum;
        let marked = !NORM && (ecn == Ecn::Ce || like.flags & FLAG_MARK != 0);
        let mark = marked || !fresh && state.mark;
        *state = SlotState { round, seen, members, count, complete, mark, head: head_of };
        if complete {
            // P13: with the header in front of the lanes the slot is its RESULT from now on; of a rack, what it sends up (P35).
            let answer = pass.header(head);
            if let Level::Rack { racks, rack: worker, root, ports } = config.level {
                let flags = like.flags & FLAG_NUDGE | mark_of(mark);
                Header { flags, num_workers: racks.count, worker, count, ..answer }.emit(packet);
                sink.unicast(port_of(root, ports, slot), answered, packet);
            } else {
                let flags = mark_of(mark);
                let result = Header { kind: pass.result, flags, worker: WorkerId::NONE, count, ..answer };
                result.emit(packet);
                if pass.answer_len < pass.slot_len {
                    K::pack(pass.table.form, &mut packet[HEADER_LEN..]);
                }
                receivers.answer_all(answered, packet.get(..pass.answer_len).unwrap_or(packet), sink);
            }
            counters.results += 1;
        } else if nudge {
            receivers.nudge(&pass.header(head), seen, sink);
            counters.nudges += 1;
        }
        Ok(if fresh { Event::Opened } else { Event::Added })
    }
}

const _: () = assert!(HEADER_LEN + crate::wire::RESULT_LEN == MAX_PACKET);
