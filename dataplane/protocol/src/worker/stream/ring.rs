//! Where a stream's packets lie, and what is known of each.

use std::ops::Range;
use std::time::Duration;

/// No entry.
pub(super) const NIL: u32 = u32::MAX;

/// What a packet carries: which part of which call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketId {
    /// Number of the call in the session.
    pub call: u64,
    /// Partition of the call.
    pub partition: u32,
    /// Packet of the partition.
    pub packet: u32,
}

/// Packets of one length, back to back, one place for each slot. Its memory is taken at first use.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub stride: usize,
    pub bytes: Vec<u8>,
}

impl Ring {
    /// The bytes of some of its `slots` packets.
    pub fn packets(&mut self, slots: u64, packets: Range<usize>) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = vec![0; slots as usize * self.stride];
        }
        &mut self.bytes[packets.start * self.stride..packets.end * self.stride]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unused,
    Outstanding,
    Finished,
}

/// Who repairs the loss of a packet that seems to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// Nobody: it does not seem lost.
    None,
    /// Others: the worker that is to ask, or the workers whose packets the sum lacks.
    Others,
    /// This worker, which has repeated it.
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
    /// When it was sent last, in nanoseconds.
    pub sent_ns: u64,
    pub place: PacketId,
    pub prev: u32,
    pub next: u32,
    pub state: State,
    /// Which of the stream's rings it lies in: what it travels as.
    pub ring: u8,
    /// Sent more than once, or about to be: then there is a [`LossState`].
    pub repeated: bool,
    /// Kept by whoever sends it, not in the ring.
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

    /// A place without a packet.
    pub fn empty() -> Entry {
        Entry { state: State::Unused, ..Entry::new(0, 0, 0, Duration::ZERO, PacketId::default(), 0) }
    }

    /// Whether it was sent once, in this ring and in time, and has no result yet.
    pub fn awaits(&self, ring: u8) -> bool {
        self.state == State::Outstanding && self.ring == ring && !self.repeated && !self.late
    }

    /// When it was sent last.
    pub fn send_time(&self) -> Duration {
        Duration::from_nanos(self.sent_ns)
    }

    pub fn set_sent(&mut self, at: Duration) {
        self.sent_ns = at.as_nanos() as u64;
    }
}

/// What else is known of a packet that did not get its result at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossState {
    /// When it was sent for the first time.
    pub first: Duration,
    pub repair: Repair,
    /// When this worker looks at it again.
    pub due: Duration,
    /// The time under which it is in the queue of packets to look at.
    pub listed: Option<Duration>,
    /// How often this worker has asked for it.
    pub tries: u8,
    /// When it was first asked for by NUDGE, until that is answered.
    pub asked: Option<Duration>,
    /// Results of later packets have shown that it was lost.
    pub overtaken: bool,
    /// The recovery that repeated it, by number.
    pub recovery: u64,
}

impl LossState {
    /// No loss yet with a packet that was first sent at this time.
    pub fn new(first: Duration) -> LossState {
        LossState {
            first,
            repair: Repair::None,
            due: Duration::ZERO,
            listed: None,
            tries: 0,
            asked: None,
            overtaken: false,
            recovery: 0,
        }
    }
}
