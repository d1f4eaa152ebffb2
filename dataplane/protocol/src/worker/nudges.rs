//! NUDGEs (P17, P20, P40): the workers and racks that packets wait for, and the packets that others wait for.

use super::Worker;
use super::error::SessionError;
use super::missing::{Absence, Waits};
use super::stream::{PacketId, Stream, Tx};
use crate::wire::{FLAG_NUDGE, FLAG_ROOT, Header, Kind, Nudge};
use crate::{Round, SlotId};
use std::time::Duration;

/// A worker that leaves answers NUDGEs this long after its first LEAVE (P25).
const LEAVING: Duration = Duration::from_secs(1);

impl Worker {
    fn class(&mut self, kind: Kind) -> (&mut Stream, &mut Waits) {
        match kind {
            Kind::Norm => (&mut self.norm, &mut self.missing.norm),
            _ => (&mut self.data, &mut self.missing.data),
        }
    }

    /// A NUDGE says which workers are in a slot: this one sends its packet again if that is missing, even if it has
    /// finished the seq.
    pub(super) fn handle_nudge(&mut self, now: Duration, header: &Header, nudge: Nudge, tx: &mut impl Tx) {
        if header.flags & FLAG_ROOT != 0 {
            return self.handle_root_nudge(now, header, nudge, tx);
        }
        let (slot, round) = (header.slot, header.round);
        let missing = self.params.members() & !nudge.seen;
        let own = self.params.worker;
        let (stream, waits) = self.class(nudge.kind);
        stream.handle_served(slot);
        if let Some(place) = stream.outstanding_packet(slot, round) {
            waits.missing = missing;
            self.count_absence(now, nudge.kind, (slot, round), place, missing);
        }
        let stream = self.class(nudge.kind).0;
        let seen = nudge.seen & own.bit() != 0;
        if seen {
            stream.handle_seen(now, slot, round);
        }
        if header.worker == own {
            stream.handle_own_nudge(now, slot, round);
        } else if !seen && stream.resend_kept(now, slot, round, 0, tx) {
            self.stats.nudged += 1;
        } else {
            self.refuse_again(now, tx);
        }
    }

    /// A NUDGE of the root, whose `seen` is of racks (P36 passed on).
    fn handle_root_nudge(&mut self, now: Duration, header: &Header, nudge: Nudge, tx: &mut impl Tx) {
        let Some(rack) = self.params.rack else { return };
        let (slot, round) = (header.slot, header.round);
        let stream = self.class(nudge.kind).0;
        let outstanding = stream.outstanding_packet(slot, round).is_some();
        let is_complete = nudge.seen & rack.rack.bit() != 0;
        // The rack asks its members in turn if it is not complete, so one of them is enough (P40 who asks).
        let repeats = !is_complete
            && stream.asks_for(slot, round)
            && stream.resend_kept(now, slot, round, FLAG_NUDGE, tx);
        if outstanding {
            self.missing.racks = u64::MAX >> (64 - u32::from(rack.racks.clamp(1, 64))) & !nudge.seen;
        }
        if is_complete {
            (self.missing.norm.missing, self.missing.data.missing) = (0, 0);
        }
        if repeats {
            self.stats.nudged += 1;
        } else {
            self.refuse_again(now, tx);
        }
    }

    /// A NUDGE has shown that `missing` members are not in the slot of an outstanding packet. Fails the session if that
    /// slot cannot complete, because those that have left answer no NUDGE any more (P25 LEAVE).
    fn count_absence(
        &mut self,
        now: Duration,
        kind: Kind,
        slot: (SlotId, Round),
        place: PacketId,
        missing: u64,
    ) {
        let members = missing & self.missing.left & !self.params.worker.bit();
        let spare = u32::from(self.params.workers.saturating_sub(self.params.quorum));
        let (stream, Waits { absence, .. }) = self.class(kind);
        // The oldest packet is the one that time-outs ask for again and again.
        let other = absence.filter(|it| it.slot != slot);
        let other = other.and_then(|it| stream.outstanding_packet(it.slot.0, it.slot.1));
        if other.is_some_and(|other| other < place) {
            return;
        }
        if members.count_ones() <= spare {
            *absence = None;
            return;
        }
        let since = absence.filter(|it| it.slot == slot).map_or(now, |it| it.since);
        *absence = Some(Absence { slot, since });
        if now.saturating_sub(since) >= LEAVING {
            let waited = self.stalled.time();
            self.fail(SessionError::Left { members, call: place.call, waited });
        }
    }

    /// A worker that still waits may have lost the MISMATCH: this packet is refused again, which brings another one (P14).
    fn refuse_again(&mut self, now: Duration, tx: &mut impl Tx) {
        if let Some((slot, round)) = self.refused
            && self.norm.resend_kept(now, slot, round, 0, tx)
        {
            self.stats.nudged += 1;
        }
    }
}
