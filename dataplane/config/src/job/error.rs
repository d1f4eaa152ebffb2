//! Why the configuration of a job, or of a server that has jobs, is refused.

use std::error::Error;
use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

use thc_protocol::aggregator::JobConfigError;
use thc_protocol::wire::{SharesError, TablesError};

/// A part of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The keys of the server.
    Server,
    /// The section of the job with this number.
    Job(u16),
    /// The `[[job]]` section at this place, counted from 1, whose job's number is not known.
    Nth(usize),
}

impl Display for Section {
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
    pub(crate) fn missing(self, key: &'static str, mend: impl Into<String>) -> ConfigError {
        self.wrong(key, "missing", mend)
    }

    /// The error of a key that is `found`; `mend` says what to do.
    pub(crate) fn wrong(
        self,
        key: &'static str,
        found: impl Display,
        mend: impl Into<String>,
    ) -> ConfigError {
        ConfigError::Key { section: self, key, found: found.to_string(), mend: mend.into() }
    }

    /// The error of keys that do not fit each other.
    pub(crate) fn unsound(self, message: impl Into<String>) -> ConfigError {
        ConfigError::Unsound { section: self, message: message.into() }
    }
}

/// Why a configuration is refused. Each message is one line that says what to change, and shows no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },
    /// The file is not TOML, or has an unknown key or a value of the wrong type.
    #[error("line {line}: {}{message}", key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default())]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// The key on that line, if it looks like one.
        key: Option<String>,
        /// The problem.
        message: String,
    },
    /// A flag's value has no text.
    #[error("a flag cannot be taken as it is: {0}")]
    Flags(#[from] serde_json::Error),
    /// A key is missing, or its value cannot be used.
    #[error("{section}{key} is {found}: {mend}")]
    Key {
        /// The section that the key belongs to.
        section: Section,
        /// The key.
        key: &'static str,
        /// Its value, unless that is a secret, or what it is.
        found: String,
        /// What to do.
        mend: String,
    },
    /// Keys do not fit each other.
    #[error("{section}{message}")]
    Unsound {
        /// Their section.
        section: Section,
        /// The problem, and what to do.
        message: String,
    },
    /// The settings of the network backend are wrong, or this program has no backend of that name.
    #[error(transparent)]
    Io(Box<dyn Error + Send + Sync>),
    /// The list of shares is not sound.
    #[error("shares: {0}")]
    Shares(#[from] SharesError),
    /// The tables of a job are not sound.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The numbers of a job do not fit each other.
    #[error(transparent)]
    Job(#[from] JobConfigError),
}
