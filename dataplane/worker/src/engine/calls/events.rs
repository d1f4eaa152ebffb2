//! The effects of packets on calls.

use super::Calls;
use super::active::{Owner, Stage};
use super::group::Out;
use crate::engine::compressor::{Compressor, Measured, read_raw};
use crate::engine::loan::{Held, Sums};
use crate::engine::memory::Memory;
use std::sync::Arc;
use thc_codec::sums::unpack_sums;
use thc_protocol::wire::{Choice, HEADER_LEN, Header, RAW_WORDS};
use thc_protocol::worker::{CallError, Events, PacketId};
use thc_protocol::{Lane, SlotId};

/// Applies the protocol's events to the calls.
pub(in crate::engine) struct CallEvents<'a, 'd> {
    pub calls: &'a mut Calls,
    pub compressor: &'a Compressor,
    pub memory: &'a mut Memory<'d>,
    /// The memory of the present packets, if it may be kept.
    pub received: Option<&'a Arc<Vec<u8>>>,
}

impl CallEvents<'_, '_> {
    /// The results of one packet of indices, with the header of their RESULT, or that there will be none.
    fn absorb(&mut self, place: PacketId, result: Option<&Header>, sums: &[u8]) {
        let Some((active, buffers)) = self.calls.get_with_buffers(place.call) else { return };
        let Some((group, packet)) = active.find(place) else { return };
        let (len, form) = (active.groups[group].sums_len(), active.groups[group].form);
        let Sums { bytes, counts } = active.sums(group, buffers);
        let (Some(bytes), Some(known)) =
            (bytes.get_mut(packet * len..(packet + 1) * len), counts.get_mut(packet))
        else {
            return;
        };
        *known = result.map_or(0, |result| result.count);
        let unpacked = match (result, form) {
            (None, _) => {
                bytes.fill(0);
                Ok(())
            }
            // P44.
            (Some(_), Some(form)) if form.is_packed() => {
                unpack_sums(form.lane().bits(), form.sums(), sums, bytes)
            }
            _ => {
                bytes.copy_from_slice(sums);
                Ok(())
            }
        };
        active.count_results(group, 1);
        self.calls.note(unpacked);
    }

    /// One packet of RAW results, or its loss, reaches its place.
    fn write(&mut self, place: PacketId, with: impl FnOnce(&Compressor, &Measured, &mut [f32])) {
        let Some(active) = self.calls.get_mut(place.call) else { return };
        let Some(at) = active.parts.get(place.partition as usize) else { return };
        let Some((group, _)) = active.find(place) else { return };
        let first = (place.packet as usize * RAW_WORDS).min(at.part.len);
        let last = (first + RAW_WORDS).min(at.part.len);
        let x = self.memory.call(place.call);
        let Some(x) = x.and_then(|memory| memory.x.get_mut(at.part.offset + first..at.part.offset + last))
        else {
            return;
        };
        with(self.compressor, at, x);
        active.count_results(group, 1);
    }

    /// Returns whether a packet's results go straight to the tensor.
    fn is_raw(&mut self, place: PacketId) -> bool {
        let active = self.calls.get_mut(place.call).filter(|active| !active.is_remote());
        let at = active.and_then(|active| active.parts.get(place.partition as usize));
        at.is_some_and(|at| at.choice == Choice::Raw)
    }

    /// Adds the values of a packet that is in no sum to the residual.
    fn give_back(&mut self, place: PacketId, sent: Option<&[u8]>) {
        let Some(active) = self.calls.get_mut(place.call) else { return };
        let (Some(sent), Some((group, packet))) = (sent, active.find(place)) else { return };
        let at = active.parts[place.partition as usize];
        let per_packet = active.groups[group].per_packet();
        let Some(residual) = active.groups[group].residual_mut() else { return };
        let Some(x) = residual.get_mut(packet * per_packet..(packet + 1) * per_packet) else { return };
        let result = self.compressor.add_sent(&at, sent, x);
        self.calls.note(result);
    }
}

impl Events for CallEvents<'_, '_> {
    fn left_out(&mut self, call: u64, partition: u32) {
        let Some(active) = self.calls.get_mut(call) else { return };
        let at = &mut active.parts[partition as usize];
        at.left_out = true;
        active.lost += at.part.len;
    }

    fn norms(&mut self, call: u64, maxima: &mut dyn Iterator<Item = u32>) {
        let Some((active, buffers)) = self.calls.get_with_buffers(call) else { return };
        active.stage = Stage::Compressing { next: 0 };
        for (at, norm) in active.parts.iter_mut().zip(maxima) {
            at.norm = norm;
        }
        if let Owner::Remote(remote) = &active.owner
            && let Err(error) = remote.norms(self.compressor, &active.parts)
        {
            self.calls.broken.get_or_insert(error);
            return;
        }
        for index in 0..active.groups.len() {
            let group = &mut active.groups[index];
            let per_packet = group.per_packet();
            let sent = active.parts[group.parts.clone()].iter().filter(|at| at.norm != 0);
            group.packets = sent.map(|at| at.part.padded / per_packet).sum();
            if group.packets > 0 {
                continue;
            }
            // A gradient that the others went on without goes to the error feedback before it becomes zero.
            if active.feedback.is_none() || !active.has_left_out(index) {
                active.to_finish.push_back(index);
            }
            // Its error feedback stays as it is, but it has to be where that of the others will be.
            if active.feedback.is_none() {
                if let Out::Rotated(work) = std::mem::replace(&mut active.groups[index].out, Out::Done) {
                    buffers.take_work(work);
                }
                active.end_sending(index);
            }
        }
    }

    fn result(&mut self, place: PacketId, result: &Header, sums: &[u8]) {
        if self.is_raw(place) {
            self.write(place, |compressor, at, x| {
                read_raw(sums, result.count, compressor.raw_scale(at.norm), x);
            });
        } else {
            self.absorb(place, Some(result), sums);
        }
    }

    fn results(&mut self, place: PacketId, first: &Header, packets: &[u8], segment: usize) {
        let len = segment - HEADER_LEN;
        let payloads = || packets.chunks_exact(segment).map(|packet| &packet[HEADER_LEN..]);
        let Some((active, buffers)) = self.calls.get_with_buffers(place.call) else { return };
        let Some((group, packet)) = active.find(place) else { return };
        let state = &active.groups[group];
        if !state.form.is_some_and(|form| form.lanes_len() == len && !form.is_packed()) {
            for (payload, i) in payloads().zip(0..) {
                let result = Header { slot: SlotId(first.slot.0 + i), ..*first };
                self.result(PacketId { packet: place.packet + u32::from(i), ..place }, &result, payload);
            }
            return;
        }
        let count = payloads().len();
        if let Some(received) = self.received
            && active.is_whole(place, count)
            && state.form.is_some_and(|form| form.lane() != Lane::Bits4)
            && let Some(held) = Held::new(received, packets, segment, first.count)
        {
            active.groups[group].held.push((place.partition, held));
            return active.count_results(group, count);
        }
        let Sums { bytes, counts } = active.sums(group, buffers);
        let places = packet..packet + count;
        let (Some(bytes), Some(known)) =
            (bytes.get_mut(places.start * len..places.end * len), counts.get_mut(places))
        else {
            return;
        };
        known.fill(first.count);
        bytes.chunks_exact_mut(len).zip(payloads()).for_each(|(to, payload)| to.copy_from_slice(payload));
        active.count_results(group, count);
    }

    fn packet_lost(&mut self, place: PacketId, sent: Option<&[u8]>) {
        if let Some(active) = self.calls.get_mut(place.call) {
            active.count_lost(place);
        }
        if self.is_raw(place) {
            return self.write(place, |_, _, x| x.fill(0.0));
        }
        self.give_back(place, sent);
        self.absorb(place, None, &[]);
    }

    fn packet_late(&mut self, place: PacketId, sent: Option<&[u8]>) {
        self.give_back(place, sent);
    }

    fn call_failed(&mut self, call: u64, error: CallError) {
        if let Some(active) = self.calls.get_mut(call) {
            active.error = Some(error);
        }
    }
}
