//! What a DATA packet costs the software server over kernel UDP: eight workers' packets come to one shard's socket on the loopback
//! interface, which receives them, checks everything, adds them up and sends each RESULT to all eight.
//!
//! The figure is the processor time of the server's thread, so what else runs on the machine does not count; on the loopback interface
//! it has the kernel's work for the receivers of RESULTs in it. Beside it stands the same aggregator with packets from memory, whose answers
//! nobody sends, and copying eight RESULTs to memory, an eighth of which falls to each DATA packet. All RESULTs of each turn are
//! checked at each worker, sums and headers.
//!
//! Results go to `bench/server.json` in the target directory. Without `--bench` there are a few turns and nothing is written.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use rustix::time::{ClockId, clock_gettime};
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Level, Lookup, Outcome, Shard, Sink};
use thc_protocol::wire::{Form, HEADER_LEN, Header, Kind, RESULT_LEN};
use thc_protocol::{Cookie, Ecn, JobId, Round, SlotId, TableId, WorkerId};
use thc_ps::{Exchange, Handler, Outbox, Simd};
use thc_transport::{Origin, PacketIo, Peer, UdpConfig, UdpIo};

const TABLE: [u8; 16] = [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30];
const JOB: JobId = JobId(1);
const WORKERS: u8 = 8;
const SLOTS: u16 = 1024;
/// Slots of a turn: a run of packets, as a worker sends it.
const BLOCK: u16 = 64;
const PACKETS: f64 = BLOCK as f64 * WORKERS as f64;
const DATA: usize = HEADER_LEN + 512;
/// How long nothing may come until packets count as lost.
const HANG: Duration = Duration::from_secs(60);

/// Processor time of this thread in nanoseconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The index that a worker sends for a coordinate.
fn index(worker: u8, slot: u16, coordinate: usize) -> u8 {
    ((usize::from(worker) * 5 + usize::from(slot) + coordinate) % 16) as u8
}

/// The DATA packets of one worker for a turn, one behind the other.
fn packets(worker: u8, turn: u32) -> Vec<u8> {
    let mut packets = vec![0; usize::from(BLOCK) * DATA];
    let first = (turn * u32::from(BLOCK) % u32::from(SLOTS)) as u16;
    for (packet, slot) in packets.chunks_exact_mut(DATA).zip(first..) {
        let header = Header {
            kind: Kind::Data,
            flags: 0,
            num_workers: WORKERS,
            job: JOB,
            worker: WorkerId(worker),
            table: TableId(1),
            cookie: Cookie(7),
            round: Round(turn / u32::from(SLOTS / BLOCK)),
            slot: SlotId(slot),
            count: 0,
        };
        let mut payload = [0; DATA - HEADER_LEN];
        for (i, byte) in payload.iter_mut().enumerate() {
            *byte = index(worker, slot, 2 * i) << 4 | index(worker, slot, 2 * i + 1);
        }
        header.emit_packet(packet, &payload);
    }
    packets
}

/// The sums of a slot.
fn sums(slot: u16) -> Vec<u8> {
    let sum = |coordinate| {
        (0..WORKERS).map(|worker| TABLE[usize::from(index(worker, slot, coordinate))]).sum::<u8>()
    };
    (0..RESULT_LEN).map(sum).collect()
}

fn aggregator(workers: &[Peer]) -> Aggregator<Simd> {
    let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 30);
    aggregator.install_table(TableId(1), Lookup { form: Form::USUAL, values: TABLE }).unwrap();
    let job = JobConfig {
        job: JOB,
        cookie: Cookie(7),
        workers: WORKERS,
        quorum: WORKERS,
        skip: false,
        data_slots: u32::from(SLOTS),
        norm_slots: 2,
        tables: vec![TableId(1)],
        level: Level::Only,
    };
    aggregator.install_job(job).unwrap();
    for (number, &worker) in (0..).zip(workers) {
        aggregator.set_member(JOB, WorkerId(number), Endpoint::udp(worker)).unwrap();
    }
    aggregator
}

/// The aggregator as a shard has it.
struct AtSocket {
    aggregator: Aggregator<Simd>,
    handled: u32,
}

impl Handler for AtSocket {
    #[inline]
    fn handle(&mut self, Origin { from, ecn, .. }: Origin, packet: &[u8], sink: &mut impl Sink) {
        let outcome = self.aggregator.handle_with(Endpoint::udp(from), Ecn::of_bits(ecn), packet, sink);
        self.handled += u32::from(matches!(outcome, Outcome::Handled(_)));
    }

    #[inline]
    fn expect(&self, packet: &[u8]) {
        self.aggregator.expect(packet);
    }
}

/// Takes answers and does nothing with them.
struct Nowhere;

impl Sink for Nowhere {
    fn unicast(&mut self, _: Endpoint, _: Ecn, packet: &[u8]) {
        black_box(packet);
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        black_box((members, packet));
    }
}

fn open() -> UdpIo {
    UdpIo::bind(UdpConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap()
}

/// The server and its workers on the loopback interface.
struct Sockets {
    io: UdpIo,
    workers: Vec<UdpIo>,
    outbox: Outbox,
    server: AtSocket,
}

impl Sockets {
    fn new() -> Sockets {
        let workers: Vec<UdpIo> = (0..WORKERS).map(|_| open()).collect();
        let addresses: Vec<Peer> = workers.iter().map(UdpIo::local).collect();
        let server = AtSocket { aggregator: aggregator(&addresses), handled: 0 };
        Sockets { io: open(), workers, outbox: Outbox::new(), server }
    }

    /// Nanoseconds of the server for a turn.
    fn turn(&mut self, turn: u32) -> f64 {
        let to = self.io.local();
        for (number, worker) in (0..).zip(&mut self.workers) {
            worker.send_run(to, &packets(number, turn), DATA).unwrap();
        }
        let began = cpu();
        let before = self.server.handled;
        let mut got = 0;
        while got < PACKETS as usize {
            let burst = self
                .io
                .exchange(&mut self.outbox, &mut self.server, &mut |failure| panic!("{failure:?}"))
                .unwrap();
            got += burst;
            assert!(burst > 0 || self.io.wait(HANG).unwrap(), "{got} packets came");
        }
        let took = cpu() - began;
        assert_eq!(self.server.handled - before, PACKETS as u32);
        for worker in &mut self.workers {
            check(worker, to, turn);
        }
        took
    }
}

/// That a worker gets all RESULTs of a turn, in order.
fn check(worker: &mut UdpIo, from: Peer, turn: u32) {
    let first = (turn * u32::from(BLOCK) % u32::from(SLOTS)) as u16;
    let mut next = first;
    while next < first + BLOCK {
        assert!(worker.wait(HANG).unwrap(), "RESULTs up to slot {next} came");
        let received = worker.recv_burst(&mut |peer, packet| {
            let (header, payload) = Header::parse(packet).unwrap();
            assert_eq!((peer, header.kind, header.slot), (from, Kind::Result, SlotId(next)));
            assert_eq!(
                (header.count, header.round),
                (u16::from(WORKERS), Round(turn / u32::from(SLOTS / BLOCK)))
            );
            assert!(payload == sums(next), "the sums of slot {next} are wrong");
            next += 1;
        });
        received.unwrap();
    }
}

/// The same packets from memory, in the order in which they come from sockets.
struct Memory {
    workers: Vec<Endpoint>,
    aggregator: Aggregator<Simd>,
}

impl Memory {
    fn new() -> Memory {
        let workers: Vec<Peer> = (1..=WORKERS).map(|i| (Ipv4Addr::new(10, 0, 0, i), 9000).into()).collect();
        Memory { aggregator: aggregator(&workers), workers: workers.into_iter().map(Endpoint::udp).collect() }
    }

    fn turn(&mut self, turn: u32) -> f64 {
        let all: Vec<Vec<u8>> = (0..WORKERS).map(|number| packets(number, turn)).collect();
        let began = cpu();
        for (from, packets) in self.workers.iter().zip(&all) {
            for packet in packets.chunks_exact(DATA) {
                let outcome = self.aggregator.handle(*from, packet, &mut Nowhere);
                assert!(matches!(outcome, Outcome::Handled(_)));
            }
        }
        cpu() - began
    }
}

/// Nanoseconds of copying the RESULTs of a turn once for each worker.
fn copy(from: &[u8], to: &mut [u8]) -> f64 {
    let began = cpu();
    for to in to.chunks_exact_mut(from.len()) {
        to.copy_from_slice(from);
    }
    black_box(&to);
    cpu() - began
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let measure = env::args().any(|argument| argument == "--bench");
    let turns = if measure { 4000 } else { 20 };
    let (mut sockets, mut memory) = (Sockets::new(), Memory::new());
    let results = vec![1; usize::from(BLOCK) * (HEADER_LEN + RESULT_LEN)];
    let mut copies = vec![0; results.len() * usize::from(WORKERS)];
    let mut took = [const { Vec::new() }; 3];
    for turn in 0..turns {
        let now = [sockets.turn(turn), memory.turn(turn), copy(&results, &mut copies)];
        // The first ones touch memory for the first time.
        if turn >= 20 || !measure {
            took.iter_mut().zip(now).for_each(|(all, now)| all.push(now / PACKETS));
        }
    }
    let [udp, alone, copied] = took.map(median);
    let detail = format!(
        "a DATA packet over kernel UDP, its eighth of sending a RESULT to {WORKERS} workers included: {udp:.0} ns; checked and added alone \
         {alone:.0}; copying RESULTs alone {copied:.0}"
    );
    println!("{detail}");
    if measure {
        let nanoseconds = serde_json::json!({ "udp": udp, "aggregate": alone, "copies": copied });
        let results = serde_json::json!([
            {
                "name": "server: a DATA packet over kernel UDP with 8 workers, over 150 ns",
                "ratio": udp / 150.0,
                "better": "lower",
                "aim": 1.0,
                "floor": 5.0,
                "detail": detail,
                "nanoseconds": nanoseconds,
            },
            {
                "name": "server: a DATA packet over kernel UDP with 8 workers, over checking, adding and copying it alone",
                "ratio": udp / (alone + copied),
                "better": "lower",
                "aim": 3.0,
                "floor": 15.0,
                "detail": detail,
            },
        ]);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("server.json");
        fs::write(&file, serde_json::to_string_pretty(&results).unwrap()).unwrap();
        println!("written to {}", file.display());
    }
}
