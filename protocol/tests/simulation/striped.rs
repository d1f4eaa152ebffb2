//! The stripes of a worker, as network threads would drive them: what they finish is known a little later.

use crate::client::{Outbox, Record};
use std::collections::VecDeque;
use std::time::Duration;
use thc_protocol::wire::{Header, Kind, Nudge, Straggler};
use thc_protocol::worker::{CallError, Dealt, Events, PacketId, Stripe, Worker};

/// Packets under way: what was dealt out, what each carries, and how many lack results.
struct Batch {
    dealt: Dealt,
    places: Vec<PacketId>,
    left: usize,
}

/// One stripe's worker and what it has to send: batch by batch, and how much of the first is sent.
struct Part {
    worker: Worker,
    waiting: VecDeque<(Dealt, Vec<PacketId>)>,
    sent: usize,
}

pub struct Striped {
    parts: Vec<Part>,
    open: Vec<Batch>,
    finished: Vec<Dealt>,
}

/// Has results recorded, and counts them.
struct Gather<'a>(&'a mut Record, &'a mut Vec<Batch>);

impl Events for Gather<'_> {
    fn norms(&mut self, _: u64, _: &mut dyn Iterator<Item = u32>) {
        panic!("norms at a stripe");
    }

    fn result(&mut self, place: PacketId, result: &Header, sums: &[u8]) {
        self.0.result(place, result, sums);
        let batch = self.1.iter_mut().find(|batch| batch.places.contains(&place));
        batch.unwrap_or_else(|| panic!("{place:?} was not dealt out")).left -= 1;
    }

    fn packet_lost(&mut self, place: PacketId, _: Option<&[u8]>) {
        panic!("{place:?} is lost at a stripe");
    }

    fn packet_late(&mut self, place: PacketId, _: Option<&[u8]>) {
        panic!("{place:?} is late at a stripe");
    }

    fn call_failed(&mut self, call: u64, error: CallError) {
        panic!("call {call} fails at a stripe: {error}");
    }
}

fn is_of_data(packet: &[u8]) -> Option<Header> {
    let (header, payload) = Header::parse(packet).ok()?;
    let data = match header.kind {
        Kind::Result | Kind::RawResult => true,
        Kind::Nudge => Nudge::parse(payload)?.kind != Kind::Norm,
        Kind::Straggler => Straggler::parse(payload)?.kind != Kind::Norm,
        _ => false,
    };
    data.then_some(header)
}

impl Striped {
    /// So many stripes of a worker, if its session allows them.
    pub fn of_worker(worker: &mut Worker, count: u8, limit: Option<u64>, now: Duration) -> Option<Striped> {
        let parameters = *worker.parameters();
        if count == 0 || parameters.refuses_stripes(count).is_some() {
            return None;
        }
        worker.set_stripes(count);
        let part = |index| Part {
            worker: Worker::of_stripe(parameters, Stripe { index, count }, limit.unwrap_or(u64::MAX), now),
            waiting: VecDeque::new(),
            sent: 0,
        };
        Some(Striped { parts: (0..count).map(part).collect(), open: Vec::new(), finished: Vec::new() })
    }

    /// Takes a packet if it is a stripe's.
    pub fn handle(
        &mut self,
        now: Duration,
        of: &mut Worker,
        packet: &[u8],
        record: &mut Record,
        out: &mut Outbox,
    ) -> bool {
        let Some(header) = is_of_data(packet).filter(|header| of.is_of_session(header)) else { return false };
        let part = &mut self.parts[of.stripe_of(header.slot).unwrap()].worker;
        part.handle(now, packet, &mut Gather(record, &mut self.open), out);
        true
    }

    /// Tells the worker what its stripes have finished, and them of a failure.
    pub fn tell(&mut self, of: &mut Worker) {
        self.finished.drain(..).for_each(|dealt| of.finish_dealt(&dealt));
        for (number, part) in self.parts.iter_mut().enumerate() {
            of.note_stripe(number, part.worker.report());
            match (of.failure(), part.worker.failure()) {
                (Some(error), _) => part.worker.fail(error),
                (None, Some(error)) => of.fail(error),
                (None, None) => {}
            }
        }
    }

    pub fn tick(&mut self, now: Duration, record: &mut Record, out: &mut Outbox) {
        for part in &mut self.parts {
            part.worker.tick(now, &mut Gather(record, &mut self.open), out);
        }
    }

    /// Takes packets of a call in, of which it knows the places.
    pub fn add(&mut self, dealt: Dealt, places: Vec<PacketId>) {
        assert_eq!((dealt.count, dealt.first), (places.len(), places[0]));
        self.parts[usize::from(dealt.stripe)].waiting.push_back((dealt, places.clone()));
        self.open.push(Batch { dealt, places, left: dealt.count });
    }

    /// Sends what windows have room for.
    pub fn send(&mut self, now: Duration, out: &mut Outbox, mut write: impl FnMut(PacketId, &mut [u8])) {
        for part in &mut self.parts {
            while let Some((dealt, places)) = part.waiting.front() {
                let write = |packet: usize, payload: &mut [u8]| write(places[packet], payload);
                let sent = part.worker.send_dealt(now, out, dealt, part.sent, |packet| places[packet], write);
                part.sent += sent;
                if part.sent == dealt.count {
                    part.waiting.pop_front();
                    part.sent = 0;
                } else if sent == 0 {
                    break;
                }
            }
        }
    }

    /// When there is something to do again.
    pub fn deadline(&mut self, now: Duration) -> Option<Duration> {
        let (finished, open) = std::mem::take(&mut self.open).into_iter().partition(|batch| batch.left == 0);
        self.open = open;
        self.finished.extend(finished.into_iter().map(|batch: Batch| batch.dealt));
        let soon = (!self.finished.is_empty()).then_some(now + Duration::from_micros(1));
        self.parts.iter().filter_map(|part| part.worker.deadline()).chain(soon).min()
    }
}
