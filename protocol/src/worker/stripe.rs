//! Which of a job's slots are one stripe's.

use crate::SlotId;
use crate::aggregator::Shard;

/// The slots of every `count`-th shard, from that of number `index` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Below `count`.
    pub index: u8,
    /// How many stripes there are, at least 1.
    pub count: u8,
}

impl Stripe {
    /// The only one.
    pub const WHOLE: Stripe = Stripe { index: 0, count: 1 };

    /// The stripe of a slot, by its number, among `count` of a job with so many shards.
    #[must_use]
    pub const fn index_of(slot: SlotId, shards: u8, count: u8) -> u8 {
        Shard::index_of(slot, shards) % count
    }

    /// Its shards, of so many.
    pub fn shards(self, shards: u8) -> impl Iterator<Item = usize> {
        (usize::from(self.index)..shards.into()).step_by(self.count.into())
    }

    /// Its part of so many packets in flight, at least 1.
    pub(super) fn part(self, packets: u64, shards: u8) -> u64 {
        let own = self.shards(shards).count() as u64;
        (packets.saturating_mul(own) / u64::from(shards.max(1))).max(1)
    }
}
