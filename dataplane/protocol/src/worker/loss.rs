//! Packets that are lost for good (P48 loss policies): `best-effort` gives data up at a deadline, and
//! with a quorum below n the others continue without a late worker.

use super::error::SessionError;
use super::stream::{PacketId, Tx};
use super::{Events, Parameters, Worker};
use crate::Policy;
use crate::wire::{Header, Kind, Norm, Straggler};
use std::time::Duration;

impl Parameters {
    /// Returns whether a packet may be given up, or come too late for its sum.
    pub fn may_lose(&self) -> bool {
        self.policy == Policy::BestEffort || self.by_quorum()
    }

    pub(super) fn by_quorum(&self) -> bool {
        self.all_quorum() < self.all_workers()
    }
}

impl Worker {
    /// Gives up the data packets that are past the deadline, and asks for those that are a quarter of it old.
    pub(super) fn give_up_overdue(&mut self, now: Duration, events: &mut impl Events, tx: &mut impl Tx) {
        while let Some((place, slot, round)) = self.data.give_up_older(now, self.params.deadline) {
            events.packet_lost(place, self.data.kept_payload(slot, round));
        }
        self.data.ask_again(now, self.params.deadline / 4, tx);
    }

    /// The others have gone on by quorum without this worker's norm: nothing of the partition is sent, and its mean is not known.
    fn norm_left_out(&mut self, place: PacketId, events: &mut impl Events) {
        let Some(call) = self.calls.get_mut((place.call - self.first_call) as usize) else { return };
        let part = &mut call.parts[place.partition as usize];
        self.stats.left_out += u64::from(part.packets);
        call.withheld |= Norm::non_finite_worker(part.norm).is_some();
        (part.norm, part.silent) = (0, true);
        events.left_out(place.call, place.partition);
        self.count_norm(place.call, events);
    }

    /// The slot of a packet has gone on (P15 older round). Where nothing may be lost that cannot be, and ends the session.
    pub(super) fn straggler(
        &mut self,
        now: Duration,
        header: &Header,
        about: Straggler,
        events: &mut impl Events,
    ) {
        self.stats.stragglers += 1;
        let (slot, round, current) = (header.slot, header.round, about.current);
        let overtaken = SessionError::Overtaken { slot, round, current };
        if about.kind == Kind::Norm && self.params.by_quorum() {
            if let Some(place) = self.norm.give_up(now, slot, round) {
                self.norm_left_out(place, events);
            }
        } else if about.kind == Kind::Norm {
            if self.norm.outstanding_packet(slot, round).is_some() {
                self.fail(overtaken);
            }
        } else if self.params.may_lose() {
            if let Some(place) = self.data.give_up(now, slot, round) {
                events.packet_lost(place, self.data.kept_payload(slot, round));
            }
        } else if self.data.outstanding_packet(slot, round).is_some() {
            self.fail(overtaken);
        }
    }
}
