//! Payloads of JOIN, LEAVE, PENDING and ASK (P2, P22, P24, P25).

use super::{put, u32_at, u64_at};
use crate::Cookie;

/// Length of JOIN in bytes.
pub const JOIN_LEN: usize = 32;
/// Length of LEAVE in bytes.
pub const LEAVE_LEN: usize = 8;
/// Length of PENDING in bytes.
pub const PENDING_LEN: usize = 8;
/// Length of ASK in bytes.
pub const ASK_LEN: usize = 8;

/// A worker introduces itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// Random per incarnation of the worker.
    pub nonce: u64,
    /// The session it was welcomed to, if any; cookie 0 stands for none.
    pub session: Cookie,
    /// From a rack: whether that session is over because a member of the rack has restarted (P38).
    pub ends: bool,
    /// [`super::Welcome::fingerprint`] of what it was welcomed with; 0 without a session.
    pub fingerprint: u64,
    /// Digest of the numbers that its build computes (P26); 0 does not say.
    pub definitions: u64,
}

impl Join {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Join> {
        let p: &[u8; JOIN_LEN] = payload.try_into().ok()?;
        Some(Join {
            nonce: u64_at(p, 0),
            session: Cookie(u32_at(p, 8)),
            ends: u32_at(p, 12) == 1,
            fingerprint: u64_at(p, 16),
            definitions: u64_at(p, 24),
        })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; JOIN_LEN] {
        let mut out = [0; JOIN_LEN];
        put(&mut out, 0, &self.nonce.to_be_bytes());
        put(&mut out, 8, &self.session.0.to_be_bytes());
        put(&mut out, 12, &u32::from(self.ends).to_be_bytes());
        put(&mut out, 16, &self.fingerprint.to_be_bytes());
        put(&mut out, 24, &self.definitions.to_be_bytes());
        out
    }
}

/// A worker is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The nonce it joined with.
    pub nonce: u64,
}

impl Leave {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Leave> {
        let p: &[u8; LEAVE_LEN] = payload.try_into().ok()?;
        Some(Leave { nonce: u64_at(p, 0) })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LEAVE_LEN] {
        self.nonce.to_be_bytes()
    }
}

/// Not all members are here yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// One bit for each worker that has joined.
    pub joined: u64,
}

impl Pending {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Pending> {
        let p: &[u8; PENDING_LEN] = payload.try_into().ok()?;
        Some(Pending { joined: u64_at(p, 0) })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PENDING_LEN] {
        self.joined.to_be_bytes()
    }
}

/// Asks a member whether it still runs, before its number is given to somebody else (P24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The nonce it joined with.
    pub nonce: u64,
}

impl Ask {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Ask> {
        let p: &[u8; ASK_LEN] = payload.try_into().ok()?;
        Some(Ask { nonce: u64_at(p, 0) })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ASK_LEN] {
        self.nonce.to_be_bytes()
    }
}
