//! Jobs that a target cannot take.

use std::time::Instant;

/// A job of which the target has refused rows.
#[derive(Debug)]
pub(super) struct RefusedJob {
    pub(super) why: String,
    /// Until when nobody who joins it is answered.
    pub(super) until: Instant,
    /// Whether its members know.
    pub(super) told: bool,
}
