//! The parameters of a session, as WELCOME and the caller give them.

use crate::wire::{FLAG_ROOT, Header, Kind, Rack, Tables, Welcome};
use crate::{Cookie, JobId, Policy, Rank, WorkerId};
use std::time::Duration;

/// Data packets for each port that a worker begins with (P41 congestion).
const FIRST_WINDOW: u64 = 64;
/// The first window at a single port if marks are reported (P46): it soon grows, and must not overrun a queue
/// that marks before the first mark is back. Of several ports each has 64 slots in a row.
const FIRST_WINDOW_MARKED: u64 = 16;

/// The parameters of a worker's session.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the others are named as in Welcome and in the options")]
pub struct Parameters {
    pub job: JobId,
    pub cookie: Cookie,
    pub worker: WorkerId,
    /// n: members of the aggregator, so of the rack if there are racks.
    pub workers: u8,
    pub quorum: u8,
    pub data_slots: u32,
    pub norm_slots: u32,
    /// The number of outstanding data packets for which the aggregator has room; 0 is no bound.
    pub credit: u32,
    /// The number of data packets that may be outstanding before anything is known of the network.
    pub first_window: u64,
    pub policy: Policy,
    pub deadline: Duration,
    pub tables: Tables,
    /// Ports that share the slots, of all shares of the server together.
    pub shards: u8,
    /// The time without progress after which the session fails.
    pub timeout: Duration,
    /// The longer time that applies instead while the aggregator answers and only other workers are late.
    pub patience: Duration,
    pub min_rto: Duration,
    pub max_rto: Duration,
    /// First seq of both streams: 0, but for tests of wrapping rounds.
    pub first_seq: u64,
    pub rack: Option<Rack>,
    /// True if queues may mark data packets, because the aggregator reports marks.
    pub marks: bool,
}

impl Parameters {
    /// From a WELCOME. Time-outs get their defaults: 30 s for the
    /// session, 20 ms to 1 s for retransmission.
    pub fn new(job: JobId, worker: WorkerId, welcome: &Welcome) -> Parameters {
        Parameters {
            job,
            cookie: welcome.session,
            worker,
            workers: welcome.workers,
            quorum: welcome.quorum,
            data_slots: welcome.data_slots,
            norm_slots: welcome.norm_slots,
            credit: welcome.credit,
            first_window: match welcome.all_shards() {
                1 if welcome.marks => FIRST_WINDOW_MARKED,
                ports => FIRST_WINDOW * u64::from(ports),
            },
            policy: welcome.policy,
            deadline: welcome.deadline,
            tables: welcome.tables,
            shards: welcome.all_shards(),
            timeout: Duration::from_secs(30),
            patience: Duration::ZERO,
            min_rto: Duration::from_millis(20),
            max_rto: Duration::from_secs(1),
            first_seq: 0,
            rack: welcome.rack,
            marks: welcome.marks,
        }
    }

    /// Workers of the job, of all racks.
    pub fn all_workers(&self) -> u16 {
        self.rack.map_or(self.workers.into(), |rack| rack.workers)
    }

    /// Returns how many of those are in a sum at least.
    pub fn all_quorum(&self) -> u16 {
        self.rack.map_or(self.quorum.into(), |rack| rack.quorum).max(1)
    }

    /// This worker's number among all.
    pub fn rank(&self) -> Rank {
        Rank(self.rack.map_or(0, |rack| rack.first.0) + u16::from(self.worker.0))
    }

    /// Returns whether a packet of the session may come to this worker in this form (P47): from its aggregator, or
    /// with ROOT from the root, with a count of members and a named worker that are possible there.
    pub(super) fn expects(&self, header: &Header) -> bool {
        let from_root = header.flags & FLAG_ROOT != 0;
        let (members, own) = match self.rack {
            Some(rack) if from_root => (rack.racks, rack.rack),
            _ => (self.workers, self.worker),
        };
        let names = match header.kind {
            Kind::NormResult | Kind::Result | Kind::RawResult => {
                header.worker == WorkerId::NONE && from_root == self.rack.is_some()
            }
            Kind::Straggler => header.worker == own,
            _ => header.worker.0 < members,
        };
        header.num_workers == members && names && (self.rack.is_some() || !from_root)
    }

    pub(super) fn members(&self) -> u64 {
        u64::MAX >> (64 - u32::from(self.workers.clamp(1, 64)))
    }
}
