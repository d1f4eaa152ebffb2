//! What differs for a worker in a rack: packets of the root count racks (P36, P37).

use super::{Tx, Who, Worker};
use crate::WorkerId;
use crate::wire::{FLAG_ROOT, Header, Kind, Nudge};

impl Worker {
    /// P36: `seen` is of racks.
    pub(super) fn nudged_by_root(&mut self, header: &Header, nudge: Nudge, tx: &mut impl Tx) {
        let Some(rack) = self.params.rack else { return };
        let stream = if nudge.kind == Kind::Norm { &mut self.norm } else { &mut self.data };
        if stream.outstanding(header.slot, header.round).is_some() {
            self.missing_racks = u64::MAX >> (64 - u32::from(rack.racks.clamp(1, 64))) & !nudge.seen;
        }
        if nudge.seen & rack.rack.bit() != 0 {
            // Its rack is complete.
            (self.missing_norm, self.missing_data) = (0, 0);
        }
        if nudge.seen & rack.rack.bit() == 0 && stream.resend_kept(header.slot, header.round, tx) {
            self.stats.nudged += 1;
        } else if let Some((slot, round)) = self.refused
            && self.norm.resend_kept(slot, round, tx)
        {
            self.stats.nudged += 1;
        }
    }

    /// Whom a MISMATCH names, and whether that is this worker, or all of its rack (P35, P37).
    pub(super) fn refused(&self, header: &Header) -> (Who, bool) {
        let Some(rack) = self.params.rack.filter(|_| header.flags & FLAG_ROOT != 0) else {
            return (Who::Worker(header.worker), header.worker == self.params.worker);
        };
        let member = header.count.checked_sub(1).map(|number| WorkerId(number as u8));
        let own = header.worker == rack.rack && member.is_none_or(|member| member == self.params.worker);
        (Who::OfRack(header.worker, member), own)
    }
}
