//! What can be wrong with a configuration, of a job or of a server that has jobs.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use thc_codec::CodecError;
use thc_protocol::aggregator::JobConfigError;
use thc_protocol::wire::{SharesError, TablesError};

/// Where in a configuration something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Among the keys of the server.
    Server,
    /// The section of the job with this number.
    Job(u16),
    /// The `[[job]]` section at this place, whose job's number is not known.
    Nth(usize),
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Section::Server => Ok(()),
            Section::Job(job) => write!(f, "job {job}: "),
            Section::Nth(nth) => write!(f, "[[job]] section {nth}: "),
        }
    }
}

impl Section {
    /// The error of a key that is not there; `mend` says what to do.
    pub(crate) fn missing(self, key: &'static str, mend: &'static str) -> ConfigError {
        ConfigError::Missing { section: self, key, mend }
    }

    /// The error of a key with a value that cannot be used; `mend` says what to do.
    pub(crate) fn wrong(
        self,
        key: &'static str,
        value: impl fmt::Display,
        mend: impl Into<String>,
    ) -> ConfigError {
        ConfigError::Value { section: self, key, value: value.to_string(), mend: mend.into() }
    }
}

/// Why a configuration is refused: each message is one line that says what to change, and shows no cookie.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The file is not TOML, or has an unknown key or a value of the wrong type.
    #[error("line {line}: {}{message}", key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default())]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// The key on that line, if it looks like one.
        key: Option<String>,
        /// What is wrong.
        message: String,
    },
    /// A flag's value has no text.
    #[error("a flag cannot be taken as it is: {0}")]
    Flags(#[from] serde_json::Error),
    /// A key is not there.
    #[error("{section}{key} is missing: {mend}")]
    Missing {
        /// Where it belongs.
        section: Section,
        /// The key.
        key: &'static str,
        /// What to do.
        mend: &'static str,
    },
    /// A key's value is no good.
    #[error("{section}{key} is {value}: {mend}")]
    Value {
        /// Where it is.
        section: Section,
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What to do.
        mend: String,
    },
    /// A secret's value is no good; it is not shown.
    #[error("{section}{key} is not a number {range}: write it like 0x1234abcd or 305441741")]
    Secret {
        /// Where it is.
        section: Section,
        /// The key.
        key: &'static str,
        /// What it may be.
        range: &'static str,
    },
    /// The settings of the network backend are wrong, or this program has no backend of that name.
    #[error(transparent)]
    Io(Box<dyn Error + Send + Sync>),
    /// The list of shares is not sound.
    #[error("shares: {0}")]
    Shares(#[from] SharesError),
    /// There is nothing to serve.
    #[error(
        "no job is configured: add a [[job]] section, or --job, --workers and --cookie, or --p4runtime for a controller"
    )]
    NoJob,
    /// Two sections of one number.
    #[error("job {job} is configured twice: give each [[job]] section its own number")]
    Duplicate {
        /// The number.
        job: u16,
    },
    /// Flags for a job when the file has several.
    #[error("the flags of a job need --job, because the file configures {jobs} jobs")]
    WhichJob {
        /// How many.
        jobs: usize,
    },
    /// n·g is more than a lane holds (P6).
    #[error(
        "job {job}: workers × granularity = {workers} × {granularity} = {sum} does not fit lanes of {bits} bits, which hold {max}: {mend}"
    )]
    LaneOverflow {
        /// The job.
        job: u16,
        /// n.
        workers: u16,
        /// g.
        granularity: u16,
        /// n·g.
        sum: u32,
        /// Lane width.
        bits: u8,
        /// The largest sum that fits.
        max: u32,
        /// What to do.
        mend: String,
    },
    /// No granularity fits.
    #[error(
        "job {job}: the sums of {workers} workers with bits = {bits} do not fit lanes of {lane} bits: {mend}"
    )]
    NoGranularity {
        /// The job.
        job: u16,
        /// n.
        workers: u16,
        /// b.
        bits: u8,
        /// Lane width.
        lane: u8,
        /// What to do.
        mend: String,
    },
    /// The lookup table cannot be made.
    #[error("job {job}: no lookup table: {cause}")]
    Table {
        /// The job.
        job: u16,
        /// Why.
        cause: CodecError,
    },
    /// Its tables are no list of tables.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The job's numbers do not fit together in a way not named above.
    #[error(transparent)]
    Job(#[from] JobConfigError),
    /// Two different tables under one id.
    #[error(
        "jobs {first} and {second} have different lookup tables under the same id {table}: give one of them a key table_id with another number from 1 to 255"
    )]
    SameTable {
        /// A job.
        first: u16,
        /// Another.
        second: u16,
        /// The id.
        table: u8,
    },
    /// The slots of all jobs are too many.
    #[error(
        "the slots of all jobs need {needs}, memory_limit is {limit}: raise memory_limit or lower data_slots"
    )]
    Memory {
        /// What they need, in words.
        needs: String,
        /// What is allowed, in words.
        limit: String,
    },
}
