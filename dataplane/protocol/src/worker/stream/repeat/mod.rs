//! When packets are sent again (P20).
//!
//! There are three signs of loss: results of packets that were sent well after one; results that cease to
//! come; and a time-out in which nothing comes, after which everything outstanding may be lost.
//!
//! All workers see that a sum does not come, and none knows whose packet it lacks. So for each seq one worker
//! asks, by repeating its own packet with NUDGE, and the aggregator tells the missing worker. The others wait
//! for that, and repeat only what it does not bring: a result that they alone have lost (P40).

mod order;
mod suspect;

use super::queue::{Queue, Recovery, Timer};
use super::ring::{Entry, LossState, PacketId, Repair, State};
use super::{Stream, Tx};
use crate::aggregator::Shard;
use crate::wire::{FLAG_NUDGE, Header};
use crate::{Round, SlotId};
use std::cmp::Reverse;
use std::time::Duration;

/// Transmissions to a shard after which a packet without a result counts as lost (P20): at most so many, and
/// at most this part of what may be outstanding there, since otherwise the last packets of a window would
/// never be overtaken; but at least so many.
const REORDER: u64 = 16;
/// Most that a recovery may repeat at a time.
const BUDGET: u32 = 64;
const REORDER_PART: u64 = 8;
const REORDER_MIN: u64 = 3;
/// How often that may double if a network changes the order of packets.
const REORDER_DOUBLINGS: u32 = 2;
/// So many tries for the result of a packet that seems lost lengthen the wait for the next one.
const MAX_TRIES: u8 = 12;
/// Time-outs in a row after which repeated packets carry NUDGE (P20).
const NUDGE_AFTER: u32 = 3;
/// Doublings of the time-out that stay when a repeated packet's result comes. Some must, or a time-out
/// below the round-trip time would repeat every packet and never be corrected by a sample; all must
/// not, or a lossy network would be waited for at the longest time-out while results do come.
const KEPT_DOUBLINGS: u32 = 1;

impl Stream {
    /// The aggregator has answered an outstanding packet for good, with a mark or without (P46).
    pub(super) fn answer(&mut self, now: Duration, index: usize, marked: bool) -> PacketId {
        let (entry, loss) = (self.packets.entries[index], self.loss(index));
        self.note_order(now, &entry, &loss);
        // An answer to what this worker has repeated alone: there was a result, and it was lost on its way here.
        let waited = now.saturating_sub(entry.send_time());
        let alone = loss.repair == Repair::Own && self.rtt.is_round_trip(waited);
        // Who asks would have been told if it had been another's; the result may have come of itself to who does not.
        let asks = self.asks(index);
        if alone && asks && loss.tries <= 1 {
            self.rtt.add_answer(waited);
        }
        let crowded = self.rtt.is_crowded();
        if let Some(network) = &mut self.network {
            network.handle_results(entry.seq, 1, self.next, marked);
            // Without later results, workers or servers may only have had no time for it.
            if alone && loss.overtaken && (asks || crowded) {
                network.handle_loss(crowded);
            }
        }
        let queue = self.queue(index);
        queue.asked = 0;
        if entry.number > queue.answered {
            (queue.answered, queue.answered_at) = (entry.number, now);
        }
        if entry.repeated {
            self.timing.timeouts = self.timing.timeouts.min(KEPT_DOUBLINGS);
            if let Some(recovery) = &mut self.repairs.recovery
                && loss.recovery == self.repairs.recoveries
            {
                recovery.budget = (recovery.budget + 2).min(BUDGET);
                recovery.not_before = now + self.rtt.grace();
            }
        } else {
            if entry.order > self.timing.last_timeout {
                self.rtt.sample(now.saturating_sub(entry.send_time()), 1);
            }
            self.note_first_got_through(entry.order);
        }
        self.close(now, index, index);
        self.go_on(now);
        entry.place
    }

    /// The same for up to `count` packets of this ring in consecutive slots, whose results have come
    /// together, as far as each was sent once and they are outstanding in order. Returns how many those are;
    /// pass the others to [`Self::answer`].
    ///
    /// Only the round trip of the last is measured: the others have waited for it.
    pub(super) fn answer_run(
        &mut self,
        now: Duration,
        ring: u8,
        index: usize,
        count: usize,
        marked: bool,
    ) -> usize {
        let end = (index + count).min(self.row_end(index as u64) as usize);
        let Some(&first) = self.packets.entries.get(index) else { return 0 };
        let mut last = first;
        let mut taken = 0;
        for entry in &self.packets.entries[index..end] {
            let linked = taken == 0 || last.next as usize == index + taken;
            let follows = entry.seq == first.seq + taken as u64 && linked;
            if !follows || !entry.awaits(ring) {
                break;
            }
            last = *entry;
            taken += 1;
        }
        if taken == 0 {
            return 0;
        }
        if let Some(network) = &mut self.network {
            network.handle_results(first.seq, taken as u32, self.next, marked);
        }
        let queue = self.queue(index);
        queue.asked = 0;
        if last.number > queue.answered {
            (queue.answered, queue.answered_at) = (last.number, now);
        }
        if last.order > self.timing.last_timeout {
            self.rtt.sample(now.saturating_sub(last.send_time()), taken as u32);
        }
        self.note_first_got_through(first.order);
        self.close(now, index, index + taken - 1);
        self.go_on(now);
        taken
    }

    /// The only transmission of a packet got through, so not everything that was outstanding then was lost. A
    /// packet sent after the time-out says nothing of those before.
    fn note_first_got_through(&mut self, order: u64) {
        if self.repairs.recovery.is_none() || order <= self.timing.last_timeout {
            self.timing.timeouts = 0;
            self.stop_recovery();
        }
    }

    /// Something has finished.
    fn go_on(&mut self, now: Duration) {
        if self.repairs.recovery.is_some_and(|recovery| self.base >= recovery.end) {
            self.stop_recovery();
        }
        self.expect(now);
    }

    /// What is known of a packet beside its entry.
    pub(super) fn loss(&self, index: usize) -> LossState {
        let entry = &self.packets.entries[index];
        if entry.repeated { self.packets.losses[index] } else { LossState::new(entry.send_time()) }
    }

    /// The same, mutably. From now on its result does not tell which of the transmissions it answers.
    pub(super) fn loss_mut(&mut self, index: usize) -> &mut LossState {
        let entry = &mut self.packets.entries[index];
        if !entry.repeated {
            entry.repeated = true;
            self.packets.losses[index] = LossState::new(entry.send_time());
        }
        &mut self.packets.losses[index]
    }

    /// More results should come soon.
    pub(super) fn expect(&mut self, now: Duration) {
        self.timing.probe = self.options.probing.then(|| now + self.rtt.silence());
    }

    fn stop_recovery(&mut self) {
        self.repairs.recovery = None;
        self.timing.nudging = false;
    }

    /// Somebody waits for (slot, round): sends that packet again if it is kept (P20). Returns whether it was.
    pub fn resend_kept(
        &mut self,
        now: Duration,
        slot: SlotId,
        round: Round,
        flags: u8,
        tx: &mut impl Tx,
    ) -> bool {
        let Some(index) = self.find(slot, round) else { return false };
        let entry = self.packets.entries[index];
        if entry.state == State::Outstanding {
            // What has just been sent may still be on its way, and so may what nothing sent later has overtaken.
            let crowded = self.rtt.is_crowded();
            if self.rtt.is_round_trip(now.saturating_sub(entry.send_time()))
                && entry.number < self.queue(index).answered
                && let Some(network) = &mut self.network
            {
                network.handle_loss(crowded);
            }
            self.requeue(now, index);
        }
        self.transmit(index, flags, tx);
        true
    }

    /// The aggregator has this packet of (slot, round), and waits for others': there is nothing to repeat.
    pub fn note_seen(&mut self, now: Duration, slot: SlotId, round: Round) {
        if let Some(index) = self.find(slot, round)
            && self.packets.entries[index].state == State::Outstanding
        {
            self.loss_mut(index).repair = Repair::Others;
            self.requeue(now, index);
            self.count_try(index);
            self.look_again(now, index);
        }
    }

    /// Somebody waits for (slot, round): whoever serves that shard is there.
    pub fn note_served(&mut self, slot: SlotId) {
        if usize::from(slot.0) < self.packets.entries.len() {
            self.queue(slot.0.into()).asked = 0;
        }
    }

    /// The NUDGE for which this worker asked has come: a round trip without waiting.
    pub fn note_answer(&mut self, now: Duration, slot: SlotId, round: Round) {
        if let Some(index) = self.find(slot, round)
            && self.packets.entries[index].repeated
            && let Some(asked) = self.packets.losses[index].asked.take()
        {
            self.rtt.add_answer(now.saturating_sub(asked));
        }
    }

    fn count_try(&mut self, index: usize) {
        let tries = &mut self.loss_mut(index).tries;
        *tries = (*tries + 1).min(MAX_TRIES);
    }

    /// Whether this worker is the one to ask for (slot, round), which it has sent (P40).
    #[must_use]
    pub fn asks_for(&self, slot: SlotId, round: Round) -> bool {
        self.find(slot, round).is_some_and(|index| self.asks(index))
    }

    fn asks(&self, index: usize) -> bool {
        let (worker, workers) = self.options.turns;
        self.packets.entries[index].seq % workers == worker
    }

    /// Later transmissions to a shard with results that show a loss.
    fn reorder(&self) -> u64 {
        let share = self.open().0 / u64::from(self.shards);
        let usual = (share / REORDER_PART).clamp(REORDER_MIN, REORDER);
        (usual << self.repairs.reordered).min((share / 2).max(REORDER_MIN))
    }

    /// A result that comes so soon after a sign of loss that nothing can have been done about it shows that nothing
    /// was lost: the network changes the order.
    fn note_order(&mut self, now: Duration, entry: &Entry, loss: &LossState) {
        let at_once = |shortest: Duration| now.saturating_sub(entry.send_time()) < shortest / 2;
        if loss.overtaken && loss.tries <= 1 && self.rtt.shortest().is_some_and(at_once) {
            self.repairs.reordered = (self.repairs.reordered + 1).min(REORDER_DOUBLINGS);
        }
    }

    /// How long after a result, without one of a later packet, the packets sent before it count as lost.
    fn settling_time(&self) -> Duration {
        self.rtt.settling_time() * (1 << self.repairs.reordered)
    }

    /// The first seq from this one on whose slot is the shard's.
    fn in_shard(&self, mut seq: u64, shard: usize) -> u64 {
        while seq < self.next
            && usize::from(Shard::index_of(SlotId((seq % self.slots) as u16), self.shards)) != shard
        {
            let slot = seq % self.slots;
            let block = u64::from(Shard::BLOCK);
            seq += (block - slot % block).min(self.slots - slot);
        }
        seq
    }

    /// The first packet of a shard that no result is known to have overtaken.
    fn first_unchecked(&mut self, shard: usize) -> Option<usize> {
        let mut seq = self.queues[shard].checked.max(self.base);
        loop {
            seq = self.in_shard(seq, shard);
            if seq >= self.next || self.is_unchecked(seq) {
                break;
            }
            seq += 1;
        }
        self.queues[shard].checked = seq;
        (seq < self.next).then_some((seq % self.slots) as usize)
    }

    /// Whether a seq is outstanding and not known to be overtaken.
    fn is_unchecked(&self, seq: u64) -> bool {
        let index = (seq % self.slots) as usize;
        let entry = &self.packets.entries[index];
        let open = entry.seq == seq && entry.state == State::Outstanding;
        open && !(entry.repeated && self.packets.losses[index].overtaken)
    }

    /// Lost by order: results have come for packets that were sent after these. All workers send in the same
    /// order, so every worker in such a result had sent these before.
    pub(super) fn repeat_overtaken(&mut self, now: Duration, tx: &mut impl Tx) {
        if let Some(network) = &mut self.network {
            network.tick(now, &self.rtt);
        }
        let (reorder, settling) = (self.reorder(), self.settling_time());
        for shard in 0..usize::from(self.shards) {
            let Queue { answered, answered_at, .. } = self.queues[shard];
            let margin = if answered_at + settling <= now { 1 } else { reorder };
            while let Some(index) = self.first_unchecked(shard)
                && self.packets.entries[index].number + margin <= answered
            {
                self.loss_mut(index).overtaken = true;
                self.suspect_loss(now, index, tx);
            }
        }
        while let Some(&Reverse((at, seq))) = self.repairs.suspects.peek()
            && at <= now
        {
            self.repairs.suspects.pop();
            let index = (seq % self.slots) as usize;
            let entry = &self.packets.entries[index];
            if entry.seq != seq || entry.state != State::Outstanding || self.loss(index).listed != Some(at) {
                continue;
            }
            let loss = self.loss_mut(index);
            loss.listed = None;
            if loss.due <= now {
                self.ask(now, index, tx);
            } else {
                self.list(index);
            }
        }
    }

    /// Repeats what P20 says must be repeated by now. Call it after each burst of results and when
    /// [`Self::deadline`] has passed.
    pub fn repeat(&mut self, now: Duration, tx: &mut impl Tx) {
        self.repeat_overtaken(now, tx);
        if self.is_due(Timer::Probe, now) {
            self.probe(now, tx);
        }
        if self.is_due(Timer::Timeout, now) {
            self.timing.timeouts += 1;
            self.timing.last_timeout = self.order;
            self.timing.nudging |= self.timing.timeouts >= NUDGE_AFTER;
            self.stats.timeouts += 1;
            self.timing.since = now;
            self.repairs.recoveries += 1;
            self.repairs.recovery =
                Some(Recovery { cursor: self.base, end: self.next, budget: 1, not_before: now });
        }
        while self.is_due(Timer::Recovery, now)
            && let Some(recovery) = &mut self.repairs.recovery
        {
            let index = (recovery.cursor % self.slots) as usize;
            let open = self.packets.entries[index].state == State::Outstanding;
            recovery.cursor += 1;
            recovery.budget -= u32::from(open);
            if open {
                self.loss_mut(index).recovery = self.repairs.recoveries;
                self.resend(now, index, 0, tx);
            }
        }
    }

    /// Results have ceased to come. Packets that were sent before an answered one are known to be lost; the
    /// rest may be. So the lowest is asked for, and once the last, whose result would tell of all others.
    fn probe(&mut self, now: Duration, tx: &mut impl Tx) {
        self.timing.probe = None;
        let lowest = (self.base % self.slots) as usize;
        if self.repairs.recovery.is_some() || self.loss(lowest).repair != Repair::None {
            return;
        }
        self.suspect_loss(now, lowest, tx);
        let last = ((self.next - 1) % self.slots) as usize;
        let Entry { seq, state, .. } = self.packets.entries[last];
        let untouched = state == State::Outstanding && self.loss(last).repair == Repair::None;
        if seq + 1 == self.next && untouched && self.asks(last) {
            self.resend(now, last, FLAG_NUDGE, tx);
        }
    }

    /// Sends a packet again, with these flags and whatever time-outs add.
    pub(super) fn resend(&mut self, now: Duration, index: usize, flags: u8, tx: &mut impl Tx) {
        self.requeue(now, index);
        let flags = if self.timing.nudging { flags | FLAG_NUDGE } else { flags };
        self.transmit(index, flags, tx);
    }

    /// Moves a packet behind all that have been sent, as if it had been sent again, so that only later
    /// transmissions count for it from now on.
    fn requeue(&mut self, now: Duration, index: usize) {
        self.loss_mut(index);
        self.unlink(index, index);
        self.order += 1;
        let entry = &mut self.packets.entries[index];
        entry.order = self.order;
        entry.set_sent(now);
        self.push(index, index);
    }

    fn transmit(&mut self, index: usize, flags: u8, tx: &mut impl Tx) {
        self.stats.repeated += 1;
        let slot = SlotId(index as u16);
        let shard = Shard::index_of(slot, self.shards);
        let Entry { ring, outside, .. } = self.packets.entries[index];
        if outside {
            tx.repeat_packed(shard, slot, flags);
        } else {
            let packet = self.packets.rings[usize::from(ring)].packets(self.slots, index..index + 1);
            Header::set_flags(packet, flags);
            tx.send(shard, packet, packet.len());
        }
    }

    /// When this is due, while anything is outstanding.
    pub(super) fn due_at(&self, timer: Timer) -> Option<Duration> {
        if !self.is_busy() {
            return None;
        }
        match timer {
            Timer::Timeout => Some(self.timing.since + self.rtt.timeout(self.timing.timeouts)),
            Timer::Recovery => {
                self.repairs.recovery.filter(Recovery::has_more).map(|recovery| recovery.not_before)
            }
            Timer::Probe => self.timing.probe,
            Timer::Suspect => self.repairs.suspects.peek().map(|Reverse((at, _))| *at),
            Timer::Settled => self.settled_at(),
        }
    }

    fn is_due(&self, timer: Timer, now: Duration) -> bool {
        self.due_at(timer).is_some_and(|at| at <= now)
    }

    /// When [`Self::repeat`] has something to do, if anything is outstanding.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        Timer::ALL.into_iter().filter_map(|timer| self.due_at(timer)).min()
    }

    /// When packets before the last results will be lost, if no later ones come.
    fn settled_at(&self) -> Option<Duration> {
        let waits = |queue: &&Queue| {
            let number = self.packets.entries[(queue.checked % self.slots) as usize].number;
            self.is_unchecked(queue.checked) && number < queue.answered
        };
        let at = self.queues.iter().filter(waits).map(|queue| queue.answered_at).min()?;
        Some(at + self.settling_time())
    }

    /// When more may be sent, if sending is paced (P41).
    pub fn opens_at(&self) -> Option<Duration> {
        self.network.as_ref().and_then(|network| network.opens_at(&self.rtt))
    }

    /// Whether packets with NUDGE have been sent and nothing has come for a time-out.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.is_busy() && self.timing.timeouts > NUDGE_AFTER
    }
}
