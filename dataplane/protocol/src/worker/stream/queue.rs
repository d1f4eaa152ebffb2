//! What is known of a shard's packets, and of recovering what it has lost.

use super::ring::NIL;
use std::cmp::Reverse;
use std::time::Duration;

/// What is outstanding at one shard. Another shard may be ahead or behind, which says nothing of losses here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Entries by last transmission, oldest first.
    pub head: u32,
    pub tail: u32,
    /// Packets sent so far.
    pub sent: u64,
    /// The highest of them with a result, and since when that is so.
    pub answered: u64,
    pub answered_at: Duration,
    /// Below that seq all are finished, or known to be overtaken.
    pub checked: u64,
    /// Under `best-effort`, the number of unanswered packets with NUDGE, and when the first of them was sent.
    pub asked: u32,
    pub asked_at: Duration,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            head: NIL,
            tail: NIL,
            sent: 0,
            answered: 0,
            answered_at: Duration::ZERO,
            checked: 0,
            asked: 0,
            asked_at: Duration::ZERO,
        }
    }
}

/// What a stream does by time. All timers stand here, so that what is due and when are stated once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Nothing has come for the time-out.
    Timeout,
    /// What was outstanding at the last time-out may be repeated further.
    Recovery,
    /// Results that were coming have ceased to.
    Probe,
    /// A packet that seems to be lost is looked at again.
    Suspect,
    /// Packets before the last results are lost, for no later ones have come.
    Settled,
}

impl Timer {
    pub const ALL: [Timer; 5] =
        [Timer::Timeout, Timer::Recovery, Timer::Probe, Timer::Suspect, Timer::Settled];
}

/// What follows a time-out (P20).
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// The next seq to repeat.
    pub cursor: u64,
    /// The first seq that was not yet sent at the time-out.
    pub end: u64,
    /// How many may be repeated,
    pub budget: u32,
    /// but not before this time: if nothing was lost, the result of a packet that was not repeated comes
    /// first.
    pub not_before: Duration,
}

/// When a packet that seems to be lost is looked at again, of which seq it is.
pub(super) type Suspect = Reverse<(Duration, u64)>;

impl Recovery {
    pub fn has_more(&self) -> bool {
        self.budget > 0 && self.cursor < self.end
    }
}
