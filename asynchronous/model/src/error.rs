//! The one error type of the crate.

use std::path::PathBuf;
use std::time::Duration;

/// What can go wrong, with the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A [`Spec`](crate::Spec) that makes no sense.
    #[error("model: {0}")]
    Spec(String),
    /// A configuration that makes no sense.
    #[error("{0}")]
    Config(String),
    /// A configuration file that cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The address cannot be listened on, or no socket can be opened.
    #[error("cannot use {address}: {reason}")]
    Socket {
        /// Which address.
        address: String,
        /// Why.
        reason: String,
    },
    /// A file of the state that cannot be read or written.
    #[error("state {}: {reason}", path.display())]
    State {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and the way out.
        reason: String,
    },
    /// No server answers.
    #[error("model server {server} has not answered for {waited:?}: {reason}")]
    Unreachable {
        /// Which server.
        server: String,
        /// How long it was tried.
        waited: Duration,
        /// The last failure.
        reason: String,
    },
    /// The server does not know the job's secret, or this worker does not.
    #[error(
        "model server {server} and this worker do not have the same secret for job {job}: give both the same"
    )]
    Secret {
        /// Which server.
        server: String,
        /// Which job.
        job: String,
    },
    /// The server refuses what was asked.
    #[error("model server {server}: {reason}")]
    Refused {
        /// Which server.
        server: String,
        /// What it says.
        reason: String,
    },
    /// What was passed to a function does not fit the model.
    #[error("{what} has {actual} coordinates, the model has {expected}")]
    Length {
        /// What was passed.
        what: &'static str,
        /// Length it must have.
        expected: usize,
        /// Length it has.
        actual: usize,
    },
    /// A vector that cannot be encoded.
    #[error(transparent)]
    Codec(#[from] thc_codec::CodecError),
    /// Nobody has given the model its first value, or a server has restarted and keeps no state.
    #[error("the model, or the part of it on one server, has no value: one worker must initialise it")]
    Empty,
    /// The program runs out of something.
    #[error("{0}")]
    System(#[from] std::io::Error),
}
