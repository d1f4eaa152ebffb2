//! What stripes are dealt, and how they are.

use super::stats::ProtocolStats;
use super::stream::PacketId;
use crate::wire::Header;
use std::time::Duration;

/// Numbered data packets in a row that a stripe is to send.
#[derive(Clone, Copy, Debug)]
pub struct Dealt {
    /// What the first carries; the others carry what follows in the call.
    pub first: PacketId,
    /// The seq of the first.
    pub seq: u64,
    /// How many there are, at most 64.
    pub count: usize,
    /// The number of the stripe that has their slots.
    pub stripe: u8,
    pub(super) ring: u8,
    /// Without round and slot.
    pub(super) header: Header,
}

/// How a stripe is, as far as it concerns the worker as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StripeReport {
    /// Whether packets are outstanding, and the shard of the first.
    pub busy: bool,
    /// The shard of the eldest.
    pub waits_at: Option<u8>,
    /// Time-outs in a row, and whether NUDGE has brought nothing (P20).
    pub timeouts: u32,
    /// See [`unanswered_shards`](super::Worker::unanswered_shards).
    pub deaf: bool,
    /// When the aggregator was heard last, and when something was finished or first sent.
    pub heard: Duration,
    /// See [`waiting_for`](super::Worker::waiting_for).
    pub progress: Duration,
    /// Workers that the latest NUDGE has shown to be missing.
    pub missing: u64,
    /// Round trips of its packets, and answers that waited for nobody (P40).
    pub smoothed: Option<Duration>,
    /// The shortest of the recent ones.
    pub shortest: Option<Duration>,
    /// See P40.
    pub answer: Option<Duration>,
    /// Packets that may be outstanding, and how often congestion has made them fewer.
    pub window: (u64, u64),
    /// Results with a mark.
    pub marks: u64,
    /// Counts.
    pub stats: ProtocolStats,
}

/// What a worker knows of its stripes.
#[derive(Debug)]
pub(super) struct Stripes {
    /// The next seq.
    pub next: u64,
    /// Packets dealt out that are not known to be finished.
    pub open: u64,
    pub reports: Vec<StripeReport>,
}
