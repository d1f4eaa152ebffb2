//! The workers and racks that packets wait for, by NUDGEs (P17).

use crate::{Round, SlotId};
use std::time::Duration;

/// A slot in which members are missing that have left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absence {
    pub slot: (SlotId, Round),
    /// The time of the first NUDGE that showed it.
    pub since: Duration,
}

/// The workers that the packets of one stream wait for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Workers that the latest NUDGE has shown to be missing, one bit each.
    pub missing: u64,
    /// The slot that cannot complete without members that have left.
    pub absence: Option<Absence>,
}

/// The workers and racks that packets wait for.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub norm: Waits,
    pub data: Waits,
    /// Racks that the root waits for, by the latest NUDGE that it has sent.
    pub racks: u64,
    /// Members that have left.
    pub left: u64,
}

impl Missing {
    /// The workers that are missing. Data in flight belong to an earlier call than norms in flight, so a worker that is
    /// missing there may be why others are missing here.
    pub fn workers(&self) -> u64 {
        if self.data.missing != 0 { self.data.missing } else { self.norm.missing }
    }
}
