//! The packets that a stream has sent: what is known of each, and their bytes.

use crate::wire::HEADER_LEN;
use crate::{Round, SlotId};
use std::ops::Range;
use std::time::Duration;

/// No entry.
pub(super) const NIL: u32 = u32::MAX;

/// The part of a call that a packet carries. The order is that in which packets are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId {
    /// Number of the call in the session.
    pub call: u64,
    /// Partition of the call.
    pub partition: u32,
    /// Packet of the partition.
    pub packet: u32,
}

/// Packets of one length, back to back, one place for each slot. Its memory is taken at first use.
#[derive(Debug)]
pub(super) struct Ring {
    pub stride: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unused,
    Outstanding,
    Finished,
}

/// The workers that repair the loss of a packet (P40 who asks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// None, since the packet does not seem lost.
    None,
    /// Others: the worker that is to ask, or the workers whose packets the sum lacks.
    Others,
    /// This worker, which has repeated the packet.
    Own,
}

/// The state of a packet that was sent: one cache line, read and written for each packet and for its result.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub seq: u64,
    /// Number of the last transmission.
    pub order: u64,
    /// Number of the first transmission, among those to its shard: the order of seqs.
    pub number: u64,
    /// The time of the last transmission, in nanoseconds.
    pub sent_ns: u64,
    pub place: PacketId,
    /// The entries before and after it in the [`Queue`](super::queue::Queue) of its shard.
    pub prev: u32,
    pub next: u32,
    pub state: State,
    /// The stream's ring in which it lies.
    pub ring: u8,
    /// Sent more than once, or about to be: then there is a [`LossState`].
    pub repeated: bool,
    /// Kept by the [`Tx`](super::Tx), not in the ring.
    pub outside: bool,
    /// Sent when its sum was there already.
    pub late: bool,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// A packet sent for the first time.
    pub fn new(seq: u64, order: u64, number: u64, sent: Duration, place: PacketId, ring: u8) -> Entry {
        Entry {
            seq,
            order,
            number,
            sent_ns: sent.as_nanos() as u64,
            place,
            prev: NIL,
            next: NIL,
            state: State::Outstanding,
            ring,
            repeated: false,
            outside: false,
            late: false,
        }
    }

    /// Returns whether it was sent once, in this ring and in time, and has no result yet.
    pub fn awaits(&self, ring: u8) -> bool {
        self.state == State::Outstanding && self.ring == ring && !self.repeated && !self.late
    }

    /// Returns when it was sent last.
    pub fn send_time(&self) -> Duration {
        Duration::from_nanos(self.sent_ns)
    }

    pub fn set_sent(&mut self, at: Duration, order: u64) {
        (self.sent_ns, self.order) = (at.as_nanos() as u64, order);
    }
}

/// The state of a packet that did not get its result at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossState {
    /// The time of the first transmission.
    pub first: Duration,
    pub repair: Repair,
    /// The time at which this worker looks at it again.
    pub due: Duration,
    /// The time under which it is in the queue of packets to look at.
    pub listed: Option<Duration>,
    /// The number of times that this worker has asked for it.
    pub tries: u8,
    /// The time of the first NUDGE that asked for it, until that is answered.
    pub asked: Option<Duration>,
    /// Results of later packets have shown that it was lost.
    pub overtaken: bool,
    /// The recovery that repeated it, by number.
    pub recovery: u64,
}

impl LossState {
    /// No loss yet of a packet that was first sent at this time.
    fn new(first: Duration) -> LossState {
        let (repair, due, listed, tries) = (Repair::None, Duration::ZERO, None, 0);
        LossState { first, repair, due, listed, tries, asked: None, overtaken: false, recovery: 0 }
    }
}

/// All packets that were sent, by slot: the latest of each.
#[derive(Debug)]
pub(super) struct Packets {
    pub slots: u64,
    pub entries: Vec<Entry>,
    /// Details of the entries that are `repeated`.
    losses: Vec<LossState>,
    /// For each slot, the round whose sum came before its packet was sent.
    pub foreseen: Vec<Option<Round>>,
    /// One for each table of the job, and one for RAW.
    pub rings: Vec<Ring>,
}

impl Packets {
    pub fn new(slots: u64, strides: impl IntoIterator<Item = usize>) -> Packets {
        let unused = Entry::new(0, 0, 0, Duration::ZERO, PacketId::default(), 0);
        Packets {
            slots,
            entries: vec![Entry { state: State::Unused, ..unused }; slots as usize],
            losses: vec![LossState::new(Duration::ZERO); slots as usize],
            foreseen: vec![None; slots as usize],
            rings: strides.into_iter().map(|stride| Ring { stride, bytes: Vec::new() }).collect(),
        }
    }

    /// The place of a seq (P8 slots and rounds).
    pub fn index(&self, seq: u64) -> usize {
        (seq % self.slots) as usize
    }

    pub fn address(&self, seq: u64) -> (SlotId, Round) {
        (SlotId((seq % self.slots) as u16), Round((seq / self.slots) as u32))
    }

    /// The place of (slot, round), if that seq has been sent and is still kept.
    pub fn find(&self, slot: SlotId, round: Round) -> Option<usize> {
        let index = usize::from(slot.0);
        let entry = self.entries.get(index)?;
        // Without a division, where rounds have not wrapped.
        let seq = u64::from(round.0) * self.slots + u64::from(slot.0);
        let same = entry.seq == seq || self.address(entry.seq).1 == round;
        (entry.state != State::Unused && same).then_some(index)
    }

    /// The place of (slot, round), if that seq is outstanding.
    pub fn find_outstanding(&self, slot: SlotId, round: Round) -> Option<usize> {
        self.find(slot, round).filter(|&index| self.entries[index].state == State::Outstanding)
    }

    /// Returns whether a seq is outstanding.
    pub fn is_outstanding(&self, seq: u64) -> bool {
        let entry = &self.entries[self.index(seq)];
        entry.seq == seq && entry.state == State::Outstanding
    }

    /// The bytes of some packets of a ring.
    pub fn bytes(&mut self, ring: u8, packets: Range<usize>) -> &mut [u8] {
        let Ring { stride, bytes } = &mut self.rings[usize::from(ring)];
        if bytes.is_empty() {
            *bytes = vec![0; self.slots as usize * *stride];
        }
        &mut bytes[packets.start * *stride..packets.end * *stride]
    }

    /// The payload that was sent to (slot, round), if it is still kept, and in a ring.
    pub fn kept_payload(&self, slot: SlotId, round: Round) -> Option<&[u8]> {
        let index = self.find(slot, round).filter(|&index| !self.entries[index].outside)?;
        let ring = &self.rings[usize::from(self.entries[index].ring)];
        ring.bytes.get(index * ring.stride + HEADER_LEN..(index + 1) * ring.stride)
    }

    /// The loss state of a packet.
    pub fn loss(&self, index: usize) -> LossState {
        let entry = &self.entries[index];
        if entry.repeated { self.losses[index] } else { LossState::new(entry.send_time()) }
    }

    /// The loss state of a packet, to be changed. From now on the packet's result does not show which of the
    /// transmissions it answers.
    pub fn loss_mut(&mut self, index: usize) -> &mut LossState {
        let entry = &mut self.entries[index];
        if !entry.repeated {
            entry.repeated = true;
            self.losses[index] = LossState::new(entry.send_time());
        }
        &mut self.losses[index]
    }
}
