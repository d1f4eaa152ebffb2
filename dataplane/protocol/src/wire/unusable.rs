//! Why a packet that claims to be a WELCOME is none, or belongs to a job in which this version cannot take
//! part (P23).

use super::{SharesError, TablesError};
use crate::TableId;

/// Why a payload is no WELCOME for this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WelcomeError {
    /// Its length does not match its counts, or its fingerprint is wrong: it was damaged, or is something
    /// else.
    #[error("it is damaged")]
    Damaged,
    /// A table travels in a form that this version does not know (P2, P44).
    #[error(
        "table {id} has indices of {width} bits and sums of the form {lane}, which this version does not know"
    )]
    #[allow(missing_docs, reason = "the message names them")]
    Form { id: TableId, width: u8, lane: u8 },
    /// Its tables cannot be those of a job.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// Its shares cannot be those of a server.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// Numbers that no job has, or that mean something to later versions.
    #[error("{what} {value}: this version knows {may}")]
    #[allow(missing_docs, reason = "the message names them")]
    Number { what: &'static str, value: u32, may: &'static str },
}
