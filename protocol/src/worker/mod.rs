//! The worker's side: calls, norms, windows, retransmission (P4, P14, P18–P20). Bytes and the
//! time go in; packets to send and events come out. Nothing is allocated per packet.

mod call;
mod error;
mod parameters;
mod racks;
mod rtt;
mod stream;

pub use call::{CallSpec, PartSpec};
pub use error::{CallError, OfRacks, SessionError, Who, Workers};
pub use parameters::Parameters;
pub use rtt::Rtt;
pub use stream::{PacketId, StreamStats, Tx};

use crate::aggregator::Shard;
use crate::wire::{
    FLAG_MARK, FLAG_ROOT, Form, HEADER_LEN, Header, Kind, Mismatch, Mode, NORM_LEN, Norm, Nudge, RAW_LEN,
    Straggler,
};
use crate::{Ecn, Policy, Round, SlotId, TableId};
use call::Call;
use std::collections::VecDeque;
use std::time::Duration;
use stream::{Finish, Stream};

/// The longest run of packets: no run leaves a shard's block of slots.
const RUN: usize = Shard::BLOCK as usize;

/// Of norms there may be this part of the credit for data (P41).
const NORM_CREDIT: u32 = 4;

/// What happens to calls. All are called from within [`Worker`]'s methods.
pub trait Events {
    /// Every NORM_RESULT of a call is in: the maximum for each partition, f32 bits. A partition
    /// with 0 needs no data; its result is zero.
    fn norms(&mut self, call: u64, maxima: &mut dyn Iterator<Item = u32>);
    /// The others have gone on by quorum without this worker's norm of a partition: it sends nothing of it, and the maximum that
    /// [`Events::norms`] tells then is 0. Comes before that.
    fn left_out(&mut self, call: u64, partition: u32) {
        let _ = (call, partition);
    }
    /// The sums of one packet, of `result.count` workers, as they are in its RESULT.
    fn result(&mut self, place: PacketId, result: &Header, sums: &[u8]);
    /// This packet's coordinates count as zero. `sent` is its payload, which is in no sum that this worker knows of;
    /// `None` where whoever sends keeps it ([`Tx::pack`]).
    fn lost(&mut self, place: PacketId, sent: Option<&[u8]>);
    /// [`Events::result`] has told of a sum that this packet came too late for; `sent` is its payload.
    fn late(&mut self, place: PacketId, sent: Option<&[u8]>);
    /// A call failed, on all workers alike.
    fn failed(&mut self, call: u64, error: CallError);
}

/// Counts of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// The norm stream.
    pub norm: StreamStats,
    /// The data stream.
    pub data: StreamStats,
    /// STRAGGLER packets received.
    pub stragglers: u64,
    /// Packets sent again because another worker waited for them.
    pub nudged: u64,
    /// Packets of partitions that the others went on without ([`Events::left_out`]).
    pub left_out: u64,
    /// Packets received that were none of this session's.
    pub foreign: u64,
}

/// A worker's protocol state.
#[derive(Debug)]
pub struct Worker {
    params: Parameters,
    norm: Stream,
    data: Stream,
    calls: VecDeque<Call>,
    /// Number of the oldest call in `calls`.
    first_call: u64,
    /// Index into `calls` of the first whose norms are not all sent, and of the first whose data are not.
    norm_call: usize,
    data_call: usize,
    /// When the aggregator was last heard.
    heard: Duration,
    /// Workers that the latest NUDGE has shown to be missing, by stream.
    missing_norm: u64,
    missing_data: u64,
    /// Racks that the root waits for, by the latest NUDGE that it has sent.
    missing_racks: u64,
    failure: Option<SessionError>,
    /// Where a NORM of this worker was refused (P14).
    refused: Option<(SlotId, Round)>,
    stats: WorkerStats,
}

impl Worker {
    /// A worker at the start of a session.
    #[must_use]
    pub fn new(params: Parameters, now: Duration) -> Worker {
        let rtt = || Rtt::new((params.min_rto * 5).min(params.max_rto), params.min_rto, params.max_rto);
        let norm_len = HEADER_LEN + NORM_LEN;
        let payloads = params.tables.iter().map(|table| table.form.data_len()).chain([RAW_LEN]);
        let strides = payloads.map(|len| HEADER_LEN + len);
        let mut data = Stream::new(params.data_slots, params.shards, strides, params.first_seq, rtt());
        // Workers send data when they have each other's norms, so at about the same time.
        data.set_probing();
        data.set_turns(params.worker.0, params.workers);
        data.set_sparing(params.first_window);
        // Of what may be lost the payload is needed here.
        if !params.may_lose() {
            data.set_outside();
        }
        let mut norm = Stream::new(params.norm_slots, params.shards, [norm_len], params.first_seq, rtt());
        norm.set_probing();
        norm.set_turns(params.worker.0, params.workers);
        if params.credit > 0 {
            data.set_limit(params.credit.into());
            norm.set_limit((params.credit / NORM_CREDIT).into());
        }
        Worker {
            norm,
            data,
            params,
            calls: VecDeque::new(),
            first_call: 0,
            norm_call: 0,
            data_call: 0,
            heard: now,
            missing_norm: 0,
            missing_data: 0,
            missing_racks: 0,
            failure: None,
            refused: None,
            stats: WorkerStats::default(),
        }
    }

    /// The number of the session's first call, if it is not 0: for tests of wrapping numbers, before the first call.
    pub fn set_first_call(&mut self, call: u64) {
        self.first_call = call;
    }

    /// Bounds the data packets outstanding, for a small receive buffer.
    pub fn set_limit(&mut self, packets: u64) {
        let credit = if self.params.credit > 0 { self.params.credit.into() } else { u64::MAX };
        self.data.set_limit(packets.min(credit));
    }

    /// The session's parameters.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.params
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        WorkerStats { norm: self.norm.stats(), data: self.data.stats(), ..self.stats }
    }

    /// Smoothed round-trip time of data packets.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.data.rtt().smoothed()
    }

    /// Data packets that may be outstanding now (P41), and how often congestion has made them fewer.
    #[must_use]
    pub fn window(&self) -> (u64, u64) {
        self.data.open()
    }

    /// Results that told of congestion, or met it (P46).
    #[must_use]
    pub fn marks(&self) -> u64 {
        self.data.marks()
    }

    /// Shortest of the recent round-trip times of data packets.
    #[must_use]
    pub fn shortest_round_trip(&self) -> Option<Duration> {
        self.data.rtt().shortest()
    }

    /// Why the session is over, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<SessionError> {
        self.failure
    }

    /// Ends the session.
    pub fn fail(&mut self, error: SessionError) {
        self.failure.get_or_insert(error);
    }

    /// Calls that are not done.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.calls.len()
    }

    /// Workers the others wait for, as an aggregator last reported, and for how long nothing has moved.
    #[must_use]
    pub fn waiting_for(&self, now: Duration) -> Option<(u64, Duration)> {
        let stalled = self.stalled(now);
        (self.missing() != 0 && stalled > Duration::ZERO).then_some((self.missing(), stalled))
    }

    /// Who is missing. Data in flight belong to an earlier call than norms in flight, and who waits
    /// there may be why others are missing here.
    fn missing(&self) -> u64 {
        if self.missing_data != 0 { self.missing_data } else { self.missing_norm }
    }

    /// For how long something has been outstanding and nothing has moved, in either stream.
    fn stalled(&self, now: Duration) -> Duration {
        if !self.is_busy() {
            return Duration::ZERO;
        }
        now.saturating_sub(self.norm.progress().max(self.data.progress()))
    }

    /// The shard of what has been waited for longest: data, for norms in flight belong to later calls.
    #[must_use]
    pub fn waits_at(&self) -> Option<u8> {
        self.data.waits_at().or(self.norm.waits_at())
    }

    /// Shards where NUDGE brings nothing, and for how long that is so (P20, P21): that of the eldest packet in a stream where time-outs
    /// pass, and those whose packets are given up.
    pub fn unanswered(&self, now: Duration) -> impl Iterator<Item = (u8, Duration)> {
        let deaf = [&self.data, &self.norm].into_iter().filter(|s| s.is_deaf()).find_map(Stream::waits_at);
        let given_up = self.data.unanswered().map(move |(shard, since)| (shard, now.saturating_sub(since)));
        deaf.map(|shard| (shard, self.stalled(now))).into_iter().chain(given_up)
    }

    /// Whether the aggregator has been silent for so long that it may have lost its state (P20).
    #[must_use]
    pub fn suspects_restart(&self, now: Duration) -> bool {
        let silent = now.saturating_sub(self.heard);
        [&self.norm, &self.data].iter().any(|stream| {
            let stalled = now.saturating_sub(stream.progress());
            stream.is_busy() && stream.timeouts() >= 2 && silent >= stalled.min(self.params.min_rto * 4)
        })
    }

    /// When something of the session came last from the aggregator.
    #[must_use]
    pub fn heard(&self) -> Duration {
        self.heard
    }

    /// Whether anything that was sent has no result yet.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.norm.is_busy() || self.data.is_busy()
    }

    /// The aggregator's control plane has answered.
    pub fn note_alive(&mut self, now: Duration) {
        self.heard = now;
    }

    /// Queues a call and sends its norms as far as the window allows. Returns its number: 0, 1, ….
    pub fn submit(&mut self, now: Duration, spec: &CallSpec<'_>, tx: &mut impl Tx) -> u64 {
        let number = self.first_call + self.calls.len() as u64;
        self.calls.push_back(Call::new(spec, &self.params.tables, self.params.by_quorum()));
        if self.failure.is_none() {
            self.send_norms(now, tx);
        }
        number
    }

    fn header(&self, kind: Kind, table: TableId) -> Header {
        Header {
            kind,
            flags: 0,
            num_workers: self.params.workers,
            job: self.params.job,
            worker: self.params.worker,
            table,
            cookie: self.params.cookie,
            round: Round(0),
            slot: SlotId(0),
            count: 0,
        }
    }

    fn send_norms(&mut self, now: Duration, tx: &mut impl Tx) {
        let header = self.header(Kind::Norm, TableId(0));
        while let Some(call) = self.calls.get_mut(self.norm_call) {
            let number = self.first_call + self.norm_call as u64;
            let left = call.parts.len() - call.norms_sent;
            if left == 0 {
                self.norm_call += 1;
                continue;
            }
            let count = left.min(self.norm.room());
            if count == 0 {
                return;
            }
            let first = call.norms_sent;
            call.norms_sent += count;
            let place = |i| PacketId { call: number, partition: (first + i) as u32, packet: 0 };
            let write = |place: PacketId, payload: &mut [u8]| {
                payload.copy_from_slice(&call.norm_of(number, place.partition as usize).to_bytes());
            };
            self.norm.send(now, 0, count, &header, place, write, tx);
        }
    }

    /// The partition whose packets are to be written next, and from which packet on, if its call has
    /// its norms. [`Self::fill`] writes them.
    pub fn next_data(&mut self) -> Option<PacketId> {
        if self.failure.is_some() {
            return None;
        }
        while let Some(call) = self.calls.get_mut(self.data_call) {
            if !call.has_norms() {
                return None;
            }
            if !call.skip_sent() {
                let (partition, packet) = call.cursor;
                let part = &call.parts[partition];
                if part.silent {
                    let passed = self.data.pass_over((part.packets - packet) as usize) as u32;
                    if passed == 0 {
                        return None;
                    }
                    call.cursor.1 += passed;
                    call.finish(partition, passed);
                    self.retire();
                    continue;
                }
                let number = self.first_call + self.data_call as u64;
                return Some(PacketId { call: number, partition: partition as u32, packet });
            }
            self.data_call += 1;
        }
        None
    }

    /// Whether the window has room for data packets.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.data.room() > 0
    }

    /// Writes and sends as many packets from that of [`Self::next_data`] on as fit in one run, at most `limit`; they may belong
    /// to several partitions of one call that travel as the same. `write` fills a payload. Returns how many.
    pub fn fill(
        &mut self,
        now: Duration,
        tx: &mut impl Tx,
        limit: usize,
        write: impl FnMut(PacketId, &mut [u8]),
    ) -> usize {
        let Some(first) = self.next_data() else { return 0 };
        let room = limit.min(self.data.room()).min(RUN);
        let call = &mut self.calls[self.data_call];
        let mut places = [first; RUN];
        let mut count = 0;
        let as_first = call.parts[first.partition as usize];
        while count < room && !call.skip_sent() {
            let (partition, packet) = call.cursor;
            if call.parts[partition].ring != as_first.ring || call.parts[partition].silent {
                break;
            }
            let more = (call.parts[partition].packets - packet).min((room - count) as u32);
            for (place, packet) in places[count..].iter_mut().zip(packet..packet + more) {
                *place = PacketId { partition: partition as u32, packet, ..first };
            }
            count += more as usize;
            call.cursor.1 += more;
        }
        if count == 0 {
            return 0;
        }
        let kind = if as_first.mode == Mode::Raw { Kind::Raw } else { Kind::Data };
        let header = self.header(kind, as_first.table);
        self.data.send(now, as_first.ring, count, &header, |i| places[i], write, tx);
        count
    }

    /// Whether a packet names this session's job and cookie.
    #[must_use]
    pub fn is_of_session(&self, header: &Header) -> bool {
        header.job == self.params.job && header.cookie == self.params.cookie
    }

    /// Takes one packet from the aggregator's address. After a burst of them call [`Self::tick`].
    /// Once the session has failed there are no more events, but other workers' NUDGEs are still
    /// answered: they may not know yet.
    pub fn handle(&mut self, now: Duration, packet: &[u8], events: &mut impl Events, tx: &mut impl Tx) {
        self.handle_with(now, Ecn::NotEct, packet, events, tx);
    }

    /// The same of a packet that came with these bits (P46).
    pub fn handle_with(
        &mut self,
        now: Duration,
        ecn: Ecn,
        packet: &[u8],
        events: &mut impl Events,
        tx: &mut impl Tx,
    ) {
        let Ok((header, payload)) = Header::parse(packet) else {
            self.stats.foreign += 1;
            return;
        };
        // Which of the job's tables sums are of; of other kinds it means nothing.
        let place = self.params.tables.place(header.table);
        let form =
            place.and_then(|place| self.params.tables.get(place)).map_or(Form::USUAL, |table| table.form);
        let whole = payload.len() == header.kind.payload_len(form);
        if !self.is_of_session(&header) || !whole || !self.params.expects(&header) {
            self.stats.foreign += 1;
            return;
        }
        self.heard = now;
        if self.failure.is_some() && header.kind != Kind::Nudge {
            return;
        }
        let (slot, round) = (header.slot, header.round);
        match header.kind {
            Kind::NormResult => {
                if let Some(norm) = Norm::parse(payload)
                    && self.believes(now, slot, round, norm.value, tx)
                    && let Finish::First(place) = self.norm.finish(now, 0, slot, round, false)
                {
                    (self.missing_norm, self.missing_racks) = (0, 0);
                    self.norm_result(place, norm.value, events);
                }
            }
            Kind::Result | Kind::RawResult => {
                if header.count < self.params.all_quorum() || header.count > self.params.all_workers() {
                    self.stats.foreign += 1;
                    return;
                }
                let ring = match (header.kind, place) {
                    (Kind::Result, Some(place)) => place,
                    (Kind::RawResult, _) => self.params.tables.len(),
                    _ => {
                        self.stats.foreign += 1;
                        return;
                    }
                };
                if header.count < self.params.all_workers() {
                    self.data.foresee(slot, round);
                }
                let marked = ecn == Ecn::Ce || header.flags & FLAG_MARK != 0;
                if let Finish::First(place) = self.data.finish(now, ring as u8, slot, round, marked) {
                    (self.missing_data, self.missing_racks) = (0, 0);
                    events.result(place, &header, payload);
                    if self.data.was_late(slot, round) {
                        events.late(place, self.data.kept_payload(slot, round));
                    }
                    self.data_done(place);
                }
            }
            Kind::Straggler => {
                if let Some(straggler) = Straggler::parse(payload) {
                    self.straggler(now, &header, straggler, events);
                }
            }
            Kind::Mismatch => {
                if let Some(Mismatch { slot: theirs, refused }) = Mismatch::parse(payload) {
                    let (who, own) = self.refused(&header);
                    self.refused = own.then_some((slot, round));
                    let mine = self.norm.kept_payload(slot, round).and_then(Norm::parse);
                    self.fail(SessionError::Mismatch { mine, who, slot: theirs, refused });
                }
            }
            Kind::Nudge => {
                if let Some(nudge) = Nudge::parse(payload) {
                    self.nudged(now, &header, nudge, tx);
                }
            }
            _ => self.stats.foreign += 1,
        }
    }

    /// Whether this maximum is to be taken (P19). One that cannot be is asked for again the first time: if it was damaged on
    /// its way here, others have another, and if it is what the slot holds, it comes again.
    fn believes(&mut self, now: Duration, slot: SlotId, round: Round, value: u32, tx: &mut impl Tx) -> bool {
        let Some(place) = self.norm.outstanding(slot, round) else { return true };
        let call = self.calls.get_mut((place.call - self.first_call) as usize);
        let Some(part) = call.and_then(|call| call.parts.get_mut(place.partition as usize)) else {
            return true;
        };
        let below = !self.params.by_quorum() && value < part.norm;
        if Norm::is_value(value, self.params.all_workers()) && !below || part.doubted == Some(value) {
            return true;
        }
        part.doubted = Some(value);
        self.norm.resend_kept(now, slot, round, 0, tx);
        false
    }

    fn norm_result(&mut self, place: PacketId, value: u32, events: &mut impl Events) {
        let full = !self.params.by_quorum();
        let workers = self.params.all_workers();
        let Some(call) = self.calls.get_mut((place.call - self.first_call) as usize) else { return };
        let part = &mut call.parts[place.partition as usize];
        if full && value < part.norm && Norm::is_value(value, workers) {
            // Others may not know, and go on with it.
            let (partition, own) = (place.partition, part.norm);
            self.fail(SessionError::NormLost { partition, own, maximum: value });
            return;
        }
        let own = Norm::non_finite_worker(part.norm);
        part.norm = value;
        // With a quorum below n the others may have gone on before this worker's NaN came.
        call.withheld |= own.is_some() && Norm::non_finite_worker(value).is_none();
        self.count_norm(place.call, events);
    }

    /// The others have gone on by quorum without this worker's norm: nothing of the partition is sent, and its mean is not known.
    fn norm_left_out(&mut self, place: PacketId, events: &mut impl Events) {
        let Some(call) = self.calls.get_mut((place.call - self.first_call) as usize) else { return };
        let part = &mut call.parts[place.partition as usize];
        self.stats.left_out += u64::from(part.packets);
        call.withheld |= Norm::non_finite_worker(part.norm).is_some();
        (part.norm, part.silent) = (0, true);
        events.left_out(place.call, place.partition);
        self.count_norm(place.call, events);
    }

    /// One more norm of a call is known, or never will be.
    fn count_norm(&mut self, number: u64, events: &mut impl Events) {
        let workers = self.params.all_workers();
        let Some(call) = self.calls.get_mut((number - self.first_call) as usize) else { return };
        call.norms_in += 1;
        if !call.has_norms() {
            return;
        }
        let norms = || (0u32..).zip(call.parts.iter().map(|part| part.norm));
        let damaged = norms().find(|&(_, norm)| !Norm::is_value(norm, workers));
        let damaged = damaged.map(|(partition, value)| CallError::Norm { partition, value });
        let non_finite = norms().find_map(|(_, norm)| Norm::non_finite_worker(norm));
        let own = call.withheld.then(|| CallError::NonFinite { worker: self.params.rank() });
        let error = damaged.or(non_finite.map(|worker| CallError::NonFinite { worker })).or(own);
        call.failed = error.is_some();
        call.note_norms();
        match error {
            Some(error) => events.failed(number, error),
            None => events.norms(number, &mut call.parts.iter().map(|part| part.norm)),
        }
        self.retire();
    }

    fn data_done(&mut self, place: PacketId) {
        if let Some(call) = self.calls.get_mut((place.call - self.first_call) as usize) {
            call.finish(place.partition as usize, 1);
        }
        self.retire();
    }

    fn retire(&mut self) {
        while self.calls.front().is_some_and(|call| !call.parts.is_empty() && call.done()) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        self.calls.pop_front();
        self.first_call += 1;
        self.norm_call = self.norm_call.saturating_sub(1);
        self.data_call = self.data_call.saturating_sub(1);
    }

    fn straggler(&mut self, now: Duration, header: &Header, about: Straggler, events: &mut impl Events) {
        self.stats.stragglers += 1;
        let (slot, round, current) = (header.slot, header.round, about.current);
        let overtaken = SessionError::Overtaken { slot, round, current };
        if about.kind == Kind::Norm && self.params.by_quorum() {
            if let Finish::First(place) = self.norm.give_up(now, slot, round) {
                self.norm_left_out(place, events);
            }
        } else if about.kind == Kind::Norm {
            if self.norm.outstanding(slot, round).is_some() {
                self.fail(overtaken);
            }
        } else if self.params.may_lose() {
            if let Finish::First(place) = self.data.give_up(now, slot, round) {
                events.lost(place, self.data.kept_payload(slot, round));
                self.data_done(place);
            }
        } else if self.data.outstanding(slot, round).is_some() {
            self.fail(overtaken);
        }
    }

    fn nudged(&mut self, now: Duration, header: &Header, nudge: Nudge, tx: &mut impl Tx) {
        if header.flags & FLAG_ROOT != 0 {
            return self.nudged_by_root(now, header, nudge, tx);
        }
        let stream = if nudge.kind == Kind::Norm { &mut self.norm } else { &mut self.data };
        if stream.outstanding(header.slot, header.round).is_some() {
            let missing = self.params.members() & !nudge.seen;
            *(if nudge.kind == Kind::Norm { &mut self.missing_norm } else { &mut self.missing_data }) =
                missing;
        }
        stream.note_served(header.slot);
        let seen = nudge.seen & self.params.worker.bit() != 0;
        if seen {
            stream.note_seen(now, header.slot, header.round);
        }
        if header.worker == self.params.worker {
            stream.note_answer(now, header.slot, header.round);
            return;
        }
        if !seen && stream.resend_kept(now, header.slot, header.round, 0, tx) {
            self.stats.nudged += 1;
        } else {
            self.refuse_again(now, tx);
        }
    }

    /// Whoever still waits has lost the MISMATCH: being refused again, this packet brings another.
    fn refuse_again(&mut self, now: Duration, tx: &mut impl Tx) {
        if let Some((slot, round)) = self.refused
            && self.norm.resend_kept(now, slot, round, 0, tx)
        {
            self.stats.nudged += 1;
        }
    }

    /// Sends what is due: norms of queued calls, repetitions; gives up what is past its deadline; and
    /// fails the session when nothing has moved for too long. Call it after each burst and when
    /// [`Self::deadline`] has passed.
    pub fn tick(&mut self, now: Duration, events: &mut impl Events, tx: &mut impl Tx) {
        if self.failure.is_some() {
            return;
        }
        // A call of nothing has nothing to wait for but its turn.
        while self.calls.front().is_some_and(|call| call.parts.is_empty()) {
            events.norms(self.first_call, &mut std::iter::empty());
            self.pop();
            self.retire();
        }
        self.send_norms(now, tx);
        self.norm.note_round_trips(&self.data);
        self.norm.repeat(now, tx);
        if self.params.policy == Policy::Reliable {
            self.data.repeat(now, tx);
        } else {
            while let Some((place, slot, round)) = self.data.give_up_older(now, self.params.deadline) {
                events.lost(place, self.data.kept_payload(slot, round));
                self.data_done(place);
            }
            self.data.ask_again(now, self.params.deadline / 4, tx);
        }
        let waited = self.stalled(now);
        if waited >= self.params.timeout {
            let silent = now.saturating_sub(self.heard);
            let missing = self.missing() & !self.params.worker.bit();
            // An aggregator that is there has answered who asked, in the second half of the time-out at the latest (P20).
            let heard = silent < (self.params.max_rto * 4).min(waited / 4 * 3);
            let late = heard && (missing != 0 || self.missing_racks != 0);
            let patient = self.params.patience > self.params.timeout;
            if late && waited >= self.params.patience {
                self.fail(match missing {
                    0 => SessionError::MissingRacks { missing: self.missing_racks, waited },
                    _ => SessionError::Missing { missing, waited },
                });
            } else if !late && (heard || !patient || silent >= self.params.timeout) {
                // An aggregator that others were waited for at has the whole time-out to come back.
                self.fail(SessionError::Silent { waited });
            }
        }
    }

    /// When [`Self::tick`] must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        if self.failure.is_some() {
            return None;
        }
        if self.calls.front().is_some_and(|call| call.parts.is_empty()) {
            return Some(Duration::ZERO);
        }
        let data = match self.params.policy {
            Policy::Reliable => self.data.deadline(),
            Policy::BestEffort => self.data.ask_or_give_up_at(self.params.deadline),
        };
        [self.norm.deadline(), data, self.data.opens_at()].into_iter().flatten().min()
    }
}
