//! One numbered stream of packets: window, keeping, retransmission (P8, P18, P20).
//!
//! Packets live in a ring of S entries whose bytes lie back to back, so that a run of packets is one
//! contiguous piece of memory; or with whoever sends them ([`Tx::pack`]). Outstanding packets form a list in the
//! order of their last transmission; there is one timer for all.

mod loss;
mod pacer;
mod queue;
mod repeat;
mod ring;
mod room;
mod tx;
mod window;

pub use ring::PacketId;
pub use tx::Tx;

use super::rtt::Rtt;
use super::stats::StreamStats;
use crate::wire::{HEADER_LEN, Header};
use crate::{Round, SlotId, aggregator::Shard};
use queue::{Queue, Recovery, Suspect};
use ring::{Entry, LossState, Ring, State};
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;
use window::Window;

/// What [`Stream::finish`] made of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The first result of this packet.
    First(PacketId),
    /// Known already, or of a packet that was never sent.
    Nothing,
}

/// How a worker uses a stream.
#[derive(Debug)]
struct Options {
    /// This worker's number and the number of workers, which tell whose turn it is to ask for a seq.
    turns: (u64, u64),
    /// Whether results that cease to come are a sign of loss.
    probing: bool,
    /// Whether packets may lie outside, with the [`Tx`].
    outside: bool,
}

/// What was sent, by slot.
#[derive(Debug)]
struct Packets {
    entries: Vec<Entry>,
    /// Details of the entries that are `repeated`.
    losses: Vec<LossState>,
    /// For each slot, the round whose sum came before its packet was sent.
    foreseen: Vec<Option<Round>>,
    /// One for each thing that packets can travel as.
    rings: Vec<Ring>,
}

/// When results came, and time-outs for those that did not.
#[derive(Debug, Default)]
struct Timing {
    timeouts: u32,
    /// Order number of the last transmission before the last time-out. Packets sent before it have waited for
    /// time-outs, here or elsewhere, and do not measure a round trip.
    last_timeout: u64,
    /// Whether repeated packets carry NUDGE.
    nudging: bool,
    /// When the timer was last restarted.
    since: Duration,
    /// When something last finished, or the stream last went from idle to busy.
    progress: Duration,
    /// When results that were coming will have ceased to.
    probe: Option<Duration>,
}

/// Packets that seem to be lost.
#[derive(Debug)]
struct Repairs {
    /// How often packets that seemed lost were only late, as far as that counts.
    reordered: u32,
    suspects: BinaryHeap<Suspect>,
    recovery: Option<Recovery>,
    /// Number of the latest recovery.
    recoveries: u64,
}

/// A stream of numbered packets to one class of slots.
#[derive(Debug)]
pub struct Stream {
    slots: u64,
    shards: u8,
    options: Options,
    /// Most packets outstanding at once, at most half of the slots (P18).
    limit: u64,
    /// The network's part of that (P41), where it has one.
    network: Option<Window>,
    base: u64,
    next: u64,
    /// Packets without a result.
    outstanding: u64,
    packets: Packets,
    /// The queue of each shard.
    queues: Vec<Queue>,
    /// Transmissions so far.
    order: u64,
    rtt: Rtt,
    timing: Timing,
    repairs: Repairs,
    stats: StreamStats,
}

impl Stream {
    /// A stream over `slots` slots, with a ring for packets of each of these `strides` (bytes), whose first seq is `first` (0 in
    /// a new session).
    #[must_use]
    pub fn new(
        slots: u32,
        shards: u8,
        strides: impl IntoIterator<Item = usize>,
        first: u64,
        rtt: Rtt,
    ) -> Stream {
        let slots = u64::from(slots);
        Stream {
            slots,
            shards: shards.max(1),
            options: Options { turns: (0, 1), probing: false, outside: false },
            limit: slots / 2,
            network: None,
            base: first,
            next: first,
            outstanding: 0,
            packets: Packets {
                entries: vec![Entry::empty(); slots as usize],
                losses: vec![LossState::new(Duration::ZERO); slots as usize],
                foreseen: vec![None; slots as usize],
                rings: strides.into_iter().map(|stride| Ring { stride, bytes: Vec::new() }).collect(),
            },
            queues: vec![Queue::default(); usize::from(shards.max(1))],
            order: 0,
            rtt,
            timing: Timing::default(),
            repairs: Repairs {
                reordered: 0,
                suspects: BinaryHeap::with_capacity(2 * slots as usize),
                recovery: None,
                recoveries: 0,
            },
            stats: StreamStats::default(),
        }
    }

    /// Bounds the packets outstanding below the window of P18 (a small receive buffer).
    pub fn set_limit(&mut self, packets: u64) {
        self.limit = packets.clamp(1, self.slots / 2);
        if let Some(network) = &mut self.network {
            network.set_max_cwnd(self.limit);
        }
    }

    /// Sends no more than the network bears (P41), so many packets at first.
    pub fn set_sparing(&mut self, first: u64) {
        self.network = Some(Window::new(self.limit, first));
    }

    /// Packets that may be outstanding now, and how often congestion has made them fewer.
    #[must_use]
    pub fn open(&self) -> (u64, u64) {
        self.network.as_ref().map_or((self.limit, 0), |network| (network.packets(), network.decreases()))
    }

    /// Results with a mark so far (P46).
    #[must_use]
    pub fn marks(&self) -> u64 {
        self.network.as_ref().map_or(0, Window::marks)
    }

    /// Shares asking for lost packets with the others of so many workers.
    pub fn set_turns(&mut self, worker: u8, workers: u8) {
        self.options.turns = (worker.into(), workers.max(1).into());
    }

    /// Takes it as a sign of loss, not of a slow worker, when results cease to come (P20).
    pub fn set_probing(&mut self) {
        self.options.probing = true;
    }

    /// Leaves packets with the [`Tx`] if it has memory for them. Only one stream may do so.
    pub fn set_outside(&mut self) {
        self.options.outside = true;
    }

    /// Counts.
    #[must_use]
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// The estimator, for reports.
    #[must_use]
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Takes note of round trips of other packets to the same aggregator: the shortest, and that of immediate
    /// answers.
    pub fn note_elsewhere(&mut self, shortest: Option<Duration>, answer: Option<Duration>) {
        self.rtt.note_elsewhere(shortest, answer);
    }

    /// Writes and sends the next `count` packets, at most [`Self::room`]. They lie in this `ring`. `header`
    /// gives all fields but round and slot, `place` says where each belongs, and `write` fills a payload.
    #[allow(clippy::too_many_arguments, reason = "what makes a packet")]
    pub fn send(
        &mut self,
        now: Duration,
        ring: u8,
        count: usize,
        header: &Header,
        place: impl Fn(usize) -> PacketId,
        mut write: impl FnMut(PacketId, &mut [u8]),
        tx: &mut impl Tx,
    ) {
        if self.base == self.next {
            self.timing.since = now;
            self.timing.progress = now;
            self.expect(now);
        }
        let (first_slot, round) = self.address(self.next);
        let first = usize::from(first_slot.0);
        let shard = Shard::index_of(first_slot, self.shards);
        let stride = self.packets.rings[usize::from(ring)].stride;
        let sent_before = self.queue(first).sent;
        // Packets from here on lie in the ring and have not been sent.
        let mut unsent = first;
        for i in 0..count {
            let (seq, index, place) = (self.next + i as u64, first + i, place(i));
            let slot = SlotId(index as u16);
            let mut put = |packet: &mut [u8]| {
                Header { round, slot, ..*header }.emit(packet);
                write(place, &mut packet[HEADER_LEN..]);
            };
            let outside = if self.options.outside { tx.pack(slot, stride) } else { None };
            let is_outside = outside.is_some();
            match outside {
                Some(packet) => {
                    put(packet);
                    self.send_ring(ring, unsent..index, shard, tx);
                    unsent = index + 1;
                    tx.send_packed(shard, slot);
                }
                None => put(self.packets.rings[usize::from(ring)].packets(self.slots, index..index + 1)),
            }
            self.order += 1;
            let number = sent_before + i as u64 + 1;
            self.packets.entries[index] = Entry {
                outside: is_outside,
                late: self.packets.foreseen[index] == Some(round),
                prev: index.wrapping_sub(1) as u32,
                next: index as u32 + 1,
                ..Entry::new(seq, self.order, number, now, place, ring)
            };
        }
        if count > 0 {
            self.queue(first).sent += count as u64;
            self.push(first, first + count - 1);
        }
        self.send_ring(ring, unsent..first + count, shard, tx);
        tx.flush();
        self.next += count as u64;
        self.outstanding += count as u64;
        if let Some(network) = &mut self.network {
            network.count_sent(count as u64, self.outstanding >= network.packets());
        }
        self.stats.sent += count as u64;
    }

    fn send_ring(&mut self, ring: u8, packets: Range<usize>, shard: u8, tx: &mut impl Tx) {
        if !packets.is_empty() {
            let ring = &mut self.packets.rings[usize::from(ring)];
            let stride = ring.stride;
            tx.send(shard, ring.packets(self.slots, packets), stride);
        }
    }

    /// Passes over up to `count` seqs without sending anything: they count as finished. Returns how many.
    pub fn pass_over(&mut self, count: usize) -> usize {
        let count = count.min(self.room());
        self.next += count as u64;
        self.advance();
        count
    }

    fn address(&self, seq: u64) -> (SlotId, Round) {
        (SlotId((seq % self.slots) as u16), Round((seq / self.slots) as u32))
    }

    /// The entry of (slot, round), if that seq has been sent and is still kept.
    fn find(&self, slot: SlotId, round: Round) -> Option<usize> {
        let index = usize::from(slot.0);
        let entry = self.packets.entries.get(index)?;
        // Without a division, where rounds have not wrapped.
        let seq = u64::from(round.0) * self.slots + u64::from(slot.0);
        let same = entry.seq == seq || self.address(entry.seq).1 == round;
        (entry.state != State::Unused && same).then_some(index)
    }

    /// What (slot, round) carries, if it is outstanding.
    #[must_use]
    pub fn outstanding_packet(&self, slot: SlotId, round: Round) -> Option<PacketId> {
        let entry = self.packets.entries[self.find(slot, round)?];
        (entry.state == State::Outstanding).then_some(entry.place)
    }

    /// The payload that was sent to (slot, round), if it is still kept, and here.
    #[must_use]
    pub fn kept_payload(&self, slot: SlotId, round: Round) -> Option<&[u8]> {
        let index = self.find(slot, round).filter(|&index| !self.packets.entries[index].outside)?;
        let ring = &self.packets.rings[usize::from(self.packets.entries[index].ring)];
        ring.bytes.get(index * ring.stride + HEADER_LEN..(index + 1) * ring.stride)
    }

    /// A result has come for (slot, round), a packet of this ring, with a mark or without (P46).
    pub fn finish(&mut self, now: Duration, ring: u8, slot: SlotId, round: Round, marked: bool) -> Finish {
        let Some(index) = self.find(slot, round) else { return Finish::Nothing };
        let entry = self.packets.entries[index];
        if entry.state != State::Outstanding || entry.ring != ring {
            return Finish::Nothing;
        }
        Finish::First(self.answer(now, index, marked))
    }

    /// Results for up to `count` packets of this ring, in consecutive slots from (slot, round) on, have come
    /// together. Returns how many are now finished; pass the others to [`Self::finish`].
    pub fn finish_run(
        &mut self,
        now: Duration,
        ring: u8,
        (slot, round): (SlotId, Round),
        count: usize,
        marked: bool,
    ) -> usize {
        self.find(slot, round).map_or(0, |index| self.answer_run(now, ring, index, count, marked))
    }

    /// Whether [`Self::finish_run`] would take a result for (slot, round).
    #[must_use]
    pub fn awaits(&self, ring: u8, slot: SlotId, round: Round) -> bool {
        self.find(slot, round).is_some_and(|index| self.packets.entries[index].awaits(ring))
    }

    /// What the latest packet to a slot carries, and how many of the `most` packets from there on continue
    /// its partition.
    #[must_use]
    pub fn run_at(&self, index: usize, most: usize) -> (PacketId, usize) {
        let first = self.packets.entries[index].place;
        let follows = |(place, packet): (PacketId, u32)| place == PacketId { packet, ..first };
        let places = self.packets.entries[index..index + most].iter().map(|entry| entry.place);
        (first, places.zip(first.packet..).take_while(|&pair| follows(pair)).count())
    }

    /// The shard of the outstanding packet whose first transmission is the oldest.
    #[must_use]
    pub fn waits_at(&self) -> Option<u8> {
        self.eldest().map(|index| Shard::index_of(SlotId(index as u16), self.shards))
    }

    /// The outstanding packet whose first transmission is the oldest.
    fn eldest(&self) -> Option<usize> {
        self.is_busy().then_some((self.base % self.slots) as usize)
    }

    /// Packets that are linked to each other are finished.
    fn close(&mut self, now: Duration, first: usize, last: usize) {
        self.unlink(first, last);
        self.outstanding -= (last - first + 1) as u64;
        self.packets.entries[first..=last].iter_mut().for_each(|entry| entry.state = State::Finished);
        self.timing.since = now;
        self.timing.progress = now;
        self.advance();
    }

    fn advance(&mut self) {
        while self.base < self.next {
            let entry = &self.packets.entries[(self.base % self.slots) as usize];
            if entry.seq == self.base && entry.state == State::Outstanding {
                break;
            }
            self.base += 1;
        }
    }

    /// Whether anything is outstanding.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.base < self.next
    }

    /// When something last finished, or the stream last went from idle to busy.
    #[must_use]
    pub fn progress(&self) -> Duration {
        self.timing.progress
    }

    /// Time-outs in a row, as far as they still count.
    #[must_use]
    pub fn timeouts(&self) -> u32 {
        self.timing.timeouts
    }
}
