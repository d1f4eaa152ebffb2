//! A slot's state (P8).

use crate::{Round, TableId};

/// Everything of a slot but its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotState {
    pub round: Round,
    /// One bit per worker; 0 is an empty slot.
    pub seen: u64,
    pub complete: bool,
    /// Of DATA and RAW, kind and table of the packet that opened the round (P14).
    pub form: (u8, TableId),
}

/// A slot, to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView<'a> {
    /// Its round.
    pub round: Round,
    /// One bit per worker in it.
    pub seen: u64,
    /// Whether its RESULT is out.
    pub complete: bool,
    /// Its lanes (1024 bytes) or its NORM payload (20 bytes), in wire order.
    pub values: &'a [u8],
}
