//! The totals of a worker, and their names.

use serde::{Serialize, Serializer};
use std::time::Duration;

/// One of the totals in [`Stats`], as Prometheus and Python know it.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The field of [`Stats`].
    pub field: &'static str,
    /// Its name at Prometheus, after `thc_group_`; the samples of a counter end in `_total`. The name says the unit.
    pub name: &'static str,
    /// A description for people.
    pub help: &'static str,
    /// True if it only grows.
    pub kind: MetricKind,
    /// Reads it.
    pub read: fn(&Stats) -> Quantity,
}

/// The behaviour of a total over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows, and differences of two readings are what happened in between.
    Counter,
    /// It is the present value.
    Gauge,
}

impl MetricKind {
    /// The word for it in OpenMetrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        }
    }
}

/// The value of a total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// A count.
    Count(u64),
    /// A time in seconds.
    Seconds(f64),
}

impl Quantity {
    fn serialize<T: Copy + Into<Quantity>, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        match (*value).into() {
            Quantity::Count(count) => to.serialize_u64(count),
            Quantity::Seconds(seconds) => to.serialize_f64(seconds),
        }
    }
}

impl From<u64> for Quantity {
    fn from(count: u64) -> Self {
        Quantity::Count(count)
    }
}

impl From<Duration> for Quantity {
    fn from(time: Duration) -> Self {
        Quantity::Seconds(time.as_secs_f64())
    }
}

/// Declares [`Stats`] and [`METRICS`] from one list, so that no total can lack a name or have two texts.
macro_rules! totals {
    ($($field:ident: $type:ty, $kind:ident $name:literal, $help:literal;)*) => {
        /// Totals since the group was joined.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
        pub struct Stats {
            $(
                #[doc = concat!($help, ".")]
                #[serde(serialize_with = "Quantity::serialize")]
                pub $field: $type,
            )*
        }

        /// All totals of [`Stats`], in the order of its fields.
        pub const METRICS: &[Metric] = &[$(Metric {
            field: stringify!($field),
            name: $name,
            help: $help,
            kind: MetricKind::$kind,
            read: |stats| stats.$field.into(),
        }),*];
    };
}

totals! {
    calls: u64, Counter "calls", "All-reduces that succeeded";
    failed: u64, Counter "failed_calls", "All-reduces that failed on all workers alike";
    coordinates: u64, Counter "coordinates", "Coordinates of the all-reduces that succeeded";
    bytes_up: u64, Counter "sent_bytes", "Bytes sent, from the IP header upwards";
    bytes_down: u64, Counter "received_bytes", "Bytes received, from the IP header upwards";
    packets_up: u64, Counter "sent_packets", "Packets sent";
    packets_down: u64, Counter "received_packets", "Packets received";
    retransmissions: u64, Counter "repeated_packets", "Packets sent again because a result did not come";
    timeouts: u64, Counter "timeouts", "Time-outs of packets";
    nudged: u64, Counter "nudged_packets", "Packets sent again because another worker waited for them";
    stragglers: u64, Counter "stragglers", "How often a quorum had gone on without this worker";
    lost: u64, Counter "lost_packets", "Packets whose coordinates counted as zero";
    lost_coordinates: u64, Counter "lost_coordinates", "Coordinates of successful all-reduces that counted as zero";
    compression: Duration, Counter "compression_seconds", "Time in norms, transforms, quantization and dequantization";
    network: Duration, Counter "network_seconds", "Time in system calls that send and receive";
    waiting: Duration, Counter "waiting_seconds", "Time waiting for packets with nothing else to do";
    round_trip: Duration, Gauge "round_trip_seconds", "Smoothed round-trip time of data packets";
    shortest_round_trip: Duration, Gauge "shortest_round_trip_seconds", "The shortest of the recent round-trip times";
    window: u64, Gauge "window_packets", "Data packets that may be outstanding now";
    decreases: u64, Counter "window_decreases", "How often congestion made the window smaller";
    marks: u64, Counter "marked_results", "Results with a congestion mark: packets of their sums met a full queue, or they themselves did";
}

/// Coordinates that a worker has processed, padding included. They do not depend on time.
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
