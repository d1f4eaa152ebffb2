//! Settings of the simulated network.

use std::time::Duration;

use thc_transport::{FaultRates, TransportError};

/// Settings of a [`SimNet`](super::SimNet). The default is a perfect network: 10 µs latency,
/// nothing lost, unlimited bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimConfig {
    /// The seed of all random numbers. The same seed and the same calls give the same trace.
    pub seed: u64,
    /// The time from leaving the sender to reaching the receiver's last hop.
    pub latency: Duration,
    /// The largest time that is added to the latency, with a uniform distribution. Jitter alone never reorders a link.
    pub jitter: Duration,
    /// Probability that a datagram vanishes.
    pub loss: f64,
    /// Probability that a datagram arrives twice.
    pub duplicate: f64,
    /// Probability that a datagram arrives once more, long after: within [`Self::late_by`].
    pub late: f64,
    /// The longest delay of such a late copy.
    pub late_by: Duration,
    /// Probability that a datagram is held back so that later ones overtake it.
    pub reorder: f64,
    /// Probability that bits of a datagram flip (a burst within 15 bits, which the UDP checksum
    /// always detects).
    pub corrupt: f64,
    /// Bits per second of each endpoint, in each direction. `None` is unlimited. A datagram has the
    /// length of its payload and [`IPV4_UDP_HEADER_LEN`](thc_transport::IPV4_UDP_HEADER_LEN).
    pub bandwidth: Option<u64>,
    /// Bytes that a datagram takes on a wire beyond that length: 38 on Ethernet, from preamble to gap.
    pub framing: usize,
    /// The largest number of datagrams that wait for one endpoint, on its last hop or unread. Further
    /// ones are dropped.
    pub queue_packets: usize,
    /// The largest number of datagrams that wait to leave a host ([`SimNet::set_host`](super::SimNet::set_host)). `None` is
    /// any number.
    pub leaving_packets: Option<usize>,
    /// The number of waiting datagrams from which on a queue marks a further one (ECN), if that may be marked. `None` marks
    /// nothing.
    pub mark_packets: Option<usize>,
    /// Whether datagrams carry a checksum, so that corrupted ones are dropped. Without a checksum they
    /// are delivered as they are.
    pub checksums: bool,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            latency: Duration::from_micros(10),
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            late: 0.0,
            late_by: Duration::ZERO,
            reorder: 0.0,
            corrupt: 0.0,
            bandwidth: None,
            framing: 0,
            queue_packets: 1 << 16,
            leaving_packets: None,
            mark_packets: None,
            checksums: true,
        }
    }
}

impl SimConfig {
    /// The settings of every link that has none of its own.
    #[must_use]
    pub fn link(&self) -> LinkConfig {
        LinkConfig {
            latency: self.latency,
            jitter: self.jitter,
            loss: self.loss,
            duplicate: self.duplicate,
            late: self.late,
            late_by: self.late_by,
            reorder: self.reorder,
            corrupt: self.corrupt,
        }
    }
}

/// The settings of one direction between two endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// As [`SimConfig::latency`].
    pub latency: Duration,
    /// As [`SimConfig::jitter`].
    pub jitter: Duration,
    /// As [`SimConfig::loss`].
    pub loss: f64,
    /// As [`SimConfig::duplicate`].
    pub duplicate: f64,
    /// As [`SimConfig::late`].
    pub late: f64,
    /// As [`SimConfig::late_by`].
    pub late_by: Duration,
    /// As [`SimConfig::reorder`].
    pub reorder: f64,
    /// As [`SimConfig::corrupt`].
    pub corrupt: f64,
}

impl LinkConfig {
    /// Checks that every rate is a probability.
    ///
    /// # Errors
    /// [`TransportError::Probability`] for the first rate that is not.
    pub fn validate(&self) -> Result<(), TransportError> {
        FaultRates { loss: self.loss, duplicate: self.duplicate, reorder: self.reorder }.validate()?;
        for (name, value) in [("corrupt", self.corrupt), ("late", self.late)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(TransportError::Probability { name, value });
            }
        }
        Ok(())
    }
}
