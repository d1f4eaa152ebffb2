//! What a DATA packet costs the software server over kernel UDP: eight workers' packets come to one shard's socket on the loopback
//! interface, which receives them, checks everything, adds them up and sends each RESULT to all eight.
//!
//! The figure is the processor time of the server's thread, so what else runs on the machine does not count; on the loopback interface
//! it has the kernel's work for the receivers of RESULTs in it. Beside it stands the same aggregator with packets from memory, whose answers
//! nobody sends, the system calls with nothing checked or added, and copying eight RESULTs to memory, an eighth of which falls to each
//! DATA packet. All RESULTs of each turn are checked at each worker, sums and headers.
//!
//! Results go to `bench/server.json` in the target directory. Without `--bench` there are a few turns and nothing is written.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

use thc_bench::{is_measuring, median, thread_time};
use thc_protocol::aggregator::{Aggregator, Endpoint, Outcome, Sink};
use thc_protocol::wire::{Form, HEADER_LEN, Header, Kind, RESULT_LEN};
use thc_protocol::{Ecn, JobId, Round, SlotId};
use thc_ps::{Exchange, Simd, TxBatch};
use thc_transport::{PacketIo, Peer, UdpConfig, UdpIo};

mod setting;
use setting::{AtPort, TABLE, aggregator, header};

const WORKERS: u8 = 8;
/// Slots of a turn: a run of packets, as a worker sends it to one port.
const BLOCK: u16 = 56;
const SLOTS: u16 = 16 * BLOCK;
const PACKETS: f64 = BLOCK as f64 * WORKERS as f64;
const DATA: usize = HEADER_LEN + 512;
/// How long nothing may come until packets count as lost.
const HANG: Duration = Duration::from_secs(60);

/// The index that a worker sends for a coordinate.
fn index(worker: u8, slot: u16, coordinate: usize) -> u8 {
    ((usize::from(worker) * 5 + usize::from(slot) + coordinate) % 16) as u8
}

/// The DATA packets of one worker for a turn, one behind the other.
fn packets(worker: u8, turn: u32) -> Vec<u8> {
    let mut packets = vec![0; usize::from(BLOCK) * DATA];
    let first = (turn * u32::from(BLOCK) % u32::from(SLOTS)) as u16;
    for (packet, slot) in packets.chunks_exact_mut(DATA).zip(first..) {
        let header = header(Kind::Data, WORKERS, worker, turn / u32::from(SLOTS / BLOCK), slot);
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
    addresses: Vec<Peer>,
    batch: TxBatch,
    server: AtPort,
}

impl Sockets {
    fn new() -> Sockets {
        let workers: Vec<UdpIo> = (0..WORKERS).map(|_| open()).collect();
        let addresses: Vec<_> = workers.iter().map(UdpIo::local).collect();
        let endpoints: Vec<_> = addresses.iter().map(|&address| Endpoint::udp(address)).collect();
        let server = AtPort { aggregator: aggregator(Form::USUAL, SLOTS, &endpoints), handled: 0 };
        Sockets { io: open(), workers, addresses, batch: TxBatch::new(), server }
    }

    /// Nanoseconds of the server for a turn.
    fn turn(&mut self, turn: u32) -> f64 {
        let to = self.io.local();
        for (number, worker) in (0..).zip(&mut self.workers) {
            worker.send_run(to, &packets(number, turn), DATA).unwrap();
        }
        let began = thread_time();
        let before = self.server.handled;
        let mut got = 0;
        while got < PACKETS as usize {
            let burst = self
                .io
                .exchange(&mut self.batch, &mut self.server, &mut |failure| panic!("{failure:?}"))
                .unwrap();
            got += burst;
            assert!(burst > 0 || self.io.wait(HANG).unwrap(), "{got} packets came");
        }
        let took = (thread_time() - began).as_nanos() as f64;
        assert_eq!(self.server.handled - before, PACKETS as usize);
        for worker in &mut self.workers {
            check(worker, to, turn);
        }
        took
    }

    /// Nanoseconds of a turn's system calls alone: the runs of DATA received and each worker's run of RESULTs sent.
    fn system_calls(&mut self, turn: u32, results: &[u8]) -> f64 {
        let to = self.io.local();
        for (number, worker) in (0..).zip(&mut self.workers) {
            worker.send_run(to, &packets(number, turn), DATA).unwrap();
        }
        let began = thread_time();
        let mut got = 0;
        while got < PACKETS as usize {
            let (burst, runs) = self.io.recv_all_runs().unwrap();
            runs.for_each(|run| assert_eq!(run.segment, DATA));
            got += burst;
            assert!(burst > 0 || self.io.wait(HANG).unwrap(), "{got} packets came");
        }
        self.io.send_run_to_all(&self.addresses, results, HEADER_LEN + RESULT_LEN, 0).unwrap();
        let took = (thread_time() - began).as_nanos() as f64;
        for worker in &mut self.workers {
            let mut got = 0;
            while got < usize::from(BLOCK) {
                assert!(worker.wait(HANG).unwrap(), "{got} packets came");
                got += worker
                    .recv_burst(&mut |_, packet| assert_eq!(packet.len(), HEADER_LEN + RESULT_LEN))
                    .unwrap();
            }
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
        let received = worker.recv_burst(&mut |origin, packet| {
            let (header, payload) = Header::parse(packet).unwrap();
            assert_eq!((origin.from, header.kind, header.slot), (from, Kind::Result, SlotId(next)));
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
        let address = |i| Endpoint::udp((Ipv4Addr::new(10, 0, 0, i), 9000).into());
        let workers: Vec<_> = (1..=WORKERS).map(address).collect();
        Memory { aggregator: aggregator(Form::USUAL, SLOTS, &workers), workers }
    }

    fn turn(&mut self, turn: u32) -> f64 {
        let all: Vec<Vec<u8>> = (0..WORKERS).map(|number| packets(number, turn)).collect();
        let began = thread_time();
        for (from, packets) in self.workers.iter().zip(&all) {
            for packet in packets.chunks_exact(DATA) {
                let outcome = self.aggregator.handle(*from, packet, &mut Nowhere);
                assert!(matches!(outcome, Outcome::Handled(_)));
            }
        }
        (thread_time() - began).as_nanos() as f64
    }
}

/// Nanoseconds of copying the RESULTs of a turn once for each worker.
fn copy(from: &[u8], to: &mut [u8]) -> f64 {
    let began = thread_time();
    for to in to.chunks_exact_mut(from.len()) {
        to.copy_from_slice(from);
    }
    black_box(&to);
    (thread_time() - began).as_nanos() as f64
}

fn main() {
    let measure = is_measuring();
    let turns = if measure { 4000 } else { 20 };
    let (mut sockets, mut memory) = (Sockets::new(), Memory::new());
    let results = vec![1; usize::from(BLOCK) * (HEADER_LEN + RESULT_LEN)];
    let mut copies = vec![0; results.len() * usize::from(WORKERS)];
    let mut took = [const { Vec::new() }; 4];
    for turn in 0..turns {
        let system = sockets.system_calls(turn, &results);
        let now = [sockets.turn(turn), system, memory.turn(turn), copy(&results, &mut copies)];
        // The first ones touch memory for the first time.
        if turn >= 20 || !measure {
            took.iter_mut().zip(now).for_each(|(all, now)| all.push(now / PACKETS));
        }
    }
    let [udp, system, alone, copied] = took.map(median);
    let detail = format!(
        "a DATA packet over kernel UDP, its eighth of sending a RESULT to {WORKERS} workers included: {udp:.0} ns; its system calls \
         alone {system:.0}; checked and added alone {alone:.0}; copying RESULTs alone {copied:.0}"
    );
    println!("{detail}");
    if measure {
        let nanoseconds =
            serde_json::json!({ "udp": udp, "system_calls": system, "aggregate": alone, "copies": copied });
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
        thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "server", &results).unwrap();
    }
}
