//! The results of joining: events and errors.

use crate::wire::{Change, RefuseReason, Welcome, WelcomeError};
use crate::{JobId, WorkerId};
use std::net::SocketAddr;
use std::time::Duration;

/// The reason why a worker cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name them")]
pub enum JoinError {
    #[error("the parameter server refuses worker {worker} of job {job}: {reason}")]
    Refused { job: JobId, worker: WorkerId, reason: RefuseReason },
    #[error("no parameter server answers: check its address and that it runs (waited {} s)", waited.as_secs())]
    Silent { waited: Duration },
    #[error("share {share} of the parameter server, at {at}, does not answer: check that it runs there and that this host reaches it (waited {} s)", waited.as_secs())]
    ShareSilent { share: usize, at: SocketAddr, waited: Duration },
    #[error(
        "this worker cannot take part in the parameter server's job {job}: {reason}; change the job, or use the server's version"
    )]
    Unusable { job: JobId, reason: WelcomeError },
    /// `missing` has one bit for each worker that did not come to a share.
    #[error("{} did not reach share {share} of job {job}, at {at}, within {} s: check that their hosts reach that address", crate::worker::Workers(*missing), waited.as_secs())]
    ShareMissing { job: JobId, share: usize, at: SocketAddr, missing: u64, waited: Duration },
    #[error(
        "share {share} of the parameter server, at {at}, has another job than the first ({change}): configure all alike"
    )]
    ShareDiffers { share: usize, at: SocketAddr, change: Change },
    #[error(
        "share {share} of the parameter server, at {at}, refuses: {reason}; give every share the same job"
    )]
    ShareRefused { share: usize, at: SocketAddr, reason: RefuseReason },
    #[error(
        "job {job} has {workers} workers, and this program runs {expected}: start as many, or change the job"
    )]
    Workers { job: JobId, workers: u16, expected: u16 },
    /// `missing` has one bit for each rack that is not complete.
    #[error("{} of job {job} did not reach the root within {} s: check that all workers of these racks are there, and that the root runs", crate::worker::OfRacks(*missing), waited.as_secs())]
    MissingRacks { job: JobId, missing: u64, waited: Duration },
    /// `missing` has one bit for each worker that did not come.
    #[error("{} did not join job {job} within {} s: check that all were started, or wait longer", crate::worker::Workers(*missing), waited.as_secs())]
    Missing { job: JobId, missing: u64, waited: Duration },
}

/// The meaning of a packet to a joiner.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one at a time, when a session begins")]
pub enum JoinEvent {
    /// The session has begun, or has been resumed.
    Welcome(Welcome),
    /// One bit for each worker that has joined, and n.
    Pending(u64, u8),
    /// All members of this rack have joined: one bit for each rack that is complete, and the number of racks.
    PendingRacks(u64, u8),
    /// One bit for each member of the session that has neither left nor ended (P25 LEAVE).
    Here(u64),
    /// The session is over, because of this worker: join anew.
    Reforming(WorkerId),
    /// The session is over, because the job has been configured anew: join anew.
    Changed(Change),
    /// All have left.
    Bye,
    /// This worker cannot join.
    Failed(JoinError),
}
