//! Payload of STRAGGLER (P15).

use super::{Kind, put, u32_at};
use crate::Round;

/// Length in bytes.
pub const STRAGGLER_LEN: usize = 8;

/// "The slot has gone on."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Straggler {
    /// Kind of the packet that came too late.
    pub kind: Kind,
    /// The slot's round.
    pub current: Round,
}

impl Straggler {
    /// Reads a payload; none about a kind that no slot holds.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Straggler> {
        let p: &[u8; STRAGGLER_LEN] = payload.try_into().ok()?;
        Some(Straggler {
            kind: Kind::from_byte(p[0]).filter(|kind| kind.result().is_some())?,
            current: Round(u32_at(p, 4)),
        })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; STRAGGLER_LEN] {
        let mut out = [0; STRAGGLER_LEN];
        out[0] = self.kind as u8;
        put(&mut out, 4, &self.current.0.to_be_bytes());
        out
    }
}
