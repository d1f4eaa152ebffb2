//! Payloads of the answers that are not results: STRAGGLER (P15 older round), MISMATCH (P14 different collectives) and NUDGE (P17).

use super::layout::payload;
use super::{Kind, Norm};
use crate::Round;

payload! {
    /// The slot has gone on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Straggler[STRAGGLER_LEN = 8] {
        /// Kind of the packet that came too late.
        0 kind: Kind,
        /// The slot's round.
        4 current: Round,
    }
}

payload! {
    /// Two different all-reduces met on one norm slot.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mismatch[MISMATCH_LEN = 40] {
        /// The NORM that opened the slot, with the slot's maximum as its value.
        0 slot: Norm,
        /// The NORM that was refused.
        20 refused: Norm,
    }
}

payload! {
    /// A worker waits for this slot.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Nudge[NUDGE_LEN = 12] {
        /// Kind of the packet that carried the flag.
        0 kind: Kind,
        /// One bit for each worker in the slot.
        4 seen: u64,
    }
}
