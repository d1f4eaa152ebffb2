//! A result comes: the packet that it answers is finished, and it shows how long the way is and what was lost (P20, P41).

use super::Stream;
use super::packets::{Entry, LossState, PacketId, Repair, State};
use crate::{Round, SlotId};
use std::time::Duration;

/// Most packets that a recovery may repeat at a time.
const BUDGET: u32 = 64;
/// Most doublings of the number of overtaking packets that show a loss, if a network changes the order of packets.
const REORDER_DOUBLINGS: u32 = 2;
/// Doublings of the time-out that stay when a repeated packet's result comes. Some must, or a time-out
/// below the round-trip time would repeat every packet and never be corrected by a sample; all must
/// not, or a lossy network would be waited for at the longest time-out while results do come.
const KEPT_DOUBLINGS: u32 = 1;

impl Stream {
    /// A result has come for (slot, round), a packet of this ring, with a mark or without (P46). Returns what the packet
    /// carries, unless it has been finished before or was never sent.
    pub fn finish(
        &mut self,
        now: Duration,
        ring: u8,
        slot: SlotId,
        round: Round,
        marked: bool,
    ) -> Option<PacketId> {
        let index = self.packets.find_outstanding(slot, round)?;
        (self.packets.entries[index].ring == ring).then(|| self.answer(now, index, marked))
    }

    /// Results for up to `count` packets of this ring, in consecutive slots from (slot, round) on, have come
    /// together. Takes them as far as each packet was sent once and they are outstanding in order. Returns how many
    /// are now finished; pass the others to [`Self::finish`].
    pub fn finish_run(
        &mut self,
        now: Duration,
        ring: u8,
        (slot, round): (SlotId, Round),
        count: usize,
        marked: bool,
    ) -> usize {
        let Some(index) = self.packets.find(slot, round) else { return 0 };
        let end = (index + count).min(self.row_end(index as u64) as usize);
        let first = self.packets.entries[index];
        let (mut last, mut taken) = (first, 0);
        for entry in &self.packets.entries[index..end] {
            let linked = taken == 0 || last.next as usize == index + taken;
            let follows = entry.seq == first.seq + taken as u64 && linked;
            if !follows || !entry.awaits(ring) {
                break;
            }
            last = *entry;
            taken += 1;
        }
        if taken > 0 {
            self.answer_first(now, index, taken, marked);
        }
        taken
    }

    /// Returns whether [`Self::finish_run`] would take a result for (slot, round).
    pub fn awaits(&self, ring: u8, slot: SlotId, round: Round) -> bool {
        self.packets.find(slot, round).is_some_and(|index| self.packets.entries[index].awaits(ring))
    }

    /// The aggregator has answered an outstanding packet for good, with a mark or without.
    pub(super) fn answer(&mut self, now: Duration, index: usize, marked: bool) -> PacketId {
        let entry = self.packets.entries[index];
        match entry.repeated {
            true => self.answer_repeated(now, index, entry, marked),
            false => self.answer_first(now, index, 1, marked),
        }
        entry.place
    }

    /// The aggregator has answered packets that were sent once, in consecutive slots, together. Only the round trip of
    /// the last is measured: the others have waited for it.
    fn answer_first(&mut self, now: Duration, index: usize, count: usize, marked: bool) {
        let (first, last) = (self.packets.entries[index], self.packets.entries[index + count - 1]);
        if let Some(network) = &mut self.network {
            network.handle_results(first.seq, count as u32, self.next, marked);
        }
        self.queue(index).count_result(now, last.number);
        if last.order > self.timing.last_timeout {
            self.rtt.sample(now.saturating_sub(last.send_time()), count as u32);
        }
        // The only transmission of a packet got through, so not everything that was outstanding then was lost. A
        // packet sent after the time-out shows nothing of those before.
        if self.repairs.recovery.is_none() || first.order <= self.timing.last_timeout {
            self.timing.timeouts = 0;
            self.stop_recovery();
        }
        self.close(now, index, index + count - 1);
    }

    /// The aggregator has answered a packet that was repeated, or was about to be.
    fn answer_repeated(&mut self, now: Duration, index: usize, entry: Entry, marked: bool) {
        let loss = self.packets.loss(index);
        self.detect_reordering(now, &entry, &loss);
        // Only this worker has repeated the packet: there was a result, and it was lost on its way to this worker.
        let waited = now.saturating_sub(entry.send_time());
        let own_result_was_lost = loss.repair == Repair::Own && self.rtt.is_round_trip(waited);
        // If another worker's packet had been missing, the asker would have received a NUDGE. A worker that did not ask
        // may simply have received the RESULT late.
        let asks = self.asks(index);
        if own_result_was_lost && asks && loss.tries <= 1 {
            self.rtt.add_answer(waited);
        }
        let crowded = self.rtt.is_crowded();
        if let Some(network) = &mut self.network {
            network.handle_results(entry.seq, 1, self.next, marked);
            // Without later results, workers or servers may only have had no time for the packet.
            if own_result_was_lost && loss.overtaken && (asks || crowded) {
                network.handle_loss(crowded);
            }
        }
        self.queue(index).count_result(now, entry.number);
        self.timing.timeouts = self.timing.timeouts.min(KEPT_DOUBLINGS);
        if let Some(recovery) = &mut self.repairs.recovery
            && loss.recovery == self.repairs.recoveries
        {
            recovery.budget = (recovery.budget + 2).min(BUDGET);
            recovery.not_before = now + self.rtt.grace();
        }
        self.close(now, index, index);
    }

    /// A result that comes so soon after a sign of loss that nothing can have been done about it shows that nothing
    /// was lost: the network changes the order.
    fn detect_reordering(&mut self, now: Duration, entry: &Entry, loss: &LossState) {
        let at_once = |shortest: Duration| now.saturating_sub(entry.send_time()) < shortest / 2;
        if loss.overtaken && loss.tries <= 1 && self.rtt.shortest().is_some_and(at_once) {
            self.repairs.reordered = (self.repairs.reordered + 1).min(REORDER_DOUBLINGS);
        }
    }

    /// Packets that are linked to each other are finished.
    pub(super) fn close(&mut self, now: Duration, first: usize, last: usize) {
        let shard = self.shard(first);
        self.queues[shard].unlink(&mut self.packets.entries, first, last);
        self.outstanding -= (last - first + 1) as u64;
        self.packets.entries[first..=last].iter_mut().for_each(|entry| entry.state = State::Finished);
        self.timing.since = now;
        self.timing.progress = now;
        self.advance();
        if self.repairs.recovery.is_some_and(|recovery| self.base >= recovery.end) {
            self.stop_recovery();
        }
        self.arm_probe(now);
    }

    pub(super) fn advance(&mut self) {
        while self.base < self.next && !self.packets.is_outstanding(self.base) {
            self.base += 1;
        }
    }

    fn stop_recovery(&mut self) {
        self.repairs.recovery = None;
        self.timing.nudging = false;
    }

    /// More results should come soon: if they do not, that is a sign of loss.
    pub(super) fn arm_probe(&mut self, now: Duration) {
        self.timing.probe = Some(now + self.rtt.silence());
    }
}
