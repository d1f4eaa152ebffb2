//! The kind byte (P2 kinds).

use super::layout::{Value, codes};

codes! {
    /// The kind of a packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Kind {
        /// A partition's norm, up.
        Norm = 0x01,
        /// Packed table indices, up.
        Data = 0x02,
        /// 32-bit integers, up.
        Raw = 0x03,
        /// The maximum of a norm slot, down.
        NormResult = 0x11,
        /// Summed table values, down.
        Result = 0x12,
        /// Summed integers, down.
        RawResult = 0x13,
        /// "Your round is over", down.
        Straggler = 0x14,
        /// "You have called different all-reduces", down.
        Mismatch = 0x15,
        /// "A worker still waits for this slot", down.
        Nudge = 0x16,
        /// A worker introduces itself, up, control.
        Join = 0x21,
        /// A worker is done, up, control.
        Leave = 0x22,
        /// The session's parameters, down, control.
        Welcome = 0x31,
        /// Not all are here yet, down, control.
        Pending = 0x32,
        /// The worker cannot join, down, control.
        Refused = 0x33,
        /// All have left, down, control.
        Bye = 0x34,
        /// The job's configuration, down, control.
        Description = 0x35,
        /// "Are you still there?", down, control.
        Ask = 0x36,
    }
}

impl Kind {
    /// Returns whether the control plane, not the aggregator, answers it.
    pub const fn is_control(self) -> bool {
        (self as u8) & 0x20 != 0
    }

    /// The kind of the answer that carries the sums of this kind, for kinds that are aggregated.
    #[inline]
    pub const fn result(self) -> Option<Kind> {
        match self {
            Kind::Norm => Some(Kind::NormResult),
            Kind::Data => Some(Kind::Result),
            Kind::Raw => Some(Kind::RawResult),
            _ => None,
        }
    }
}

/// A kind that slots hold: answers name no other.
impl Value for Kind {
    fn read(from: &[u8]) -> Option<Kind> {
        Kind::from_byte(*from.first()?).filter(|kind| kind.result().is_some())
    }

    fn write(&self, to: &mut [u8]) {
        to[0] = *self as u8;
    }
}
