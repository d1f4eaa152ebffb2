//! Norms and data that the windows have room for.

use super::stream::{PacketId, Tx};
use super::{RUN, Worker};
use crate::TableId;
use crate::wire::{Kind, Mode};
use std::time::Duration;

impl Worker {
    /// Sends the norms of queued calls as far as the window allows. A run of packets may belong to several calls.
    pub fn send_norms(&mut self, now: Duration, tx: &mut impl Tx) {
        if self.failure.is_some() {
            return;
        }
        let header = self.header(Kind::Norm, TableId(0));
        let mut places = [PacketId::default(); RUN];
        loop {
            let room = self.norm.room().min(RUN);
            let mut count = 0;
            while count < room
                && let Some(call) = self.calls.get_mut(self.norm_call)
            {
                let number = self.first_call + self.norm_call as u64;
                let more = (call.parts.len() - call.norms_sent).min(room - count);
                for (place, partition) in places[count..count + more].iter_mut().zip(call.norms_sent..) {
                    *place = PacketId { call: number, partition: partition as u32, packet: 0 };
                }
                call.norms_sent += more;
                count += more;
                if call.norms_sent == call.parts.len() {
                    self.norm_call += 1;
                }
            }
            if count == 0 {
                return;
            }
            let (calls, first) = (&self.calls, self.first_call);
            let write = |place: PacketId, payload: &mut [u8]| {
                let call = &calls[(place.call - first) as usize];
                payload.copy_from_slice(&call.norm_of(place.call, place.partition as usize).to_bytes());
            };
            self.norm.send(now, 0, count, &header, |i| places[i], write, tx);
        }
    }

    /// The partition whose packets are to be written next by [`Self::fill`], and from which packet on, if its
    /// call has its norms.
    pub fn next_data(&mut self) -> Option<PacketId> {
        if self.failure.is_some() {
            return None;
        }
        loop {
            self.drop_sent();
            let call = self.calls.front_mut().filter(|call| call.has_norms())?;
            let (partition, packet) = call.cursor;
            let part = &call.parts[partition];
            if !part.silent {
                return Some(PacketId { call: self.first_call, partition: partition as u32, packet });
            }
            let passed = self.data.pass_over((part.packets - packet) as usize) as u32;
            if passed == 0 {
                return None;
            }
            call.cursor.1 += passed;
        }
    }

    /// Returns whether the window has room for data packets.
    pub fn has_room(&self) -> bool {
        self.data.room() > 0
    }

    /// Writes and sends as many packets, from that of [`Self::next_data`] on, as fit in one run, at most
    /// `limit`. They may belong to several partitions of one call that have the same choice. `write` fills a
    /// payload. Returns the number of packets.
    pub fn fill(
        &mut self,
        now: Duration,
        tx: &mut impl Tx,
        limit: usize,
        write: impl FnMut(PacketId, &mut [u8]),
    ) -> usize {
        let Some(first) = self.next_data() else { return 0 };
        let room = self.data.room_for(limit.min(RUN));
        let call = &mut self.calls[0];
        let mut places = [first; RUN];
        let mut count = 0;
        let as_first = call.parts[first.partition as usize];
        while count < room && !call.skip_sent() {
            let (partition, packet) = call.cursor;
            if call.parts[partition].ring != as_first.ring || call.parts[partition].silent {
                break;
            }
            let more = (call.parts[partition].packets - packet).min((room - count) as u32);
            for (place, packet) in places[count..].iter_mut().zip(packet..packet + more) {
                *place = PacketId { partition: partition as u32, packet, ..first };
            }
            count += more as usize;
            call.cursor.1 += more;
        }
        if count == 0 {
            return 0;
        }
        let kind = if as_first.mode == Mode::Raw { Kind::Raw } else { Kind::Data };
        let header = self.header(kind, as_first.table);
        self.data.send(now, as_first.ring, count, &header, |i| places[i], write, tx);
        self.drop_sent();
        count
    }
}
