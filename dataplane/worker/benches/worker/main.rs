//! What a pair of packets, DATA and its RESULT, costs a worker beside the codec: a whole engine reduces a tensor against a server in
//! memory, and over kernel UDP on the loopback interface, with RESULTs in runs as a kernel merges them and one by one.
//!
//! The engine's time is the processor time of all that it does, less that of the server, which works while the engine waits; the codec alone takes its
//! turns on the same tensor, and the difference, divided by the number of DATA packets, is the cost of a pair. Beside it stand
//! the system calls alone. Every way must give the same mean, bit for bit. Where valgrind is installed, it counts the
//! instructions that runs save.
//!
//! Results go to `bench/worker.json` in the target directory. Without `--bench` there are a few turns and nothing is written.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

mod net;

use std::env;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use net::{JOB, Net, RUN, SESSION, SLOTS, SystemCalls, Way};
use thc_bench::{is_measuring, median, thread_time};
use thc_codec::block::Block;
use thc_codec::norm;
use thc_codec::quantizer::Quantizer;
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_protocol::session::{Joiner, Joiners};
use thc_protocol::wire::{Form, HEADER_LEN, Header, Kind, MAX_PACKET, RESULT_LEN, Table, Tables, Welcome};
use thc_protocol::{Cookie, TableId, WorkerId};
use thc_support::wire_table;
use thc_worker::{Borrowed, Call, Engine, EngineConfig};

/// Coordinates of the tensor, of a block, and of a packet.
const D: usize = 1 << 21;
const BLOCK: usize = 1 << 13;
const N: usize = 1024;
/// Bytes of indices in a DATA packet.
const DATA_LEN: usize = N / 2;

fn table() -> LookupTable {
    LookupTable::solve(4, 30, 1.0 / 32.0).unwrap()
}

fn welcome(table: &LookupTable) -> Welcome {
    let table = Table { id: TableId(1), ..wire_table(Form::USUAL, table) };
    Welcome {
        session: SESSION,
        data_slots: SLOTS,
        norm_slots: SLOTS,
        job_seed: 1,
        nonce: 1,
        block: BLOCK.ilog2() as u8,
        ..Welcome::new(1, Tables::one(table))
    }
}

/// A worker that has been let in, as P22 to P24 would.
fn engine(way: Way) -> Engine<Net> {
    let table = table();
    let (io, welcome) = (Net::new(way, &table), welcome(&table));
    let mut joiners = Joiners::new(Joiner::new(JOB, WorkerId(0), Cookie(3), 1, 0, Duration::ZERO));
    let header = Header::new(Kind::Welcome, 1, JOB, WorkerId(0), SESSION);
    let body = welcome.to_bytes();
    let mut packet = vec![0; HEADER_LEN + body.len()];
    joiners.handle(Duration::ZERO, 0, header.emit_packet(&mut packet, &body)).unwrap();
    let config = EngineConfig {
        ps: io.ps(),
        job: JOB,
        worker: WorkerId(0),
        timeout: Duration::from_secs(30),
        patience: Duration::ZERO,
        min_rto: Duration::from_millis(20),
        rounding: thc_worker::Rounding::Stratified,
        threads: 1,
    };
    Engine::new(io, config, joiners, &welcome, SLOTS as usize * 2).unwrap()
}

fn tensor() -> Vec<f32> {
    let words = SignKey { job_seed: 1, call: 0, partition: 0 }.signs();
    (0..D as u64).map(|i| (words.word(i) >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

struct Rig {
    engine: Engine<Net>,
    data: Vec<f32>,
}

impl Rig {
    fn new(way: Way) -> Rig {
        Rig { engine: engine(way), data: vec![0.0; D] }
    }

    /// Nanoseconds that the worker takes to reduce the tensor.
    fn reduce(&mut self, x: &[f32]) -> f64 {
        self.data.copy_from_slice(x);
        let (paused, packets) = (self.engine.io_mut().paused, self.engine.io_mut().packets);
        let began = thread_time();
        let call = self.engine.submit(D, Call::default()).unwrap();
        let outcome = loop {
            self.engine.run(&mut Borrowed::new(call, &mut self.data), || false);
            if let Some(outcome) = self.engine.take_outcome(call) {
                break outcome;
            }
        };
        let took = thread_time() - began - (self.engine.io_mut().paused - paused);
        outcome.unwrap();
        assert_eq!(self.engine.io_mut().packets - packets, (D / N + D / BLOCK) as u64);
        took.as_nanos() as f64
    }
}

/// Calls of one packet that are under way at a time.
const FEW: usize = 250;
const MANY: usize = 2000;

/// Nanoseconds of a worker for each of `count` calls of one packet that it starts at once, over kernel UDP.
fn small_calls(engine: &mut Engine<Net>, x: &[f32], count: usize) -> f64 {
    let tensors: Vec<Vec<f32>> = x.chunks(N).cycle().take(count).map(<[f32]>::to_vec).collect();
    let before = engine.io_mut().paused;
    let began = thread_time();
    let start = |data: &Vec<f32>| engine.start(data.clone(), Call::default()).unwrap();
    let handles: Vec<_> = tensors.iter().map(start).collect();
    while engine.pending_calls() > 0 {
        engine.run(&mut Borrowed::empty(), || false);
    }
    let means: Vec<_> = handles.into_iter().map(|handle| handle.wait().unwrap()).collect();
    let took = thread_time() - began - (engine.io_mut().paused - before);
    for (mean, x) in means.iter().zip(&tensors) {
        let error: f64 = x.iter().zip(mean).map(|(x, y)| f64::from(x - y).powi(2)).sum();
        let norm: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!(error < 0.1 * norm, "a small call's mean is wrong, its NMSE is {}", error / norm);
    }
    took.as_nanos() as f64 / count as f64
}

fn block<'a>(quantizer: &'a Quantizer, range: f32, at: usize, next: &'a [f32]) -> Block<'a> {
    Block {
        quantizer,
        key: SignKey { job_seed: 1, call: 0, partition: at as u32 },
        rounding: Rounding::new(7, 0, at as u32),
        range,
        next: [next, &[]],
        far: false,
    }
}

/// All of a worker's arithmetic on the same tensor.
struct Codec {
    quantizer: Quantizer,
    t_p: f64,
    packed: Vec<u8>,
    sums: Vec<u8>,
    work: Vec<f32>,
    data: Vec<f32>,
}

impl Codec {
    fn new() -> Codec {
        let table = table();
        Codec {
            quantizer: Quantizer::new(&table),
            t_p: table.t_p(),
            packed: vec![0; D / 2],
            sums: (0..D).map(|i| (i % 31) as u8).collect(),
            work: vec![0.0; BLOCK],
            data: vec![0.0; D],
        }
    }

    /// Nanoseconds of norms, compression and decompression.
    fn compute(&mut self, x: &[f32]) -> f64 {
        self.data.copy_from_slice(x);
        let Codec { quantizer, t_p, packed, sums, work, data } = self;
        let began = thread_time();
        let norms: Vec<f32> = data.chunks(BLOCK).map(norm::l2).collect();
        let range = |at: usize| (*t_p / (BLOCK as f64).sqrt() * f64::from(norms[at])) as f32;
        for (at, out) in packed.chunks_mut(BLOCK / 2).enumerate() {
            let next = data.get((at + 1) * BLOCK..(at + 2) * BLOCK).unwrap_or_default();
            let x = &data[at * BLOCK..(at + 1) * BLOCK];
            block(quantizer, range(at), at, next).compress(x, None, work, out).unwrap();
        }
        for (at, sums) in sums.chunks(BLOCK).enumerate() {
            let (out, behind) = data[at * BLOCK..].split_at_mut(BLOCK);
            let next = &behind[..BLOCK.min(behind.len())];
            block(quantizer, range(at), at, next).decompress8(sums, 1, work, out).unwrap();
        }
        black_box((&packed, &data));
        (thread_time() - began).as_nanos() as f64
    }
}

/// Nanoseconds of copying what a pair carries: indices to a packet, sums out of one.
fn copy(packets: &mut [u8], indices: &[u8], sums: &mut [u8]) -> f64 {
    let began = thread_time();
    for number in 0..D / N {
        let at = number % SLOTS as usize * MAX_PACKET;
        let packet = &mut packets[at..at + MAX_PACKET];
        packet[HEADER_LEN..HEADER_LEN + DATA_LEN]
            .copy_from_slice(&indices[number % 64 * DATA_LEN..][..DATA_LEN]);
        sums[number % 64 * RESULT_LEN..][..RESULT_LEN].copy_from_slice(&packet[HEADER_LEN..]);
    }
    black_box((&packets, &sums));
    (thread_time() - began).as_nanos() as f64
}

/// Instructions of one more turn, by valgrind; none where there is none, or where it cannot run this program.
fn instructions(of: &str) -> Option<f64> {
    let count = |turns: u32| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(env::current_exe().ok()?)
            .args(["--count", of, &turns.to_string()])
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse::<f64>().ok())
    };
    Some(count(2)? - count(1)?)
}

/// What [`instructions`] runs: so many turns of one way.
fn count(of: &str, turns: u32) {
    let x = tensor();
    let way = if of == "runs" { Way::Runs } else { Way::OneByOne };
    let (mut codec, mut rig) = (Codec::new(), Rig::new(way));
    for _ in 0..turns {
        if of == "codec" {
            codec.compute(&x)
        } else {
            rig.reduce(&x)
        };
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--count") {
        return count(&arguments[at + 1], arguments[at + 2].parse().unwrap());
    }
    let measure = is_measuring();
    let turns = if measure { 41 } else { 1 };
    let x = tensor();
    let mut codec = Codec::new();
    let mut rigs = [Way::Runs, Way::OneByOne, Way::Udp].map(Rig::new);
    let (mut packets, mut sums) = (vec![1; SLOTS as usize * MAX_PACKET], vec![0; 64 * RESULT_LEN]);
    let indices = vec![2; 64 * DATA_LEN];
    let mut pairs = vec![Vec::new(); rigs.len()];
    let mut system_calls = SystemCalls::new(HEADER_LEN + DATA_LEN, HEADER_LEN + RESULT_LEN);
    let (mut alone, mut copied, mut system) = (Vec::new(), Vec::new(), Vec::new());
    let mut many = engine(Way::Udp);
    let mut small = [Vec::new(), Vec::new()];
    for turn in 0..=turns {
        let own = codec.compute(&x);
        let took = rigs.each_mut().map(|rig| rig.reduce(&x));
        let copies = copy(&mut packets, &indices, &mut sums);
        let of_system = system_calls.turn(D / N);
        for rig in &rigs[1..] {
            let same = rig.data.iter().zip(&rigs[0].data).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "turn {turn}: means differ by the way in which results came");
        }
        let error: f64 = x.iter().zip(&rigs[0].data).map(|(x, y)| f64::from(x - y).powi(2)).sum();
        let norm: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!(error < 0.1 * norm, "turn {turn}: the mean is wrong, its NMSE is {}", error / norm);
        let calls = [FEW, MANY].map(|count| small_calls(&mut many, &x, count));
        if turn > 0 {
            small.iter_mut().zip(calls).for_each(|(small, call)| small.push(call));
            alone.push(own);
            copied.push(copies);
            system.push(of_system);
            pairs.iter_mut().zip(took).for_each(|(pairs, took)| pairs.push(took));
        }
    }
    let (all, system) = ((D / N) as f64, median(system));
    let [alone, copied] = [alone, copied].map(|times| median(times) / all);
    let [runs, single, udp] = [0, 1, 2].map(|way| median(std::mem::take(&mut pairs[way])) / all - alone);
    // The codec and the server are the same in both, and so is what starts and ends a call.
    let count = |of| if measure { instructions(of) } else { None };
    let saved = count("single").and_then(|single| Some((single - count("runs")?) / all));
    let said = saved.map_or("not counted by valgrind".to_owned(), |saved| {
        format!("{saved:.0} fewer in runs than one by one")
    });
    let detail = format!(
        "a pair beside the codec: {runs:.0} ns in runs of {RUN}, {single:.0} one by one, {udp:.0} over kernel UDP; \
         system calls alone {system:.0}, copies alone {copied:.0}, codec {alone:.0}; instructions: {said}"
    );
    println!("{detail}");
    let [few, many] = small.map(|times| median(times) / 1e3);
    let of_calls = format!(
        "a call of {N} coordinates: {few:.1} us with {FEW} under way, {many:.1} us with {MANY}, over kernel UDP"
    );
    println!("{of_calls}");
    if measure {
        let results = serde_json::json!([
            {
                "name": "worker: a pair of packets in runs, beside the codec, over copying what it carries",
                "ratio": runs / copied,
                "better": "lower",
                "aim": 2.0,
                "floor": 8.0,
                "detail": detail,
                "nanoseconds": { "runs": runs, "one_by_one": single, "udp": udp, "system_calls": system, "copies": copied, "codec": alone },
                "instructions_saved_by_runs": saved,
            },
            {
                "name": "worker: a pair of packets one by one over one in runs, beside the codec",
                "ratio": single / runs,
                "better": "higher",
                "aim": 1.5,
                "floor": 1.0,
                "detail": detail,
            },
            {
                "name": "worker: a pair of packets over kernel UDP in runs, beside the codec, over 110 ns",
                "ratio": udp / 110.0,
                "better": "lower",
                "aim": 1.0,
                "floor": 5.0,
                "detail": detail,
            },
            {
                "name": "worker: a small call with 2,000 under way over one with 250",
                "ratio": many / few,
                "better": "lower",
                "aim": 1.0,
                "floor": 1.5,
                "detail": of_calls,
                "microseconds": { "few": few, "many": many },
            },
        ]);
        thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "worker", &results).unwrap();
    }
}
