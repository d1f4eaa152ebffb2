//! What an engine is made of.

use std::net::SocketAddr;
use std::time::Duration;
use thc_protocol::{JobId, WorkerId};

/// What an engine is made of.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// The parameter server's base address.
    pub ps: SocketAddr,
    /// The job.
    pub job: JobId,
    /// This worker.
    pub worker: WorkerId,
    /// How long a session may stand still.
    pub timeout: Duration,
    /// The longer time that applies instead while the aggregator answers and only other workers are late.
    pub patience: Duration,
    /// Shortest retransmission time-out.
    pub min_rto: Duration,
    /// Seed of the private rounding, `None` to derive it.
    pub seed: Option<u64>,
    /// Threads that compute, the caller's among them; at least 1.
    pub threads: usize,
}
