//! Packets in the order of their last transmission.

use crate::SlotId;
use crate::aggregator::Shard;
use crate::worker::stream::Stream;
use crate::worker::stream::queue::Queue;
use crate::worker::stream::ring::NIL;
use std::cmp::Reverse;
use std::time::Duration;

impl Stream {
    /// Sees to it that a packet is looked at when it is due.
    pub(super) fn list(&mut self, index: usize) {
        let seq = self.packets.entries[index].seq;
        let loss = self.loss_mut(index);
        let due = loss.due;
        if due < Duration::MAX && loss.listed.is_none_or(|at| at > due) {
            loss.listed = Some(due);
            self.repairs.suspects.push(Reverse((due, seq)));
        }
    }

    /// Where an entry is outstanding.
    pub(in crate::worker::stream) fn queue(&mut self, index: usize) -> &mut Queue {
        &mut self.queues[usize::from(Shard::index_of(SlotId(index as u16), self.shards))]
    }

    /// Entries of one shard, linked to each other, have been sent, or one has been sent again.
    pub(in crate::worker::stream) fn push(&mut self, first: usize, last: usize) {
        let queue = self.queue(first);
        let tail = std::mem::replace(&mut queue.tail, last as u32);
        if tail == NIL {
            queue.head = first as u32;
        }
        self.packets.entries[first].prev = tail;
        self.packets.entries[last].next = NIL;
        if let Some(before) = self.packets.entries.get_mut(tail as usize) {
            before.next = first as u32;
        }
    }

    /// Takes out entries that are linked to each other.
    pub(in crate::worker::stream) fn unlink(&mut self, first: usize, last: usize) {
        let (prev, next) = (self.packets.entries[first].prev, self.packets.entries[last].next);
        match self.packets.entries.get_mut(prev as usize) {
            Some(entry) => entry.next = next,
            None => self.queue(first).head = next,
        }
        match self.packets.entries.get_mut(next as usize) {
            Some(entry) => entry.prev = prev,
            None => self.queue(first).tail = prev,
        }
    }
}
