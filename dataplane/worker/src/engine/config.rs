//! The configuration of an engine.

use crate::Rounding;
use std::net::SocketAddr;
use std::time::Duration;
use thc_protocol::{JobId, WorkerId};

/// The configuration of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// The parameter server's base address.
    pub ps: SocketAddr,
    /// The job.
    pub job: JobId,
    /// This worker.
    pub worker: WorkerId,
    /// The longest time that a session may make no progress.
    pub timeout: Duration,
    /// The longer time that applies instead while the aggregator answers and only other workers are late.
    pub patience: Duration,
    /// Shortest retransmission time-out.
    pub min_rto: Duration,
    /// This worker's way of rounding.
    pub rounding: Rounding,
    /// Threads that compute, the caller's among them; at least 1.
    pub threads: usize,
}
