//! The counters of a server, and the reasons for which it refuses a request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::Spec;

macro_rules! reasons {
    ($($name:ident, $key:literal, $message:literal;)*) => {
        /// The reason for a refusal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Reason {
            $(#[doc = $message] $name,)*
        }

        impl Reason {
            const ALL: &[Reason] = &[$(Self::$name),*];

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
        }
    };
}

reasons! {
    Malformed, "malformed", "the request is not one of this protocol version, or does not fit the model";
    NotFinite, "not_finite", "a vector has a number that is infinite or NaN";
    Epoch, "epoch", "the epoch has ended: take the new snapshot";
    Incarnation, "incarnation", "the server has restarted since that pull: pull again";
    Late, "late", "the gradient is older than the model's bound on delays: pull again";
    Future, "future", "the gradient answers a version that the model has not had";
    Empty, "empty", "the model has no value yet: one worker must initialise it";
    Proof, "proof", "the secret is not that of the job";
    Job, "job", "there is no job of this name";
    Spec, "spec", "the model is configured otherwise by the worker that made it";
    Limit, "limit", "that is above a limit of the server";
    Silent, "silent", "nothing came for too long";
    Replaced, "replaced", "another connection of the same worker has taken this one's place";
    Disk, "disk", "the server cannot write its state: see its log";
    Range, "range", "the step would take the model out of the range of floats: it diverges; begin anew with a lower rate";
    Broken, "broken", "the server has failed within this part of the model: start it again, and the model goes on from its last file";
    Deleted, "deleted", "the model has been deleted";
    Full, "full", "the job has as many connections as it may have: --connections, divided by the number of jobs";
}

impl Reason {
    /// Closes a connection for this reason. Code 0 is an end without one.
    pub(crate) fn close(self, connection: &quinn::Connection) {
        connection.close((self as u32 + 1).into(), self.message().as_bytes());
    }

    /// The reason that a close had, if it had one.
    pub(crate) fn of_close(close: &quinn::ApplicationClose) -> Option<Self> {
        let code = usize::try_from(close.error_code.into_inner()).ok()?;
        Self::ALL.get(code.checked_sub(1)?).copied()
    }
}

/// The number of refusals by the reason's key.
pub type Refusals = BTreeMap<&'static str, u64>;

/// The totals of a server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ModelServerStats {
    /// Refusals before a connection belongs to a job: of handshakes and introductions.
    pub refused: Refusals,
    /// The jobs by name.
    pub jobs: BTreeMap<String, ModelJobStats>,
}

/// The totals of a job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ModelJobStats {
    /// Connections of workers, all that ever were.
    pub connections: u64,
    /// Pulls answered, of one shard each.
    pub pulls: u64,
    /// Bytes of vectors pulled.
    pub pulled_bytes: u64,
    /// Pushes taken, of one shard each.
    pub pushes: u64,
    /// Bytes of vectors pushed and taken.
    pub pushed_bytes: u64,
    /// State files written.
    pub saves: u64,
    /// Refusals by reason.
    pub refused: Refusals,
    /// The models.
    pub models: Vec<ModelStats>,
}

/// A model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelStats {
    /// The model's name.
    pub name: String,
    /// The model's specification.
    pub spec: Spec,
    /// The pushes that its slowest shard has taken.
    pub version: u64,
    /// The pushes that its quickest shard has taken.
    pub quickest: u64,
    /// Each shard.
    pub shards: Vec<ShardStats>,
}

/// The progress of a shard.
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
    /// The longest delay of a push since the start.
    pub longest_delay: u64,
}
