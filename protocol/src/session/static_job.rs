//! A job that is configured in the parameter server itself: the shapes of its sessions, and where its root
//! is.

use crate::WorkerId;
use crate::aggregator::JobConfig;
use crate::wire::Welcome;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A job configured in the PS itself.
#[derive(Clone, Debug)]
pub struct StaticJob {
    /// Shape of the job; `cookie` is the configured one, with which workers join.
    pub config: JobConfig,
    /// What WELCOME says; session and nonce are filled in.
    pub welcome: Welcome,
    /// The root, if this aggregator is a rack of the job (P38).
    pub root: Option<Root>,
    /// The shapes of sessions of other sizes, if members come and go (P42); `config` and `welcome` are those
    /// of the largest.
    pub sizes: Option<Arc<Sizes>>,
}

impl StaticJob {
    /// A job of one size, at an aggregator that is no rack.
    #[must_use]
    pub const fn new(config: JobConfig, welcome: Welcome) -> StaticJob {
        StaticJob { config, welcome, root: None, sizes: None }
    }

    pub(super) fn set_credit(&mut self, credit: u32) {
        self.welcome.credit = credit;
        if let Some(sizes) = &mut self.sizes {
            Arc::make_mut(sizes).shapes.iter_mut().for_each(|(_, welcome)| welcome.credit = credit);
        }
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

/// The sizes that sessions of a job may have.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Shape of the job and what its workers are told, for each number of workers from the fewest on. Only the first table may differ.
    pub shapes: Vec<(JobConfig, Welcome)>,
    /// A member that is silent for so long is gone.
    pub gone_after: Duration,
    /// The first session begins with at least the fewest workers, when no new one has come for so long.
    pub gather: Duration,
}

impl Sizes {
    /// The fewest workers.
    #[must_use]
    pub fn min_workers(&self) -> u8 {
        self.shapes.first().map_or(1, |(config, _)| config.workers)
    }

    /// The most.
    #[must_use]
    pub fn max_workers(&self) -> u8 {
        self.shapes.last().map_or(1, |(config, _)| config.workers)
    }

    /// What a session of so many is like.
    #[must_use]
    pub fn size(&self, workers: u8) -> Option<&(JobConfig, Welcome)> {
        self.shapes.iter().find(|(config, _)| config.workers == workers)
    }
}
