//! One numbered stream of packets: window, keeping, retransmission (P8, P18, P20).
//!
//! Packets lie in rings of S places whose bytes are back to back, so that a run of packets is one
//! contiguous piece of memory; or with the sender ([`Tx::pack`]). Outstanding packets form a list for each shard, in the
//! order of their last transmission; there is one timer for all.

mod loss;
mod pacer;
mod packets;
mod queue;
mod repeat;
mod results;
mod tx;
mod window;

pub use packets::PacketId;
pub use tx::Tx;

use super::rtt::Rtt;
use super::stats::StreamStats;
use crate::wire::{HEADER_LEN, Header};
use crate::{Round, SlotId, aggregator::Shard};
use packets::{Entry, Packets};
use queue::{Queue, Recovery, Suspect};
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;
use window::Window;

/// The settings of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamConfig {
    /// Slots of its class.
    pub slots: u32,
    /// Ports over which the slots are spread.
    pub shards: u8,
    /// The first seq: 0 in a new session.
    pub first_seq: u64,
    /// This worker's number and the number of workers, which say whose turn it is to ask for a seq.
    pub turns: (u8, u8),
    /// Packets that may be outstanding at first; `None` if no congestion window bounds them.
    pub first_window: Option<u64>,
    /// True if packets may lie with the [`Tx`]. Only one stream may do so.
    pub outside: bool,
}

/// The times of results, and time-outs for those that did not come.
#[derive(Debug, Default)]
struct Timing {
    timeouts: u32,
    /// Order number of the last transmission before the last time-out. Packets sent before it have waited for
    /// time-outs, here or elsewhere, and do not measure a round trip.
    last_timeout: u64,
    /// True if repeated packets carry NUDGE.
    nudging: bool,
    /// The time at which the timer was last restarted.
    since: Duration,
    /// The time at which a packet last finished, or the stream last went from idle to busy.
    progress: Duration,
    /// The time at which results that were coming will have ceased.
    probe: Option<Duration>,
}

/// Packets that seem to be lost.
#[derive(Debug)]
struct Repairs {
    /// The number of times that packets which seemed lost were only late, as far as that counts.
    reordered: u32,
    suspects: BinaryHeap<Suspect>,
    recovery: Option<Recovery>,
    /// Number of the latest recovery.
    recoveries: u64,
}

/// A stream of numbered packets to one class of slots.
#[derive(Debug)]
pub(super) struct Stream {
    shards: u8,
    turns: (u64, u64),
    outside: bool,
    /// Most packets outstanding at once, at most half of the slots.
    limit: u64,
    /// The network's part of that, where it has one.
    network: Option<Window>,
    /// The lowest seq that is not finished, and the next one to send.
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
    /// A stream with a ring for packets of each of these `strides` (bytes).
    pub fn new(config: StreamConfig, strides: impl IntoIterator<Item = usize>, rtt: Rtt) -> Stream {
        let (slots, shards, first) = (u64::from(config.slots), config.shards.max(1), config.first_seq);
        let limit = slots / 2;
        let suspects = BinaryHeap::with_capacity(2 * slots as usize);
        Stream {
            shards,
            turns: (config.turns.0.into(), config.turns.1.max(1).into()),
            outside: config.outside,
            limit,
            network: config.first_window.map(|first| Window::new(limit, first)),
            base: first,
            next: first,
            outstanding: 0,
            packets: Packets::new(slots, strides),
            queues: vec![Queue::EMPTY; usize::from(shards)],
            order: 0,
            rtt,
            timing: Timing::default(),
            repairs: Repairs { reordered: 0, suspects, recovery: None, recoveries: 0 },
            stats: StreamStats::default(),
        }
    }

    /// Bounds the packets outstanding below the window of P18 (a small receive buffer).
    pub fn set_limit(&mut self, packets: u64) {
        self.limit = packets.clamp(1, self.packets.slots / 2);
        if let Some(network) = &mut self.network {
            network.set_max_cwnd(self.limit);
        }
    }

    /// Packets that may be outstanding now, and how often congestion has made them fewer.
    pub fn open(&self) -> (u64, u64) {
        self.network.as_ref().map_or((self.limit, 0), |network| (network.packets(), network.decreases()))
    }

    /// Results with a mark so far (P46 marks).
    pub fn marks(&self) -> u64 {
        self.network.as_ref().map_or(0, Window::marks)
    }

    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Sets the round trips of other packets to the same aggregator: the shortest, and that of immediate answers.
    pub fn set_elsewhere(&mut self, shortest: Option<Duration>, answer: Option<Duration>) {
        self.rtt.set_elsewhere(shortest, answer);
    }

    /// Returns how many packets may be written now in one run: bounded by the window (P18), the end of the
    /// ring and, of several shards, the block of one (P21).
    pub fn room(&self) -> usize {
        // The credit is for seqs in a row, of which each port has its part (P41 congestion).
        let bound = (self.base + self.limit).saturating_sub(self.next);
        let open = self.network.as_ref().map_or(bound, |network| bound.min(network.room(self.outstanding)));
        let slot = self.next % self.packets.slots;
        open.min(self.row_end(slot) - slot) as usize
    }

    /// Returns how many of these packets, which would make one run, may be written now: none if the window has room
    /// for only a part of them and results under way will make more, so that runs do not become ever shorter.
    pub fn room_for(&self, run: usize) -> usize {
        let slot = self.next % self.packets.slots;
        let run = run.min((self.row_end(slot) - slot) as usize);
        let room = self.room().min(run);
        let waits = |network: &Window| network.bears(run as u64) && self.outstanding > 0;
        if room < run && self.network.as_ref().is_some_and(waits) { 0 } else { room }
    }

    /// The first slot after this one that does not follow it in its shard's memory, or the ring's end.
    fn row_end(&self, slot: u64) -> u64 {
        let (slots, block) = (self.packets.slots, u64::from(Shard::BLOCK));
        if self.shards > 1 { (slot - slot % block + block).min(slots) } else { slots }
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
            self.arm_probe(now);
        }
        let (first_slot, round) = self.packets.address(self.next);
        let first = usize::from(first_slot.0);
        let shard = self.shard(first);
        let stride = self.packets.rings[usize::from(ring)].stride;
        let sent_before = self.queues[shard].sent;
        // Packets from here on lie in the ring and have not been sent.
        let mut unsent = first;
        for i in 0..count {
            let (seq, index, place) = (self.next + i as u64, first + i, place(i));
            let slot = SlotId(index as u16);
            let mut put = |packet: &mut [u8]| {
                Header { round, slot, ..*header }.emit(packet);
                write(place, &mut packet[HEADER_LEN..]);
            };
            let outside = if self.outside { tx.pack(slot, stride) } else { None };
            let is_outside = outside.is_some();
            match outside {
                Some(packet) => {
                    put(packet);
                    self.send_ring(ring, unsent..index, shard, tx);
                    unsent = index + 1;
                    tx.send_packed(shard as u8, slot);
                }
                None => put(self.packets.bytes(ring, index..index + 1)),
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
            let queue = &mut self.queues[shard];
            queue.sent += count as u64;
            queue.push(&mut self.packets.entries, first, first + count - 1);
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

    fn send_ring(&mut self, ring: u8, packets: Range<usize>, shard: usize, tx: &mut impl Tx) {
        if !packets.is_empty() {
            let stride = self.packets.rings[usize::from(ring)].stride;
            tx.send(shard as u8, self.packets.bytes(ring, packets), stride);
        }
    }

    /// Returns when more may be sent, if sending is paced (P41 congestion).
    pub fn opens_at(&self) -> Option<Duration> {
        self.network.as_ref().and_then(|network| network.opens_at(&self.rtt))
    }

    /// Passes over up to `count` seqs without sending anything: they count as finished. Returns how many.
    pub fn pass_over(&mut self, count: usize) -> usize {
        let count = count.min(self.room());
        self.next += count as u64;
        self.advance();
        count
    }

    /// Returns the content of (slot, round), if it is outstanding.
    pub fn outstanding_packet(&self, slot: SlotId, round: Round) -> Option<PacketId> {
        self.packets.find_outstanding(slot, round).map(|index| self.packets.entries[index].place)
    }

    /// The payload that was sent to (slot, round), if it is still kept, and here.
    pub fn kept_payload(&self, slot: SlotId, round: Round) -> Option<&[u8]> {
        self.packets.kept_payload(slot, round)
    }

    /// Returns the content of the latest packet to a slot, and how many of the `most` packets from that on continue
    /// its partition.
    pub fn run_at(&self, index: usize, most: usize) -> (PacketId, usize) {
        let first = self.packets.entries[index].place;
        let follows = |(place, packet): (PacketId, u32)| place == PacketId { packet, ..first };
        let places = self.packets.entries[index..index + most].iter().map(|entry| entry.place);
        (first, places.zip(first.packet..).take_while(|&pair| follows(pair)).count())
    }

    /// The shard of the outstanding packet whose first transmission is the oldest.
    pub fn waits_at(&self) -> Option<u8> {
        self.eldest().map(|index| self.shard(index) as u8)
    }

    /// The outstanding packet whose first transmission is the oldest.
    fn eldest(&self) -> Option<usize> {
        self.is_busy().then(|| self.packets.index(self.base))
    }

    /// The shard of a slot.
    fn shard(&self, index: usize) -> usize {
        Shard::index_of(SlotId(index as u16), self.shards).into()
    }

    /// The queue of a slot's shard.
    fn queue(&mut self, index: usize) -> &mut Queue {
        let shard = self.shard(index);
        &mut self.queues[shard]
    }

    /// Returns whether anything is outstanding.
    pub fn is_busy(&self) -> bool {
        self.base < self.next
    }

    /// Returns when something last finished, or the stream last went from idle to busy.
    pub fn progress(&self) -> Duration {
        self.timing.progress
    }

    /// Time-outs in a row, as far as they still count.
    pub fn timeouts(&self) -> u32 {
        self.timing.timeouts
    }
}
