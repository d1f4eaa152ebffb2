//! Payload of REFUSED (P24).

use crate::WorkerId;
use std::fmt;

/// Length in bytes.
pub const REFUSED_LEN: usize = 4;

/// Why a worker cannot join, or must join anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefuseReason {
    /// The PS has no such job.
    UnknownJob = 1,
    /// The job's configured cookie is another one.
    WrongCookie = 2,
    /// The job has fewer workers.
    WorkerOutOfRange = 3,
    /// Another address sends as this worker.
    WorkerInUse = 4,
    /// The worker named has restarted: all must join anew.
    Reforming = 5,
    /// Its build computes other numbers than that of the worker named (P26).
    Definitions = 6,
    /// This server is a share, but not the first one, where workers join (P24).
    NotFirst = 7,
    /// The root does not let this rack in, or has another job than it (P38).
    Root = 8,
}

impl fmt::Display for RefuseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefuseReason::UnknownJob => "unknown job",
            RefuseReason::WrongCookie => "wrong cookie",
            RefuseReason::WorkerOutOfRange => "worker number out of range",
            RefuseReason::WorkerInUse => "worker number in use by another process",
            RefuseReason::Reforming => "the session is re-forming",
            RefuseReason::Definitions => {
                "its build computes other numbers than the others': install the same version everywhere"
            }
            RefuseReason::Root => "the rack's root does not let it in; the rack's log says why",
            RefuseReason::NotFirst => "this server is not the job's first share, where workers join",
        })
    }
}

/// The answer to a JOIN that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: RefuseReason,
    /// The worker it is about, or [`WorkerId::NONE`].
    pub worker: WorkerId,
}

impl Refused {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Refused> {
        let p: &[u8; REFUSED_LEN] = payload.try_into().ok()?;
        let reason = match p[0] {
            1 => RefuseReason::UnknownJob,
            2 => RefuseReason::WrongCookie,
            3 => RefuseReason::WorkerOutOfRange,
            4 => RefuseReason::WorkerInUse,
            5 => RefuseReason::Reforming,
            6 => RefuseReason::Definitions,
            7 => RefuseReason::NotFirst,
            8 => RefuseReason::Root,
            _ => return None,
        };
        Some(Refused { reason, worker: WorkerId(p[1]) })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; REFUSED_LEN] {
        [self.reason as u8, self.worker.0, 0, 0]
    }
}
