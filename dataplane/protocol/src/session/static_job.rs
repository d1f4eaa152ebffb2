//! A job that is configured in the parameter server itself, and where its root is.

use crate::WorkerId;
use crate::aggregator::JobConfig;
use crate::wire::Welcome;
use std::net::SocketAddr;

/// A job configured in the PS itself.
#[derive(Clone, Debug)]
pub struct StaticJob {
    /// Shape of the job; `cookie` is the configured one, with which workers join.
    pub config: JobConfig,
    /// What WELCOME says; session and nonce are filled in.
    pub welcome: Welcome,
    /// The root, if this aggregator is a rack of the job (P38).
    pub root: Option<Root>,
}

impl StaticJob {
    /// A job at an aggregator that is no rack.
    #[must_use]
    pub const fn new(config: JobConfig, welcome: Welcome) -> StaticJob {
        StaticJob { config, welcome, root: None }
    }
}

/// The root of a job, as its rack sees it.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Where its base port is.
    pub at: SocketAddr,
    /// The rack's number.
    pub rack: WorkerId,
    /// What it must say; how many ports it has, it says itself.
    pub welcome: Welcome,
}
