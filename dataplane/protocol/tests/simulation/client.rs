//! One worker of the simulation: it submits its calls, and checks every event.

use crate::plan::Truth;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use thc_protocol::wire::{Header, Norm};
use thc_protocol::worker::{CallError, CallSpec, Events, PacketId, Tx, Worker};
use thc_protocol::{Policy, SlotId};

/// How a worker behaves.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Calls it keeps under way.
    pub flight: usize,
    /// When it begins.
    pub start: Duration,
    /// From NORM_RESULT to the first DATA of a call, by call.
    pub compute: Vec<Duration>,
    /// Between submissions, by call.
    pub gaps: Vec<Duration>,
    /// Between the arrival of a packet and its being looked at.
    pub latency: Duration,
    /// Most data packets outstanding.
    pub limit: Option<u64>,
}

impl Manner {
    pub fn prompt(calls: usize) -> Manner {
        Manner {
            flight: 2,
            start: Duration::ZERO,
            compute: vec![Duration::ZERO; calls],
            gaps: vec![Duration::ZERO; calls],
            latency: Duration::from_micros(2),
            limit: None,
        }
    }
}

/// What happened to this worker's calls.
pub struct Record {
    truth: Rc<Truth>,
    /// Whether contents are checked; not where packets are corrupted unnoticed.
    pub strict: bool,
    /// When each call's NORM_RESULTs were in.
    pub norms: HashMap<u64, Vec<u32>>,
    pub failed: HashMap<u64, CallError>,
    pub results: HashSet<(u64, u32, u32)>,
    pub lost: HashSet<(u64, u32, u32)>,
    /// Partitions that the others went on without.
    pub left_out: HashSet<(u64, usize)>,
    /// Packets without a result of the calls whose norms are in, and how many calls are done.
    open: HashMap<u64, u32>,
    done: usize,
    /// Set when an event must not come any more.
    pub over: bool,
}

fn key(place: PacketId) -> (u64, u32, u32) {
    (place.call, place.partition, place.packet)
}

impl Record {
    fn check_place(&self, place: PacketId) {
        assert!(!self.over, "event after the session failed: {place:?}");
        let plan = &self.truth.plan;
        let call = &plan.calls[place.call as usize];
        assert!(place.packet < call.packets[place.partition as usize], "{place:?}");
        let maxima = self.norms.get(&place.call).unwrap_or_else(|| panic!("data before norms: {place:?}"));
        assert_ne!(maxima[place.partition as usize], 0, "data of a zero partition: {place:?}");
        let known = self.results.contains(&key(place)) || self.lost.contains(&key(place));
        assert!(!known, "twice: {place:?}");
    }

    fn count(&mut self, call: u64, packets: u32) {
        let open = self.open.get_mut(&call).expect("norms come first");
        *open -= packets;
        self.done += usize::from(*open == 0);
    }

    /// Whether the call has all that it needs.
    fn complete(&self, call: u64) -> bool {
        let plan = &self.truth.plan.calls[call as usize];
        self.failed.contains_key(&call)
            || self.norms.get(&call).is_some_and(|maxima| {
                let parts = (0u32..).zip(&plan.packets).zip(maxima);
                parts.filter(|(_, max)| **max != 0).all(|((part, &packets), _)| {
                    (0..packets).all(|p| {
                        self.results.contains(&(call, part, p)) || self.lost.contains(&(call, part, p))
                    })
                })
            })
    }
}

impl Events for Record {
    fn norms(&mut self, call: u64, maxima: &mut dyn Iterator<Item = u32>) {
        assert!(!self.over, "event after the session failed: norms of {call}");
        let maxima: Vec<u32> = maxima.collect();
        let plan = &self.truth.plan.calls[call as usize];
        assert_eq!(maxima.len(), plan.packets.len());
        if self.strict {
            let full = self.truth.plan.quorum() == self.truth.plan.workers();
            for (partition, &maximum) in maxima.iter().enumerate() {
                if self.left_out.contains(&(call, partition)) {
                    assert_eq!(maximum, 0, "call {call}: a maximum of what was left out");
                    continue;
                }
                let candidates: Vec<u32> = plan.norms.iter().map(|of| of[partition]).collect();
                assert!(candidates.contains(&maximum), "call {call}: a norm of nobody");
                assert!(!full || plan.maximum(partition) == maximum, "call {call}: wrong maximum");
                assert_eq!(Norm::non_finite_worker(maximum), None);
            }
        }
        assert!(!self.failed.contains_key(&call));
        let packets = plan.packets.iter().zip(&maxima).filter(|(_, maximum)| **maximum != 0);
        self.open.insert(call, packets.map(|(packets, _)| packets).sum());
        self.count(call, 0);
        assert!(self.norms.insert(call, maxima).is_none(), "norms of {call} twice");
    }

    fn left_out(&mut self, call: u64, partition: u32) {
        assert!(!self.over && !self.norms.contains_key(&call));
        let plan = &self.truth.plan;
        assert!(plan.quorum() < plan.workers(), "left out with full quorum");
        assert!(self.left_out.insert((call, partition as usize)), "twice");
    }

    fn result(&mut self, place: PacketId, result: &Header, sums: &[u8]) {
        if self.strict {
            self.check_place(place);
            self.truth.check(place, result.count, sums);
        }
        self.results.insert(key(place));
        self.count(place.call, 1);
    }

    fn packet_late(&mut self, _: PacketId, _: Option<&[u8]>) {}

    fn packet_lost(&mut self, place: PacketId, _: Option<&[u8]>) {
        let plan = &self.truth.plan;
        let may = plan.policy == Policy::BestEffort || plan.quorum() < plan.workers();
        assert!(may, "reliable lost {place:?}");
        if self.strict {
            self.check_place(place);
        }
        self.lost.insert(key(place));
        self.count(place.call, 1);
    }

    fn call_failed(&mut self, call: u64, error: CallError) {
        assert!(!self.over, "event after the session failed: failure of {call}");
        assert!(!self.norms.contains_key(&call));
        if self.strict {
            let expected = self.truth.plan.calls[call as usize].non_finite();
            let CallError::NonFinite { worker } = error else { panic!("{error}") };
            let full = self.truth.plan.quorum() == self.truth.plan.workers();
            assert!(if full { expected == Some(worker) } else { expected.is_some() }, "{error} {expected:?}");
        }
        assert!(self.failed.insert(call, error).is_none());
        self.done += 1;
    }
}

/// Packets that a worker sends, by shard.
#[derive(Default)]
pub struct TxBatch {
    pub sent: Vec<(u8, Rc<[u8]>)>,
    pub memory: Memory,
}

/// Where a worker's packets lie besides its own ring. It depends on the worker: none do, all, or most.
#[derive(Default)]
pub struct Memory {
    worker: u8,
    asked: u32,
    packets: HashMap<u16, Vec<u8>>,
}

impl Memory {
    fn has_room(&mut self) -> bool {
        self.asked += 1;
        match self.worker % 3 {
            0 => false,
            1 => true,
            _ => !self.asked.is_multiple_of(5) && self.asked % 7 != 2,
        }
    }
}

impl Tx for TxBatch {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        assert!(segment > 0 && contents.len().is_multiple_of(segment) && !contents.is_empty());
        self.sent.extend(contents.chunks_exact(segment).map(|packet| (shard, packet.into())));
    }

    fn pack(&mut self, slot: SlotId, len: usize) -> Option<&mut [u8]> {
        if !self.memory.has_room() {
            self.memory.packets.remove(&slot.0);
            return None;
        }
        let packet = self.memory.packets.entry(slot.0).or_default();
        *packet = vec![0xEE; len];
        Some(packet)
    }

    fn send_packed(&mut self, shard: u8, slot: SlotId) {
        self.sent.push((shard, self.memory.packets[&slot.0].as_slice().into()));
    }

    fn repeat_packed(&mut self, shard: u8, slot: SlotId, flags: u8) {
        Header::set_flags(self.memory.packets.get_mut(&slot.0).expect("it is kept"), flags);
        self.send_packed(shard, slot);
    }
}

/// A worker.
pub struct Client {
    pub truth: Rc<Truth>,
    pub number: u16,
    pub worker: Worker,
    pub record: Record,
    pub manner: Manner,
    pub inbox: VecDeque<Rc<[u8]>>,
    pub memory: Memory,
    pub submitted: usize,
    next_submit: Duration,
    /// When the transform of the call whose data are next is done.
    next_ready: Duration,
    pub crashed: bool,
    /// When it was through with everything, or failed.
    pub ended: Option<Duration>,
    /// When its next wake-up is scheduled.
    pub wake: Option<Duration>,
    pub up_free: Duration,
    pub down_free: Duration,
}

impl Client {
    pub fn new(truth: Rc<Truth>, number: u16, shards: u8, manner: Manner, strict: bool) -> Client {
        let mut worker = Worker::new(truth.plan.parameters(number, shards), manner.start);
        if let Some(limit) = manner.limit {
            worker.set_limit(limit);
        }
        let record = Record {
            truth: Rc::clone(&truth),
            strict,
            norms: HashMap::new(),
            failed: HashMap::new(),
            results: HashSet::new(),
            lost: HashSet::new(),
            left_out: HashSet::new(),
            open: HashMap::new(),
            done: 0,
            over: false,
        };
        Client {
            truth,
            number,
            worker,
            record,
            next_submit: manner.start,
            next_ready: Duration::ZERO,
            manner,
            inbox: VecDeque::new(),
            memory: Memory { worker: number as u8, ..Memory::default() },
            submitted: 0,
            crashed: false,
            ended: None,
            wake: None,
            up_free: Duration::ZERO,
            down_free: Duration::ZERO,
        }
    }

    /// Does all there is to do at `now`; returns when to come back at the latest.
    pub fn run(&mut self, now: Duration, out: &mut TxBatch) -> Option<Duration> {
        if now < self.manner.start {
            return Some(self.manner.start);
        }
        while let Some(packet) = self.inbox.pop_front() {
            self.worker.handle(now, &packet, &mut self.record, out);
            self.record.over |= self.worker.failure().is_some();
        }
        self.worker.tick(now, &mut self.record, out);
        self.record.over |= self.worker.failure().is_some();
        let mut next = None;
        let mut at = |time: Duration| next = Some(next.map_or(time, |other: Duration| other.min(time)));
        if self.worker.failure().is_none() {
            [self.submit(now, out), self.fill(now, out)].into_iter().flatten().for_each(&mut at);
        }
        if self.ended.is_none() && (self.worker.failure().is_some() || self.is_through()) {
            self.ended = Some(now);
        }
        if let Some(deadline) = self.worker.deadline() {
            at(deadline.max(now + Duration::from_nanos(1)));
        }
        next
    }

    /// Calls that it has submitted and that are not done.
    pub fn pending(&self) -> usize {
        self.submitted - self.record.done
    }

    fn is_through(&self) -> bool {
        let through =
            self.pending() == 0 && self.submitted == self.truth.plan.calls.len() && self.worker.is_idle();
        if through {
            for call in 0..self.submitted as u64 {
                assert!(!self.record.strict || self.record.complete(call), "call {call} ended incomplete");
            }
        }
        through
    }

    fn submit(&mut self, now: Duration, out: &mut TxBatch) -> Option<Duration> {
        while self.submitted < self.truth.plan.calls.len() && self.pending() < self.manner.flight {
            if now < self.next_submit {
                return Some(self.next_submit);
            }
            let call = &self.truth.plan.calls[self.submitted];
            let parts = call.parts(self.number, &self.truth.plan.tables);
            let number = self.worker.submit(&CallSpec { key: call.key, parts: &parts });
            self.worker.send_norms(now, out);
            assert_eq!(number, self.submitted as u64);
            self.next_submit = now + self.manner.gaps[self.submitted];
            self.submitted += 1;
        }
        None
    }

    fn fill(&mut self, now: Duration, out: &mut TxBatch) -> Option<Duration> {
        while let Some(place) = self.worker.next_data() {
            // The norms may have come at any time; computing starts at the first look.
            let compute = &mut self.manner.compute[place.call as usize];
            if *compute > Duration::ZERO {
                let ready = now + std::mem::take(compute);
                self.next_ready = ready;
            }
            if now < self.next_ready {
                return Some(self.next_ready);
            }
            let (plan, number) = (&self.truth.plan, self.number);
            let sent = self.worker.fill(now, out, usize::MAX, |at, payload| {
                assert!(at.call == place.call && at.partition >= place.partition);
                plan.contribution(number, at, payload);
            });
            if sent == 0 {
                break;
            }
        }
        None
    }
}
