//! When packets are sent again (P20).
//!
//! Three signs of loss: results of packets sent well after one; results that cease to come; and, when
//! nothing has come for the time-out, everything that was outstanding is doubtful.

use super::ring::{Entry, NIL, Place, State};
use super::{Stream, Tx};
use crate::aggregator::Shard;
use crate::wire::{FLAG_NUDGE, Header};
use crate::{Round, SlotId};
use std::time::Duration;

/// Transmissions after which a packet without a result counts as lost (P20).
const REORDER: u64 = 64;
/// Time-outs in a row after which repeated packets carry NUDGE (P20).
const NUDGE_AFTER: u32 = 3;
/// Doublings of the time-out that stay when a repeated packet's result comes. Some must, or a time-out
/// below the round-trip time would repeat every packet and never be corrected by a sample; all must
/// not, or a lossy network would be waited for at the longest time-out while results do come.
const KEPT_DOUBLINGS: u32 = 1;

/// What is outstanding at one shard. Another shard may be ahead or behind, which says nothing of losses here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Entries by last transmission, oldest first.
    pub head: u32,
    pub tail: u32,
    /// Transmissions so far.
    pub turns: u64,
    /// The highest of them with a result, of packets sent once.
    pub answered: u64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { head: NIL, tail: NIL, turns: 0, answered: 0 }
    }
}

/// What follows a time-out (P20).
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
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
pub(super) struct Probe {
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

impl Stream {
    /// The aggregator has answered an outstanding packet for good.
    pub(super) fn answer(&mut self, now: Duration, index: usize) -> Place {
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
            let queue = self.queue(index);
            queue.answered = queue.answered.max(entry.turn);
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
    pub(super) fn expect(&mut self, now: Duration) {
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

    /// Somebody waits for (slot, round): sends that packet again if it is kept (P20). Whether it was.
    pub fn resend_kept(&mut self, slot: SlotId, round: Round, tx: &mut impl Tx) -> bool {
        let Some(index) = self.find(slot, round) else { return false };
        // Its result will not tell which of the transmissions it answers.
        self.entries[index].repeated = true;
        self.transmit(index, 0, tx);
        true
    }

    /// Lost by order: results have come for packets sent well after these.
    fn repeat_overtaken(&mut self, now: Duration, tx: &mut impl Tx) {
        for shard in 0..self.queues.len() {
            let Queue { answered, .. } = self.queues[shard];
            while let Some(entry) = self.entries.get_mut(self.queues[shard].head as usize)
                && entry.turn + REORDER <= answered
            {
                entry.lost = true;
                self.again(now, self.queues[shard].head as usize, tx);
            }
        }
    }

    /// Repeats what results have overtaken, and what was sent last `age` or longer ago: so `best-effort` asks before it
    /// gives up.
    pub fn ask_again(&mut self, now: Duration, age: Duration, tx: &mut impl Tx) {
        self.repeat_overtaken(now, tx);
        let due = |entry: &Entry| entry.sent < now && entry.sent + age <= now;
        for shard in 0..self.queues.len() {
            while self.entries.get(self.queues[shard].head as usize).is_some_and(due) {
                self.again(now, self.queues[shard].head as usize, tx);
            }
        }
    }

    /// Repeats what P20 says must be repeated by now. Call it after each burst of results and when
    /// [`Self::deadline`] has passed.
    pub fn repeat(&mut self, now: Duration, tx: &mut impl Tx) {
        self.repeat_overtaken(now, tx);
        if self.is_busy() && self.probe.is_some_and(|probe| probe.at <= now) {
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
        for shard in 0..self.queues.len() {
            let Queue { head: mut next, answered, .. } = self.queues[shard];
            while let Some(entry) =
                self.entries.get_mut(next as usize).filter(|entry| entry.sent + silence <= now)
            {
                let index = next as usize;
                next = entry.next;
                entry.lost |= entry.turn < answered;
                if entry.lost {
                    any = true;
                    self.again(now, index, tx);
                }
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
        let slot = SlotId(index as u16);
        let shard = Shard::of(slot, self.shards);
        let Entry { ring, outside, .. } = self.entries[index];
        if outside {
            tx.repeat_packed(shard, slot, flags);
        } else {
            let packet = self.rings[usize::from(ring)].packets(self.slots, index..index + 1);
            Header::set_flags(packet, flags);
            tx.send(shard, packet, packet.len());
        }
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
        self.is_busy().then(|| self.since + self.rtt.timeout(self.timeouts))
    }

    /// Whether packets with NUDGE have been sent, and a time-out later nothing has come.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.is_busy() && self.timeouts > NUDGE_AFTER
    }

    /// Where an entry is outstanding.
    fn queue(&mut self, index: usize) -> &mut Queue {
        &mut self.queues[usize::from(Shard::of(SlotId(index as u16), self.shards))]
    }

    /// An entry has been sent, or sent again.
    pub(super) fn push(&mut self, index: u32) {
        let queue = self.queue(index as usize);
        queue.turns += 1;
        let turn = queue.turns;
        let tail = std::mem::replace(&mut queue.tail, index);
        if tail == NIL {
            queue.head = index;
        }
        let entry = &mut self.entries[index as usize];
        entry.turn = turn;
        entry.prev = tail;
        entry.next = NIL;
        if let Some(last) = self.entries.get_mut(tail as usize) {
            last.next = index;
        }
    }

    pub(super) fn unlink(&mut self, index: u32) {
        let Entry { prev, next, .. } = self.entries[index as usize];
        match self.entries.get_mut(prev as usize) {
            Some(entry) => entry.next = next,
            None => self.queue(index as usize).head = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(entry) => entry.prev = prev,
            None => self.queue(index as usize).tail = prev,
        }
    }
}
