//! What a worker has done so far.

use serde::Serialize;
use std::time::Duration;

/// Totals since the group was joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// All-reduces that succeeded.
    pub calls: u64,
    /// All-reduces that failed on all workers alike.
    pub failed: u64,
    /// Coordinates of the successful ones.
    pub coordinates: u64,
    /// Bytes sent, IPv4 headers and up included.
    pub bytes_up: u64,
    /// Bytes received, likewise.
    pub bytes_down: u64,
    /// Packets sent.
    pub packets_up: u64,
    /// Packets received.
    pub packets_down: u64,
    /// Packets sent again because a result did not come.
    pub retransmissions: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Packets sent again because another worker waited for them.
    pub nudged: u64,
    /// STRAGGLER packets received.
    pub stragglers: u64,
    /// Packets whose coordinates counted as zero.
    pub lost: u64,
    /// Coordinates of all-reduces that succeeded and that counted as zero.
    pub lost_coordinates: u64,
    /// Norms, transforms, quantization, dequantization.
    #[serde(serialize_with = "seconds")]
    pub compression: Duration,
    /// Time in system calls that send and receive.
    #[serde(serialize_with = "seconds")]
    pub network: Duration,
    /// Waiting for packets with nothing else to do.
    #[serde(serialize_with = "seconds")]
    pub waiting: Duration,
    /// Smoothed round-trip time of data packets.
    #[serde(serialize_with = "seconds")]
    pub round_trip: Duration,
    /// The shortest of the recent ones.
    #[serde(serialize_with = "seconds")]
    pub shortest_round_trip: Duration,
    /// Data packets that may be outstanding now.
    pub window: u64,
    /// How often congestion has made them fewer.
    pub decreases: u64,
    /// Results that told of congestion, or met it.
    pub marks: u64,
}

/// How many coordinates a worker has processed so far, padding included: the same in every run, however long
/// it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    /// Coordinates whose norms were taken.
    pub measured: u64,
    /// Coordinates that were compressed.
    pub compressed: u64,
    /// Compressed coordinates whose residual went to error feedback.
    pub fed_back: u64,
    /// Coordinates that became means.
    pub finished: u64,
}

fn seconds<S: serde::Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(d.as_secs_f64())
}
