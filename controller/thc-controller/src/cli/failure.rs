//! Why a command ends early, and with which exit status.

use std::fmt::Display;

/// Why a command ends early.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: u8,
    pub(super) message: String,
}

impl Failure {
    /// What was asked makes no sense.
    pub(super) fn usage(message: impl Display) -> Failure {
        Failure { status: 2, message: message.to_string() }
    }

    /// It did not work.
    pub(super) fn error(message: impl Display) -> Failure {
        Failure { status: 1, message: message.to_string() }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::error(error)
    }
}
