//! A stripe on its network thread.

use super::batch::{Batch, News, Order, data_header};
use crate::engine::stripes::report::Shared;
use crossbeam_channel::{Receiver, Sender};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thc_protocol::wire::{HEADER_LEN, Header, Kind};
use thc_protocol::worker::{CallError, Events, PacketId, SessionError, SharePorts, Stripe, Tx, Worker};
use thc_protocol::{Ecn, WorkerId};
use thc_transport::{Handled, Handler, Run, RunSender};

/// What a stripe has to send, and where its results gather. Events of a batch name its index here as the
/// partition.
#[derive(Default)]
struct Batches {
    all: Vec<Option<Batch>>,
    free: Vec<usize>,
    /// Batches that are not all sent, in their order.
    waiting: VecDeque<usize>,
    /// Batches that have all their results.
    finished: Vec<Batch>,
}

impl Batches {
    fn add(&mut self, batch: Batch) {
        let at = self.free.pop().unwrap_or(self.all.len());
        if at == self.all.len() {
            self.all.push(None);
        }
        self.all[at] = Some(batch);
        self.waiting.push_back(at);
    }
}

impl Events for Batches {
    fn norms(&mut self, _: u64, _: &mut dyn Iterator<Item = u32>) {}

    fn result(&mut self, place: PacketId, _: &Header, sums: &[u8]) {
        self.gather(place, std::iter::once(sums));
    }

    fn results(&mut self, place: PacketId, _: &Header, packets: &[u8], segment: usize) {
        self.gather(place, packets.chunks_exact(segment).map(|packet| &packet[HEADER_LEN..]));
    }

    // With full quorum there is neither.
    fn packet_lost(&mut self, _: PacketId, _: Option<&[u8]>) {}

    fn packet_late(&mut self, _: PacketId, _: Option<&[u8]>) {}

    fn call_failed(&mut self, _: u64, _: CallError) {}
}

impl Batches {
    fn gather<'a>(&mut self, place: PacketId, payloads: impl ExactSizeIterator<Item = &'a [u8]>) {
        let at = place.partition as usize;
        let Some(batch) = self.all.get_mut(at).and_then(Option::as_mut) else { return };
        let (len, count) = (batch.sum_len, payloads.len());
        let to = batch.sums.bytes[place.packet as usize * len..].chunks_exact_mut(len);
        to.zip(payloads).for_each(|(to, payload)| to.copy_from_slice(payload));
        batch.left -= count;
        if batch.left == 0 {
            self.finished.extend(self.all[at].take());
            self.free.push(at);
        }
    }
}

/// Sends data of a stripe by its thread's socket.
struct StripeTx<'a> {
    io: &'a mut dyn RunSender,
    ports: &'a SharePorts,
    ecn: Ecn,
    error: &'a mut Option<io::Error>,
}

impl Tx for StripeTx<'_> {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        let to = self.ports.address(shard);
        if let Err(error) = self.io.send_run_with(to, contents, segment, self.ecn.bits()) {
            self.error.get_or_insert(error);
        }
    }
}

pub(in crate::engine) struct StripeHandler {
    worker: Worker,
    stripe: Stripe,
    ports: SharePorts,
    /// What data packets leave with (P46).
    ecn: Ecn,
    orders: Receiver<Order>,
    news: Sender<News>,
    batches: Batches,
    shared: Arc<Shared>,
    /// Whether packets have been taken since it worked last.
    taken: bool,
    /// Whether the session is over, here or for the engine.
    over: bool,
    error: Option<io::Error>,
}

/// The parts that are used together.
macro_rules! tx {
    ($self:ident, $io:ident) => {
        StripeTx { io: $io, ports: &$self.ports, ecn: $self.ecn, error: &mut $self.error }
    };
}

impl StripeHandler {
    pub fn new(
        worker: Worker,
        stripe: Stripe,
        (ports, ecn): (SharePorts, Ecn),
        (orders, news): (Receiver<Order>, Sender<News>),
        shared: Arc<Shared>,
    ) -> StripeHandler {
        let (batches, taken, over, error) = (Batches::default(), false, false, None);
        StripeHandler { worker, stripe, ports, ecn, orders, news, batches, shared, taken, over, error }
    }

    /// Whether a packet from this share is about a slot of this stripe and of no concern to the engine.
    fn is_own(&self, share: usize, packet: &[u8]) -> bool {
        let shards = self.worker.parameters().shards;
        let own = |slot| Stripe::index_of(slot, shards, self.stripe.count) == self.stripe.index;
        match packet.get(1) {
            Some(&kind) if kind == Kind::Result as u8 || kind == Kind::RawResult as u8 => {
                packet.first_chunk().is_some_and(|head| own(Header::place_of(head).1))
            }
            Some(&kind) if kind == Kind::Nudge as u8 || kind == Kind::Straggler as u8 => data_header(packet)
                .is_some_and(|(header, _)| {
                    let shard = thc_protocol::aggregator::Shard::index_of(header.slot, shards);
                    own(header.slot) && self.ports.share_of(shard) == share
                }),
            _ => false,
        }
    }

    /// Does what it is told. Whether there was anything.
    fn obey(&mut self, now: Duration, io: &mut dyn RunSender) -> bool {
        let mut any = false;
        while let Ok(order) = self.orders.try_recv() {
            any = true;
            match order {
                Order::Send(batch) => self.batches.add(batch),
                Order::Packet(ecn, packet) => {
                    let mut tx = tx!(self, io);
                    self.worker.handle_with(now, ecn, &packet, &mut self.batches, &mut tx);
                }
                Order::Stop => {
                    self.over = true;
                    self.worker.fail(SessionError::Reforming { worker: WorkerId::NONE });
                }
            }
        }
        any
    }

    /// Sends as much as the window lets it. Whether that was anything.
    fn send(&mut self, now: Duration, io: &mut dyn RunSender) -> bool {
        let mut any = false;
        while let Some(&at) = self.batches.waiting.front() {
            let Some(batch) = &mut self.batches.all[at] else { break };
            let Batch { dealt, indices, begin, len, sent, .. } = batch;
            let place = |packet: usize| PacketId { call: 0, partition: at as u32, packet: packet as u32 };
            let write = |packet: usize, payload: &mut [u8]| {
                payload.copy_from_slice(&indices[*begin + packet * *len..][..*len]);
            };
            let mut tx = tx!(self, io);
            let count = self.worker.send_dealt(now, &mut tx, dealt, *sent, place, write);
            *sent += count;
            if *sent == dealt.count {
                self.batches.waiting.pop_front();
            }
            if count == 0 {
                break;
            }
            any = true;
        }
        any
    }
}

impl Handler for StripeHandler {
    fn take(&mut self, now: Duration, run: &Run<'_>, io: &mut dyn RunSender) -> bool {
        let Some(port) = self.ports.find(run.from) else { return false };
        let (share, _) = self.ports.share(port);
        if !run.datagrams().all(|packet| self.is_own(share, packet)) {
            return false;
        }
        self.taken = true;
        let mut tx = tx!(self, io);
        let ecn = Ecn::of_bits(run.ecn);
        self.worker.handle_run(now, ecn, run.contents, run.segment, &mut self.batches, &mut tx);
        true
    }

    fn work(&mut self, now: Duration, io: &mut dyn RunSender) -> io::Result<Handled> {
        let mut busy = self.obey(now, io);
        // A thread that looks for work finds soon that there is none.
        let taken = std::mem::take(&mut self.taken);
        if !busy && !taken && self.deadline().is_none_or(|at| at > now) {
            return Ok(Handled::default());
        }
        let mut tx = tx!(self, io);
        self.worker.tick(now, &mut self.batches, &mut tx);
        busy |= self.send(now, io);
        self.shared.write(&self.worker.report());
        let mut news = !self.batches.finished.is_empty();
        for batch in self.batches.finished.drain(..) {
            // Nobody listens any more if another session has begun.
            let _ = self.news.send(News::Finished(batch));
        }
        if let Some(error) = self.worker.failure().filter(|_| !self.over) {
            self.over = true;
            news = true;
            let _ = self.news.send(News::Failed(error));
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(Handled { busy, news }),
        }
    }

    fn deadline(&self) -> Option<Duration> {
        self.worker.deadline()
    }
}
