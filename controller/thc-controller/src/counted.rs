//! What switches and servers have counted of a job.

use serde::{Deserialize, Serialize};
use thc_protocol::aggregator::{DropReason, Event};

/// Answers that are counted: results, resent, nudges, recirculations.
pub const ANSWERS: usize = 4;
/// What a packet in a sum is counted as.
pub const IN_SUMS: [Event; 2] = [Event::Opened, Event::Added];

/// Counted of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// Counts in the order of [`Event::ALL`].
    pub events: [u64; Event::ALL.len()],
    /// Counts in the order of [`DropReason::ALL`].
    pub drops: [u64; DropReason::ALL.len()],
}

/// Counted of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounted {
    /// See [`ANSWERS`].
    pub answers: [u64; ANSWERS],
    /// The workers by number.
    pub workers: Vec<Counted>,
}

impl JobCounted {
    /// What came after `earlier` was counted.
    #[must_use]
    pub fn difference(mut self, earlier: &JobCounted) -> JobCounted {
        fn subtract(now: &mut [u64], then: &[u64]) {
            now.iter_mut().zip(then).for_each(|(now, then)| *now = now.saturating_sub(*then));
        }
        subtract(&mut self.answers, &earlier.answers);
        for (now, then) in self.workers.iter_mut().zip(&earlier.workers) {
            now.packets = now.packets.saturating_sub(then.packets);
            now.bytes = now.bytes.saturating_sub(then.bytes);
            subtract(&mut now.events, &then.events);
            subtract(&mut now.drops, &then.drops);
        }
        self
    }

    /// Packets of a worker that are in sums.
    #[must_use]
    pub fn in_sums(&self, worker: u8) -> u64 {
        let events = |counted: &Counted| IN_SUMS.iter().map(|&event| counted.events[event as usize]).sum();
        self.workers.get(usize::from(worker)).map_or(0, events)
    }
}
