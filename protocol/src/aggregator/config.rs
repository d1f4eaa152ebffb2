//! What an aggregator is told: jobs, members, its shard.

use super::{Level, Lookup, job};
use crate::wire::Form;
use crate::{Cookie, JobId, MAX_WORKERS, Policy, SlotId, TableId, WorkerId};
use std::net::SocketAddrV4;

/// Where packets of a member come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Port of the switch; 0 is any (in a member entry) or none (software).
    pub ingress: u16,
    /// IPv4 address and UDP port.
    pub addr: SocketAddrV4,
}

impl Endpoint {
    /// An endpoint of a software PS, which has no ingress ports.
    #[must_use]
    pub const fn udp(addr: SocketAddrV4) -> Endpoint {
        Endpoint { ingress: 0, addr }
    }

    /// All of it as a number.
    #[inline(always)]
    pub(super) const fn bits(&self) -> u64 {
        (self.ingress as u64) << 48 | (self.addr.ip().to_bits() as u64) << 16 | self.addr.port() as u64
    }

    /// Whether a packet from `from` comes from this member (P7.7).
    #[must_use]
    pub fn admits(&self, from: &Endpoint) -> bool {
        self.addr == from.addr && (self.ingress == 0 || self.ingress == from.ingress)
    }
}

/// Which part of the slots a port serves (P21). The same ports of all shares serve the same: which share a slot is at home at is
/// the workers' affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// This shard's number, below `count`.
    pub index: u8,
    /// How many shards there are, at least 1.
    pub count: u8,
}

impl Shard {
    /// Consecutive slots of one shard.
    pub const BLOCK: u16 = 64;
    /// The only shard.
    pub const WHOLE: Shard = Shard { index: 0, count: 1 };

    /// The shard of a slot among `count`.
    #[must_use]
    pub const fn of(slot: SlotId, count: u8) -> u8 {
        if count <= 1 { 0 } else { ((slot.0 / Shard::BLOCK) % count as u16) as u8 }
    }

    /// Whether the slot is this shard's.
    #[must_use]
    pub const fn serves(self, slot: SlotId) -> bool {
        Shard::of(slot, self.count) == self.index
    }

    /// All shards of a server that has so many.
    pub fn all(count: u8) -> impl Iterator<Item = Shard> {
        let count = if count == 0 { 1 } else { count };
        (0..count).map(move |index| Shard { index, count })
    }

    /// How many of a job's slots are this shard's.
    #[must_use]
    pub const fn share(self, slots: u32) -> u32 {
        if self.count <= 1 {
            return slots;
        }
        let (block, count, index) = (Shard::BLOCK as u32, self.count as u32, self.index as u32);
        let (blocks, rest) = (slots / block, slots % block);
        let whole = blocks / count + (index < blocks % count) as u32;
        whole * block + if index == blocks % count { rest } else { 0 }
    }

    /// The place of a slot among those of its shard, whose blocks lie next to each other; `None` if it is another shard's.
    #[inline]
    #[must_use]
    pub const fn find(self, slot: SlotId) -> Option<usize> {
        if self.count <= 1 {
            return Some(slot.0 as usize);
        }
        let (block, within, count) = (slot.0 / Shard::BLOCK, slot.0 % Shard::BLOCK, self.count as u16);
        if block % count != self.index as u16 {
            return None;
        }
        Some((block / count * Shard::BLOCK + within) as usize)
    }
}

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
    /// Whether a packet may be any number of rounds ahead of its slot (P9): see [`Self::may_skip`].
    pub skip: bool,
    /// S: even, 2 to 65536.
    pub data_slots: u32,
    /// N: even, 2 to 65536.
    pub norm_slots: u32,
    /// Tables its DATA may name.
    pub tables: Vec<TableId>,
    /// What this aggregator is in it. The workers of a root are racks.
    pub level: Level,
}

impl JobConfig {
    /// Whether workers may go on without a slot: `skip` of a job of this policy and quorum (P9).
    #[must_use]
    pub fn may_skip(policy: Policy, quorum: u8, workers: u8) -> bool {
        policy == Policy::BestEffort || quorum < workers
    }

    /// Bytes that it takes in a shard: the slots that are the shard's, and some 20 KiB for everything else.
    #[must_use]
    pub fn memory(&self, shard: Shard) -> usize {
        job::memory(self, shard)
    }

    /// Bytes that it takes in all shards together.
    #[must_use]
    pub fn memory_of_all(&self, shards: u8) -> usize {
        Shard::all(shards).map(|shard| self.memory(shard)).sum()
    }

    /// Whether a job that changes from the one to the other keeps what its slots hold.
    #[must_use]
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
    /// The [`ConfigError`] of the first that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let job = self.job;
        if self.workers == 0 || usize::from(self.workers) > MAX_WORKERS {
            return Err(ConfigError::Workers { job, workers: self.workers });
        }
        if self.quorum == 0 || self.quorum > self.workers {
            return Err(ConfigError::Quorum { job, quorum: self.quorum, workers: self.workers });
        }
        self.level.check(job, self.workers)?;
        for (what, slots) in [("data", self.data_slots), ("norm", self.norm_slots)] {
            if !(2..=65536).contains(&slots) || slots % 2 != 0 {
                return Err(ConfigError::Slots { job, what, slots });
            }
        }
        Ok(())
    }

    /// Checks P6: that the sum of n values of a table fits its lanes, on every level (P34).
    ///
    /// # Errors
    /// [`ConfigError::LaneOverflow`], [`ConfigError::RackLanes`].
    pub fn check_sum(&self, table: &Lookup) -> Result<(), ConfigError> {
        let (granularity, form) = (table.granularity(), table.form);
        let fits = |workers: u16, bits: u8| {
            let sum = u32::from(workers) * u32::from(granularity);
            let (job, max) = (self.job, (1 << bits) - 1);
            let overflow = ConfigError::LaneOverflow { job, workers, granularity, sum, bits, max };
            if sum > max { Err(overflow) } else { Ok(()) }
        };
        let Some(racks) = self.level.racks() else { return fits(self.workers.into(), form.sums()) };
        fits(racks.total, form.sums())?;
        if self.level.lookup(table).is_none() {
            return Err(ConfigError::RackLanes { job: self.job, form: table.form });
        }
        fits(racks.largest.into(), racks.sums(table).bits())
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// n out of range.
    #[error("job {job}: {workers} workers; a job has 1 to 64")]
    Workers {
        /// The job.
        job: JobId,
        /// n as asked.
        workers: u8,
    },
    /// Quorum out of range.
    #[error("job {job}: quorum {quorum} of {workers} workers; it must be 1 to {workers}")]
    Quorum {
        /// The job.
        job: JobId,
        /// As asked.
        quorum: u8,
        /// n.
        workers: u8,
    },
    /// S or N out of range.
    #[error("job {job}: {slots} {what} slots; their number must be even, 2 to 65536")]
    Slots {
        /// The job.
        job: JobId,
        /// "data" or "norm".
        what: &'static str,
        /// As asked.
        slots: u32,
    },
    /// P6.
    #[error(
        "job {job}: {workers} workers with granularity {granularity} sum up to {sum}, more than a {bits}-bit lane holds ({max}); choose a smaller granularity or wider lanes"
    )]
    LaneOverflow {
        /// The job.
        job: JobId,
        /// n.
        workers: u16,
        /// g.
        granularity: u8,
        /// n·g.
        sum: u32,
        /// Lane width.
        bits: u8,
        /// The largest sum that fits.
        max: u32,
    },
    /// Numbers of racks and of their workers do not fit together.
    #[error(
        "job {job}: {racks} racks of at most {largest} workers, {total} in all; a root has 1 to 64 racks, a rack 1 to 64 workers"
    )]
    Racks {
        /// The job.
        job: JobId,
        /// Racks.
        racks: u8,
        /// Workers of the largest.
        largest: u8,
        /// Workers in all.
        total: u16,
    },
    /// Racks have sums of 8 or 16 bits.
    #[error("job {job}: a table of {form} bits an index and a sum; racks need lanes of 8 or 16 bits")]
    RackLanes {
        /// The job.
        job: JobId,
        /// The table's form.
        form: Form,
    },
    /// A job names a table that is not installed.
    #[error("job {job}: table {table} is not installed; install it first")]
    NoTable {
        /// The job.
        job: JobId,
        /// The table.
        table: TableId,
    },
    /// A table cannot be changed under a job.
    #[error(
        "table {table} is in use by job {job}; remove the job or give it another epoch first, or take another table id"
    )]
    TableInUse {
        /// The table.
        table: TableId,
        /// A job that uses it.
        job: JobId,
    },
    /// A table comes back to a job with other values: slots may be half filled with those that it had.
    #[error(
        "job {job} has used table {table} with other values in this session; remove the job, give it another cookie or take another table id"
    )]
    TableChanged {
        /// The table.
        table: TableId,
        /// The job.
        job: JobId,
    },
    /// No such job.
    #[error("job {job} is not installed")]
    NoJob {
        /// The job.
        job: JobId,
    },
    /// The job has fewer workers.
    #[error("job {job} has no worker {worker}; its workers are 0 to {}", workers - 1)]
    NoSuchWorker {
        /// The job.
        job: JobId,
        /// As asked.
        worker: WorkerId,
        /// n.
        workers: u8,
    },
    /// Too many slots.
    #[error("job {job}: its slots need {needs} bytes, {free} are free; give it fewer slots")]
    Memory {
        /// The job.
        job: JobId,
        /// Bytes asked for.
        needs: usize,
        /// Bytes left.
        free: usize,
    },
}
