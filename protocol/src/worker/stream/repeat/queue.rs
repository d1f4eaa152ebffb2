//! Packets in the order of their last transmission.

use crate::SlotId;
use crate::aggregator::Shard;
use crate::worker::stream::Stream;
use crate::worker::stream::ring::{Entry, NIL};
use std::cmp::Reverse;
use std::time::Duration;

/// What is outstanding at one shard. Another shard may be ahead or behind, which says nothing of losses here.
#[derive(Clone, Copy, Debug)]
pub(in crate::worker::stream) struct Queue {
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
    /// Under `best-effort`, packets with NUDGE that nothing has answered, and when the first of them was sent.
    pub(super) asked: u32,
    pub(super) asked_at: Duration,
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

impl Stream {
    /// Sees to it that a packet is looked at when it is due.
    pub(super) fn list(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        if entry.due < Duration::MAX && entry.listed.is_none_or(|at| at > entry.due) {
            entry.listed = Some(entry.due);
            self.doubted.push(Reverse((entry.due, entry.seq)));
        }
    }

    /// Where an entry is outstanding.
    pub(in crate::worker::stream) fn queue(&mut self, index: usize) -> &mut Queue {
        &mut self.queues[usize::from(Shard::index_of(SlotId(index as u16), self.shards))]
    }

    /// An entry has been sent, or sent again.
    pub(in crate::worker::stream) fn push(&mut self, index: u32) {
        let queue = self.queue(index as usize);
        let tail = std::mem::replace(&mut queue.tail, index);
        if tail == NIL {
            queue.head = index;
        }
        let entry = &mut self.entries[index as usize];
        entry.prev = tail;
        entry.next = NIL;
        if let Some(last) = self.entries.get_mut(tail as usize) {
            last.next = index;
        }
    }

    pub(in crate::worker::stream) fn unlink(&mut self, index: u32) {
        let Entry { prev, next, .. } = self.entries[index as usize];
        match self.entries.get_mut(prev as usize) {
            Some(entry) => entry.next = next,
            None => self.queue(index as usize).head = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(entry) => entry.prev = prev,
            None => self.queue(index as usize).tail = prev,
        }
    }
}
