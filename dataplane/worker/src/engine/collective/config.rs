//! The settings of a rank of a collective.

use thc_codec::table::LookupTable;
use thc_protocol::TableId;

/// The settings of a rank. All ranks must have the same, except for `rank`, `seed` and `threads`.
#[derive(Clone, Debug)]
pub struct CollectiveConfig {
    /// This rank, from 0.
    pub rank: u16,
    /// The number of ranks, at most 4,096.
    pub ranks: u16,
    /// Lookup tables to choose from; calls that name none take the first.
    pub tables: Vec<(TableId, LookupTable)>,
    /// log₂ of the coordinates of a full partition, 10 to 20 (P4).
    pub block: u8,
    /// The seed of the signs (P29).
    pub job_seed: u64,
    /// The seed of this rank's roundings; `None` derives it from the job's seed and the rank.
    pub seed: Option<u64>,
    /// Threads that compute.
    pub threads: usize,
}
