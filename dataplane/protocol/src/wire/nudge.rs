//! Payload of a NUDGE that is passed on (P17).

use super::{Kind, put, u64_at};

/// Length in bytes.
pub const NUDGE_LEN: usize = 12;

/// "Somebody waits for this slot, and these workers are in it."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nudge {
    /// Kind of the packet that carried the flag.
    pub kind: Kind,
    /// One bit for each worker in the slot.
    pub seen: u64,
}

impl Nudge {
    /// Reads a payload; none about a kind that no slot holds.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Nudge> {
        let p: &[u8; NUDGE_LEN] = payload.try_into().ok()?;
        Some(Nudge {
            kind: Kind::from_byte(p[0]).filter(|kind| kind.result().is_some())?,
            seen: u64_at(p, 4),
        })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; NUDGE_LEN] {
        let mut out = [0; NUDGE_LEN];
        out[0] = self.kind as u8;
        put(&mut out, 4, &self.seen.to_be_bytes());
        out
    }
}
