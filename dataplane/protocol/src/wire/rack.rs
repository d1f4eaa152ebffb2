//! What WELCOME says of racks (P34, P38).

use super::{finalize, put, u16_at, u64_at};
use crate::{MAX_WORKERS, Rank, WorkerId};

/// Where it begins in WELCOME.
pub(super) const RACK_AT: usize = 94;
/// Feature of WELCOME: what it says of racks counts.
pub const FEATURE_RACKS: u32 = 2;
/// Feature of WELCOME: only racks can join.
pub const FEATURE_ROOT: u32 = 4;

/// A member's place among all workers of a job that has racks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rack {
    /// How many racks there are.
    pub racks: u8,
    /// The rack's number; [`WorkerId::NONE`] in what the root says.
    pub rack: WorkerId,
    /// Workers of all racks.
    pub workers: u16,
    /// How many of them are in a sum at least.
    pub quorum: u16,
    /// The rank of the rack's worker 0.
    pub first: Rank,
    /// A digest of all racks' sizes and quorums.
    pub layout: u64,
}

/// The digest of the racks' workers and quorums, in order (P38).
#[must_use]
pub fn rack_layout(sizes: &[(u8, u8)]) -> u64 {
    let word = |&(workers, quorum): &(u8, u8)| u64::from(workers) << 8 | u64::from(quorum);
    sizes.iter().fold(0, |hash, size| finalize(hash ^ word(size)).wrapping_add(1))
}

impl Rack {
    /// Reads it from a payload.
    pub(super) fn parse(p: &[u8]) -> Option<Rack> {
        let at = RACK_AT;
        let rack = Rack {
            racks: p[at],
            rack: WorkerId(p[at + 1]),
            workers: u16_at(p, at + 2),
            quorum: u16_at(p, at + 4),
            first: Rank(u16_at(p, at + 6)),
            layout: u64_at(p, at + 8),
        };
        let most = MAX_WORKERS as u16;
        let sound = (1..=most).contains(&rack.racks.into())
            && (rack.rack.0 < rack.racks || rack.rack == WorkerId::NONE)
            && (u16::from(rack.racks)..=u16::from(rack.racks) * most).contains(&rack.workers)
            && (u16::from(rack.racks)..=rack.workers).contains(&rack.quorum)
            && rack.first.0 < rack.workers;
        sound.then_some(rack)
    }

    /// Writes it into a payload.
    pub(super) fn emit(&self, p: &mut [u8]) {
        let at = RACK_AT;
        p[at] = self.racks;
        p[at + 1] = self.rack.0;
        put(p, at + 2, &self.workers.to_be_bytes());
        put(p, at + 4, &self.quorum.to_be_bytes());
        put(p, at + 6, &self.first.0.to_be_bytes());
        put(p, at + 8, &self.layout.to_be_bytes());
    }
}
