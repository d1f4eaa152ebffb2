//! Payload of MISMATCH (P14).

use super::{NORM_LEN, Norm};

/// Length in bytes.
pub const MISMATCH_LEN: usize = 2 * NORM_LEN;

/// Two different all-reduces met on one norm slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What the slot holds; `value` is its maximum so far.
    pub slot: Norm,
    /// What was refused.
    pub refused: Norm,
}

impl Mismatch {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Mismatch> {
        if payload.len() != MISMATCH_LEN {
            return None;
        }
        let (slot, refused) = payload.split_at(NORM_LEN);
        Some(Mismatch { slot: Norm::parse(slot)?, refused: Norm::parse(refused)? })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MISMATCH_LEN] {
        let mut out = [0; MISMATCH_LEN];
        out[..NORM_LEN].copy_from_slice(&self.slot.to_bytes());
        out[NORM_LEN..].copy_from_slice(&self.refused.to_bytes());
        out
    }
}
