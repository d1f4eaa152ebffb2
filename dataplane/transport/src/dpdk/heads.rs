//! Buffers for the headers of packets to many receivers, which share one copy of the payload.
//!
//! A server answers n packets by one RESULT to n workers, so the packets that were received are just enough
//! for the headers of the answers. They are at hand, and need not be returned to the pool and taken from it
//! again. If there are none, short buffers of a separate pool are used.

use thc_dpdk::{BURST, Batch, Mbuf, Mempool};

/// Received packets that are kept: enough to answer a full burst to four workers.
const SPENT: usize = 4 * BURST;

/// Empty buffers, each with room for headers.
pub(super) struct Heads {
    /// Received packets, emptied.
    spent: Vec<Mbuf>,
    /// Short ones at hand. They go before their pool does.
    free: Batch,
    pool: Mempool,
}

impl Heads {
    /// `pool` is that of short buffers.
    pub fn new(pool: Mempool) -> Heads {
        Heads { spent: Vec::with_capacity(SPENT), free: Batch::new(), pool }
    }

    /// Takes a handled packet. Returns it if no more are needed, or if others refer to it.
    #[inline]
    pub fn recycle(&mut self, mut packet: Mbuf) -> Option<Mbuf> {
        if self.spent.len() == SPENT || !packet.renew() {
            return Some(packet);
        }
        self.spent.push(packet);
        None
    }

    /// An empty buffer; `None` if there is none left.
    #[inline]
    pub fn take(&mut self) -> Option<Mbuf> {
        if let Some(head) = self.spent.pop() {
            if let Some(later) = self.spent.get(self.spent.len().wrapping_sub(4)) {
                later.prefetch_record();
            }
            return Some(head);
        }
        if self.free.is_empty() && !self.pool.fill(&mut self.free) {
            return None;
        }
        self.free.pop_ahead()
    }

    /// Gives back all that are at hand, for counting.
    #[cfg(test)]
    pub fn forget_free(&mut self) {
        self.spent.clear();
        self.free.clear();
    }

    /// The pool of short ones, for counting.
    #[cfg(test)]
    pub fn pool(&self) -> &Mempool {
        &self.pool
    }
}
