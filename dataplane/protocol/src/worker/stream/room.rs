//! How many packets a stream may write now.

use super::Stream;
use super::window::Window;
use crate::aggregator::Shard;

impl Stream {
    /// How many packets may be written now in one run: bounded by the window (P18), the end of the
    /// ring and, of several shards, the block of one (P21).
    #[must_use]
    pub fn room(&self) -> usize {
        // The credit is for seqs in a row, of which each port has its part (P41).
        let bound = (self.base + self.limit).saturating_sub(self.next);
        let open = self.network.as_ref().map_or(bound, |network| bound.min(network.room(self.outstanding)));
        let slot = self.next % self.slots;
        open.min(self.row_end(slot) - slot) as usize
    }

    /// How many of these packets, which would make one run, may be written now: none if the window has room
    /// for only a part of them and results under way will make more, so that runs do not become ever shorter.
    #[must_use]
    pub fn room_for(&self, run: usize) -> usize {
        let slot = self.next % self.slots;
        let run = run.min((self.row_end(slot) - slot) as usize);
        let room = self.room().min(run);
        let waits = |network: &Window| network.bears(run as u64) && self.outstanding > 0;
        if room < run && self.network.as_ref().is_some_and(waits) { 0 } else { room }
    }

    /// The first slot after this one that does not follow it in its shard's memory, or the ring's end.
    pub(super) fn row_end(&self, slot: u64) -> u64 {
        let block = u64::from(Shard::BLOCK);
        if self.shards > 1 { (slot - slot % block + block).min(self.slots) } else { self.slots }
    }
}
