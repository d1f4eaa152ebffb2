//! The errors of the controller. A refused request is a [`Status`].

use p4runtime_proto::p4info::P4InfoError;
use std::path::{Path, PathBuf};
use thc_config::file::SyntaxError;
use tonic::Status;

/// An error of the controller.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ControllerError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read { path: PathBuf, cause: std::io::Error },
    /// The configuration is no TOML of ours.
    #[error("configuration, {0}")]
    Syntax(#[from] SyntaxError),
    /// A value that cannot be.
    #[error("{key} = {value}: {mend}")]
    Value { key: String, value: String, mend: String },
    /// The P4Info is unusable.
    #[error(transparent)]
    P4Info(#[from] P4InfoError),
    /// A target has no room for a lookup table of this number.
    #[error(
        "target {target}: it has room for {room} lookup tables and table {table} is one more; delete a job"
    )]
    Room { target: String, table: u8, room: u8 },
    /// A target that does not answer, refuses a request, or is another controller's.
    #[error("target {target}: {message}")]
    Target { target: String, message: String },
    /// The state file is another controller's, damaged, or does not fit the configuration.
    #[error("{message}")]
    State { message: String },
    /// The state file cannot be written, or its lock.
    #[error(
        "the state file {} cannot be written: {message}; sessions go on, and the change is tried again: see to the disk", path.display()
    )]
    StateFile { path: PathBuf, message: String },
    /// A port that others have, or that is none of this machine's.
    #[error("cannot listen on {address}: {message}; give another address or end what listens there")]
    Listen { address: std::net::SocketAddr, message: String },
    /// A certificate or key is unusable.
    #[error("certificates of {what}: {message}")]
    Tls { what: String, message: String },
}

impl From<ControllerError> for Status {
    fn from(error: ControllerError) -> Status {
        match error {
            ControllerError::Syntax(_) | ControllerError::Value { .. } => {
                Status::invalid_argument(error.to_string())
            }
            _ => Status::internal(error.to_string()),
        }
    }
}

impl ControllerError {
    /// An error of a target.
    pub(crate) fn target(name: &str, message: impl Into<String>) -> ControllerError {
        ControllerError::Target { target: name.to_owned(), message: message.into() }
    }
}

/// The error that a key cannot have this value, with what it may be.
pub(crate) fn value(key: &str, value: impl ToString, mend: &str) -> ControllerError {
    ControllerError::Value { key: key.to_owned(), value: value.to_string(), mend: mend.to_owned() }
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ControllerError> {
    std::fs::read(path).map_err(|cause| ControllerError::Read { path: path.to_owned(), cause })
}

/// The text of an error down to its innermost cause, since the outer ones say little more than that something
/// failed.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut message = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        // Some repeat what caused them, and tonic's outermost says nothing.
        if message.is_empty() || message == "transport error" {
            message = text;
        } else if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

/// Returns whether an error contains an I/O error of such a kind, at any depth.
#[must_use]
pub fn has_io(
    error: &(dyn std::error::Error + 'static),
    wanted: impl Fn(std::io::ErrorKind) -> bool,
) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|error| error.downcast_ref::<std::io::Error>()).any(|error| wanted(error.kind()))
}
