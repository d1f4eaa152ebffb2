//! What can go wrong.

use p4runtime_proto::p4info::P4InfoError;
use std::path::PathBuf;

/// An error of the controller.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The configuration is no TOML of ours.
    #[error("configuration, line {line}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A value that cannot be.
    #[error("{key} = {value}: {mend}")]
    Value {
        /// The key.
        key: String,
        /// What it says.
        value: String,
        /// What to do.
        mend: String,
    },
    /// A job that cannot be.
    #[error(transparent)]
    Job(#[from] thc_ps::ConfigError),
    /// The P4Info is unusable.
    #[error(transparent)]
    P4Info(#[from] P4InfoError),
    /// A target does not answer.
    #[error("target {target}: cannot connect to {address}: {message}; is the switch running?")]
    Connect {
        /// Its name.
        target: String,
        /// Its address.
        address: String,
        /// Why.
        message: String,
    },
    /// A target is another controller's.
    #[error("target {target}: another controller is its primary; stop that one or give a higher election_id")]
    NotPrimary {
        /// Its name.
        target: String,
    },
    /// The connection ended.
    #[error("target {target}: it closed the connection")]
    Closed {
        /// Its name.
        target: String,
    },
    /// A request failed.
    #[error("target {target}: {request} failed: {message}")]
    Request {
        /// Its name.
        target: String,
        /// What was asked.
        request: &'static str,
        /// What it says, update by update where it does.
        message: String,
    },
    /// More slots than the switch has.
    #[error("the jobs need {wanted} {kind} slots, the switch has {there}; give jobs fewer slots")]
    Slots {
        /// Data or norm.
        kind: &'static str,
        /// Needed by all jobs.
        wanted: u32,
        /// Of the switch.
        there: u32,
    },
    /// More jobs than the switch can count.
    #[error("{wanted} jobs, the switch has room for {there}")]
    Jobs {
        /// Configured.
        wanted: usize,
        /// Of the switch.
        there: usize,
    },
}
