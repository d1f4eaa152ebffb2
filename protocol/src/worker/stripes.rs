//! A worker in parts, so that several threads can each do the work of some packets.
//!
//! A *stripe* is the slots of every k-th shard. One [`Worker`] has what calls have in common: their order,
//! norms, failures and time-outs of the session. It numbers data packets and deals them out. For each stripe
//! another [`Worker`], which knows no calls, sends the packets of its slots and takes their results, with its
//! own window, round trips and repetitions.
//!
//! Stripes do not change sums, since the content of a seq is decided before it is dealt out. The proof of P18
//! concerns only seqs k, k + W and k + 2W; [`Parameters::refuses_stripes`] ensures that those are always in
//! one stripe.

use super::call::Call;
use super::deal::{Dealt, StripeReport, Stripes};
use super::stream::{PacketId, Tx};
use super::stripe::Stripe;
use super::{Parameters, RUN, Worker};
use crate::aggregator::Shard;
use crate::wire::{Header, Kind, Mode};
use crate::{Round, SlotId, WorkerId};
use std::time::Duration;

impl Parameters {
    /// Why a worker of the session cannot be divided into so many [`Stripe`]s, at least one; `None` if it
    /// can.
    #[must_use]
    pub fn refuses_stripes(&self, count: u8) -> Option<&'static str> {
        let half = self.data_slots / 2;
        let stripe = |slot: u32| Stripe::index_of(SlotId(slot as u16), self.shards, count);
        if self.may_lose() {
            // What is given up is decided call by call, and goes back to error feedback.
            Some("its packets may be lost or come too late")
        } else if self.rack.is_some() {
            Some("it is in a rack")
        } else if count > self.shards.max(1) {
            Some("the server has fewer ports")
        } else if self.credit > 0 && self.credit < self.shards.into() {
            Some("its credit is less than a packet for each port")
        } else if !self.data_slots.is_multiple_of(2)
            || (0..half).any(|slot| stripe(slot) != stripe(slot + half))
        {
            // P18: seqs k, k + W and k + 2W have to be of one stripe.
            Some("its slots do not come in 128 for each port")
        } else {
            None
        }
    }
}

impl Worker {
    /// Leaves data to so many stripes, from before the first call; [`Self::deal`] then replaces
    /// [`Self::fill`].
    ///
    /// # Panics
    /// If the session refuses that ([`Parameters::refuses_stripes`]).
    pub fn set_stripes(&mut self, count: u8) {
        assert_eq!(self.params.refuses_stripes(count), None, "{count} stripes");
        let reports = vec![StripeReport::default(); usize::from(count)];
        self.stripes = Some(Stripes { next: self.params.first_seq, open: 0, reports });
    }

    /// The worker of one stripe of a session. It gets the packets dealt to its stripe ([`Self::send_dealt`]),
    /// and the aggregator's packets for its slots; its session does not time out.
    #[must_use]
    pub fn of_stripe(params: Parameters, stripe: Stripe, limit: u64, now: Duration) -> Worker {
        let (timeout, patience) = (Duration::MAX, Duration::ZERO);
        let mut worker = Worker::new(Parameters { timeout, patience, ..params }, now);
        worker.data.set_stripe(stripe);
        worker.data.set_sparing(params.first_window);
        worker.set_limit(limit);
        worker
    }

    /// The stripe that has a data slot, if there are stripes.
    #[must_use]
    pub fn stripe_of(&self, slot: SlotId) -> Option<usize> {
        let count = self.stripes.as_ref()?.reports.len() as u8;
        Some(Stripe::index_of(slot, self.params.shards, count).into())
    }

    /// Whether data packets may be dealt out: no more than twice a window are with the stripes.
    pub(super) fn may_deal(&self) -> Option<bool> {
        self.stripes.as_ref().map(|stripes| stripes.open < self.params.data_slots.into())
    }

    /// Numbers packets from that of [`Self::next_data`] on: at most `limit` consecutive ones in one shard's
    /// block of slots, of neighbouring partitions with the same choice. `None` if there are none, or if the
    /// stripes have enough.
    pub fn deal(&mut self, limit: usize) -> Option<Dealt> {
        if !self.may_deal()? {
            return None;
        }
        let first = self.next_data()?;
        let stripes = self.stripes.as_mut()?;
        let (slots, block) = (u64::from(self.params.data_slots), u64::from(Shard::BLOCK));
        let (seq, slot) = (stripes.next, stripes.next % slots);
        let room = (slots - slot).min(block - slot % block).min(limit as u64).min(RUN as u64) as usize;
        let call = &mut self.calls[self.data_call];
        let part = call.parts[first.partition as usize];
        let (mut count, mut last) = (0, first.partition as usize);
        while count < room && !call.skip_sent() {
            let (partition, packet) = call.cursor;
            if call.parts[partition].ring != part.ring || partition > last + 1 {
                break;
            }
            last = partition;
            let more = (call.parts[partition].packets - packet).min((room - count) as u32);
            count += more as usize;
            call.cursor.1 += more;
        }
        if count == 0 {
            return None;
        }
        stripes.next += count as u64;
        stripes.open += count as u64;
        let kind = if part.mode == Mode::Raw { Kind::Raw } else { Kind::Data };
        let stripe = Stripe::index_of(SlotId(slot as u16), self.params.shards, stripes.reports.len() as u8);
        Some(Dealt { first, seq, count, stripe, ring: part.ring, header: self.header(kind, part.table) })
    }

    /// All results of what was dealt out are in.
    pub fn finish_dealt(&mut self, dealt: &Dealt) {
        let Some(stripes) = &mut self.stripes else { return };
        stripes.open -= dealt.count as u64;
        let number = dealt.first.call - self.first_call;
        if let Some(call) = self.calls.get_mut(number as usize) {
            finish(call, dealt);
        }
        self.retire();
    }

    /// The header of the RESULT of one of those packets, counted from 0 on.
    #[must_use]
    pub fn result_of(&self, dealt: &Dealt, number: usize) -> Header {
        let (seq, slots) = (dealt.seq + number as u64, u64::from(self.params.data_slots));
        let kind = if dealt.header.kind == Kind::Raw { Kind::RawResult } else { Kind::Result };
        Header {
            kind,
            worker: WorkerId::NONE,
            round: Round((seq / slots) as u32),
            slot: SlotId((seq % slots) as u16),
            count: self.params.all_workers(),
            ..dealt.header
        }
    }

    /// For a stripe's worker: sends as many of these packets as its window has room for now, from number
    /// `from` on. `place` is what [`Events`](super::Events) report of each; `write` fills their payloads in
    /// order, by number.
    pub fn send_dealt(
        &mut self,
        now: Duration,
        tx: &mut impl Tx,
        dealt: &Dealt,
        from: usize,
        place: impl Fn(usize) -> PacketId,
        mut write: impl FnMut(usize, &mut [u8]),
    ) -> usize {
        if self.failure.is_some() {
            return 0;
        }
        let seq = dealt.seq + from as u64;
        let count = self.data.room_at(seq).min(dealt.count - from);
        if count > 0 {
            self.data.skip_to(seq);
            let mut number = from;
            let write = |_: PacketId, payload: &mut [u8]| {
                write(number, payload);
                number += 1;
            };
            self.data.send(now, dealt.ring, count, &dealt.header, |i| place(from + i), write, tx);
        }
        count
    }

    /// The state of a stripe's worker.
    #[must_use]
    pub fn report(&self) -> StripeReport {
        StripeReport {
            busy: self.data.is_busy(),
            waits_at: self.data.waits_at(),
            timeouts: self.data.timeouts(),
            deaf: self.data.is_deaf(),
            heard: self.heard,
            progress: self.data.progress(),
            missing: self.missing_data,
            smoothed: self.data.rtt().smoothed_rtt(),
            shortest: self.data.rtt().shortest(),
            answer: self.data.rtt().answer(),
            window: self.data.open(),
            marks: self.data.marks(),
            stats: self.stats(),
        }
    }

    /// Takes note of how a stripe is.
    pub fn note_stripe(&mut self, stripe: usize, report: StripeReport) {
        if let Some(stripes) = &mut self.stripes {
            stripes.reports[stripe] = report;
        }
    }

    /// Whether packets are with the stripes.
    pub(super) fn has_dealt(&self) -> bool {
        self.stripes.as_ref().is_some_and(|stripes| stripes.open > 0)
    }

    /// How each of its stripes is.
    pub(super) fn reports(&self) -> &[StripeReport] {
        self.stripes.as_ref().map_or(&[], |stripes| &stripes.reports)
    }
}

/// Packets of a call that were dealt out together are finished. They are what the cursor went over then.
fn finish(call: &mut Call, dealt: &Dealt) {
    let (mut partition, mut packet) = (dealt.first.partition as usize, dealt.first.packet);
    let mut left = dealt.count as u32;
    while left > 0 && partition < call.parts.len() {
        let count = (call.parts[partition].packets - packet).min(left);
        if count > 0 {
            call.finish(partition, count);
        }
        left -= count;
        (partition, packet) = (partition + 1, 0);
    }
}
