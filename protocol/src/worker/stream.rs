//! One numbered stream of packets: window, keeping, retransmission (P8, P18, P20).
//!
//! Packets live in a ring of S entries whose bytes lie back to back, so that a run of packets is one
//! contiguous piece of memory. Outstanding packets form a list in the order of their last
//! transmission; there is one timer for all.

use super::rtt::Rtt;
use crate::Round;
use crate::wire::{FLAG_NUDGE, HEADER_LEN, Header};
use crate::{SlotId, aggregator::Shard};
use std::time::Duration;

/// Transmissions after which a packet without a result counts as lost (P20).
const REORDER: u64 = 64;
/// Time-outs in a row after which repeated packets carry NUDGE (P20).
const NUDGE_AFTER: u32 = 3;
/// Doublings of the time-out that stay when a repeated packet's result comes. Some must, or a time-out
/// below the round-trip time would repeat every packet and never be corrected by a sample; all must
/// not, or a lossy network would be waited for at the longest time-out while results do come.
const KEPT_DOUBLINGS: u32 = 1;
const NIL: u32 = u32::MAX;

/// Sends packets of one shard: `contents` is a whole number of packets of `segment` bytes.
pub trait Tx {
    /// Sends a run to the shard's port.
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize);
}

/// Which of a stream's two packet lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// The usual one.
    Usual,
    /// RAW packets of a data stream.
    Raw,
}

/// Packets of one length, back to back, one place for each slot. Its memory is taken at first use.
#[derive(Debug, Default)]
struct Ring {
    stride: usize,
    bytes: Vec<u8>,
}

impl Ring {
    fn run(&mut self, first: usize, count: usize) -> &mut [u8] {
        &mut self.bytes[first * self.stride..(first + count) * self.stride]
    }
}

/// What a packet carries: which part of which call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the call in the session.
    pub call: u64,
    /// Partition of the call.
    pub partition: u32,
    /// Packet of the partition.
    pub packet: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unused,
    Outstanding,
    Finished,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    seq: u64,
    /// Order number of the last transmission.
    order: u64,
    sent: Duration,
    place: Place,
    state: State,
    /// Sent more than once.
    repeated: bool,
    /// Results have shown that a transmission of it was lost.
    lost: bool,
    /// The recovery that repeated it, by number.
    recovery: u64,
    form: Form,
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// The next seq to repeat.
    cursor: u64,
    /// The first seq that was not yet sent at the time-out.
    end: u64,
    /// How many may be repeated,
    budget: u32,
    /// but not before this time: if nothing was lost, a result of a packet not repeated comes first.
    not_before: Duration,
}

/// What happens when results that were coming cease (P20).
#[derive(Clone, Copy, Debug)]
struct Probe {
    at: Duration,
    /// How often it has struck since the last result.
    strikes: u32,
}

impl Recovery {
    fn has_more(&self) -> bool {
        self.budget > 0 && self.cursor < self.end
    }

    fn is_due(&self, now: Duration) -> bool {
        self.has_more() && now >= self.not_before
    }
}

/// Counts of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Packets sent again.
    pub repeated: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Packets given up.
    pub given_up: u64,
}

/// What [`Stream::finish`] made of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The first result of this packet.
    First(Place),
    /// Known already, or of a packet that was never sent.
    Nothing,
}

/// A stream of numbered packets to one class of slots.
#[derive(Debug)]
pub struct Stream {
    slots: u64,
    window: u64,
    /// Most packets outstanding at once, at most `window`.
    limit: u64,
    shards: u8,
    /// Whether results that cease to come are a sign of loss.
    probing: bool,
    base: u64,
    next: u64,
    entries: Vec<Entry>,
    rings: [Ring; 2],
    /// Outstanding entries by last transmission, oldest first.
    head: u32,
    tail: u32,
    order: u64,
    /// Highest transmission number with a result, of packets sent once.
    answered: u64,
    rtt: Rtt,
    timeouts: u32,
    /// Order number of the last transmission before the last time-out. What was sent before that has
    /// waited for time-outs, here or elsewhere, and is no measure of a round trip.
    last_timeout: u64,
    /// Whether repeated packets carry NUDGE.
    nudging: bool,
    /// When the timer was last restarted.
    since: Duration,
    /// When something last finished, or the stream last went from idle to busy.
    progress: Duration,
    probe: Option<Probe>,
    recovery: Option<Recovery>,
    /// Number of the latest recovery.
    recoveries: u64,
    stats: StreamStats,
}

impl Stream {
    /// A stream over `slots` slots whose packets are `strides` bytes long (usual, raw) and whose
    /// first seq is `first` (0 in a new session).
    #[must_use]
    pub fn new(slots: u32, shards: u8, strides: [usize; 2], first: u64, rtt: Rtt) -> Stream {
        let empty = Entry {
            seq: 0,
            order: 0,
            sent: Duration::ZERO,
            place: Place::default(),
            state: State::Unused,
            repeated: false,
            lost: false,
            recovery: 0,
            form: Form::Usual,
            prev: NIL,
            next: NIL,
        };
        let slots = u64::from(slots);
        Stream {
            slots,
            window: slots / 2,
            limit: slots / 2,
            shards: shards.max(1),
            probing: false,
            base: first,
            next: first,
            entries: vec![empty; slots as usize],
            rings: strides.map(|stride| Ring { stride, bytes: Vec::new() }),
            head: NIL,
            tail: NIL,
            order: 0,
            answered: 0,
            rtt,
            timeouts: 0,
            last_timeout: 0,
            nudging: false,
            since: Duration::ZERO,
            progress: Duration::ZERO,
            probe: None,
            recovery: None,
            recoveries: 0,
            stats: StreamStats::default(),
        }
    }

    /// Bounds the packets outstanding below the window of P18 (a small receive buffer).
    pub fn set_limit(&mut self, packets: u64) {
        self.limit = packets.clamp(1, self.window);
    }

    /// Takes results that cease to come as a sign of loss, not of a slow worker (P20).
    pub fn set_probing(&mut self) {
        self.probing = true;
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

    /// How many packets may be written now in one run: bounded by the window (P18), the end of the
    /// ring and the shard's block (P21).
    #[must_use]
    pub fn room(&self) -> usize {
        let open = (self.base + self.limit).saturating_sub(self.next);
        let slot = self.next % self.slots;
        let block = u64::from(Shard::BLOCK);
        open.min(self.slots - slot).min(block - slot % block) as usize
    }

    /// The payload of the `i`th packet that may be written, `i < room()`.
    #[must_use]
    pub fn payload_mut(&mut self, form: Form, i: usize) -> &mut [u8] {
        let slot = (self.next % self.slots) as usize + i;
        let ring = &mut self.rings[form as usize];
        if ring.bytes.is_empty() {
            ring.bytes = vec![0; self.slots as usize * ring.stride];
        }
        &mut ring.run(slot, 1)[HEADER_LEN..]
    }

    /// Sends the next `count` packets, whose payloads have been written with [`Self::payload_mut`];
    /// `header` gives all fields but round and slot, `place` where each belongs.
    pub fn commit(
        &mut self,
        now: Duration,
        form: Form,
        count: usize,
        header: &Header,
        place: impl Fn(usize) -> Place,
        tx: &mut impl Tx,
    ) {
        if self.base == self.next {
            self.since = now;
            self.progress = now;
        }
        let first = (self.next % self.slots) as usize;
        for i in 0..count {
            let seq = self.next + i as u64;
            let index = first + i;
            let (slot, round) = self.address(seq);
            Header { round, slot, ..*header }.emit(self.rings[form as usize].run(index, 1));
            self.order += 1;
            self.entries[index] = Entry {
                seq,
                order: self.order,
                sent: now,
                place: place(i),
                state: State::Outstanding,
                repeated: false,
                lost: false,
                recovery: 0,
                form,
                prev: NIL,
                next: NIL,
            };
            self.push(index as u32);
        }
        if self.base == self.next {
            self.expect(now);
        }
        self.next += count as u64;
        self.stats.sent += count as u64;
        let ring = &mut self.rings[form as usize];
        let stride = ring.stride;
        tx.send(Shard::of(SlotId(first as u16), self.shards), ring.run(first, count), stride);
    }

    /// Passes over up to `count` seqs without sending anything: they count as finished. Returns how many.
    pub fn pass_over(&mut self, count: usize) -> usize {
        let count = count.min(self.room());
        for _ in 0..count {
            let index = (self.next % self.slots) as usize;
            // There is nothing that could be sent again.
            self.entries[index].state = State::Unused;
            self.next += 1;
        }
        self.advance();
        count
    }

    fn address(&self, seq: u64) -> (SlotId, Round) {
        (SlotId((seq % self.slots) as u16), Round((seq / self.slots) as u32))
    }

    /// The entry of (slot, round), if that seq has been sent and is still kept.
    fn find(&self, slot: SlotId, round: Round) -> Option<usize> {
        let index = usize::from(slot.0);
        let entry = self.entries.get(index)?;
        let kept = entry.state != State::Unused && self.address(entry.seq).1 == round;
        kept.then_some(index)
    }

    /// Whether (slot, round) is outstanding.
    #[must_use]
    pub fn is_outstanding(&self, slot: SlotId, round: Round) -> bool {
        self.find(slot, round).is_some_and(|i| self.entries[i].state == State::Outstanding)
    }

    /// The payload that was sent to (slot, round), if it is still kept.
    #[must_use]
    pub fn kept_payload(&self, slot: SlotId, round: Round) -> Option<&[u8]> {
        let index = self.find(slot, round)?;
        let ring = &self.rings[self.entries[index].form as usize];
        ring.bytes.get(index * ring.stride + HEADER_LEN..(index + 1) * ring.stride)
    }

    /// A result for (slot, round), of a packet of this form, has come.
    pub fn finish(&mut self, now: Duration, form: Form, slot: SlotId, round: Round) -> Finish {
        let Some(index) = self.find(slot, round) else { return Finish::Nothing };
        let entry = self.entries[index];
        if entry.state != State::Outstanding || entry.form != form {
            return Finish::Nothing;
        }
        Finish::First(self.answer(now, index))
    }

    /// The aggregator has answered an outstanding packet for good.
    fn answer(&mut self, now: Duration, index: usize) -> Place {
        let entry = self.entries[index];
        if entry.repeated {
            self.timeouts = self.timeouts.min(KEPT_DOUBLINGS);
            if let Some(recovery) = &mut self.recovery
                && entry.recovery == self.recoveries
            {
                recovery.budget = (recovery.budget + 2).min(REORDER as u32);
                recovery.not_before = now + self.rtt.grace();
            }
        } else {
            self.answered = self.answered.max(entry.order);
            if entry.order > self.last_timeout {
                self.rtt.sample(now.saturating_sub(entry.sent));
            }
            // Its only transmission got through: what was outstanding then was not lost as a whole.
            // One sent after the time-out says nothing of those before.
            if self.recovery.is_none() || entry.order <= self.last_timeout {
                self.timeouts = 0;
                self.stop_recovery();
            }
        }
        self.close(now, index);
        if self.recovery.is_some_and(|recovery| self.base >= recovery.end) {
            self.stop_recovery();
        }
        self.expect(now);
        entry.place
    }

    /// More results should come soon.
    fn expect(&mut self, now: Duration) {
        self.probe = self
            .rtt
            .silence()
            .filter(|_| self.probing)
            .map(|silence| Probe { at: now + silence, strikes: 0 });
    }

    fn stop_recovery(&mut self) {
        self.recovery = None;
        self.nudging = false;
    }

    /// A STRAGGLER for (slot, round) has come: gives that packet up, as finished.
    pub fn give_up(&mut self, now: Duration, slot: SlotId, round: Round) -> Finish {
        let Some(index) = self.find(slot, round) else { return Finish::Nothing };
        if self.entries[index].state != State::Outstanding {
            return Finish::Nothing;
        }
        self.stats.given_up += 1;
        Finish::First(self.answer(now, index))
    }

    /// Gives up one packet that was sent `age` or longer ago, the oldest first.
    pub fn give_up_older(&mut self, now: Duration, age: Duration) -> Option<Place> {
        let entry = *self.entries.get(self.head as usize)?;
        if entry.sent + age > now {
            return None;
        }
        self.stats.given_up += 1;
        self.close(now, self.head as usize);
        Some(entry.place)
    }

    fn close(&mut self, now: Duration, index: usize) {
        self.unlink(index as u32);
        self.entries[index].state = State::Finished;
        self.since = now;
        self.progress = now;
        self.advance();
    }

    fn advance(&mut self) {
        while self.base < self.next {
            let entry = &self.entries[(self.base % self.slots) as usize];
            if entry.seq == self.base && entry.state == State::Outstanding {
                break;
            }
            self.base += 1;
        }
    }

    /// Somebody waits for (slot, round): sends that packet again if it is kept (P20). Whether it was.
    pub fn resend_kept(&mut self, slot: SlotId, round: Round, tx: &mut impl Tx) -> bool {
        let Some(index) = self.find(slot, round) else { return false };
        // Its result will not tell which of the transmissions it answers.
        self.entries[index].repeated = true;
        self.transmit(index, 0, tx);
        true
    }

    /// Repeats what P20 says must be repeated by now. Call it after each burst of results and when
    /// [`Self::deadline`] has passed.
    pub fn repeat(&mut self, now: Duration, tx: &mut impl Tx) {
        // Lost by order: results have come for packets sent well after these.
        while self.head != NIL {
            let index = self.head as usize;
            if self.entries[index].order + REORDER * u64::from(self.shards) > self.answered {
                break;
            }
            self.entries[index].lost = true;
            self.again(now, index, tx);
        }
        if self.base < self.next && self.probe.is_some_and(|probe| probe.at <= now) {
            self.probe(now, tx);
        }
        if self.timeout().is_some_and(|timeout| timeout <= now) {
            self.timeouts += 1;
            self.last_timeout = self.order;
            self.nudging |= self.timeouts >= NUDGE_AFTER;
            self.stats.timeouts += 1;
            self.since = now;
            self.recoveries += 1;
            self.recovery = Some(Recovery { cursor: self.base, end: self.next, budget: 1, not_before: now });
        }
        while let Some(recovery) = self.recovery.as_mut().filter(|recovery| recovery.is_due(now)) {
            let index = (recovery.cursor % self.slots) as usize;
            let open = self.entries[index].state == State::Outstanding;
            recovery.cursor += 1;
            recovery.budget -= u32::from(open);
            if open {
                self.entries[index].recovery = self.recoveries;
                self.again(now, index, tx);
            }
        }
    }

    /// Results have ceased to come: what was sent before something answered is lost, however little
    /// before; and if there is nothing of the sort, the lowest may be lost, once.
    fn probe(&mut self, now: Duration, tx: &mut impl Tx) {
        let (Some(probe), Some(silence)) = (self.probe, self.rtt.silence()) else { return };
        let mut any = false;
        let mut next = self.head;
        while let Some(entry) =
            self.entries.get_mut(next as usize).filter(|entry| entry.sent + silence <= now)
        {
            let index = next as usize;
            next = entry.next;
            entry.lost |= entry.order < self.answered;
            if entry.lost {
                any = true;
                self.again(now, index, tx);
            }
        }
        if !any && probe.strikes == 0 && self.recovery.is_none() {
            self.again(now, (self.base % self.slots) as usize, tx);
        }
        let strikes = probe.strikes + 1;
        self.probe = any.then(|| Probe { at: now + silence * (1 << strikes.min(8)), strikes });
    }

    fn again(&mut self, now: Duration, index: usize, tx: &mut impl Tx) {
        self.unlink(index as u32);
        self.order += 1;
        let entry = &mut self.entries[index];
        entry.order = self.order;
        entry.sent = now;
        entry.repeated = true;
        self.push(index as u32);
        let flags = if self.nudging { FLAG_NUDGE } else { 0 };
        self.transmit(index, flags, tx);
    }

    fn transmit(&mut self, index: usize, flags: u8, tx: &mut impl Tx) {
        self.stats.repeated += 1;
        let packet = self.rings[self.entries[index].form as usize].run(index, 1);
        packet[2] = flags;
        tx.send(Shard::of(SlotId(index as u16), self.shards), packet, packet.len());
    }

    /// When [`Self::repeat`] has something to do, if anything is outstanding.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let timeout = self.timeout()?;
        let recovery = self.recovery.filter(Recovery::has_more).map(|recovery| recovery.not_before);
        let probe = self.probe.map(|probe| probe.at);
        [Some(timeout), recovery, probe].into_iter().flatten().min()
    }

    /// When the time-out strikes, if anything is outstanding.
    fn timeout(&self) -> Option<Duration> {
        (self.base < self.next).then(|| self.since + self.rtt.timeout(self.timeouts))
    }

    /// When the oldest packet was sent that is outstanding.
    #[must_use]
    pub fn oldest(&self) -> Option<Duration> {
        self.entries.get(self.head as usize).map(|entry| entry.sent)
    }

    /// When something last finished, or the stream last went from idle to busy, if anything is outstanding.
    #[must_use]
    pub fn progress(&self) -> Option<Duration> {
        (self.base < self.next).then_some(self.progress)
    }

    /// Time-outs in a row, as far as they still count.
    #[must_use]
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    fn push(&mut self, index: u32) {
        let tail = std::mem::replace(&mut self.tail, index);
        let entry = &mut self.entries[index as usize];
        entry.prev = tail;
        entry.next = NIL;
        match self.entries.get_mut(tail as usize) {
            Some(last) => last.next = index,
            None => self.head = index,
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry { prev, next, .. } = self.entries[index as usize];
        match self.entries.get_mut(prev as usize) {
            Some(entry) => entry.next = next,
            None => self.head = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(entry) => entry.prev = prev,
            None => self.tail = prev,
        }
    }
}
