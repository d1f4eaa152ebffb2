//! The keys of a job.

use std::fmt;

use crate::values::{Fraction, Interval, Secret};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use thc_protocol::Policy;

use crate::job::method::Method;
use crate::job::rack_size::RackSize;
use crate::job::tables::TableOptions;

/// The keys of a job. This is the one place where they are named: files, flags, the controller's messages, Python's
/// keywords and their documentation follow from it.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobOptions {
    /// The job's number, 0 to 65535 [default for flags: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub job: Option<u64>,
    /// Secret of the job and its workers, 32 bits, as 0x1234abcd or decimal
    #[arg(long, value_name = "NUMBER", env = "THC_COOKIE", hide_env_values = true, help_heading = "Job")]
    pub cookie: Option<Secret>,
    /// Number of workers, 1 to 64 [default with racks: the sum of their sizes]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub workers: Option<u64>,
    /// Number of workers that complete a sum [default: all]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub quorum: Option<u64>,
    /// Workers of each rack, such as 8,8, or 7/8,7/8 for a quorum of 7 in each; the same at the root and at every rack. Without
    /// --rack this server is the root
    #[arg(long, value_name = "WORKERS,…", value_delimiter = ',', help_heading = "Job")]
    pub racks: Option<Vec<RackSize>>,
    /// Named values for the keys below: thc-paper is THC as published, and fixes bits, granularity, fraction and block; give the
    /// workers the same method
    #[arg(long, value_name = "METHOD", help_heading = "Job")]
    pub method: Option<Method>,
    /// Bit budget b: bits per coordinate sent up, 1 to 4 or 8 [default: 4]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub bits: Option<u64>,
    /// Granularity g, the largest table value [default: the best for the number of workers]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub granularity: Option<u64>,
    /// Share p of the coordinates that is truncated, such as 1/32 [default: the best for the number of
    /// workers]
    #[arg(long, value_name = "FRACTION", help_heading = "Job")]
    pub fraction: Option<Fraction>,
    /// A lookup table of your own: 2, 4, 8 or 16 values that increase from 0 to the granularity, such as 0,3,5,9; fraction is
    /// optional [default: the best for bits, granularity and fraction]
    #[arg(long, value_name = "VALUE,…", value_delimiter = ',', help_heading = "Job")]
    pub table: Option<Vec<u64>>,
    /// Number of the lookup table on the wire, 1 to 255 [default: derived from the job's number]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub table_id: Option<u64>,
    /// Bits per summed coordinate sent down, 4 to 16; workers × granularity must fit [default: 8, or 16 with bits = 8
    /// or more workers than 8 bits hold; with shares the fewest, but at least 5 or 9, that workers × granularity fits]
    #[arg(long, value_name = "BITS", help_heading = "Job")]
    pub lane: Option<u64>,
    /// A further lookup table that workers may choose for a tensor, such as bits=2 or
    /// bits=2,lane=4,granularity=5,fraction=1/32; may be repeated
    #[arg(long, value_name = "TABLE", help_heading = "Job")]
    pub tables: Option<Vec<TableOptions>>,
    /// Slots for coordinates; workers may have half as many packets in flight [default: 1024]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub data_slots: Option<u64>,
    /// Slots for norms [default: 64 to 1024, more for smaller blocks]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub norm_slots: Option<u64>,
    /// Log2 of the number of coordinates that are transformed together, with a norm of their own: 10 to 20 [default: 13]
    #[arg(long, value_name = "LOG2", help_heading = "Job")]
    pub block: Option<u64>,
    /// Treatment of lost packets [default: reliable]
    #[arg(long, value_name = "POLICY", help_heading = "Job")]
    pub policy: Option<PolicyName>,
    /// Time after which best-effort gives a packet up [default: 200ms]
    #[arg(long, value_name = "TIME", help_heading = "Job")]
    pub deadline: Option<Interval>,
    /// Seed of the random signs, 64 bits [default: derived from cookie and job]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    pub seed: Option<Secret>,
}

/// A loss policy by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Packets are sent again until the result comes
    #[default]
    Reliable,
    /// Packets are sent once, and what is missing at the deadline counts as zero
    BestEffort,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => value.get_name().fmt(f),
            None => Ok(()),
        }
    }
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Policy {
        match name {
            PolicyName::Reliable => Policy::Reliable,
            PolicyName::BestEffort => Policy::BestEffort,
        }
    }
}
