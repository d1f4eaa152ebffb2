//! The part of WELCOME about racks (P34, P38).

use super::digest;
use super::layout::payload;
use crate::{MAX_WORKERS, Rank, WorkerId};

/// Feature of WELCOME: what it says of racks counts.
pub const FEATURE_RACKS: u32 = 2;
/// Feature of WELCOME: only racks can join.
pub const FEATURE_ROOT: u32 = 4;

payload! {
    /// A member's place among all workers of a job that has racks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Rack[RACK_LEN = 16] {
        /// Number of racks.
        0 racks: u8,
        /// The rack's number; [`WorkerId::NONE`] in what the root says.
        1 rack: WorkerId,
        /// Workers of all racks.
        2 workers: u16,
        /// Workers that are in a sum at least.
        4 quorum: u16,
        /// The rank of the rack's worker 0.
        6 first: Rank,
        /// Digest of all racks' sizes and quorums: [`rack_layout`].
        8 layout: u64,
    }
}

/// The digest of the racks' workers and quorums, in order (P38 sessions in racks).
pub fn rack_layout(sizes: &[(u8, u8)]) -> u64 {
    digest(sizes.iter().map(|&(workers, quorum)| u64::from(workers) << 8 | u64::from(quorum)))
}

impl Rack {
    /// Returns whether a job can have these numbers (P34 levels, P47 what a worker takes).
    pub(super) fn is_sound(&self) -> bool {
        let (racks, most) = (u16::from(self.racks), MAX_WORKERS as u16);
        (1..=most).contains(&racks)
            && (self.rack.0 < self.racks || self.rack == WorkerId::NONE)
            && (racks..=racks * most).contains(&self.workers)
            && (racks..=self.workers).contains(&self.quorum)
            && self.first.0 < self.workers
    }
}
