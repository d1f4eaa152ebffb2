//! Retransmission (P20), and which worker asks for a packet (P40 who asks).
//!
//! There are three signs of loss: results of packets that were sent well after one; results that cease to
//! come; and a time-out in which nothing comes, after which everything outstanding may be lost.
//!
//! All workers see that a sum does not come, and none knows whose packet it lacks. So for each seq one worker
//! asks, by repeating its own packet with NUDGE, and the aggregator sends the missing worker a NUDGE. The others wait
//! for that, and repeat only what it does not bring: a result that they alone have lost.

use super::packets::{Entry, LossState, Repair};
use super::queue::{Queue, Recovery, Timer};
use super::{Stream, Tx};
use crate::aggregator::Shard;
use crate::wire::{FLAG_NUDGE, Header};
use crate::{Round, SlotId};
use std::cmp::Reverse;
use std::time::Duration;

/// Transmissions to a shard after which a packet without a result counts as lost (P20): at most this number, and
/// at most this part of what may be outstanding there, since otherwise the last packets of a window would
/// never be overtaken; but at least the minimum.
const REORDER: u64 = 16;
const REORDER_PART: u64 = 8;
const REORDER_MIN: u64 = 3;
/// Tries for the result of a packet that seems lost, after which the wait for the next one grows no longer.
const MAX_TRIES: u8 = 12;
/// Time-outs in a row after which repeated packets carry NUDGE (P20 retransmission).
const NUDGE_AFTER: u32 = 3;

impl Stream {
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
            let index = self.packets.index(recovery.cursor);
            let open = self.packets.is_outstanding(recovery.cursor);
            recovery.cursor += 1;
            recovery.budget -= u32::from(open);
            if open {
                self.packets.loss_mut(index).recovery = self.repairs.recoveries;
                self.resend(now, index, 0, tx);
            }
        }
    }

    /// Lost by order: results have come for packets that were sent after these. All workers send in the same
    /// order, so every worker in such a result had sent these before.
    pub(super) fn repeat_overtaken(&mut self, now: Duration, tx: &mut impl Tx) {
        if let Some(network) = &mut self.network {
            network.tick(now, &self.rtt);
        }
        let (reorder, wait) = (self.reorder(), self.reorder_time());
        for shard in 0..self.queues.len() {
            let Queue { answered, answered_at, .. } = self.queues[shard];
            let margin = if answered_at + wait <= now { 1 } else { reorder };
            while let Some(index) = self.first_unchecked(shard)
                && self.packets.entries[index].number + margin <= answered
            {
                self.packets.loss_mut(index).overtaken = true;
                self.suspect_loss(now, index, tx);
            }
        }
        while let Some(&Reverse((at, seq))) = self.repairs.suspects.peek()
            && at <= now
        {
            self.repairs.suspects.pop();
            let index = self.packets.index(seq);
            if !self.packets.is_outstanding(seq) || self.packets.loss(index).listed != Some(at) {
                continue;
            }
            let loss = self.packets.loss_mut(index);
            loss.listed = None;
            if loss.due <= now {
                self.ask(now, index, tx);
            } else {
                self.list(index);
            }
        }
    }

    /// Results have ceased to come. Packets that were sent before an answered one are known to be lost; the
    /// rest may be. So the lowest is asked for, and once the last, whose result would show the loss of all others.
    fn probe(&mut self, now: Duration, tx: &mut impl Tx) {
        self.timing.probe = None;
        let lowest = self.packets.index(self.base);
        if self.repairs.recovery.is_some() || self.packets.loss(lowest).repair != Repair::None {
            return;
        }
        self.suspect_loss(now, lowest, tx);
        let last = self.packets.index(self.next - 1);
        let untouched =
            self.packets.is_outstanding(self.next - 1) && self.packets.loss(last).repair == Repair::None;
        if untouched && self.asks(last) {
            self.resend(now, last, FLAG_NUDGE, tx);
        }
    }

    /// There is a sign that a packet was lost. If it is not the first one, what was done about it gets its
    /// round trip.
    fn suspect_loss(&mut self, now: Duration, index: usize, tx: &mut impl Tx) {
        if self.packets.loss(index).repair != Repair::None {
            self.packets.loss_mut(index).tries = 1;
            self.look_again(self.packets.entries[index].send_time(), index);
        } else if self.asks(index) {
            self.ask(now, index, tx);
        } else {
            self.packets.loss_mut(index).repair = Repair::Others;
            self.requeue(now, index);
            self.look_again(now, index);
        }
    }

    /// Repeats a packet, with NUDGE if this worker is the one that asks for its seq.
    fn ask(&mut self, now: Duration, index: usize, tx: &mut impl Tx) {
        let flags = if self.asks(index) { FLAG_NUDGE } else { 0 };
        let loss = self.packets.loss_mut(index);
        loss.repair = Repair::Own;
        if flags != 0 && loss.tries == 0 {
            loss.asked = Some(now);
        }
        self.resend(now, index, flags, tx);
        self.look_again(now, index);
        self.count_try(index);
    }

    /// Sets when a packet that seems lost is asked for again: when others have had a round trip for it. If it was
    /// certainly lost, the time doubles after every second try, up to a quarter of the shortest time-out or
    /// four round trips, and doubles again for each time-out in which nothing came. Otherwise a worker may
    /// just be slow: the time doubles after each try, and from the shortest time-out on the rest is left to
    /// time-outs.
    fn look_again(&mut self, now: Duration, index: usize) {
        let LossState { overtaken, tries, .. } = self.packets.loss(index);
        let doublings = if overtaken { tries / 2 } else { tries };
        let round = self.rtt.patience();
        let patience = round * (1 << doublings);
        let most = self.rtt.min();
        self.packets.loss_mut(index).due = match overtaken {
            true => {
                now + patience.min(4 * round.max(most / 16))
                    * (1 << self.timing.timeouts.min(MAX_TRIES.into()))
            }
            false if patience < most => now + patience,
            false => Duration::MAX,
        };
        self.list(index);
    }

    /// Lists a packet among the suspects, so that it is looked at when it is due.
    fn list(&mut self, index: usize) {
        let seq = self.packets.entries[index].seq;
        let loss = self.packets.loss_mut(index);
        let due = loss.due;
        if due < Duration::MAX && loss.listed.is_none_or(|at| at > due) {
            loss.listed = Some(due);
            self.repairs.suspects.push(Reverse((due, seq)));
        }
    }

    fn count_try(&mut self, index: usize) {
        let tries = &mut self.packets.loss_mut(index).tries;
        *tries = (*tries + 1).min(MAX_TRIES);
    }

    /// Returns whether this worker is the one to ask for (slot, round), which it has sent (P40 who asks).
    pub fn asks_for(&self, slot: SlotId, round: Round) -> bool {
        self.packets.find(slot, round).is_some_and(|index| self.asks(index))
    }

    pub(super) fn asks(&self, index: usize) -> bool {
        let (worker, workers) = self.turns;
        self.packets.entries[index].seq % workers == worker
    }

    /// A NUDGE or an impossible answer has come for (slot, round): sends that packet again if it is kept (P20). Returns
    /// whether it was.
    pub fn resend_kept(
        &mut self,
        now: Duration,
        slot: SlotId,
        round: Round,
        flags: u8,
        tx: &mut impl Tx,
    ) -> bool {
        let Some(index) = self.packets.find(slot, round) else { return false };
        if self.packets.find_outstanding(slot, round).is_some() {
            let entry = self.packets.entries[index];
            // A packet that has just been sent may still be on its way, and so may one that no later packet has overtaken.
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

    /// A NUDGE shows that the aggregator has this packet of (slot, round), and waits for others': there is nothing to
    /// repeat.
    pub fn handle_seen(&mut self, now: Duration, slot: SlotId, round: Round) {
        if let Some(index) = self.packets.find_outstanding(slot, round) {
            self.packets.loss_mut(index).repair = Repair::Others;
            self.requeue(now, index);
            self.count_try(index);
            self.look_again(now, index);
        }
    }

    /// A NUDGE for this slot shows that its shard's server runs.
    pub fn handle_served(&mut self, slot: SlotId) {
        if usize::from(slot.0) < self.packets.entries.len() {
            self.queue(slot.0.into()).asked = 0;
        }
    }

    /// The NUDGE for which this worker asked has come: a round trip without waiting.
    pub fn handle_own_nudge(&mut self, now: Duration, slot: SlotId, round: Round) {
        if let Some(index) = self.packets.find(slot, round)
            && self.packets.entries[index].repeated
            && let Some(asked) = self.packets.loss_mut(index).asked.take()
        {
            self.rtt.add_answer(now.saturating_sub(asked));
        }
    }

    /// Number of later transmissions to a shard with results that show a loss.
    fn reorder(&self) -> u64 {
        let share = self.open().0 / u64::from(self.shards);
        let usual = (share / REORDER_PART).clamp(REORDER_MIN, REORDER);
        (usual << self.repairs.reordered).min((share / 2).max(REORDER_MIN))
    }

    /// Returns how long after a result, without one of a later packet, the packets sent before it count as lost.
    fn reorder_time(&self) -> Duration {
        self.rtt.reorder_time() * (1 << self.repairs.reordered)
    }

    /// The first seq from this one on whose slot is the shard's.
    fn in_shard(&self, mut seq: u64, shard: usize) -> u64 {
        let (slots, block) = (self.packets.slots, u64::from(Shard::BLOCK));
        while seq < self.next && self.shard(self.packets.index(seq)) != shard {
            let slot = seq % slots;
            seq += (block - slot % block).min(slots - slot);
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
        (seq < self.next).then(|| self.packets.index(seq))
    }

    /// Returns whether a seq is outstanding and not known to be overtaken.
    fn is_unchecked(&self, seq: u64) -> bool {
        self.packets.is_outstanding(seq) && !self.packets.loss(self.packets.index(seq)).overtaken
    }

    /// Sends a packet again, with these flags and those that time-outs add.
    pub(super) fn resend(&mut self, now: Duration, index: usize, flags: u8, tx: &mut impl Tx) {
        self.requeue(now, index);
        let flags = if self.timing.nudging { flags | FLAG_NUDGE } else { flags };
        self.transmit(index, flags, tx);
    }

    /// Moves a packet behind all that have been sent, as if it had been sent again, so that only later
    /// transmissions count for it from now on.
    fn requeue(&mut self, now: Duration, index: usize) {
        self.packets.loss_mut(index);
        self.order += 1;
        let shard = self.shard(index);
        let entries = &mut self.packets.entries;
        self.queues[shard].unlink(entries, index, index);
        entries[index].set_sent(now, self.order);
        self.queues[shard].push(entries, index, index);
    }

    fn transmit(&mut self, index: usize, flags: u8, tx: &mut impl Tx) {
        self.stats.repeated += 1;
        let shard = self.shard(index) as u8;
        let Entry { ring, outside, .. } = self.packets.entries[index];
        if outside {
            tx.repeat_packed(shard, SlotId(index as u16), flags);
        } else {
            let packet = self.packets.bytes(ring, index..index + 1);
            Header::set_flags(packet, flags);
            tx.send(shard, packet, packet.len());
        }
    }

    /// Returns when this is due, while anything is outstanding.
    pub(super) fn due_at(&self, timer: Timer) -> Option<Duration> {
        if !self.is_busy() {
            return None;
        }
        match timer {
            Timer::Timeout => Some(self.timing.since + self.rtt.timeout(self.timing.timeouts)),
            Timer::Recovery => {
                let has_more = |recovery: &Recovery| recovery.budget > 0 && recovery.cursor < recovery.end;
                self.repairs.recovery.filter(has_more).map(|recovery| recovery.not_before)
            }
            Timer::Probe => self.timing.probe,
            Timer::Suspect => self.repairs.suspects.peek().map(|Reverse((at, _))| *at),
            Timer::Reorder => self.reorder_at(),
        }
    }

    fn is_due(&self, timer: Timer, now: Duration) -> bool {
        self.due_at(timer).is_some_and(|at| at <= now)
    }

    /// Returns when [`Self::repeat`] has something to do, if anything is outstanding.
    pub fn deadline(&self) -> Option<Duration> {
        Timer::ALL.into_iter().filter_map(|timer| self.due_at(timer)).min()
    }

    /// Returns when packets before the last results will be lost, if no later ones come.
    fn reorder_at(&self) -> Option<Duration> {
        let waits = |queue: &&Queue| {
            let number = self.packets.entries[self.packets.index(queue.checked)].number;
            self.is_unchecked(queue.checked) && number < queue.answered
        };
        let at = self.queues.iter().filter(waits).map(|queue| queue.answered_at).min()?;
        Some(at + self.reorder_time())
    }

    /// Returns whether packets with NUDGE have been sent and nothing has come for a time-out.
    pub fn is_deaf(&self) -> bool {
        self.is_busy() && self.timing.timeouts > NUDGE_AFTER
    }
}
