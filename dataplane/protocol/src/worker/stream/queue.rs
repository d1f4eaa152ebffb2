//! The packets outstanding at one shard, and the timers of a stream.

use super::packets::{Entry, NIL};
use std::cmp::Reverse;
use std::time::Duration;

/// The packets outstanding at one shard. Another shard may be ahead or behind, which shows no losses at this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Entries by last transmission, oldest first.
    pub head: u32,
    tail: u32,
    /// Packets sent so far.
    pub sent: u64,
    /// The highest of them with a result, and when that came.
    pub answered: u64,
    pub answered_at: Duration,
    /// All seqs below it are finished, or known to be overtaken.
    pub checked: u64,
    /// Under `best-effort`, the number of unanswered packets with NUDGE, and when the first of them was sent.
    pub asked: u32,
    pub asked_at: Duration,
}

impl Queue {
    pub const EMPTY: Queue = Queue {
        head: NIL,
        tail: NIL,
        sent: 0,
        answered: 0,
        answered_at: Duration::ZERO,
        checked: 0,
        asked: 0,
        asked_at: Duration::ZERO,
    };

    /// Appends entries that are linked to each other, which have been sent, or one that has been sent again.
    pub fn push(&mut self, entries: &mut [Entry], first: usize, last: usize) {
        let tail = std::mem::replace(&mut self.tail, last as u32);
        entries[first].prev = tail;
        entries[last].next = NIL;
        match entries.get_mut(tail as usize) {
            Some(before) => before.next = first as u32,
            None => self.head = first as u32,
        }
    }

    /// Takes out entries that are linked to each other.
    pub fn unlink(&mut self, entries: &mut [Entry], first: usize, last: usize) {
        let (prev, next) = (entries[first].prev, entries[last].next);
        match entries.get_mut(prev as usize) {
            Some(entry) => entry.next = next,
            None => self.head = next,
        }
        match entries.get_mut(next as usize) {
            Some(entry) => entry.prev = prev,
            None => self.tail = prev,
        }
    }

    /// A result has come for the packet of this number.
    pub fn count_result(&mut self, now: Duration, number: u64) {
        self.asked = 0;
        if number > self.answered {
            (self.answered, self.answered_at) = (number, now);
        }
    }
}

/// The times at which a stream acts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Nothing has come for the time-out.
    Timeout,
    /// Packets that were outstanding at the last time-out may be repeated further.
    Recovery,
    /// Results that were coming have ceased.
    Probe,
    /// A packet that seems to be lost is looked at again.
    Suspect,
    /// Packets before the last results are lost, for no later results have come.
    Reorder,
}

impl Timer {
    pub const ALL: [Timer; 5] =
        [Timer::Timeout, Timer::Recovery, Timer::Probe, Timer::Suspect, Timer::Reorder];
}

/// The repetition after a time-out (P20 retransmission).
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// The next seq to repeat.
    pub cursor: u64,
    /// The first seq that was not yet sent at the time-out.
    pub end: u64,
    /// Packets that may be repeated, but not before `not_before`: if nothing was lost, the result of a packet that was
    /// not repeated comes first.
    pub budget: u32,
    pub not_before: Duration,
}

/// The time at which a packet that seems to be lost is looked at again, and its seq.
pub(super) type Suspect = Reverse<(Duration, u64)>;
