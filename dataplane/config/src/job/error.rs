//! The errors of a configuration, of a job or of a server that has jobs.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use thc_protocol::aggregator::JobConfigError;
use thc_protocol::wire::{SharesError, TablesError};

use crate::file::SyntaxError;

/// A place in a configuration.
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

    /// The error of keys that do not go together.
    pub(crate) fn conflict(self, message: impl fmt::Display) -> ConfigError {
        ConfigError::Conflict { section: self, message: message.to_string() }
    }
}

/// An error of a configuration: each message is one line that says what to change, and shows no cookie.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read { path: PathBuf, cause: std::io::Error },
    /// The file is not TOML, or has an unknown key or a value of the wrong type.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// A flag's value has no text.
    #[error("a flag has a value that is not UTF-8: {0}")]
    Flags(#[from] serde_json::Error),
    /// A key is not there.
    #[error("{section}{key} is missing: {mend}")]
    Missing { section: Section, key: &'static str, mend: &'static str },
    /// A key's value is no good.
    #[error("{section}{key} is {value}: {mend}")]
    Value { section: Section, key: &'static str, value: String, mend: String },
    /// A secret's value is no good; it is not shown.
    #[error("{section}{key} is not a number {range}: write it like 0x1234abcd or 305441741")]
    Secret { section: Section, key: &'static str, range: &'static str },
    /// Keys do not go together.
    #[error("{section}{message}")]
    Conflict { section: Section, message: String },
    /// The settings of the network backend are wrong, or this program has no backend of that name.
    #[error(transparent)]
    Io(Box<dyn Error + Send + Sync>),
    /// The list of shares is not sound.
    #[error("shares: {0}")]
    Shares(#[from] SharesError),
    /// There is nothing to serve.
    #[error(
        "no job is configured: add a [[job]] section, or --workers and --cookie, or --p4runtime for a controller"
    )]
    NoJob,
    /// Its tables are no list of tables.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The job's numbers do not fit together in a way not named above.
    #[error(transparent)]
    Job(#[from] JobConfigError),
}
