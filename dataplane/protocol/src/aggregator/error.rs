//! Why an aggregator refuses a configuration.

use crate::wire::Form;
use crate::{JobId, TableId, WorkerId};

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobConfigError {
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
    /// A table comes back to a job with other values, while slots may be half filled with the old ones.
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
