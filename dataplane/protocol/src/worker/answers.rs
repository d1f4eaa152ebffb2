//! Packets of the aggregator, and their effect on a worker (P47 what a worker takes).

use super::error::{CallError, SessionError};
use super::stream::{PacketId, Tx};
use super::{Events, Who, Worker};
use crate::wire::{FLAG_MARK, FLAG_ROOT, Form, Header, Kind, Mismatch, Norm, Nudge, Straggler};
use crate::{Ecn, Round, SlotId, WorkerId};
use std::time::Duration;

impl Worker {
    /// Returns whether a packet names this session's job and cookie.
    fn is_of_session(&self, header: &Header) -> bool {
        header.job == self.params.job && header.cookie == self.params.cookie
    }

    /// Takes one packet from the aggregator's address. After a burst of them call [`Self::tick`].
    /// Once the session has failed there are no more events, but other workers' NUDGEs are still
    /// answered: they may not know yet.
    pub fn handle(&mut self, now: Duration, packet: &[u8], events: &mut impl Events, tx: &mut impl Tx) {
        self.handle_with(now, Ecn::NotEct, packet, events, tx);
    }

    /// Takes one packet like [`Self::handle`], which came with these ECN bits (P46 marks).
    pub fn handle_with(
        &mut self,
        now: Duration,
        ecn: Ecn,
        packet: &[u8],
        events: &mut impl Events,
        tx: &mut impl Tx,
    ) {
        let Ok((header, payload)) = Header::parse(packet) else {
            self.stats.foreign += 1;
            return;
        };
        // The table of the sums; packets of other kinds have none.
        let place = self.params.tables.place(header.table);
        let form =
            place.and_then(|place| self.params.tables.get(place)).map_or(Form::USUAL, |table| table.form);
        let whole = payload.len() == header.kind.payload_len(form);
        if !self.is_of_session(&header) || !whole || !self.params.expects(&header) {
            self.stats.foreign += 1;
            return;
        }
        self.heard = now;
        if self.failure.is_some() && header.kind != Kind::Nudge {
            return;
        }
        let (slot, round) = (header.slot, header.round);
        match header.kind {
            Kind::NormResult => {
                if let Some(norm) = Norm::parse(payload)
                    && self.believes(now, slot, round, norm.value, tx)
                    && let Some(place) = self.norm.finish(now, 0, slot, round, false)
                {
                    (self.missing.norm.missing, self.missing.racks) = (0, 0);
                    self.norm_result(place, norm.value, events);
                }
            }
            Kind::Result | Kind::RawResult => {
                let possible = self.params.all_quorum()..=self.params.all_workers();
                let ring = match (header.kind, place) {
                    (Kind::Result, Some(place)) => Some(place),
                    (Kind::RawResult, _) => Some(self.params.tables.len()),
                    _ => None,
                };
                match ring.filter(|_| possible.contains(&header.count)) {
                    Some(ring) => self.handle_result(now, ecn, ring as u8, (&header, payload), events),
                    None => self.stats.foreign += 1,
                }
            }
            Kind::Straggler => {
                if let Some(straggler) = Straggler::parse(payload) {
                    self.straggler(now, &header, straggler, events);
                }
            }
            Kind::Mismatch => {
                if let Some(Mismatch { slot: theirs, refused }) = Mismatch::parse(payload) {
                    let (who, own) = self.refused_worker(&header);
                    self.refused = own.then_some((slot, round));
                    let mine = self.norm.kept_payload(slot, round).and_then(Norm::parse);
                    self.fail(SessionError::Mismatch { mine, who, slot: theirs, refused });
                }
            }
            Kind::Nudge => {
                if let Some(nudge) = Nudge::parse(payload) {
                    self.handle_nudge(now, &header, nudge, tx);
                }
            }
            _ => self.stats.foreign += 1,
        }
    }

    /// Results of a packet of data.
    fn handle_result(
        &mut self,
        now: Duration,
        ecn: Ecn,
        ring: u8,
        (header, payload): (&Header, &[u8]),
        events: &mut impl Events,
    ) {
        let (slot, round) = (header.slot, header.round);
        if header.count < self.params.all_workers() {
            self.data.foresee(slot, round);
        }
        let marked = ecn == Ecn::Ce || header.flags & FLAG_MARK != 0;
        if let Some(place) = self.data.finish(now, ring, slot, round, marked) {
            (self.missing.data.missing, self.missing.racks) = (0, 0);
            events.result(place, header, payload);
            if self.data.was_late(slot, round) {
                events.packet_late(place, self.data.kept_payload(slot, round));
            }
        }
    }

    /// Takes packets that came in a row from one address with these bits, each of `segment` bytes; the last
    /// may be shorter. The parts that consecutive RESULTs have in common are checked once; otherwise the
    /// effect is that of [`Self::handle_with`] for each packet.
    pub fn handle_run(
        &mut self,
        now: Duration,
        ecn: Ecn,
        mut packets: &[u8],
        segment: usize,
        events: &mut impl Events,
        tx: &mut impl Tx,
    ) {
        loop {
            let taken = self.take_results(now, ecn, packets, segment, events);
            let (head, rest) = packets.split_at((taken.max(1) * segment).min(packets.len()));
            if taken == 0 {
                self.handle_with(now, ecn, head, events, tx);
            }
            packets = rest;
            if packets.is_empty() {
                return;
            }
        }
    }

    /// Takes as many packets, from the first on, as are RESULTs in a row for packets that were sent once, and
    /// returns how many those are.
    fn take_results(
        &mut self,
        now: Duration,
        ecn: Ecn,
        packets: &[u8],
        segment: usize,
        events: &mut impl Events,
    ) -> usize {
        let Some((first, _)) = packets.split_at_checked(segment) else { return 0 };
        let Ok((header, payload)) = Header::parse(first) else { return 0 };
        let Some(place) = self.params.tables.place(header.table) else { return 0 };
        let form = self.params.tables.get(place).map_or(Form::USUAL, |table| table.form);
        let (slot, round) = (header.slot, header.round);
        let plain = header.kind == Kind::Result
            && header.count == self.params.all_workers()
            && payload.len() == header.kind.payload_len(form)
            && self.failure.is_none()
            && self.is_of_session(&header)
            && self.params.expects(&header)
            && self.data.awaits(place as u8, slot, round);
        if !plain {
            return 0;
        }
        let count = Header::slots_in_row(packets, segment);
        let marked = ecn == Ecn::Ce || header.flags & FLAG_MARK != 0;
        let taken = self.data.finish_run(now, place as u8, (slot, round), count, marked);
        if taken == 0 {
            return 0;
        }
        self.heard = now;
        (self.missing.data.missing, self.missing.racks) = (0, 0);
        let mut done = 0;
        while done < taken {
            let slot = SlotId(slot.0 + done as u16);
            let (place, alike) = self.data.run_at(slot.0.into(), taken - done);
            let those = &packets[done * segment..(done + alike) * segment];
            events.results(place, &Header { slot, ..header }, those, segment);
            done += alike;
        }
        taken
    }

    /// Returns whether to take this maximum (P19). An impossible one is asked for again the first time: if it was
    /// damaged on its way, the others have another; if the slot holds it, it comes again.
    fn believes(&mut self, now: Duration, slot: SlotId, round: Round, value: u32, tx: &mut impl Tx) -> bool {
        let Some(place) = self.norm.outstanding_packet(slot, round) else { return true };
        let call = self.calls.get_mut((place.call - self.first_call) as usize);
        let Some(part) = call.and_then(|call| call.parts.get_mut(place.partition as usize)) else {
            return true;
        };
        let below = !self.params.by_quorum() && value < part.norm;
        if Norm::is_value(value, self.params.all_workers()) && !below || part.doubted == Some(value) {
            return true;
        }
        part.doubted = Some(value);
        self.norm.resend_kept(now, slot, round, 0, tx);
        false
    }

    fn norm_result(&mut self, place: PacketId, value: u32, events: &mut impl Events) {
        let full = !self.params.by_quorum();
        let workers = self.params.all_workers();
        let Some(call) = self.calls.get_mut((place.call - self.first_call) as usize) else { return };
        let part = &mut call.parts[place.partition as usize];
        if full && value < part.norm && Norm::is_value(value, workers) {
            // Others may not know, and go on with it.
            let (partition, own) = (place.partition, part.norm);
            self.fail(SessionError::NormLost { partition, own, maximum: value });
            return;
        }
        let own = Norm::non_finite_worker(part.norm);
        part.norm = value;
        // With a quorum below n the others may have gone on before this worker's NaN came.
        call.withheld |= own.is_some() && Norm::non_finite_worker(value).is_none();
        self.count_norm(place.call, events);
    }

    /// One more norm of a call is known, or never will be.
    pub(super) fn count_norm(&mut self, number: u64, events: &mut impl Events) {
        let (workers, numbered) = (self.params.all_workers(), self.params.by_quorum());
        let Some(call) = self.calls.get_mut((number - self.first_call) as usize) else { return };
        call.norms_in += 1;
        if !call.has_norms() {
            return;
        }
        let norms = || (0u32..).zip(call.parts.iter().map(|part| part.norm));
        let damaged = norms().find(|&(_, norm)| !Norm::is_value(norm, workers));
        let damaged = damaged.map(|(partition, value)| CallError::Norm { partition, value });
        let non_finite = norms().find_map(|(_, norm)| Norm::non_finite_worker(norm));
        let own = call.withheld.then(|| CallError::NonFinite { worker: self.params.rank() });
        let error = damaged.or(non_finite.map(|worker| CallError::NonFinite { worker })).or(own);
        call.begin_data(error.is_some(), numbered);
        match error {
            Some(error) => events.call_failed(number, error),
            None => events.norms(number, &mut call.parts.iter().map(|part| part.norm)),
        }
        self.drop_sent();
    }

    /// Drops the calls of which everything is sent.
    pub(super) fn drop_sent(&mut self) {
        while self.calls.front_mut().is_some_and(|call| call.has_norms() && call.skip_sent()) {
            self.calls.pop_front();
            self.first_call += 1;
            self.norm_call = self.norm_call.saturating_sub(1);
        }
    }

    /// The worker that a MISMATCH names, and whether it is this one or its whole rack (P35 sums to the root, P37 roots).
    fn refused_worker(&self, header: &Header) -> (Who, bool) {
        let Some(rack) = self.params.rack.filter(|_| header.flags & FLAG_ROOT != 0) else {
            return (Who::Worker(header.worker), header.worker == self.params.worker);
        };
        let member = header.count.checked_sub(1).map(|number| WorkerId(number as u8));
        let own = header.worker == rack.rack && member.is_none_or(|member| member == self.params.worker);
        (Who::OfRack(header.worker, member), own)
    }
}
