//! A job's configuration at an aggregator, and its checks.

use super::Lookup;
use super::error::JobConfigError;
use super::level::Level;
use crate::wire::Welcome;
use crate::{Cookie, JobId, MAX_WORKERS, Policy, TableId};

/// A job as an aggregator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobConfig {
    /// Its number.
    pub job: JobId,
    /// The session's cookie.
    pub cookie: Cookie,
    /// n, 1 to 64.
    pub workers: u8,
    /// Workers that complete a slot, 1 to n.
    pub quorum: u8,
    /// True if a packet may be any number of rounds ahead of its slot: see [`Self::may_skip`].
    pub skip: bool,
    /// S: even, 2 to 65536.
    pub data_slots: u32,
    /// N: even, 2 to 65536.
    pub norm_slots: u32,
    /// Tables its DATA may name.
    pub tables: Vec<TableId>,
    /// The level of this aggregator. The workers of a root are racks.
    pub level: Level,
}

impl JobConfig {
    /// A job with 1024 data slots and 64 norm slots, which all workers complete, at an aggregator that is not in a tree of racks.
    /// Override these with a job's real numbers: `JobConfig { data_slots, ..JobConfig::new(…) }`.
    pub const fn new(job: JobId, cookie: Cookie, workers: u8, tables: Vec<TableId>) -> JobConfig {
        let (quorum, skip, data_slots, norm_slots) = (workers, false, 1024, 64);
        JobConfig { job, cookie, workers, quorum, skip, data_slots, norm_slots, tables, level: Level::Only }
    }

    /// The job of this WELCOME, at an aggregator that is not in a tree of racks.
    pub fn from_welcome(job: JobId, cookie: Cookie, welcome: &Welcome) -> JobConfig {
        let &Welcome { quorum, data_slots, norm_slots, policy, workers, .. } = welcome;
        let skip = JobConfig::may_skip(policy, quorum, workers);
        let tables = welcome.tables.iter().map(|table| table.id).collect();
        JobConfig { quorum, skip, data_slots, norm_slots, ..JobConfig::new(job, cookie, workers, tables) }
    }

    /// Returns whether workers may go on without a slot: `skip` of a job of this policy and quorum (P9 newer).
    pub fn may_skip(policy: Policy, quorum: u8, workers: u8) -> bool {
        policy == Policy::BestEffort || quorum < workers
    }

    /// Returns whether a job that changes from one to the other keeps the content of its slots.
    pub fn same_slots(&self, other: &JobConfig) -> bool {
        self.cookie == other.cookie
            && self.workers == other.workers
            && self.quorum == other.quorum
            && self.data_slots == other.data_slots
            && self.norm_slots == other.norm_slots
            && self.level == other.level
    }

    /// Checks the numbers, tables aside.
    ///
    /// # Errors
    /// The [`JobConfigError`] of the first wrong number.
    pub fn check(&self) -> Result<(), JobConfigError> {
        let job = self.job;
        if self.workers == 0 || usize::from(self.workers) > MAX_WORKERS {
            return Err(JobConfigError::Workers { job, workers: self.workers });
        }
        if self.quorum == 0 || self.quorum > self.workers {
            return Err(JobConfigError::Quorum { job, quorum: self.quorum, workers: self.workers });
        }
        self.level.check(job, self.workers)?;
        for (what, slots) in [("data", self.data_slots), ("norm", self.norm_slots)] {
            if !(2..=65536).contains(&slots) || slots % 2 != 0 {
                return Err(JobConfigError::Slots { job, what, slots });
            }
        }
        Ok(())
    }

    /// Checks that the sum of n values of a table fits its lanes (P6 tables), on every level (P34 levels).
    ///
    /// # Errors
    /// [`JobConfigError::LaneOverflow`], [`JobConfigError::RackLanes`].
    pub fn check_sum(&self, table: &Lookup) -> Result<(), JobConfigError> {
        let (granularity, form) = (table.granularity(), table.form);
        let fits = |workers: u16, bits: u8| {
            let sum = u32::from(workers) * u32::from(granularity);
            let (job, max) = (self.job, (1 << bits) - 1);
            let overflow = JobConfigError::LaneOverflow { job, workers, granularity, sum, bits, max };
            if sum > max { Err(overflow) } else { Ok(()) }
        };
        let Some(racks) = self.level.racks() else { return fits(self.workers.into(), form.sums()) };
        fits(racks.total, form.sums())?;
        if self.level.lookup(table).is_none() {
            return Err(JobConfigError::RackLanes { job: self.job, form: table.form });
        }
        fits(racks.largest.into(), racks.sums(table).bits())
    }
}
