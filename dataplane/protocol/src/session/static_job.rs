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
    /// The WELCOME of a session, without session and nonce.
    pub welcome: Welcome,
    /// The root, if this aggregator is a rack of the job.
    pub root: Option<Root>,
}

impl StaticJob {
    /// A job at an aggregator that is no rack.
    pub const fn new(config: JobConfig, welcome: Welcome) -> StaticJob {
        StaticJob { config, welcome, root: None }
    }
}

/// The root of a job, as its rack sees it.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// The address of its base port.
    pub at: SocketAddr,
    /// The rack's number.
    pub rack: WorkerId,
    /// The WELCOME that it must send, but for the number of its ports.
    pub welcome: Welcome,
}
