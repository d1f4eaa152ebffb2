//! The counters of a worker and of its streams.

/// Counts of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Packets sent again.
    pub repeated: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Packets given up.
    pub given_up: u64,
}

/// Counts of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtocolStats {
    /// The norm stream.
    pub norm: StreamStats,
    /// The data stream.
    pub data: StreamStats,
    /// STRAGGLER packets received.
    pub stragglers: u64,
    /// Packets sent again because another worker waited for them.
    pub nudged: u64,
    /// Packets of partitions with which the others went on without this worker ([`left_out`](super::Events::left_out)).
    pub left_out: u64,
    /// Packets received that were none of this session's.
    pub foreign: u64,
}
