//! Configurations that an aggregator refuses.

use crate::wire::Form;
use crate::{JobId, TableId, WorkerId};

/// The reason why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name them")]
pub enum JobConfigError {
    #[error("job {job}: {workers} workers; a job has 1 to 64")]
    Workers { job: JobId, workers: u8 },
    #[error("job {job}: quorum {quorum} of {workers} workers; it must be 1 to {workers}")]
    Quorum { job: JobId, quorum: u8, workers: u8 },
    #[error("job {job}: {slots} {what} slots; their number must be even, 2 to 65536")]
    Slots { job: JobId, what: &'static str, slots: u32 },
    /// P6 tables: the largest sum does not fit a lane.
    #[error(
        "job {job}: {workers} workers with granularity {granularity} sum up to {sum}, more than a {bits}-bit lane holds ({max}); choose a smaller granularity or wider lanes"
    )]
    LaneOverflow { job: JobId, workers: u16, granularity: u8, sum: u32, bits: u8, max: u32 },
    #[error(
        "job {job}: {racks} racks of at most {largest} workers, {total} in all; a root has 1 to 64 racks, a rack 1 to 64 workers"
    )]
    Racks { job: JobId, racks: u8, largest: u8, total: u16 },
    #[error("job {job}: a table of {form} bits an index and a sum; racks need lanes of 8 or 16 bits")]
    RackLanes { job: JobId, form: Form },
    #[error("job {job}: table {table} is not installed; install it first")]
    NoTable { job: JobId, table: TableId },
    #[error(
        "table {table} is in use by job {job}; remove the job or give it another epoch first, or take another table id"
    )]
    TableInUse { table: TableId, job: JobId },
    /// A table comes back to a job with other values, while slots may be half filled with the old ones.
    #[error(
        "job {job} has used table {table} with other values in this session; remove the job, give it another cookie or take another table id"
    )]
    TableChanged { table: TableId, job: JobId },
    #[error("job {job} is not installed")]
    NoJob { job: JobId },
    #[error("job {job} has no worker {worker}; its workers are 0 to {}", workers - 1)]
    NoSuchWorker { job: JobId, worker: WorkerId, workers: u8 },
    #[error("job {job}: its slots need {needs} bytes, {free} are free; give it fewer slots")]
    Memory { job: JobId, needs: usize, free: usize },
}
