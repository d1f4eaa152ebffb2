//! Packets per second of the server on one core over a DPDK device, against dpdk-testpmd in `macswap` mode on a
//! device of the same driver and with packets of the same size.
//!
//! The device is net_ring: rings in memory, so that what is measured is the work of the program and not of a NIC. The
//! server's turn: four workers' DATA packets lie in the ring; it receives them, checks everything down to the UDP
//! checksum, adds them up and sends every RESULT to four workers. Filling and emptying the rings is not timed. testpmd
//! swaps two addresses in each packet that goes round in its ring; its packets are divided by the CPU time of the
//! thread that forwards them. Both take turns.
//! Before anything is timed, sums and receivers of all results of a round are checked.
//!
//! All of it in ordinary pages, and, in a second process, in hugepages, if enough of them are free.
//!
//! Results go to `bench/device.json` in the target directory. Without `--bench` there is one short turn of each.

use std::error::Error;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use thc_bench::{is_measuring, median};
use thc_dpdk::{BURST, Batch, Eal, EalConfig, Mempool, Port, PortConfig, RingPair, RxQueue, TxQueue};
use thc_protocol::aggregator::{Aggregator, Endpoint, Kernels, Scalar, Sink};
use thc_protocol::wire::{Form, HEADER_LEN, Kind, MAX_PACKET};
use thc_protocol::{Ecn, JobId};
use thc_ps::{Exchange, TxBatch};
use thc_transport::{DpdkConfig, DpdkIo, Idle, MacAddr, Neighbour, Peer};

mod setting;
use setting::{AtPort, header};
#[path = "testpmd/mod.rs"]
mod testpmd;

const WORKERS: u8 = 4;
const SLOTS: u16 = 1024;
/// Slots of a turn: as many as a run of packets has at most.
const BLOCK: u16 = 64;
/// Packets in the rings at once.
const TURN: usize = BLOCK as usize * WORKERS as usize;
const DATA: usize = HEADER_LEN + 512;
const HEADERS: usize = 42;
/// Memory of the server and of testpmd.
const SERVER_MIB: u32 = 256;
const TESTPMD_MIB: u32 = 128;
/// Has the benchmark run in hugepages, and print its results alone.
const IN_HUGEPAGES: &str = "--in-hugepages";
const PS: Peer = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000));
const PS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

type Fallible<T> = Result<T, Box<dyn Error>>;

fn worker(number: u8) -> Peer {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 10 + number), 50_000))
}

/// Ones' complement sum of a run of bytes.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|half| u32::from(half[0]) << 8 | half.get(1).map_or(0, |&low| u32::from(low))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// A frame from a worker to the server.
fn frame(from: Peer, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADERS];
    frame[..6].copy_from_slice(&PS_MAC);
    frame[6] = 2;
    frame[12] = 8;
    let ip = &mut frame[14..];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((28 + payload.len()) as u16).to_be_bytes());
    (ip[8], ip[9]) = (64, 17);
    ip[12..16].copy_from_slice(&v4(from).octets());
    ip[16..20].copy_from_slice(&v4(PS).octets());
    let header_sum = !fold(sum(&ip[..20]));
    ip[10..12].copy_from_slice(&header_sum.to_be_bytes());
    let pseudo = sum(&ip[12..20]) + 17 + 8 + payload.len() as u32;
    ip[20..22].copy_from_slice(&from.port().to_be_bytes());
    ip[22..24].copy_from_slice(&PS.port().to_be_bytes());
    ip[24..26].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    let checksum = !fold(pseudo + sum(&ip[20..28]) + sum(payload));
    ip[26..28].copy_from_slice(&checksum.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn v4(peer: Peer) -> Ipv4Addr {
    match peer.ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => unreachable!("{ip}"),
    }
}

fn aggregator<K: Kernels>() -> Aggregator<K> {
    let members: Vec<_> = (0..WORKERS).map(|number| Endpoint::udp(worker(number))).collect();
    setting::aggregator(Form::USUAL, SLOTS, &members)
}

/// What the model sends: receivers and packets, sorted.
#[derive(Default)]
struct Recorder(Vec<(IpAddr, Vec<u8>)>);

impl Sink for Recorder {
    fn unicast(&mut self, to: Endpoint, _: Ecn, packet: &[u8]) {
        self.0.push((to.addr.ip(), packet.to_vec()));
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        members.iter().for_each(|&member| self.unicast(member, Ecn::NotEct, packet));
    }
}

/// The server on one end of a pair of rings, and whoever plays the workers on the other.
struct Rig {
    io: DpdkIo,
    at_device: AtPort,
    batch: TxBatch,
    rx: RxQueue,
    tx: TxQueue,
    pool: Mempool,
    _port: Port,
    random: fastrand::Rng,
}

impl Rig {
    fn new(eal: &Eal, hugepages: bool, checksums: bool) -> Fallible<Rig> {
        let [ours, theirs] = RingPair::new(eal, 1024)?.names;
        let neighbours = (0..WORKERS).map(|number| Neighbour {
            address: v4(worker(number)),
            mac: MacAddr([2, 0, 0, 0, 1, number]),
            device: 0,
        });
        let config = DpdkConfig {
            devices: vec![ours],
            hugepages,
            neighbours: neighbours.collect(),
            mac: Some(MacAddr(PS_MAC)),
            idle: Idle::BusyPoll,
            checksums,
            ..DpdkConfig::new(v4(PS))
        };
        let io = DpdkIo::open(&config, PS.port(), 1)?.pop().ok_or("no endpoint")?;
        let pool = Mempool::new(eal, 4096, 1514)?;
        let port_config = PortConfig {
            device: theirs,
            descriptors: 1024,
            mtu: 1500,
            mac: None,
            checksums: false,
            first_udp_port: 0,
        };
        let (port, queues) = Port::open(eal, &port_config, std::slice::from_ref(&pool))?;
        let (rx, tx) = queues.into_iter().next().ok_or("no queue")?;
        let at_device = AtPort { aggregator: aggregator(), handled: 0 };
        let random = fastrand::Rng::with_seed(5);
        Ok(Rig { io, at_device, batch: TxBatch::new(), rx, tx, pool, _port: port, random })
    }

    /// The packets of a turn: those of worker 0, then those of worker 1, and so on.
    fn packets(&mut self, turn: u32) -> Vec<(Peer, Vec<u8>)> {
        let blocks = u32::from(SLOTS / BLOCK);
        let first = (turn % blocks) as u16 * BLOCK;
        let mut out = Vec::with_capacity(TURN);
        for number in 0..WORKERS {
            for slot in first..first + BLOCK {
                let header = header(Kind::Data, WORKERS, number, turn / blocks, slot);
                let mut payload = [0; DATA - HEADER_LEN];
                self.random.fill(&mut payload);
                let mut bytes = [0; MAX_PACKET];
                out.push((worker(number), header.emit_packet(&mut bytes, &payload).to_vec()));
            }
        }
        out
    }

    fn feed(&mut self, packets: &[(Peer, Vec<u8>)]) -> Fallible<()> {
        let mut batch = Batch::new();
        for (from, payload) in packets {
            let frame = frame(*from, payload);
            let mut packet = self.pool.take().ok_or("no packet buffer")?;
            packet.append(frame.len()).ok_or("frame too long")?.copy_from_slice(&frame);
            batch.push(packet).map_err(|_| "batch too full")?;
            if batch.is_full() && self.tx.burst(&mut batch) != BURST {
                return Err("the ring is full".into());
            }
        }
        Ok(())
    }

    /// What the server sent, if somebody wants to see it.
    fn drain(&mut self, mut see: impl FnMut(&[u8])) -> usize {
        let (mut batch, mut count, mut scratch) = (Batch::new(), 0, [0; 2048]);
        while self.rx.burst(&mut batch) > 0 {
            count += batch.len();
            batch.packets().iter().for_each(|packet| see(packet.contiguous(&mut scratch).unwrap_or(&[])));
            batch.clear();
        }
        count
    }

    /// Nanoseconds per packet.
    fn turn(&mut self, turn: u32) -> Fallible<f64> {
        let packets = self.packets(turn);
        self.feed(&packets)?;
        self.at_device.handled = 0;
        let mut received = 0;
        let start = Instant::now();
        while received < TURN {
            let got = self.io.exchange(&mut self.batch, &mut self.at_device, &mut |failure| {
                unreachable!("{failure:?}");
            })?;
            if got == 0 {
                break;
            }
            received += got;
        }
        let took = start.elapsed();
        let sent = self.drain(|_| {});
        if self.at_device.handled != TURN || sent != TURN {
            return Err(
                format!("{} of {TURN} packets handled, {sent} results", self.at_device.handled).into()
            );
        }
        Ok(took.as_nanos() as f64 / TURN as f64)
    }

    /// The first turn, compared with the model.
    fn check(&mut self) -> Fallible<()> {
        let packets = self.packets(0);
        let (mut model, mut expected) = (aggregator::<Scalar>(), Recorder::default());
        for (from, packet) in &packets {
            model.handle(Endpoint::udp(*from), packet, &mut expected);
        }
        self.feed(&packets)?;
        while self.io.exchange(&mut self.batch, &mut self.at_device, &mut |_| {})? > 0 {}
        let mut got = Vec::new();
        self.drain(|frame| {
            // Not its announcement of itself.
            if frame.get(12..14) == Some(&[8, 0]) {
                let to = IpAddr::from([frame[30], frame[31], frame[32], frame[33]]);
                got.push((to, frame[HEADERS..].to_vec()));
            }
        });
        expected.0.sort();
        got.sort();
        if got.len() != TURN || got != expected.0 {
            return Err(format!("{} results, {} expected, or others", got.len(), expected.0.len()).into());
        }
        Ok(())
    }
}

/// Both in one kind of pages; results as JSON.
fn compare(hugepages: bool, measure: bool) -> Fallible<Vec<Value>> {
    let (rounds, turns, seconds) = if measure { (5, 2000, 1.0) } else { (1, 20, 0.3) };
    let eal =
        Eal::start(&EalConfig { hugepages, memory: SERVER_MIB, pci: Vec::new(), arguments: Vec::new() })?;
    let mut rigs = [(true, Rig::new(eal, hugepages, true)?), (false, Rig::new(eal, hugepages, false)?)];
    for (_, rig) in &mut rigs {
        rig.check()?;
    }
    let mut theirs = Vec::new();
    let mut ours = [Vec::new(), Vec::new()];
    let mut next = 1;
    for _ in 0..rounds {
        theirs.push(testpmd::nanoseconds_per_packet(hugepages, seconds)?);
        for ((_, rig), ours) in rigs.iter_mut().zip(&mut ours) {
            let took = (0..turns).map(|turn| rig.turn(next + turn)).collect::<Fallible<Vec<_>>>()?;
            ours.push(median(took));
        }
        next += turns;
    }
    let theirs = median(theirs);
    let mut results = Vec::new();
    for ((checksums, _), ours) in rigs.iter().zip(ours) {
        let ours = median(ours);
        let checksums = if *checksums { "with" } else { "without" };
        let pages = if hugepages { "hugepages" } else { "ordinary pages" };
        let detail = format!(
            "testpmd macswap {theirs:.1} ns/packet, server {ours:.1} ns/packet, {:.2} million packets/s, one core, \
             net_ring, {} byte frames in, {pages}",
            1e3 / ours,
            HEADERS + DATA
        );
        results.push(json!({
            "name": format!("ps over a device, {checksums} UDP checksums, {pages}: packets per second over testpmd's macswap"),
            "ratio": theirs / ours,
            "better": "higher",
            "aim": 0.5,
            "floor": 0.25,
            "detail": detail,
        }));
    }
    Ok(results)
}

/// The same in a process of its own: DPDK starts once in each. Nothing, and why, if there are not enough hugepages.
fn compare_in_hugepages(measure: bool) -> Fallible<Vec<Value>> {
    let free: u64 = fs::read_to_string("/proc/meminfo")?
        .lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:")?.trim().parse().ok())
        .unwrap_or(0);
    let wanted = u64::from((SERVER_MIB + TESTPMD_MIB) / 2);
    if free < wanted {
        println!(
            "in hugepages: not run: {free} of 2 MiB are free, {wanted} wanted (sysctl vm.nr_hugepages={wanted})"
        );
        return Ok(Vec::new());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(IN_HUGEPAGES).args(measure.then_some("--bench")).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err("the run in hugepages failed".into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn main() -> Fallible<()> {
    let measure = is_measuring();
    if std::env::args().any(|argument| argument == IN_HUGEPAGES) {
        println!("{}", serde_json::to_string(&compare(true, measure)?)?);
        return Ok(());
    }
    if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
        println!("not run: dpdk-testpmd not found (Debian: apt-get install dpdk)");
        return Ok(());
    }
    let mut results = compare(false, measure)?;
    results.extend(compare_in_hugepages(measure)?);
    for result in &results {
        let text = |key: &str| result[key].as_str().unwrap_or_default();
        println!(
            "{:>5.2} {}\n      {}",
            result["ratio"].as_f64().unwrap_or(0.0),
            text("name"),
            text("detail")
        );
    }
    if measure {
        thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "device", &results)?;
    }
    Ok(())
}
