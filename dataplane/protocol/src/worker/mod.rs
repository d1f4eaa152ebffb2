//! The worker's side: calls, norms, windows, retransmission (P4, P14, P18–P20). Bytes and the
//! time go in; packets to send and events come out. Nothing is allocated per packet.

mod answers;
mod call;
mod error;
mod loss;
mod missing;
mod nudges;
mod parameters;
mod ports;
mod rtt;
mod sending;
mod stats;
mod stream;
mod waited;

pub use call::{CallSpec, PartSpec};
pub use error::{CallError, OfRacks, SessionError, Who, Workers};
pub use parameters::Parameters;
pub use ports::SharePorts;
pub use rtt::Rtt;
pub use stats::{ProtocolStats, StreamStats};
pub use stream::{PacketId, Tx};

use crate::aggregator::Shard;
use crate::wire::{HEADER_LEN, Header, Kind, NORM_LEN, RAW_LEN};
use crate::{Policy, Round, SlotId, TableId};
use call::Call;
use missing::Missing;
use std::collections::VecDeque;
use std::time::Duration;
use stream::{Stream, StreamConfig};
use waited::Waited;

/// The longest run of packets: as many as a kernel takes in one piece. With several shards, no run leaves a
/// shard's block of slots.
const RUN: usize = Shard::BLOCK as usize;

/// Norms may be outstanding for this part of the credit for data (P41 congestion).
const NORM_CREDIT: u32 = 4;

/// The events of calls. [`Worker`]'s methods call these.
pub trait Events {
    /// Every NORM_RESULT of a call is in: the maximum for each partition, f32 bits. A partition
    /// with 0 needs no data; its result is zero.
    fn norms(&mut self, call: u64, maxima: &mut dyn Iterator<Item = u32>);
    /// The others have gone on by quorum without this worker's norm of a partition. It sends nothing of the
    /// partition, and [`Events::norms`], which is called later, reports the maximum 0.
    fn left_out(&mut self, call: u64, partition: u32) {
        let _ = (call, partition);
    }
    /// The sums of one packet over `result.count` workers, as in its RESULT.
    fn result(&mut self, place: PacketId, result: &Header, sums: &[u8]);
    /// The sums of several packets: that at `place` and those that follow it in its partition. `packets` are
    /// their RESULTs, each of `segment` bytes with its header; `first` is the header of the first. The other
    /// headers differ from it only in the slot, which increases by one.
    fn results(&mut self, place: PacketId, first: &Header, packets: &[u8], segment: usize) {
        for (packet, i) in packets.chunks_exact(segment).zip(0..) {
            let result = Header { slot: SlotId(first.slot.0 + i), ..*first };
            let place = PacketId { packet: place.packet + u32::from(i), ..place };
            self.result(place, &result, &packet[HEADER_LEN..]);
        }
    }
    /// This packet's coordinates count as zero. `sent` is its payload, which is in no sum that this worker
    /// knows of; `None` if the sender keeps it ([`Tx::pack`]).
    fn packet_lost(&mut self, place: PacketId, sent: Option<&[u8]>);
    /// [`Events::result`] has reported a sum for which this packet came too late; `sent` is its payload.
    fn packet_late(&mut self, place: PacketId, sent: Option<&[u8]>);
    /// A call failed, on all workers alike.
    fn call_failed(&mut self, call: u64, error: CallError);
}

/// A worker's protocol state.
#[derive(Debug)]
pub struct Worker {
    params: Parameters,
    norm: Stream,
    data: Stream,
    /// The calls that are not all sent.
    calls: VecDeque<Call>,
    /// Number of the oldest call in `calls`.
    first_call: u64,
    /// Index into `calls` of the first whose norms are not all sent.
    norm_call: usize,
    /// The time of the last packet of the aggregator.
    heard: Duration,
    /// The time of the last tick; the time for which packets have been outstanding without progress in either stream,
    /// and the time for which the aggregator has been silent.
    ticked: Duration,
    stalled: Waited,
    silent: Waited,
    missing: Missing,
    failure: Option<SessionError>,
    /// The slot and round in which a NORM of this worker was refused.
    refused: Option<(SlotId, Round)>,
    stats: ProtocolStats,
}

impl Worker {
    /// A worker at the start of a session.
    pub fn new(params: Parameters, now: Duration) -> Worker {
        let rtt = || Rtt::new((params.min_rto * 5).min(params.max_rto), params.min_rto, params.max_rto);
        let norm_len = HEADER_LEN + NORM_LEN;
        let config = StreamConfig {
            slots: params.norm_slots,
            shards: params.shards,
            first_seq: params.first_seq,
            turns: (params.worker.0, params.workers),
            first_window: None,
            outside: false,
        };
        let mut norm = Stream::new(config, [norm_len], rtt());
        let payloads = params.tables.iter().map(|table| table.form.data_len()).chain([RAW_LEN]);
        let config = StreamConfig {
            slots: params.data_slots,
            first_window: Some(params.first_window),
            // The payload of a packet that may be given up is needed here.
            outside: !params.may_lose(),
            ..config
        };
        let mut data = Stream::new(config, payloads.map(|len| HEADER_LEN + len), rtt());
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
            heard: now,
            ticked: now,
            stalled: Waited::default(),
            silent: Waited::default(),
            missing: Missing::default(),
            failure: None,
            refused: None,
            stats: ProtocolStats::default(),
        }
    }

    /// Bounds the data packets outstanding, for a small receive buffer.
    pub fn set_limit(&mut self, packets: u64) {
        let credit = if self.params.credit > 0 { self.params.credit.into() } else { u64::MAX };
        self.data.set_limit(packets.min(credit));
    }

    /// The session's parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.params
    }

    /// Counts so far.
    pub fn stats(&self) -> ProtocolStats {
        ProtocolStats { norm: self.norm.stats(), data: self.data.stats(), ..self.stats }
    }

    /// Smoothed round-trip time of data packets.
    pub fn round_trip(&self) -> Option<Duration> {
        self.data.rtt().smoothed_rtt()
    }

    /// Data packets that may be outstanding now (P41), and how often congestion has made them fewer.
    pub fn window(&self) -> (u64, u64) {
        self.data.open()
    }

    /// Results that had a mark (P46 marks).
    pub fn marks(&self) -> u64 {
        self.data.marks()
    }

    /// Shortest of the recent round-trip times of data packets.
    pub fn shortest_round_trip(&self) -> Option<Duration> {
        self.data.rtt().shortest()
    }

    /// Returns the error that has ended the session, if one has.
    pub fn failure(&self) -> Option<SessionError> {
        self.failure
    }

    /// Ends the session.
    pub fn fail(&mut self, error: SessionError) {
        self.failure.get_or_insert(error);
    }

    /// Returns whether no call waits to be sent, and everything that was sent has its result.
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty() && !self.is_busy()
    }

    /// Workers for which the others wait, as an aggregator last reported, and for how long there has been no
    /// progress.
    pub fn waiting_for(&self) -> Option<(u64, Duration)> {
        let stalled = self.stalled.time();
        let missing = self.missing.workers();
        (missing != 0 && stalled > Duration::ZERO).then_some((missing, stalled))
    }

    /// Counts the time since the last tick.
    fn count_tick(&mut self, now: Duration) {
        let since = std::mem::replace(&mut self.ticked, now);
        let progress = self.norm.progress().max(self.data.progress());
        self.stalled.count(since, now, if self.is_busy() { progress } else { now });
        self.silent.count(since, now, self.heard);
    }

    /// The shard of the packet that has been waited for longest: of data first, since norms in flight belong
    /// to later calls.
    pub fn waits_at(&self) -> Option<u8> {
        self.data.waits_at().or_else(|| self.norm.waits_at())
    }

    /// Shards that do not answer NUDGE, and since how long (P20 retransmission, P21): that of the oldest packet in a stream
    /// in which time-outs pass, and those whose packets are given up.
    pub fn unanswered_shards(&self, now: Duration) -> impl Iterator<Item = (u8, Duration)> {
        let deaf = [&self.data, &self.norm].into_iter().filter(|s| s.is_deaf()).find_map(Stream::waits_at);
        let given_up =
            self.data.unanswered_shards().map(move |(shard, since)| (shard, now.saturating_sub(since)));
        let deaf = deaf.map(|shard| (shard, self.stalled.time()));
        deaf.into_iter().chain(given_up)
    }

    /// Returns whether the aggregator has been silent for so long that it may have lost its state (P20 retransmission).
    pub fn suspects_restart(&self, now: Duration) -> bool {
        let silent = now.saturating_sub(self.heard);
        [&self.norm, &self.data].into_iter().any(|stream| {
            let stalled = now.saturating_sub(stream.progress());
            stream.is_busy() && stream.timeouts() >= 2 && silent >= stalled.min(self.params.min_rto * 4)
        })
    }

    /// Returns when something of the session came last from the aggregator.
    pub fn last_heard(&self) -> Duration {
        self.heard
    }

    /// Returns whether anything that was sent has no result yet.
    pub fn is_busy(&self) -> bool {
        self.norm.is_busy() || self.data.is_busy()
    }

    /// The server has said which members have neither left nor ended (P25 LEAVE).
    pub fn handle_members(&mut self, now: Duration, here: u64) {
        self.heard = now;
        self.missing.left = self.params.members() & !here;
    }

    /// The aggregator's control plane has answered.
    pub fn handle_answer(&mut self, now: Duration) {
        self.heard = now;
    }

    /// Queues a call, whose norms the next [`Self::tick`] or [`Self::send_norms`] sends. Returns its number: 0, 1, ….
    pub fn submit(&mut self, spec: &CallSpec<'_>) -> u64 {
        let number = self.first_call + self.calls.len() as u64;
        self.calls.push_back(Call::new(spec, &self.params.tables));
        number
    }

    fn header(&self, kind: Kind, table: TableId) -> Header {
        Header {
            table,
            ..Header::new(kind, self.params.workers, self.params.job, self.params.worker, self.params.cookie)
        }
    }

    /// Sends what is due: norms of queued calls, repetitions; gives up what is past its deadline; and
    /// fails the session when nothing has moved for too long. Call it after each burst and when
    /// [`Self::deadline`] has passed.
    pub fn tick(&mut self, now: Duration, events: &mut impl Events, tx: &mut impl Tx) {
        if self.failure.is_some() {
            return;
        }
        self.send_norms(now, tx);
        self.norm.set_elsewhere(self.data.rtt().shortest(), self.data.rtt().answer());
        self.norm.repeat(now, tx);
        match self.params.policy {
            Policy::Reliable => self.data.repeat(now, tx),
            Policy::BestEffort => self.give_up_overdue(now, events, tx),
        }
        self.count_tick(now);
        let (waited, silent) = (self.stalled.time(), self.silent.time());
        if waited >= self.params.timeout {
            let missing = self.missing.workers() & !self.params.worker.bit();
            // An aggregator that is there has answered who asked, in the second half of the time-out at the latest (P20).
            let heard = silent < (self.params.max_rto * 4).min(waited / 4 * 3);
            let late = heard && (missing != 0 || self.missing.racks != 0);
            let patient = self.params.patience > self.params.timeout;
            if late && waited >= self.params.patience {
                self.fail(match missing {
                    0 => SessionError::MissingRacks { missing: self.missing.racks, waited },
                    _ => SessionError::Missing { missing, waited },
                });
            } else if !late && (heard || !patient || silent >= self.params.timeout) {
                // An aggregator that others were waited for at has the whole time-out to come back.
                self.fail(SessionError::Silent { waited });
            }
        }
    }

    /// Returns when [`Self::tick`] must be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        if self.failure.is_some() {
            return None;
        }
        let data = match self.params.policy {
            Policy::Reliable => self.data.deadline(),
            Policy::BestEffort => self.data.ask_or_give_up_at(self.params.deadline),
        };
        [self.norm.deadline(), data, self.data.opens_at()].into_iter().flatten().min()
    }
}
