//! In steady state nothing is allocated per packet, and what is held does not grow.
#![allow(missing_docs, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Level, Lookup, Scalar, Shard, Sink};
use thc_protocol::wire::{Choice, Form, Header, Norm, Table, Tables};
use thc_protocol::worker::{CallError, CallSpec, Events, PacketId, Parameters, PartSpec, Tx, Worker};
use thc_protocol::{Cookie, Ecn, JobId, Policy, TableId, WorkerId};

thread_local! {
    /// Allocations of this thread, and the bytes it holds.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn note(allocations: u64, bytes: i64) {
    // Not while the thread's locals are being taken down.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + allocations));
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call is passed on to the system's allocator unchanged, which upholds the contract;
// counting touches only cells that need no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: `at` came from `System` with this layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Packets on their way, in memory that is taken once.
struct Wire {
    bytes: Vec<u8>,
    packets: Vec<(u8, usize, usize)>,
}

impl Wire {
    fn new() -> Wire {
        Wire { bytes: Vec::with_capacity(4 << 20), packets: Vec::with_capacity(1 << 14) }
    }

    fn push(&mut self, about: u8, packet: &[u8]) {
        assert!(
            self.bytes.len() + packet.len() <= self.bytes.capacity(),
            "the test's own memory is too small"
        );
        assert!(self.packets.len() < self.packets.capacity());
        self.packets.push((about, self.bytes.len(), packet.len()));
        self.bytes.extend_from_slice(packet);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
    }
}

/// A worker's packets: `about` is its number.
struct Up<'a>(&'a mut Wire, u8);

impl Tx for Up<'_> {
    fn send(&mut self, _: u8, contents: &[u8], segment: usize) {
        contents.chunks_exact(segment).for_each(|packet| self.0.push(self.1, packet));
    }
}

/// The aggregator's packets: `about` is the receiver, 255 all.
struct Down<'a>(&'a mut Wire);

impl Sink for Down<'_> {
    fn unicast(&mut self, to: Endpoint, _: Ecn, packet: &[u8]) {
        self.0.push(octets(to.addr)[3], packet);
    }

    fn multicast(&mut self, _: JobId, _: &[Endpoint], _: Ecn, packet: &[u8]) {
        self.0.push(255, packet);
    }
}

#[derive(Default)]
struct Seen {
    norms: u64,
    results: u64,
    lost: u64,
    failed: u64,
}

impl Events for Seen {
    fn norms(&mut self, _: u64, maxima: &mut dyn Iterator<Item = u32>) {
        self.norms += maxima.count() as u64;
    }

    fn result(&mut self, _: PacketId, _: &Header, _: &[u8]) {
        self.results += 1;
    }

    fn packet_late(&mut self, _: PacketId, _: Option<&[u8]>) {}

    fn packet_lost(&mut self, _: PacketId, _: Option<&[u8]>) {
        self.lost += 1;
    }

    fn call_failed(&mut self, _: u64, _: CallError) {
        self.failed += 1;
    }
}

const WORKERS: u8 = 4;

fn endpoint(worker: u8) -> Endpoint {
    Endpoint::udp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, worker), 5000)))
}

struct Group {
    aggregator: Aggregator<Scalar>,
    workers: Vec<(Worker, Seen)>,
    up: Wire,
    down: Wire,
    now: Duration,
    packets: u64,
    /// Every so many packets one is lost.
    lose: u64,
    /// Allocations while packets were handled.
    counted: u64,
}

impl Group {
    fn new(policy: Policy, quorum: u8) -> Group {
        let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 24);
        let mut values = [0; 16];
        (0u8..).zip(&mut values).for_each(|(i, value)| *value = i);
        aggregator.install_table(TableId(1), Lookup { form: Form::USUAL, values }).unwrap();
        let config = JobConfig {
            job: JobId(7),
            cookie: Cookie(99),
            workers: WORKERS,
            quorum,
            skip: JobConfig::may_skip(policy, quorum, WORKERS),
            data_slots: 256,
            norm_slots: 16,
            tables: vec![TableId(1)],
            level: Level::Only,
        };
        aggregator.install_job(config).unwrap();
        (0..WORKERS).for_each(|w| aggregator.set_member(JobId(7), WorkerId(w), endpoint(w)).unwrap());
        let parameters = |worker| Parameters {
            job: JobId(7),
            cookie: Cookie(99),
            worker: WorkerId(worker),
            workers: WORKERS,
            quorum,
            data_slots: 256,
            norm_slots: 16,
            credit: 0,
            first_window: 1 << 16,
            policy,
            deadline: Duration::from_millis(5),
            tables: Tables::one(Table { id: TableId(1), ..Table::default() }),
            shards: 1,
            timeout: Duration::from_secs(30),
            patience: Duration::ZERO,
            min_rto: Duration::from_millis(20),
            max_rto: Duration::from_secs(1),
            first_seq: 0,
            rack: None,
            marks: false,
        };
        let worker = |w| (Worker::new(parameters(w), Duration::ZERO), Seen::default());
        Group {
            aggregator,
            workers: (0..WORKERS).map(worker).collect(),
            up: Wire::new(),
            down: Wire::new(),
            now: Duration::ZERO,
            packets: 0,
            lose: 0,
            counted: 0,
        }
    }

    fn packet_lost(&mut self) -> bool {
        self.packets += 1;
        self.lose > 0 && self.packets.is_multiple_of(self.lose)
    }

    /// One call on all workers, to its end. The aggregator forgets its slots after `forget` rounds.
    fn call(&mut self, choice: Choice, norm: u32, forget: Option<u32>) {
        let packets = [(300, norm), (1, norm), (40, 0)];
        for (w, (worker, _)) in (0u8..).zip(&mut self.workers) {
            let part = |(packets, norm)| PartSpec { choice, length: 341 * 1024, packets, norm };
            let parts = packets.map(part);
            worker.submit(&CallSpec { key: 1, parts: &parts });
            worker.send_norms(self.now, &mut Up(&mut self.up, w));
        }
        let mut rounds = 0;
        while self.workers.iter().any(|(worker, _)| !worker.is_idle()) {
            rounds += 1;
            assert!(rounds < 20_000, "does not end");
            if forget == Some(rounds) {
                self.aggregator.forget_slots();
            }
            let before = ALLOCATIONS.get();
            self.step();
            self.counted += ALLOCATIONS.get() - before;
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_micros(50);
        for i in 0..self.up.packets.len() {
            let (from, start, len) = self.up.packets[i];
            if !self.packet_lost() {
                let packet = &self.up.bytes[start..start + len];
                self.aggregator.handle(endpoint(from), packet, &mut Down(&mut self.down));
            }
        }
        self.up.clear();
        for w in 0..WORKERS {
            for i in 0..self.down.packets.len() {
                let (to, start, len) = self.down.packets[i];
                if (to == w || to == 255) && !self.packet_lost() {
                    let (worker, seen) = &mut self.workers[usize::from(w)];
                    let packet = &self.down.bytes[start..start + len];
                    worker.handle(self.now, packet, seen, &mut Up(&mut self.up, w));
                }
            }
            let (worker, seen) = &mut self.workers[usize::from(w)];
            worker.tick(self.now, seen, &mut Up(&mut self.up, w));
            let write = |place: PacketId, payload: &mut [u8]| payload.fill(place.packet as u8);
            while worker.fill(self.now, &mut Up(&mut self.up, w), usize::MAX, write) > 0 {}
        }
        self.down.clear();
    }
}

fn one_of_each(group: &mut Group) {
    group.call(Choice::Table(TableId(1)), 1f32.to_bits(), None);
    group.call(Choice::Raw, 1f32.to_bits(), None);
    group.call(Choice::Table(TableId(1)), 0, None);
    group.call(Choice::Table(TableId(1)), Norm::non_finite(WorkerId(2)), None);
}

#[test]
fn nothing_is_allocated_per_packet_and_nothing_grows() {
    for (policy, quorum) in
        [(Policy::Reliable, WORKERS), (Policy::Reliable, 3), (Policy::BestEffort, WORKERS)]
    {
        let mut group = Group::new(policy, quorum);
        // The rings of both packet lengths are taken at first use.
        one_of_each(&mut group);
        assert!(group.counted > 0, "counting does not count");
        let held = HELD.get();
        group.counted = 0;
        for lose in [0, 1009, 97, 13] {
            group.lose = lose;
            for repetition in 0..5 {
                one_of_each(&mut group);
                if quorum == WORKERS {
                    group.call(Choice::Table(TableId(1)), 2f32.to_bits(), Some(3 + repetition));
                }
            }
        }
        assert!(group.packets > 50_000);
        assert_eq!(group.counted, 0, "allocations while handling {} packets", group.packets);
        assert_eq!(HELD.get(), held, "bytes held after {} packets", group.packets);
        let seen = &group.workers[0].1;
        assert!(seen.norms > 0 && seen.results > 10_000 && seen.failed > 0);
    }
}

#[test]
fn best_effort_state_is_no_larger_for_what_it_gives_up() {
    let mut group = Group::new(Policy::BestEffort, WORKERS);
    group.lose = 3;
    one_of_each(&mut group);
    let held = HELD.get();
    (0..20).for_each(|_| one_of_each(&mut group));
    assert_eq!(HELD.get(), held);
    assert!(group.workers.iter().all(|(_, seen)| seen.lost > 0));
}

#[test]
fn a_job_takes_the_memory_that_it_is_said_to_take() {
    for (shards, data_slots, norm_slots) in [(1, 1000, 70), (4, 1000, 70), (7, 65536, 2), (64, 128, 128)] {
        let config = JobConfig {
            data_slots,
            norm_slots,
            ..JobConfig::new(JobId(7), Cookie(99), WORKERS, vec![TableId(1)])
        };
        let limit = config.memory_of_all(shards);
        let mut all: Vec<Aggregator<Scalar>> =
            Shard::split(shards).map(|shard| Aggregator::new(shard, limit)).collect();
        for one in &mut all {
            one.install_table(TableId(1), Lookup { form: Form::USUAL, values: [1; 16] }).unwrap();
        }
        let before = HELD.get();
        for one in &mut all {
            one.install_job(config.clone()).unwrap();
        }
        assert_eq!(HELD.get() - before, limit as i64, "{shards} shards");
        assert_eq!(all.iter().map(Aggregator::memory).sum::<usize>(), limit);
        // Nearly all of it is slots, which each is in one shard.
        let slots = 1088 * data_slots as usize + 40 * norm_slots as usize;
        assert!(limit >= slots, "{limit} bytes for {slots} of slots");
        let others = (limit - slots) / usize::from(shards);
        assert!(others < (30 << 10) + 24 * 65538, "{others} bytes beside slots");
        for one in &mut all {
            assert!(one.remove_job(JobId(7)));
        }
        assert_eq!(HELD.get(), before);
    }
}

/// The bytes of an IPv4 address.
fn octets(at: SocketAddr) -> [u8; 4] {
    let std::net::IpAddr::V4(ip) = at.ip() else { panic!("{at}") };
    ip.octets()
}
