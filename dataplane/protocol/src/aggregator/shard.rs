//! The part of the slots that one port serves.

use crate::SlotId;

/// The part of the slots that a port serves (P21). Corresponding ports of all shares serve the same slots; only
/// workers know at which share a slot is at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// This shard's number, below `count`.
    pub index: u8,
    /// The number of shards, at least 1.
    pub count: u8,
}

impl Shard {
    /// Consecutive slots of one shard.
    pub const BLOCK: u16 = 64;
    /// The only shard.
    pub const WHOLE: Shard = Shard { index: 0, count: 1 };

    /// The shard of a slot among `count`.
    pub const fn index_of(slot: SlotId, count: u8) -> u8 {
        if count <= 1 { 0 } else { ((slot.0 / Shard::BLOCK) % count as u16) as u8 }
    }

    /// Returns whether the slot is this shard's.
    pub const fn serves(self, slot: SlotId) -> bool {
        Shard::index_of(slot, self.count) == self.index
    }

    /// All shards of a server.
    pub fn split(count: u8) -> impl Iterator<Item = Shard> {
        let count = if count == 0 { 1 } else { count };
        (0..count).map(move |index| Shard { index, count })
    }

    /// Returns how many of a job's slots are this shard's.
    #[must_use]
    pub const fn share(self, slots: u32) -> u32 {
        if self.count <= 1 {
            return slots;
        }
        let (block, count, index) = (Shard::BLOCK as u32, self.count as u32, self.index as u32);
        let (blocks, rest) = (slots / block, slots % block);
        let whole = blocks / count + (index < blocks % count) as u32;
        whole * block + if index == blocks % count { rest } else { 0 }
    }

    /// The index of a slot among those of its shard, whose blocks lie next to each other; `None` for a slot
    /// of another shard.
    #[inline]
    pub const fn find(self, slot: SlotId) -> Option<usize> {
        if self.count <= 1 {
            return Some(slot.0 as usize);
        }
        let (block, within, count) = (slot.0 / Shard::BLOCK, slot.0 % Shard::BLOCK, self.count as u16);
        if block % count != self.index as u16 {
            return None;
        }
        Some((block / count * Shard::BLOCK + within) as usize)
    }
}
