//! What comes of joining.

use crate::wire::{Change, RefuseReason, Welcome, WelcomeError};
use crate::{JobId, WorkerId};
use std::net::SocketAddr;
use std::time::Duration;

/// Why a worker cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The PS says no.
    #[error("the parameter server refuses worker {worker} of job {job}: {reason}")]
    Refused {
        /// The job.
        job: JobId,
        /// This worker.
        worker: WorkerId,
        /// Why.
        reason: RefuseReason,
    },
    /// The PS does not answer.
    #[error("no parameter server answers: check its address and that it runs (waited {} s)", waited.as_secs())]
    Silent {
        /// How long.
        waited: Duration,
    },
    /// A share that is not the first does not answer.
    #[error("share {share} of the parameter server, at {at}, does not answer: check that it runs there and that this host reaches it (waited {} s)", waited.as_secs())]
    ShareSilent {
        /// Its number.
        share: usize,
        /// Where it should be.
        at: SocketAddr,
        /// How long.
        waited: Duration,
    },
    /// What the PS says of the job, this version does not know.
    #[error(
        "this worker cannot take part in the parameter server's job {job}: {reason}; change the job, or use the server's version"
    )]
    Unusable {
        /// The job.
        job: JobId,
        /// What is wrong with it, or new.
        reason: WelcomeError,
    },
    /// Not all came to a share.
    #[error("{} did not reach share {share} of job {job}, at {at}, within {} s: check that their hosts reach that address", crate::worker::Workers(*missing), waited.as_secs())]
    ShareMissing {
        /// The job.
        job: JobId,
        /// The share's number.
        share: usize,
        /// Where it is.
        at: SocketAddr,
        /// One bit per worker that is not there.
        missing: u64,
        /// How long.
        waited: Duration,
    },
    /// A share has the job configured otherwise.
    #[error(
        "share {share} of the parameter server, at {at}, has another job than the first ({change}): configure all alike"
    )]
    ShareDiffers {
        /// Its number.
        share: usize,
        /// Where it is.
        at: SocketAddr,
        /// How its job differs.
        change: Change,
    },
    /// A share says no.
    #[error(
        "share {share} of the parameter server, at {at}, refuses: {reason}; give every share the same job"
    )]
    ShareRefused {
        /// Its number.
        share: usize,
        /// Where it is.
        at: SocketAddr,
        /// Why.
        reason: RefuseReason,
    },
    /// The job has another number of workers than this program runs.
    #[error(
        "job {job} has {workers} workers, and this program runs {expected}: start as many, or change the job"
    )]
    Workers {
        /// The job.
        job: JobId,
        /// How many workers it has.
        workers: u16,
        /// How many the program runs.
        expected: u16,
    },
    /// Not all racks came.
    #[error("{} of job {job} did not reach the root within {} s: check that all workers of these racks are there, and that the root runs", crate::worker::OfRacks(*missing), waited.as_secs())]
    MissingRacks {
        /// The job.
        job: JobId,
        /// One bit per rack that is not complete.
        missing: u64,
        /// How long.
        waited: Duration,
    },
    /// Not all came.
    #[error("{} did not join job {job} within {} s: check that all were started, or wait longer", crate::worker::Workers(*missing), waited.as_secs())]
    Missing {
        /// The job.
        job: JobId,
        /// One bit per worker that is not here.
        missing: u64,
        /// How long.
        waited: Duration,
    },
}

/// What a packet meant to a joiner.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one at a time, when a session begins")]
pub enum JoinEvent {
    /// The session has begun, or goes on; the second is n.
    Welcome(Welcome, u8),
    /// These have joined so far, of n.
    Pending(u64, u8),
    /// All members of this rack are here; so many racks of so many are complete so far.
    PendingRacks(u64, u8),
    /// The members of the session that have neither left nor ended, one bit each.
    Here(u64),
    /// The session is over: join anew.
    Reforming(WorkerId),
    /// The session is over, since the job is another one now: join anew.
    Changed(Change),
    /// All have left.
    Bye,
    /// It will not work.
    Failed(JoinError),
}
