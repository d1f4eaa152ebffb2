//! How calls and sessions fail.

use crate::WorkerId;
use crate::wire::{Change, Norm};
use std::fmt;
use std::time::Duration;

/// A call fails on all workers alike; the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// P19.
    #[error(
        "worker {worker} has a NaN or an infinity in its gradient: this all-reduce failed on every worker"
    )]
    NonFinite {
        /// The worker, the highest number if several.
        worker: WorkerId,
    },
    /// P19: the slot holds a maximum that no worker may have sent.
    #[error(
        "the norm of partition {partition} is {value:#010x}, which no worker may send: a packet was damaged on the \
         way, and this all-reduce failed on every worker"
    )]
    Norm {
        /// The partition, the first if several.
        partition: u32,
        /// The maximum, as it came.
        value: u32,
    },
}

/// A session ends; workers must join anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// P14.
    #[error(
        "workers called different all-reduces: {} here, but worker {worker} called {} where others called {}",
        OptionalCall(*mine), Call(*refused), Call(*slot)
    )]
    Mismatch {
        /// This worker's call on that slot, if it has one already.
        mine: Option<Norm>,
        /// The worker that was refused.
        worker: WorkerId,
        /// What the others have.
        slot: Norm,
        /// What it has.
        refused: Norm,
    },
    /// The aggregator answers, but not all workers have sent.
    #[error("still missing after {} s: {}", seconds(*waited), Workers(*missing))]
    Missing {
        /// One bit per worker that is not in the slot all wait for.
        missing: u64,
        /// How long nothing has moved.
        waited: Duration,
    },
    /// P19: the maximum of a partition is below this worker's own norm.
    #[error(
        "the largest norm of partition {partition} came back as {:e}, below this worker's own {:e}: a packet was \
         damaged on the way, join anew", f32::from_bits(*maximum), f32::from_bits(*own)
    )]
    NormLost {
        /// The partition.
        partition: u32,
        /// This worker's value, f32 bits.
        own: u32,
        /// The maximum, f32 bits.
        maximum: u32,
    },
    /// Nothing comes back.
    #[error("the parameter server has not answered for {} s", seconds(*waited))]
    Silent {
        /// How long.
        waited: Duration,
    },
    /// A quorum has gone on so far that this worker cannot follow.
    #[error("the other workers have gone on without this one by quorum: join anew")]
    LeftBehind,
    /// The session has a new incarnation (P24).
    #[error("{}: all workers must join anew", Restarted(*worker))]
    Reforming {
        /// The worker that restarted, or [`WorkerId::NONE`] if that is not known.
        worker: WorkerId,
    },
    /// The server was restarted with another configuration of the job (P24).
    #[error(
        "the parameter server was restarted with another configuration ({change}): all workers must join anew"
    )]
    Changed {
        /// What differs.
        change: Change,
    },
}

struct Restarted(WorkerId);

impl fmt::Display for Restarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == WorkerId::NONE {
            f.write_str("the session has ended")
        } else {
            write!(f, "worker {} has restarted", self.0)
        }
    }
}

fn seconds(d: Duration) -> String {
    format!("{:.1}", d.as_secs_f64())
}

/// Lists the workers of a bitmap: "worker 2", "workers 2, 3".
#[derive(Clone, Copy, Debug)]
pub struct Workers(pub u64);

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.count_ones() == 1 { "worker" } else { "workers" })?;
        let mut separator = " ";
        for worker in (0..64).filter(|w| self.0 >> w & 1 == 1) {
            write!(f, "{separator}{worker}")?;
            separator = ", ";
        }
        Ok(())
    }
}

struct Call(Norm);

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Norm { call, length, key, mode, table, .. } = self.0;
        write!(f, "all-reduce #{call} of {length} coordinates (tensor {key:#x}, ")?;
        if mode == 0 { write!(f, "table {table})") } else { write!(f, "uncompressed)") }
    }
}

struct OptionalCall(Option<Norm>);

impl fmt::Display for OptionalCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(norm) => Call(norm).fmt(f),
            None => f.write_str("nothing yet"),
        }
    }
}
