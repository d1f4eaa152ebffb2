//! Payloads of JOIN, LEAVE, PENDING, REFUSED and ASK (P2, P22, P24, P25).

use super::layout::{Value, codes, payload};
use crate::{Cookie, WorkerId};

payload! {
    /// A worker introduces itself.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Join[JOIN_LEN = 32] {
        /// Random per incarnation of the worker.
        0 nonce: u64,
        /// The session it was welcomed to, if any; cookie 0 stands for none.
        8 session: Cookie,
        /// From a rack: whether that session is over because a member of the rack has restarted.
        12 ends: bool,
        /// [`super::Welcome::fingerprint`] of what it was welcomed with; 0 without a session.
        16 fingerprint: u64,
        /// Digest of the numbers that its build computes; 0 skips the comparison.
        24 definitions: u64,
    }
}

payload! {
    /// A worker is done.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Leave[LEAVE_LEN = 8] {
        /// The nonce it joined with.
        0 nonce: u64,
    }
}

payload! {
    /// Not all members are here yet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Pending[PENDING_LEN = 8] {
        /// One bit for each worker that has joined.
        0 joined: u64,
    }
}

payload! {
    /// Asks a member whether it still runs, before its number is given to another worker (P24 incarnations).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Ask[ASK_LEN = 8] {
        /// The nonce it joined with.
        0 nonce: u64,
    }
}

payload! {
    /// The answer to a JOIN that fails.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Refused[REFUSED_LEN = 4] {
        /// The reason.
        0 reason: RefuseReason,
        /// The worker that is the reason, or [`WorkerId::NONE`].
        1 worker: WorkerId,
    }
}

codes! {
    /// The reason why a worker cannot join, or must join anew.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    #[allow(missing_docs, reason = "the messages say it")]
    pub enum RefuseReason {
        #[error("unknown job")]
        UnknownJob = 1,
        #[error("wrong cookie")]
        WrongCookie = 2,
        #[error("worker number out of range")]
        WorkerOutOfRange = 3,
        #[error("worker number in use by another process")]
        WorkerInUse = 4,
        #[error("the session is re-forming")]
        Reforming = 5,
        #[error("its build computes other numbers than the others': install the same version everywhere")]
        Definitions = 6,
        #[error("this server is not the job's first share, where workers join")]
        NotFirst = 7,
        #[error("the rack's root does not let it in; the rack's log says why")]
        Root = 8,
    }
}

impl Value for RefuseReason {
    fn read(from: &[u8]) -> Option<RefuseReason> {
        RefuseReason::from_byte(*from.first()?)
    }

    fn write(&self, to: &mut [u8]) {
        to[0] = *self as u8;
    }
}
