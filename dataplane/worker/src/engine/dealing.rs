//! The engine's side of network threads: it deals out to their stripes what is compressed, and takes what is back.

use super::Engine;
use super::calls::{CallEvents, Out};
use super::compressor::write_raw;
use super::loan::Bytes;
use super::memory::Memory;
use super::stripes::{Batch, News, Order, Outside, Shared, StripeHandler, Stripes};
use crossbeam_channel::unbounded;
use std::sync::Arc;
use thc_protocol::worker::{Events as _, PacketId, Stripe, Worker};
use thc_transport::{Handler, PacketIo};

impl<I: PacketIo> Engine<I> {
    /// Leaves a new session's data to the interface's threads, if it has any and the session allows it.
    pub(super) fn set_stripes(&mut self) {
        let threads = self.io.handlers();
        if threads == 0 {
            return;
        }
        self.stripes = None;
        let parameters = *self.worker.parameters();
        let count = threads.min(parameters.shards.max(1).into()) as u8;
        if let Some(why) = parameters.refuses_stripes(count) {
            tracing::info!(
                "job {}: network threads receive and send, and one thread does all else of data packets: {why}",
                parameters.job
            );
            return self.io.set_handlers(Vec::new());
        }
        self.worker.set_stripes(count);
        // Each has a socket, hence a receive buffer, of its own.
        let limit = (self.capacity / 2 * usize::from(count)).max(1) as u64;
        let now = self.io.now();
        let (told, news) = unbounded();
        let (mut stripes, mut handlers): (Vec<Outside>, Vec<Box<dyn Handler>>) = (Vec::new(), Vec::new());
        for index in 0..count {
            let stripe = Stripe { index, count };
            let shared = Arc::new(Shared::new());
            let (orders, taken) = unbounded();
            handlers.push(Box::new(StripeHandler::new(
                Worker::of_stripe(parameters, stripe, limit, now),
                stripe,
                (self.link.ps.clone(), self.link.data),
                (taken, told.clone()),
                Arc::clone(&shared),
            )));
            stripes.push(Outside { orders, shared, woken: false });
        }
        self.io.set_handlers(handlers);
        self.stripes = Some(Stripes { stripes, news });
    }

    /// No more data is sent.
    pub(super) fn stop_stripes(&mut self) {
        let Some(stripes) = &mut self.stripes else { return };
        for stripe in 0..stripes.stripes.len() {
            stripes.order(stripe, Order::Stop);
        }
        stripes.wake(&mut self.io);
    }

    /// Takes what stripes have told. Whether they have finished anything.
    pub(super) fn take_from_stripes(&mut self, memory: &mut Memory<'_>) -> bool {
        let Some(stripes) = &mut self.stripes else { return false };
        stripes.wake(&mut self.io);
        for (number, stripe) in stripes.stripes.iter().enumerate() {
            self.worker.note_stripe(number, stripe.shared.report());
        }
        let mut finished = false;
        while let Some(news) = self.stripes.as_ref().and_then(|stripes| stripes.news.try_recv().ok()) {
            match news {
                News::Finished(batch) => {
                    self.take_batch(batch, memory);
                    finished = true;
                }
                News::Failed(error) => self.worker.fail(error),
            }
        }
        finished
    }

    /// Deals out what is compressed, as far as stripes are to have it.
    pub(super) fn deal_ready(&mut self, memory: &mut Memory<'_>) -> bool {
        let mut dealt_any = false;
        while let Some(place) = self.worker.next_data() {
            let Some((active, shelf)) = self.calls.get_with_shelf(place.call) else { break };
            let Some((group, first)) = active.find(place) else { break };
            let state = &active.groups[group];
            if !matches!(state.out, Out::Ready(_)) {
                break;
            }
            let direct = active.is_direct(group);
            let x = memory.call(place.call).and_then(|memory| memory.x.get(state.range.clone()));
            if direct && x.is_none() {
                break;
            }
            let (len, sum_len) = (state.per_packet() * state.width() / 8, state.result_len());
            let Some(dealt) = self.worker.deal(state.packets - state.sent) else { break };
            let (indices, begin) = match (x.filter(|_| direct), &mut active.groups[group].out) {
                (Some(x), _) => {
                    let mut words = vec![0; dealt.count * len];
                    let begin = active.groups[group].range.start;
                    for (at, payload) in
                        active.places_from(place, dealt.count).zip(words.chunks_exact_mut(len))
                    {
                        let measured = &active.parts[at.partition as usize];
                        let scale = self.compressor.raw_scale(measured.norm);
                        let x = &x[measured.place(begin)];
                        write_raw(x, at, scale, self.compressor.raw_limit(), payload);
                    }
                    (Arc::new(words), 0)
                }
                (None, Out::Ready(packed)) => packed.share(first * len..(first + dealt.count) * len),
                (None, _) => break,
            };
            let sums = shelf.sums(dealt.count, sum_len);
            let (sent, left) = (0, dealt.count);
            let batch = Batch { dealt, group, place: first, indices, begin, len, sums, sum_len, sent, left };
            if let Some(stripes) = &mut self.stripes {
                stripes.order(dealt.stripe.into(), Order::Send(batch));
            }
            dealt_any = true;
            if let Some(packed) = active.note_sent(group, dealt.count)
                && !direct
                && active.remote.is_none()
            {
                shelf.take_packed(packed);
                self.ready -= 1;
            }
        }
        if let Some(stripes) = &mut self.stripes {
            stripes.wake(&mut self.io);
        }
        dealt_any
    }

    /// All results of a batch are in.
    fn take_batch(&mut self, batch: Batch, memory: &mut Memory<'_>) {
        let Batch { dealt, group, place, indices, mut sums, sum_len, .. } = batch;
        self.worker.finish_dealt(&dealt);
        let Self { worker, calls, compressor, .. } = self;
        let Some((active, shelf)) = calls.get_with_shelf(dealt.first.call) else { return };
        shelf.take_packed(Bytes::Shared(indices));
        let state = &mut active.groups[group];
        let lanes = state.form.is_some_and(|form| !form.is_packed());
        if !lanes {
            let places: Vec<PacketId> = active.places_from(dealt.first, dealt.count).collect();
            let mut events = CallEvents { calls, compressor, memory, received: None };
            for (number, (place, sums)) in
                places.into_iter().zip(sums.bytes.chunks_exact(sum_len)).enumerate()
            {
                events.result(place, &worker.result_of(&dealt, number), sums);
            }
            return events.calls.shelf.take_sums(sums);
        }
        sums.counts.fill(worker.parameters().all_workers());
        if state.sums.is_none() && dealt.count == state.padded / state.per_packet() {
            // It is the group's memory from now on.
            state.sums = Some(sums);
        } else {
            let all = active.sums(group, shelf);
            all.bytes[place * sum_len..][..dealt.count * sum_len].copy_from_slice(&sums.bytes);
            all.counts[place..][..dealt.count].copy_from_slice(&sums.counts);
            shelf.take_sums(sums);
        }
        active.note_results(group, dealt.count);
    }
}
