//! Packets that are given up, and packets that come too late for their sums (P48 loss policies): `best-effort`, and quorums
//! below n. A `reliable` job with full quorum needs none of it.

use super::packets::{Entry, PacketId};
use super::queue::Timer;
use super::{Stream, Tx};
use crate::wire::FLAG_NUDGE;
use crate::{Round, SlotId};
use std::time::Duration;

/// Under `best-effort`, the number of unanswered packets with NUDGE in a row that losses do not explain.
const ASKS: u32 = 3;

impl Stream {
    /// A sum for (slot, round) exists. If this worker's packet has not been sent yet, it will come too late.
    pub fn foresee(&mut self, slot: SlotId, round: Round) {
        if self.packets.find(slot, round).is_none()
            && let Some(foreseen) = self.packets.foreseen.get_mut(usize::from(slot.0))
        {
            *foreseen = Some(round);
        }
    }

    /// Returns whether (slot, round) was sent when its sum was there already.
    pub fn was_late(&self, slot: SlotId, round: Round) -> bool {
        self.packets.find(slot, round).is_some_and(|index| self.packets.entries[index].late)
    }

    /// A STRAGGLER for (slot, round) has come: gives that packet up, which then counts as finished.
    pub fn give_up(&mut self, now: Duration, slot: SlotId, round: Round) -> Option<PacketId> {
        let index = self.packets.find_outstanding(slot, round)?;
        self.stats.given_up += 1;
        Some(self.answer(now, index, false))
    }

    /// Gives up one packet whose first transmission was `age` or longer ago, the oldest first.
    pub fn give_up_older(&mut self, now: Duration, age: Duration) -> Option<(PacketId, SlotId, Round)> {
        let index = self.eldest()?;
        let entry = self.packets.entries[index];
        if self.packets.loss(index).first + age > now {
            return None;
        }
        self.stats.given_up += 1;
        self.close(now, index, index);
        let (slot, round) = self.packets.address(entry.seq);
        Some((entry.place, slot, round))
    }

    /// Returns when a packet is to be given up at this age, or asked for again at a quarter of it.
    pub fn ask_or_give_up_at(&self, age: Duration) -> Option<Duration> {
        let eldest = self.packets.loss(self.eldest()?).first + age;
        let heads = self.queues.iter().filter_map(|queue| self.packets.entries.get(queue.head as usize));
        let head = heads.map(Entry::send_time).min()? + age / 4;
        [Some(eldest), Some(head), self.due_at(Timer::Suspect), self.due_at(Timer::Reorder)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Repeats packets that results have overtaken, and packets that were last sent `age` or longer ago, so
    /// that `best-effort` asks before it gives up. The first repeated packet to a shard asks whether its server
    /// runs (P21 shards and shares).
    pub fn ask_again(&mut self, now: Duration, age: Duration, tx: &mut impl Tx) {
        self.repeat_overtaken(now, tx);
        let due = |entry: &Entry| entry.send_time() < now && entry.send_time() + age <= now;
        for shard in 0..self.queues.len() {
            let mut flags = FLAG_NUDGE;
            while self.packets.entries.get(self.queues[shard].head as usize).is_some_and(due) {
                self.resend(now, self.queues[shard].head as usize, flags, tx);
                if flags != 0 {
                    let queue = &mut self.queues[shard];
                    if queue.asked == 0 {
                        queue.asked_at = now;
                    }
                    queue.asked += 1;
                }
                flags = 0;
            }
        }
    }

    /// Shards that have not answered NUDGE so often that losses do not explain it, and since when (P21).
    pub fn unanswered_shards(&self) -> impl Iterator<Item = (u8, Duration)> {
        let asked = (0u8..).zip(&self.queues).filter(|(_, queue)| queue.asked >= ASKS);
        asked.map(|(shard, queue)| (shard, queue.asked_at))
    }
}
