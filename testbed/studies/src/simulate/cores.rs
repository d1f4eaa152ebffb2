//! Processor cores in virtual time.

use std::time::Duration;

/// Some cores, each of which does one thing after the other.
#[derive(Clone, Debug)]
pub struct Cores {
    free_at: Vec<Duration>,
}

impl Cores {
    /// So many, at least one.
    pub fn new(count: usize) -> Self {
        Self { free_at: vec![Duration::ZERO; count.max(1)] }
    }

    /// When one is free, at `now` or later, and which.
    pub fn next(&self, now: Duration) -> (Duration, usize) {
        let first = self.free_at.iter().enumerate().min_by_key(|&(core, at)| (*at, core));
        first.map_or((now, 0), |(core, at)| (now.max(*at), core))
    }

    /// One is busy until then.
    pub fn occupy(&mut self, core: usize, until: Duration) {
        self.free_at[core] = until;
    }
}
