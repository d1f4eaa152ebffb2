//! The requests of a client, and their answers.

use crate::counters::Reason;
use crate::payload::{Encoding, VectorSize};
use crate::shard::Stamp;
use std::time::Duration;
use thc_config::values::Secret;

/// The server and the job of a worker's model, and the worker's identity.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `host:port` of the server.
    pub server: String,
    /// The job's name.
    pub job: String,
    /// The job's secret.
    pub secret: Secret,
    /// This worker's number. Of two processes with the same number, the later one ends the other's connection.
    pub worker: u16,
    /// The time without an answer after which a call fails; the server may restart meanwhile.
    pub timeout: Duration,
    /// The seed of this worker's rounding.
    pub seed: u64,
}

/// The options of a pull.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pull {
    /// Wait, up to seconds, while all that is missing is the epoch's gradient.
    pub patient: bool,
}

/// The options of a push.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    /// The encoding of the gradient.
    pub encoding: Encoding,
    /// The factor of the model's rate.
    pub scale: f32,
}

/// The state of a shard that a pull found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardState {
    /// The shard has no value.
    Empty,
    /// It waits for the full-batch gradient of this epoch; what was pulled before stays.
    Waiting(u64),
    /// The vector holds this state of it.
    Running(Stamp),
}

/// The result of a pull.
#[derive(Clone, Debug, Default)]
pub struct Pulled {
    /// The state of each shard.
    pub shards: Vec<ShardState>,
}

/// The outcome of a push.
#[derive(Clone, Debug, Default)]
#[must_use = "shards may have refused the push"]
pub struct Pushed {
    /// The number of shards that accepted the push.
    pub accepted_shards: usize,
    /// The longest delay among these.
    pub delay: u64,
    /// The shards that refused the push, with their reasons.
    pub refused: Vec<(usize, Reason)>,
}

/// The totals of a worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientStats {
    /// Pulls of a shard.
    pub pulls: u64,
    /// Pulls that were answered by a flag alone.
    pub flags: u64,
    /// Pushes of a shard that were taken.
    pub pushes: u64,
    /// Pushes of a shard that were not.
    pub refused: u64,
    /// Bytes of pulls.
    pub pulled: VectorSize,
    /// Bytes of pushes.
    pub pushed: VectorSize,
    /// Bytes of snapshots, initial values and epochs' gradients.
    pub whole: VectorSize,
    /// Sum and largest of the delays of pushes taken.
    pub delays: u64,
    /// The largest of them.
    pub longest_delay: u64,
    /// Connections made anew.
    pub reconnections: u64,
    /// Steps that a restarted server had forgotten, of the versions this worker had seen.
    pub forgotten: u64,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            server: "127.0.0.1:9100".to_owned(),
            job: "train".to_owned(),
            secret: Secret::default(),
            worker: 0,
            timeout: Duration::from_secs(120),
            seed: 0,
        }
    }
}

impl Push {
    /// In this form, at the model's rate.
    #[must_use]
    pub fn with_encoding(encoding: Encoding) -> Self {
        Self { encoding, scale: 1.0 }
    }

    /// `bits` for every coordinate; 32: floats.
    #[must_use]
    pub fn bits(bits: u8) -> Self {
        Self::with_encoding(if bits == 32 { Encoding::Full } else { Encoding::Dense { bits } })
    }

    /// Sparsified with the paper's budget.
    #[must_use]
    pub fn sparse(bits: u8) -> Self {
        Self::with_encoding(Encoding::Sparse { bits, budget: None })
    }
}

impl Pulled {
    /// The epoch whose gradient all shards wait for.
    #[must_use]
    pub fn waiting_epoch(&self) -> Option<u64> {
        let epoch = match self.shards.first()? {
            ShardState::Waiting(epoch) => *epoch,
            _ => return None,
        };
        self.shards.iter().all(|shard| *shard == ShardState::Waiting(epoch)).then_some(epoch)
    }

    /// Returns whether at least one shard has no value: the model is new, or the server has lost it. Nothing can be pushed
    /// until a worker has initialised it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.contains(&ShardState::Empty)
    }

    /// Returns whether at least one shard takes pushes.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.shards.iter().any(|shard| matches!(shard, ShardState::Running(_)))
    }

    /// Pushes that the shards that run have taken.
    pub fn stamps(&self) -> impl Iterator<Item = Stamp> + '_ {
        self.shards.iter().filter_map(|shard| match shard {
            ShardState::Running(stamp) => Some(*stamp),
            _ => None,
        })
    }
}
