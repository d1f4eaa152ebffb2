//! The failures of an all-reduce.

use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io};
use thc_codec::error::CodecError;
use thc_protocol::TableId;
use thc_protocol::session::JoinError;
use thc_protocol::worker::{CallError, SessionError};
use thc_transport::TransportError;

/// Every failure that the library reports.
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum WorkerError {
    /// The group could not be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// This all-reduce failed on every worker alike; the data is unchanged, and the next may succeed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The session is over: join anew.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The parameter server does not answer.
    #[error(transparent)]
    Silent(#[from] Silence),
    /// Nothing to reduce.
    #[error("an all-reduce needs at least one coordinate")]
    Empty,
    /// More than the protocol can number.
    #[error("{length} coordinates are too many for one all-reduce: split it below 2^32")]
    TooLong { length: usize },
    /// A plan that is none for this tensor.
    #[error("the plan's spans have {planned} coordinates together, the tensor has {length}: plan all of it")]
    Plan { planned: usize, length: usize },
    /// A span of nothing.
    #[error("span {span} of the plan, counted from 0, has no coordinates: leave it out")]
    EmptySpan { span: usize },
    /// A plan for another job.
    #[error("the job has no table {table}: its tables are {tables}; or choose \"raw\"")]
    NoTable { table: TableId, tables: String },
    /// Ranks whose sums something else adds up do not call the same.
    #[error(
        "ranks call different all-reduces as number {call}: give all the same lengths, plans and keys in the same order"
    )]
    Differs { call: u64 },
    /// Memory for a packed call that does not fit it.
    #[error("a packed all-reduce was given {actual} {what}, and needs {expected}: ask for its layout first")]
    PackedMemory { what: &'static str, expected: usize, actual: usize },
    /// The caller of a packed call dropped it before all its indices were sent.
    #[error(
        "a packed all-reduce was given up before all its indices were there: the session is over, join anew"
    )]
    Abandoned,
    /// [`Group::give_up`](crate::Group::give_up) was called.
    #[error("this worker has given the session up: join anew, as all workers must")]
    GivenUp,
    /// A tensor changed its length.
    #[error(
        "tensor {key:#x} had {before} coordinates before and {now} now: give another key, or reset its error feedback"
    )]
    FeedbackLength { key: u64, before: usize, now: usize },
    /// A call with the tensor's key is under way.
    #[error("tensor {key:#x} is still being reduced: wait for its handle first")]
    FeedbackBusy { key: u64 },
    /// Saved error feedback does not fit.
    #[error("saved error feedback of tensor {key:#x}: {reason}")]
    FeedbackState { key: u64, reason: String },
    /// The parameter server offers something that this worker cannot use.
    #[error("the parameter server's job does not fit: {reason}")]
    Unusable { reason: String },
    /// The controller refused, or is not there.
    #[error("{url}: {message}")]
    Controller { url: String, message: String },
    /// The network failed.
    #[error("{0}")]
    Io(String),
    /// The transforms or the quantizer refuse the numbers: the session is over.
    #[error("the session cannot go on, join anew: {0}")]
    Codec(#[from] CodecError),
    /// A panic, here or on the background thread, left the group unusable.
    #[error("a fault in this program ended the group, close it and join with a new one: {message}")]
    Panicked { message: String },
    /// The group was dropped before the call was done.
    #[error("the group has been closed")]
    Closed,
}

/// A parameter server that does not answer: the worker cannot join, or the session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct Silence {
    /// The server's address.
    pub at: SocketAddr,
    /// True if its host says that no program listens there (ICMP).
    pub refused: bool,
    /// The time since its last packet.
    pub waited: Duration,
    /// True if this worker was joining.
    pub joining: bool,
}

impl Silence {
    /// The problem, without the remedy.
    #[must_use]
    pub fn finding(&self) -> String {
        let (at, waited) = (self.at, self.waited.as_secs_f64());
        if self.refused {
            format!("nobody listens on {at} (UDP), refused for {waited:.1} s")
        } else {
            format!("the parameter server {at} (UDP) has not answered for {waited:.1} s")
        }
    }

    /// The remedy.
    #[must_use]
    pub fn check(&self) -> &'static str {
        if self.refused {
            "check that thc-ps runs there"
        } else {
            "check that it runs, and that firewalls pass UDP both ways"
        }
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (finding, check, at) = (self.finding(), self.check(), self.at);
        write!(f, "{finding}: {check}; `thc-worker doctor --ps {at}` looks further")
    }
}

impl From<io::Error> for WorkerError {
    fn from(error: io::Error) -> Self {
        WorkerError::Io(error.to_string())
    }
}

impl From<TransportError> for WorkerError {
    fn from(error: TransportError) -> Self {
        WorkerError::Io(error.to_string())
    }
}
