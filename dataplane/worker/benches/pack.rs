//! Indices packed and sent per second on one core: quantizing a partition into packets and handing those to a DPDK
//! device that swallows them (net_null), against quantizing and packing alone, into plain memory.
//!
//! What is on top of quantizing: the window and the bookkeeping of repetition, headers, UDP checksums, and packet
//! buffers, which are kept until their results are in. Both take turns on the same coordinates, and must have packed
//! the same indices. Results that let the window go on come from memory and are not timed.
//!
//! Results go to `bench/pack.json` in the target directory. Without `--bench` there are a few turns and nothing is
//! written.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use thc_bench::{is_measuring, median};
use thc_codec::quantizer::Quantizer;
use thc_codec::rounding::Rounding;
use thc_codec::table::LookupTable;
use thc_protocol::wire::{Choice, Form, HEADER_LEN, Header, Kind, MAX_PACKET, Table, Tables, Welcome};
use thc_protocol::worker::{CallError, CallSpec, Events, PacketId, Parameters, PartSpec, Tx, Worker};
use thc_protocol::{Cookie, JobId, Round, SlotId, TableId, WorkerId};
use thc_support::wire_table;
use thc_transport::{DpdkConfig, DpdkIo, Idle, MacAddr, Neighbour, PacketIo, Peer, RetainedTx};

const D: usize = 1 << 20;
/// Coordinates of a packet.
const N: usize = 1024;
const SLOTS: u32 = 1024;
const WORKERS: u8 = 4;
const PS: Peer = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000));

/// Sends to the device, and keeps what the check needs.
struct Out {
    io: DpdkIo,
    norm: Vec<u8>,
    packed: Option<Vec<u8>>,
}

impl Tx for Out {
    fn send(&mut self, _: u8, contents: &[u8], segment: usize) {
        assert_eq!(contents[1], Kind::Norm as u8, "data is packed where it is sent from");
        self.io.send_run(PS, contents, segment).unwrap();
        self.norm = contents.to_vec();
    }

    #[inline]
    fn pack(&mut self, slot: SlotId, len: usize) -> Option<&mut [u8]> {
        self.io.pack(usize::from(slot.0), len)
    }

    #[inline]
    fn send_packed(&mut self, _: u8, slot: SlotId) {
        let number = usize::from(slot.0);
        if let Some(packed) = &mut self.packed {
            packed.extend_from_slice(&self.io.packed_payload(number).unwrap()[HEADER_LEN..]);
        }
        self.io.send_packed(PS, number, 0).unwrap();
    }

    fn repeat_packed(&mut self, _: u8, _: SlotId, _: u8) {
        unreachable!("nothing is lost");
    }

    fn flush(&mut self) {
        self.io.flush().unwrap();
    }
}

struct Ignore;

impl Events for Ignore {
    fn norms(&mut self, _: u64, _: &mut dyn Iterator<Item = u32>) {}
    fn result(&mut self, _: PacketId, _: &Header, _: &[u8]) {}
    fn packet_late(&mut self, _: PacketId, _: Option<&[u8]>) {}

    fn packet_lost(&mut self, _: PacketId, _: Option<&[u8]>) {
        unreachable!("nothing is given up");
    }
    fn call_failed(&mut self, _: u64, error: CallError) {
        unreachable!("{error}");
    }
}

struct Rig {
    worker: Worker,
    out: Out,
    quantizer: Quantizer,
    rounding: Rounding,
    range: f32,
    rotated: Vec<f32>,
    work: Vec<f32>,
    seq: u32,
}

impl Rig {
    fn new() -> Rig {
        let neighbour =
            Neighbour { address: Ipv4Addr::new(10, 0, 0, 1), mac: MacAddr([2, 0, 0, 0, 0, 1]), device: 0 };
        let config = DpdkConfig {
            devices: vec!["net_null0".to_owned()],
            hugepages: false,
            neighbours: vec![neighbour],
            idle: Idle::BusyPoll,
            ..DpdkConfig::new(Ipv4Addr::new(10, 0, 0, 2))
        };
        let io = DpdkIo::open(&config, 50_000, 1).unwrap().pop().unwrap();
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        let wire = Table { id: TableId(1), ..wire_table(Form::USUAL, &table) };
        let welcome = Welcome {
            session: Cookie(7),
            data_slots: SLOTS,
            job_seed: 1,
            nonce: 1,
            ..Welcome::new(WORKERS, Tables::one(wire))
        };
        // Near enough to normal, as a transformed partition is: sums of uniform numbers, scaled to variance 1.
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let rotated: Vec<f32> =
            (0..D).map(|_| (0..6).map(|_| uniform() - 0.5).sum::<f32>() * std::f32::consts::SQRT_2).collect();
        Rig {
            worker: Worker::new(Parameters::new(JobId(1), WorkerId(0), &welcome), Duration::ZERO),
            out: Out { io, norm: Vec::new(), packed: None },
            quantizer: Quantizer::new(&table),
            rounding: Rounding::new(1, 0, 0),
            range: table.t_p() as f32,
            work: rotated.clone(),
            rotated,
            seq: 0,
        }
    }

    /// Nanoseconds to quantize and pack the partition into plain memory.
    fn pack_alone(&mut self, packed: &mut [u8]) -> f64 {
        self.work.copy_from_slice(&self.rotated);
        let start = Instant::now();
        for (number, (x, out)) in self.work.chunks_mut(N).zip(packed.chunks_mut(N / 2)).enumerate() {
            let first = (number * N) as u64;
            self.quantizer.quantize_packed4(x, self.range, &self.rounding, first, out).unwrap();
        }
        start.elapsed().as_nanos() as f64
    }

    /// Nanoseconds to send it.
    fn time_send(&mut self) -> f64 {
        self.work.copy_from_slice(&self.rotated);
        let now = Duration::ZERO;
        let choice = Choice::Table(TableId(1));
        let part = PartSpec { choice, length: D as u32, packets: (D / N) as u32, norm: 1f32.to_bits() };
        let spec = CallSpec { key: 0, parts: &[part] };
        self.worker.submit(&spec);
        self.worker.send_norms(now, &mut self.out);
        let mut norm = std::mem::take(&mut self.out.norm);
        norm[1] = Kind::NormResult as u8;
        self.worker.handle(now, &norm, &mut Ignore, &mut self.out);
        let mut took = 0.0;
        loop {
            let Rig { worker, out, quantizer, rounding, range, work, .. } = self;
            let start = Instant::now();
            let mut filled = 0;
            loop {
                let count = worker.fill(now, out, usize::MAX, |place, payload| {
                    let first = place.packet as usize * N;
                    let x = &mut work[first..first + N];
                    quantizer.quantize_packed4(x, *range, rounding, first as u64, payload).unwrap();
                });
                filled += count;
                if count == 0 {
                    break;
                }
            }
            took += start.elapsed().as_nanos() as f64;
            if filled == 0 {
                return took;
            }
            self.answer(filled);
        }
    }

    /// The results of the next packets.
    fn answer(&mut self, packets: usize) {
        for seq in self.seq..self.seq + packets as u32 {
            let header = Header {
                kind: Kind::Result,
                flags: 0,
                num_workers: WORKERS,
                job: JobId(1),
                worker: WorkerId::NONE,
                table: TableId(1),
                cookie: Cookie(7),
                round: Round(seq / SLOTS),
                slot: SlotId((seq % SLOTS) as u16),
                count: WORKERS.into(),
            };
            let mut bytes = [0; MAX_PACKET];
            let packet = header.emit_packet(&mut bytes, &[0; 1024]);
            self.worker.handle(Duration::ZERO, packet, &mut Ignore, &mut self.out);
        }
        self.seq += packets as u32;
    }
}

/// Cycles per nanosecond, as Linux tells the first processor's clock now; 0 where it does not.
fn clock() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mhz =
        text.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split(':').nth(1)?.trim().parse().ok());
    mhz.map_or(0.0, |mhz: f64| mhz / 1000.0)
}

fn main() {
    let measure = is_measuring();
    let turns = if measure { 200 } else { 3 };
    let mut rig = Rig::new();
    let mut packed = vec![0; D / 2];
    rig.pack_alone(&mut packed);
    rig.out.packed = Some(Vec::with_capacity(D / 2));
    rig.time_send();
    assert!(rig.out.packed.take().unwrap() == packed, "sent other indices than packed alone");
    let (mut alone, mut sent) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        alone.push(rig.pack_alone(&mut packed));
        sent.push(rig.time_send());
    }
    let stats = rig.out.io.stats();
    let expected = (turns as u64 + 1) * (D / N + 1) as u64;
    assert_eq!((stats.packets_out, stats.send_errors), (expected, 0), "every packet went out");
    let (alone, sent) = (median(alone), median(sent));
    let clock = clock();
    let packets = (D / N) as f64;
    let bytes = packets * (HEADER_LEN + N / 2 + 42) as f64;
    let detail = format!(
        "{:.2} billion indices/s packed and sent on one core, {:.2} packed alone; frames of {:.2} bytes per ns, {:.2} \
         per cycle at {:.0} MHz; {:.0} ns per packet of 1024, of which quantizing and packing {:.0}",
        D as f64 / sent,
        D as f64 / alone,
        bytes / sent,
        if clock > 0.0 { bytes / sent / clock } else { 0.0 },
        clock * 1000.0,
        sent / packets,
        alone / packets
    );
    println!("packed and sent over packed alone: {:.2}; {detail}", sent / alone);
    if measure {
        let results = serde_json::json!([{
            "name": "worker: time to pack and send a partition over net_null, over packing it alone",
            "ratio": sent / alone,
            "better": "lower",
            "aim": 1.3,
            "floor": 2.0,
            "detail": detail,
        }]);
        thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "pack", &results).unwrap();
    }
}
