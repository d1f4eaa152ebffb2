//! A packet for a slot opens the slot, is added to it, or is answered (P9 to P17).

use super::admission::Admission;
use super::job::{Job, Receivers};
use super::level::port_of;
use super::slot::SlotState;
use super::{DropReason, Event, JobCounters, Kernels, Level, Sink};
use crate::wire::{
    FLAG_MARK, FLAG_NUDGE, HEADER_LEN, Header, Kind, MAX_PACKET, MISMATCH_LEN, NORM_LEN, Norm, Nudge,
    RESULT_LEN, Straggler,
};
use crate::{Ecn, Round, WorkerId};
use std::ops::Range;

/// The bytes of the value (P3 NORM payload).
const NORM_VALUE: Range<usize> = 4..8;

/// An answer that is no result: the header of the packet answered, with another kind (P1).
fn named<'a>(buffer: &'a mut [u8; MAX_PACKET], header: &Header, kind: Kind, body: &[u8]) -> &'a [u8] {
    Header { kind, flags: 0, count: 0, ..*header }.emit_packet(buffer, body)
}

impl Receivers {
    #[cold]
    fn straggler(&self, header: &Header, current: Round, sink: &mut impl Sink) {
        let body = Straggler { kind: header.kind, current }.to_bytes();
        let packet = &mut [0; MAX_PACKET];
        self.answer(header.worker, Ecn::NotEct, named(packet, header, Kind::Straggler, &body), sink);
    }

    #[cold]
    fn nudge(&self, header: &Header, seen: u64, sink: &mut impl Sink) {
        let body = Nudge { kind: header.kind, seen }.to_bytes();
        self.answer_all(Ecn::NotEct, named(&mut [0; MAX_PACKET], header, Kind::Nudge, &body), sink);
    }

    /// P14 different collectives. Both payloads go out as they came in, whatever tag they carry. That of a rack goes to
    /// its root, which sends it to all (P35 what a rack sends up).
    #[cold]
    fn mismatch(
        &self,
        level: &Level,
        header: &Header,
        (held, refused): (&[u8; NORM_LEN], &[u8; NORM_LEN]),
        sink: &mut impl Sink,
    ) {
        let mut body = [0; MISMATCH_LEN];
        body[..NORM_LEN].copy_from_slice(held);
        body[NORM_LEN..].copy_from_slice(refused);
        let packet = &mut [0; MAX_PACKET];
        let Level::Rack { racks, rack, root, ports } = *level else {
            return self.answer_all(Ecn::NotEct, named(packet, header, Kind::Mismatch, &body), sink);
        };
        let count = u16::from(header.worker.0) + 1;
        let (kind, num_workers) = (Kind::Mismatch, racks.count);
        let header = Header { kind, flags: 0, num_workers, worker: rack, count, ..*header };
        sink.unicast(port_of(root, ports, header.slot), Ecn::NotEct, header.emit_packet(packet, &body));
    }
}

/// The flags of a slot's packets.
#[inline]
const fn mark_of(mark: bool) -> u8 {
    if mark { FLAG_MARK } else { 0 }
}

/// The P3 payload of a packet that has one.
fn norm_payload(payload: &[u8]) -> &[u8; NORM_LEN] {
    payload.try_into().unwrap_or(&[0; NORM_LEN])
}

/// A packet for a slot that is open.
struct Arrival<'a> {
    pass: &'a Admission,
    head: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
    /// The ECN bits of its answer.
    answered: Ecn,
}

impl Arrival<'_> {
    /// Answers a packet that adds nothing to its slot: one of an earlier round, of another call, or one that the slot
    /// has (P12 duplicates). `None` if it is to be added.
    #[inline(always)]
    fn repeat<const NORM: bool>(
        &self,
        (level, receivers, counters): (&Level, &Receivers, &mut JobCounters),
        state: &SlotState,
        packet: &mut [u8],
        sink: &mut impl Sink,
    ) -> Option<Event> {
        let Arrival { pass, head, payload, answered } = *self;
        let like = pass.template();
        let (round, slot) = Header::place_of(head);
        if round != state.round {
            receivers.straggler(&pass.header(head), state.round, sink);
            return Some(Event::Stale);
        }
        if NORM {
            let (held, body) = (norm_payload(&packet[HEADER_LEN..]), norm_payload(payload));
            if Norm::tag_of(body) != Norm::tag_of(held) {
                receivers.mismatch(level, &pass.header(head), (held, body), sink);
                return Some(Event::Mismatch);
            }
        }
        let known = state.seen & pass.bit != 0;
        if state.complete {
            if let &Level::Rack { root, ports, .. } = level {
                Header::set_flags(packet, like.flags & FLAG_NUDGE | mark_of(state.mark));
                sink.unicast(port_of(root, ports, slot), answered, packet);
            } else {
                let result = packet.get(..pass.answer_len).unwrap_or(packet);
                receivers.answer(like.worker, answered, result, sink);
            }
            counters.resent += 1;
            return Some(if known { Event::Duplicate } else { Event::Late });
        }
        if known && like.flags & FLAG_NUDGE != 0 {
            receivers.nudge(&pass.header(head), state.seen, sink);
            counters.nudges += 1;
        }
        known.then_some(Event::Duplicate)
    }
}

impl Job {
    /// Applies P9 to P17, and the checks of P7 that need the slot, to a norm slot or a data slot.
    #[inline(always)]
    pub fn aggregate<K: Kernels, const NORM: bool>(
        &mut self,
        pass: &Admission,
        ecn: Ecn,
        head: &[u8; HEADER_LEN],
        payload: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Event, DropReason> {
        let Job { config, counters, receivers, slots, .. } = self;
        let (round, slot) = Header::place_of(head);
        let (state, packet) = slots.get_mut::<NORM>(slot).ok_or(DropReason::Slot)?;
        // The other packets of the slot's round have the same length of results (P14 different collectives).
        let packet = packet.get_mut(..pass.slot_len).ok_or(DropReason::Length)?;
        let like = pass.template();
        let nudge = like.flags & FLAG_NUDGE != 0;
        // P46 marks: only answers to data may be marked.
        let answered = if NORM { Ecn::NotEct } else { ecn.of_answer() };
        // A norm slot compares tags instead.
        let head_of = if NORM { Default::default() } else { (like.kind as u8, like.table) };
        let newer = round.newer_than(state.round);
        let fresh = state.seen == 0 || newer;
        if fresh {
            let ahead = newer && state.seen != 0 && round != state.round.next();
            if ahead && !config.skip && !nudge {
                return Err(DropReason::Round);
            }
        } else {
            if !NORM && round == state.round && head_of != state.head {
                return Err(DropReason::Mixed);
            }
            let (arrival, of) =
                (Arrival { pass, head, payload, answered }, (&config.level, &*receivers, &mut *counters));
            if let Some(event) = arrival.repeat::<NORM>(of, state, packet, sink) {
                return Ok(event);
            }
        }
        // P10 newer round, P11 new worker: the values go into the slot.
        let lanes = &mut packet[HEADER_LEN..];
        match like.kind {
            Kind::Data => K::lookup(pass.table.form, !fresh, lanes, &pass.table.values, payload),
            _ if fresh => lanes.copy_from_slice(payload),
            _ if NORM => {
                // As big-endian bytes order like the u32; the rest stays that of the first (P10 newer round).
                if payload[NORM_VALUE] > lanes[NORM_VALUE] {
                    lanes[NORM_VALUE].copy_from_slice(&payload[NORM_VALUE]);
                }
            }
            _ => K::raw_add(lanes, payload),
        }
        let more = if let Level::Root(_) = config.level { Header::count_of(head).max(1) } else { 1 };
        let (seen, members, count) = if fresh { (0, 0, 0) } else { (state.seen, state.members, state.count) };
        let (seen, members, count) = (seen | pass.bit, members.wrapping_add(1), count.saturating_add(more));
        let complete = members >= config.quorum;
        let marked = !NORM && (ecn == Ecn::Ce || like.flags & FLAG_MARK != 0);
        let mark = marked || !fresh && state.mark;
        *state = SlotState { round, seen, members, count, complete, mark, head: head_of };
        if complete {
            // P13 completion: with the header in front of the lanes the slot is its RESULT from now on. That of a rack goes
            // up (P35).
            let answer = pass.header(head);
            if let Level::Rack { racks, rack: worker, root, ports } = config.level {
                let flags = like.flags & FLAG_NUDGE | mark_of(mark);
                Header { flags, num_workers: racks.count, worker, count, ..answer }.emit(packet);
                sink.unicast(port_of(root, ports, slot), answered, packet);
            } else {
                let flags = mark_of(mark);
                let result = Header { kind: pass.result, flags, worker: WorkerId::NONE, count, ..answer };
                result.emit(packet);
                if pass.answer_len < pass.slot_len {
                    K::pack(pass.table.form, &mut packet[HEADER_LEN..]);
                }
                receivers.answer_all(answered, packet.get(..pass.answer_len).unwrap_or(packet), sink);
            }
            counters.results += 1;
        } else if nudge {
            receivers.nudge(&pass.header(head), seen, sink);
            counters.nudges += 1;
        }
        Ok(if fresh { Event::Opened } else { Event::Added })
    }
}

const _: () = assert!(HEADER_LEN + RESULT_LEN == MAX_PACKET);
