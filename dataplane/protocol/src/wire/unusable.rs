//! Why a packet that claims to be a WELCOME is none, or belongs to a job in which this version cannot take
//! part (P23).

use super::{SharesError, TablesError};
use crate::TableId;
use std::fmt;

/// Why a payload is no WELCOME for this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WelcomeError {
    /// Its length does not match its counts, or its fingerprint is wrong: it was damaged, or is something
    /// else.
    Damaged,
    /// A table travels in a form that this version does not know (P2, P44).
    Form {
        /// The table.
        id: TableId,
        /// Bits per index.
        width: u8,
        /// The lane as it is in WELCOME.
        lane: u8,
    },
    /// Its tables cannot be those of a job.
    Tables(TablesError),
    /// Its shares cannot be those of a server.
    Shares(SharesError),
    /// Numbers that no job has, or that mean something to later versions.
    Number {
        /// Which.
        what: &'static str,
        /// What it is.
        value: u32,
        /// What it may be.
        may: &'static str,
    },
}

impl std::error::Error for WelcomeError {}

impl fmt::Display for WelcomeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WelcomeError::Damaged => f.write_str("it is damaged"),
            WelcomeError::Form { id, width, lane } => {
                write!(
                    f,
                    "table {id} has indices of {width} bits and sums of the form {lane}, which this version does not know"
                )
            }
            WelcomeError::Tables(error) => error.fmt(f),
            WelcomeError::Shares(error) => error.fmt(f),
            WelcomeError::Number { what, value, may } => {
                write!(f, "{what} {value}: this version knows {may}")
            }
        }
    }
}

impl WelcomeError {
    /// Ok if a number is one of those that there may be.
    pub(super) fn require(
        fits: bool,
        what: &'static str,
        value: u32,
        may: &'static str,
    ) -> Result<(), WelcomeError> {
        if fits { Ok(()) } else { Err(WelcomeError::Number { what, value, may }) }
    }
}
