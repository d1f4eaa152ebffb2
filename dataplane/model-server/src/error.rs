//! The error type of the crate.

use std::path::PathBuf;

/// An error, whose message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ModelError {
    /// An argument, an option or a [`Spec`](crate::Spec) is wrong, or a file of options cannot be read.
    #[error("{0}")]
    Config(String),
    /// The server cannot listen on the address, or no socket can be opened.
    #[error("cannot listen on {address}: {reason}; give another address or end what listens there")]
    Socket { address: String, reason: String },
    /// A file of the state cannot be read or written.
    #[error("state {}: {reason}", path.display())]
    State { path: PathBuf, reason: String },
    /// A server has not answered within the time-out.
    #[error("model server {server} does not answer: {reason}")]
    Unreachable { server: String, reason: String },
    /// The server refuses a request, or has not the job's secret.
    #[error("model server {server}: {reason}")]
    Refused { server: String, reason: String },
    /// A vector cannot be encoded.
    #[error(transparent)]
    Codec(#[from] thc_codec::CodecError),
    /// No worker has given the model its first value, or a server that keeps no state has restarted.
    #[error("the model, or a part of it, has no value: one worker must initialise it")]
    Empty,
    /// The system lacks a resource.
    #[error("{0}")]
    System(#[from] std::io::Error),
}
