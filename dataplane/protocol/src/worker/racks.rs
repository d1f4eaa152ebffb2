//! What differs for a worker in a rack: packets of the root count racks (P36, P37).

use super::{Tx, Who, Worker};
use crate::WorkerId;
use crate::wire::{FLAG_NUDGE, FLAG_ROOT, Header, Kind, Nudge};
use std::time::Duration;

impl Worker {
    /// P36: `seen` is of racks.
    pub(super) fn nudged_by_root(&mut self, now: Duration, header: &Header, nudge: Nudge, tx: &mut impl Tx) {
        let Some(rack) = self.params.rack else { return };
        let stream = if nudge.kind == Kind::Norm { &mut self.norm } else { &mut self.data };
        if stream.outstanding_packet(header.slot, header.round).is_some() {
            self.missing.racks = u64::MAX >> (64 - u32::from(rack.racks.clamp(1, 64))) & !nudge.seen;
        }
        if nudge.seen & rack.rack.bit() != 0 {
            // Its rack is complete.
            (self.missing.norm, self.missing.data) = (0, 0);
        }
        // The rack asks its members in turn if it is not complete, so one of them is enough (P40).
        let asks = nudge.seen & rack.rack.bit() == 0 && stream.asks_for(header.slot, header.round);
        if asks && stream.resend_kept(now, header.slot, header.round, FLAG_NUDGE, tx) {
            self.stats.nudged += 1;
        } else {
            self.refuse_again(now, tx);
        }
    }

    /// The worker that a MISMATCH names, and whether it is this one or its whole rack (P35, P37).
    pub(super) fn refused_worker(&self, header: &Header) -> (Who, bool) {
        let Some(rack) = self.params.rack.filter(|_| header.flags & FLAG_ROOT != 0) else {
            return (Who::Worker(header.worker), header.worker == self.params.worker);
        };
        let member = header.count.checked_sub(1).map(|number| WorkerId(number as u8));
        let own = header.worker == rack.rack && member.is_none_or(|member| member == self.params.worker);
        (Who::OfRack(header.worker, member), own)
    }
}
