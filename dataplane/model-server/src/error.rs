//! The error type of the crate.

use std::path::PathBuf;
use std::time::Duration;

/// An error, whose message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A [`Spec`](crate::Spec) is invalid.
    #[error("model: {0}")]
    Spec(String),
    /// A configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// A configuration file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The server cannot listen on the address, or no socket can be opened.
    #[error("cannot use {address}: {reason}")]
    Socket {
        /// Which address.
        address: String,
        /// Why.
        reason: String,
    },
    /// A file of the state cannot be read or written.
    #[error("state {}: {reason}", path.display())]
    State {
        /// Which file.
        path: PathBuf,
        /// The problem, and what to do.
        reason: String,
    },
    /// No server answers.
    #[error("model server {server} has not answered for {waited:?}: {reason}")]
    Unreachable {
        /// Which server.
        server: String,
        /// How long the worker has tried.
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
    /// The server refuses a request.
    #[error("model server {server}: {reason}")]
    Refused {
        /// Which server.
        server: String,
        /// The server's reason.
        reason: String,
    },
    /// A vector that was passed to a function does not fit the model.
    #[error("{what} has {actual} coordinates, the model has {expected}")]
    Length {
        /// The vector.
        what: &'static str,
        /// The length that it must have.
        expected: usize,
        /// Its actual length.
        actual: usize,
    },
    /// A vector cannot be encoded.
    #[error(transparent)]
    Codec(#[from] thc_codec::CodecError),
    /// No worker has given the model its first value, or a server that keeps no state has restarted.
    #[error("the model, or the part of it on one server, has no value: one worker must initialise it")]
    Empty,
    /// The system lacks a resource.
    #[error("{0}")]
    System(#[from] std::io::Error),
}
