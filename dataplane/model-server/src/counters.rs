//! The counters of a server.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $key:literal, $message:literal;)*) => {
        /// The reason for a refusal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $name = $code,)*
        }

        impl Reason {
            /// All of them, in the order of their codes from 1.
            pub const ALL: [Reason; [$($code),*].len()] = [$(Self::$name),*];

            /// The reason's name in statistics.
            #[must_use]
            pub fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// The message for a worker.
            #[must_use]
            pub fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)* }
            }

            pub(crate) fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

reasons! {
    /// Not a request of this version, or one that does not fit the model.
    Malformed = 1, "malformed", "the request is not one of this protocol version, or does not fit the model";
    /// A NaN or an infinite number.
    NotFinite = 2, "not_finite", "a vector has a number that is infinite or NaN";
    /// The epoch of a push has ended.
    Epoch = 3, "epoch", "the epoch has ended: take the new snapshot";
    /// A push answers a pull from before a restart of the server.
    Incarnation = 4, "incarnation", "the server has restarted since that pull: pull again";
    /// A push is older than τ allows.
    Late = 5, "late", "the gradient is older than the model's bound on delays: pull again";
    /// A push answers a pull that never was.
    Future = 6, "future", "the gradient answers a version that the model has not had";
    /// The shard has no value.
    Empty = 7, "empty", "the model has no value yet: one worker must initialise it";
    /// The secret is not that of the job.
    Proof = 8, "proof", "the secret is not that of the job";
    /// No such job.
    Job = 9, "job", "there is no job of this name";
    /// The model exists, but otherwise.
    Spec = 10, "spec", "the model is configured otherwise by the worker that made it";
    /// One more would be above a limit.
    Limit = 11, "limit", "that is above a limit of the server";
    /// Nothing came for too long.
    Silent = 12, "silent", "nothing came for too long";
    /// A newer connection of the same worker.
    Replaced = 13, "replaced", "another connection of the same worker has taken this one's place";
    /// The state cannot be kept.
    Disk = 14, "disk", "the server cannot write its state";
    /// A step would take a number out of range.
    Range = 15, "range", "the step would take the model out of the range of floats: it diverges; begin anew with a lower rate";
    /// A fault of the server itself.
    Broken = 16, "broken", "the server has failed within this part of the model: start it again, and the model goes on from its last file";
    /// The model was deleted.
    Deleted = 18, "deleted", "the model has been deleted";
    /// The job has all the connections that it may have.
    Full = 17, "full", "the job has all the connections that it may have: raise the server's --connections";
}

/// Counters that many threads add to.
#[derive(Debug, Default)]
pub struct Counters {
    refused: [AtomicU64; Reason::ALL.len()],
    pub(crate) connections: AtomicU64,
    pub(crate) pulls: AtomicU64,
    pub(crate) flags: AtomicU64,
    pub(crate) pulled_bytes: AtomicU64,
    pub(crate) pushes: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) pushed_bytes: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    pub(crate) epochs: AtomicU64,
    pub(crate) saves: AtomicU64,
}

impl Counters {
    pub(crate) fn refuse(&self, reason: Reason) {
        add(&self.refused[reason as usize - 1], 1);
    }

    /// The number of refusals for this reason.
    #[must_use]
    pub fn refusal_count(&self, reason: Reason) -> u64 {
        get(&self.refused[reason as usize - 1])
    }

    pub(crate) fn read(&self) -> ModelJobStats {
        ModelJobStats {
            connections: get(&self.connections),
            pulls: get(&self.pulls),
            flags: get(&self.flags),
            pulled_bytes: get(&self.pulled_bytes),
            pushes: get(&self.pushes),
            repeated: get(&self.repeated),
            waits: get(&self.waits),
            pushed_bytes: get(&self.pushed_bytes),
            snapshots: get(&self.snapshots),
            epochs: get(&self.epochs),
            saves: get(&self.saves),
            refused: Reason::ALL
                .into_iter()
                .filter(|reason| self.refusal_count(*reason) > 0)
                .map(|reason| (reason.key(), self.refusal_count(reason)))
                .collect(),
            models: Vec::new(),
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The totals of a server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ModelServerStats {
    /// What never got as far as a job: handshakes and introductions.
    pub refused: std::collections::BTreeMap<&'static str, u64>,
    /// The jobs by name.
    pub jobs: std::collections::BTreeMap<String, ModelJobStats>,
}

/// The totals of a job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ModelJobStats {
    /// Connections of workers, all that ever were.
    pub connections: u64,
    /// Pulls answered, of one shard each.
    pub pulls: u64,
    /// Pulls that were answered by a flag alone.
    pub flags: u64,
    /// Bytes of vectors pulled.
    pub pulled_bytes: u64,
    /// Pushes taken, of one shard each.
    pub pushes: u64,
    /// Pushes that had been taken before.
    pub repeated: u64,
    /// Pushes that waited for a slower worker.
    pub waits: u64,
    /// Bytes of vectors pushed and taken.
    pub pushed_bytes: u64,
    /// Snapshots sent.
    pub snapshots: u64,
    /// Epochs ended, of one shard each.
    pub epochs: u64,
    /// State files written.
    pub saves: u64,
    /// What was refused, by reason.
    pub refused: std::collections::BTreeMap<&'static str, u64>,
    /// Each model's shards.
    pub models: Vec<(String, Vec<ShardStats>)>,
}

/// Where a shard is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShardStats {
    /// `empty`, `waiting` or `running`; `broken` after a fault of the server.
    pub phase: &'static str,
    /// Epochs completed.
    pub epoch: u64,
    /// Pushes taken in this epoch.
    pub step: u64,
    /// Pushes taken in all: the clock.
    pub version: u64,
    /// The version in the state file.
    pub durable: u64,
    /// Precision of the last pull.
    pub bits: u8,
    /// Delays of pushes since the start: how many of 0, 1, 2–3, 4–7, …
    pub delays: [u64; 16],
    /// The longest of them.
    pub longest_delay: u64,
    /// Workers that were waited for in vain.
    pub expired: u64,
}
