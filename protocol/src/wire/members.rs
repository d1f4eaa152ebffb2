//! What WELCOME says about spares, and about members that come and go (P21, P42).

use super::{put, u16_at};
use crate::{MAX_WORKERS, WorkerId};

/// Where it begins in WELCOME.
const MEMBERS_AT: usize = 114;
/// Feature of WELCOME: what it says of members counts.
pub const FEATURE_MEMBERS: u32 = 16;
/// Bits of the word at [`MEMBERS_WORD`] that are not part of the fingerprint: a worker's number in the session, and the epoch.
pub(super) const MEMBERS_OWN: u64 = 0x0000_FF00_FFFF_0000;
pub(super) const MEMBERS_WORD: usize = 112;

/// A member's place in a session of a job that has spares, or whose members come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// This worker's number in the session, from 0 without gaps; its number in the job, its *seat*, is the header's (P42).
    pub number: WorkerId,
    /// How many of the shares, the last ones of the list, have slots only while others are away (P21).
    pub spares: u8,
    /// The session's number in the job, modulo 2^16; a change of members makes the next (P42).
    pub epoch: u16,
}

impl Members {
    /// Reads it from a payload.
    pub(super) fn parse(p: &[u8]) -> Option<Members> {
        let at = MEMBERS_AT;
        let members = Members { number: WorkerId(p[at]), spares: p[at + 1], epoch: u16_at(p, at + 2) };
        let sound = usize::from(members.number.0) < MAX_WORKERS || members.number == WorkerId::NONE;
        sound.then_some(members)
    }

    /// Writes it into a payload.
    pub(super) fn emit(&self, p: &mut [u8]) {
        let at = MEMBERS_AT;
        p[at] = self.number.0;
        p[at + 1] = self.spares;
        put(p, at + 2, &self.epoch.to_be_bytes());
    }
}
