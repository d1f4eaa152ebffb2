//! Slots: state and memory (P8).
//!
//! Each slot's memory is a packet with room for the header in front, so that a completed slot is its
//! RESULT: the header is written once, and copies need no work.

use super::{JobConfig, Kernels, Shard};
use crate::wire::{HEADER_LEN, Kind, MAX_PACKET, NORM_LEN};
use crate::{Round, SlotId, TableId};

pub(super) const NORM_PACKET: usize = HEADER_LEN + NORM_LEN;
const LINE: usize = 64;

/// Everything of a slot but its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotState {
    pub round: Round,
    /// One bit per worker; 0 is an empty slot.
    pub seen: u64,
    /// The number of these workers.
    pub members: u8,
    /// The number of workers in the sum; of racks, all workers in their sums.
    pub count: u16,
    pub complete: bool,
    /// True if a packet of the sum met congestion.
    pub mark: bool,
    /// For DATA and RAW, the kind and the table of the packet that opened the round.
    pub head: (u8, TableId),
}

/// A slot, to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView<'a> {
    /// Its round.
    pub round: Round,
    /// One bit per worker in it.
    pub seen: u64,
    /// True if its RESULT is out.
    pub complete: bool,
    /// True if a packet of its sum met congestion.
    pub mark: bool,
    /// Its lanes (1024 bytes, of which 4-bit lanes take the first half) or its NORM payload (20 bytes), in
    /// wire order. In a complete slot with sums in fewer bits, what travels is in front, and the
    /// rest is meaningless.
    pub values: &'a [u8],
}

/// A data slot. Its lanes begin a cache line, since vectors that straddle two are slow; state and header fill the line
/// before that.
#[derive(Clone)]
#[repr(C, align(64))]
struct DataSlot {
    state: SlotState,
    ahead: [u8; LINE - HEADER_LEN - size_of::<SlotState>()],
    packet: [u8; MAX_PACKET],
}

#[derive(Clone)]
struct NormSlot {
    state: SlotState,
    packet: [u8; NORM_PACKET],
}

/// A shard's slots of one job.
pub(super) struct Slots {
    shard: Shard,
    data: Vec<DataSlot>,
    norm: Vec<NormSlot>,
}

impl Slots {
    /// Returns how many are the shard's: data, norm.
    fn shares(config: &JobConfig, shard: Shard) -> (usize, usize) {
        (shard.share(config.data_slots) as usize, shard.share(config.norm_slots) as usize)
    }

    /// Bytes that they allocate.
    pub fn memory(config: &JobConfig, shard: Shard) -> usize {
        let (data, norm) = Slots::shares(config, shard);
        data * size_of::<DataSlot>() + norm * size_of::<NormSlot>()
    }

    /// Empty ones.
    pub fn new(config: &JobConfig, shard: Shard) -> Slots {
        let (data, norm) = Slots::shares(config, shard);
        let state = SlotState::default();
        Slots {
            shard,
            data: vec![DataSlot { state, ahead: [0; _], packet: [0; _] }; data],
            norm: vec![NormSlot { state, packet: [0; _] }; norm],
        }
    }

    /// Empties all.
    pub fn forget(&mut self) {
        self.data.iter_mut().for_each(|slot| slot.state = SlotState::default());
        self.norm.iter_mut().for_each(|slot| slot.state = SlotState::default());
    }

    /// State and packet of a slot, if it is this shard's; `kind` chooses the norm or the data slots. The packet is a RESULT
    /// once the slot is complete.
    #[inline]
    pub fn get(&self, kind: Kind, slot: SlotId) -> Option<(&SlotState, &[u8])> {
        let place = self.shard.find(slot)?;
        if kind == Kind::Norm {
            self.norm.get(place).map(|slot| (&slot.state, &slot.packet[..]))
        } else {
            self.data.get(place).map(|slot| (&slot.state, &slot.packet[..]))
        }
    }

    /// State and packet of a norm slot or a data slot, to be changed.
    #[inline(always)]
    pub fn get_mut<const NORM: bool>(&mut self, slot: SlotId) -> Option<(&mut SlotState, &mut [u8])> {
        let place = self.shard.find(slot)?;
        if NORM {
            self.norm.get_mut(place).map(|slot| (&mut slot.state, &mut slot.packet[..]))
        } else {
            self.data.get_mut(place).map(|slot| (&mut slot.state, &mut slot.packet[..]))
        }
    }

    /// Prefetches a data slot.
    #[inline]
    pub fn prefetch<K: Kernels>(&self, slot: SlotId) {
        if let Some(slot) = self.shard.find(slot).and_then(|place| self.data.get(place)) {
            // Up to the line's beginning there is the state.
            K::prefetch(&slot.packet);
        }
    }
}
