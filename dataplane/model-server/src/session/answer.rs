//! What comes of a request: an answer, a refusal, or the end of the connection.

use crate::counters::Reason;
use crate::wire::{Frame, NoFrame};

/// Why a connection ends.
pub(super) struct Close(pub Reason);

/// `Err(None)`: the peer has gone; `Err(Some)`: its connection is closed because of this.
pub(super) type Served<T> = Result<T, Option<Close>>;

pub(super) fn require_field<T>(value: Option<T>) -> Served<T> {
    value.ok_or(Some(Close(Reason::Malformed)))
}

impl From<NoFrame> for Option<Close> {
    fn from(no_frame: NoFrame) -> Self {
        match no_frame {
            NoFrame::Ended(_) => None,
            NoFrame::TooLong(_) => Some(Close(Reason::Malformed)),
        }
    }
}

/// An answer, or a refusal that the stream survives.
pub(super) type Answer = Result<Frame, (Reason, String)>;

pub(super) fn refusal(reason: Reason) -> Answer {
    Err((reason, reason.message().to_owned()))
}
