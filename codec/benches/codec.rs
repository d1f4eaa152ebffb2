//! Speed of the kernels as ratios to a warm memory copy measured in the same run:
//! `cargo bench -p thc-codec`.
//!
//! Every figure is checked before it is timed. Each repetition times the kernel and its yardstick
//! one after the other, so that a change of clock or a busy neighbour hits both; reported is the
//! median of the ratios. Results go to `bench/codec.json` in the target directory.
//! `THC_BENCH_ISA=avx2` (or `scalar`) measures another instruction set than the best.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use thc_codec::buffer::Buffer;
use thc_codec::isa::Isa;
use thc_codec::quantizer::{Quantizer, dequantize8};
use thc_codec::rounding::Rounding;
use thc_codec::signs::{SignKey, mix};
use thc_codec::table::LookupTable;
use thc_codec::{aggregate, norm, rht};

/// Coordinates in a full partition.
const LEN: usize = 1 << 20;
/// Indices in a packet.
const PACKET: usize = 1024;
/// Repetitions per figure.
const REPETITIONS: usize = 60;

const KEY: SignKey = SignKey { job_seed: 1, round: 2, partition: 0 };

/// Normal coordinates, aligned.
fn gradient(seed: u64) -> Buffer {
    let mut x = Buffer::zeroed(LEN);
    for (i, v) in x.iter_mut().enumerate() {
        // Sum of four uniforms: near enough to normal for timing.
        let w = mix(seed ^ mix(i as u64));
        *v = (0..4).map(|k| (w >> (16 * k) & 0xFFFF) as f32).sum::<f32>() / 65_536.0 - 2.0;
    }
    x
}

fn seconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}

/// One line of the report.
struct Figure {
    name: &'static str,
    ratio: f64,
    aim: f64,
    floor: f64,
    detail: String,
}

impl Figure {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "ratio": (self.ratio * 1000.0).round() / 1000.0,
            "better": "lower",
            "aim": self.aim,
            "floor": self.floor,
            "detail": self.detail,
        })
    }
}

/// How often the scheduler has taken the processor from this thread, where the system tells.
fn preemptions() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("nonvoluntary_ctxt_switches"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Times `work` against `yardstick`, interleaved; the ratio of a repetition is of its two times.
/// Repetitions in which another thread got the processor are discarded, unless all are.
fn against(
    name: &'static str,
    aim: f64,
    floor: f64,
    mut yardstick: impl FnMut(),
    mut work: impl FnMut(),
) -> Figure {
    let (mut clean, mut all) = (Vec::new(), Vec::new());
    work();
    while clean.len() < REPETITIONS && all.len() < 10 * REPETITIONS {
        // Warm the memory, which the other displaced, before timing.
        yardstick();
        yardstick();
        let before = preemptions();
        let yard = seconds(&mut yardstick);
        let between = preemptions();
        work();
        let after = preemptions();
        let time = seconds(&mut work);
        all.push((time, yard));
        if before == between && after == preemptions() {
            clean.push((time, yard));
        }
    }
    let interrupted = all.len() - clean.len();
    let kept = if clean.is_empty() { all } else { clean };
    let ratio = median(kept.iter().map(|(time, yard)| time / yard).collect());
    let time = median(kept.iter().map(|k| k.0).collect());
    let yard = median(kept.iter().map(|k| k.1).collect());
    Figure {
        name,
        ratio,
        aim,
        floor,
        detail: format!(
            "{:.0} us against {:.0} us, {}, median of {} repetitions ({interrupted} interrupted)",
            time * 1e6,
            yard * 1e6,
            Isa::current().name(),
            kept.len(),
        ),
    }
}

/// What one worker holds.
struct Worker {
    gradient: Buffer,
    feedback: Buffer,
    packed: Vec<u8>,
    quantizer: Quantizer,
    table: LookupTable,
}

impl Worker {
    fn new() -> Self {
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        Self {
            gradient: gradient(1),
            feedback: Buffer::zeroed(LEN),
            packed: vec![0; LEN / 2],
            quantizer: Quantizer::new(&table),
            table,
        }
    }

    /// Gradient and feedback to packed indices and new feedback.
    fn compress(&mut self, rounding: &Rounding) -> f32 {
        let norm = norm::l2_add(&mut self.feedback, &self.gradient).unwrap();
        rht::forward(&mut self.feedback, KEY).unwrap();
        let range = self.table.t_p() as f32 * rht::scale(LEN) * norm;
        self.quantizer.quantize_packed4(&mut self.feedback, range, rounding, 0, &mut self.packed).unwrap();
        rht::inverse(&mut self.feedback, KEY).unwrap();
        range
    }

    /// The same without touching the feedback before the round is sure, through a work buffer.
    fn compress_through(&mut self, rounding: &Rounding, work: &mut [f32]) {
        let norm = norm::l2_sum(&self.gradient, &self.feedback);
        rht::forward_sum(&self.gradient, &self.feedback, work, KEY).unwrap();
        let range = self.table.t_p() as f32 * rht::scale(LEN) * norm;
        self.quantizer.quantize_packed4(work, range, rounding, 0, &mut self.packed).unwrap();
        rht::inverse_into(work, &mut self.feedback, KEY).unwrap();
    }

    /// Sums to the mean gradient.
    fn decompress(&self, sums: &[u8], count: u32, range: f32, out: &mut [f32]) {
        dequantize8(sums, count, self.quantizer.granularity(), range, out).unwrap();
        rht::inverse(out, KEY).unwrap();
    }
}

/// Squared distance of `x` and `y` relative to that of `x` and 0.
fn nmse(x: &[f32], y: &[f32]) -> f64 {
    let square = |v: f32| f64::from(v) * f64::from(v);
    x.iter().zip(y).map(|(a, b)| square(a - b)).sum::<f64>() / x.iter().map(|a| square(*a)).sum::<f64>()
}

fn copy_of(len: usize) -> impl FnMut() {
    let (x, mut y) = (gradient(7), Buffer::zeroed(LEN));
    move || {
        y[..len].copy_from_slice(black_box(&x[..len]));
        black_box(&mut y);
    }
}

fn transform(figures: &mut Vec<Figure>) {
    let x = gradient(2);
    let mut y = x.clone();
    rht::forward(&mut y, KEY).unwrap();
    rht::inverse(&mut y, KEY).unwrap();
    assert!(nmse(&x, &y) < 1e-12);
    figures.push(against("rht forward, 2^20, over memcpy of 4 MiB", 4.0, 5.5, copy_of(LEN), || {
        rht::forward(black_box(&mut y), KEY).unwrap();
    }));
    figures.push(against("rht inverse, 2^20, over memcpy of 4 MiB", 4.0, 5.5, copy_of(LEN), || {
        rht::inverse(black_box(&mut y), KEY).unwrap();
    }));
}

fn whole_worker(figures: &mut Vec<Figure>) {
    let rounding = Rounding::new(3, 2, 0);
    let mut worker = Worker::new();
    let range = worker.compress(&rounding);
    let mut sums = vec![0; LEN];
    aggregate::lookup_set4(&mut sums, &worker.table.values16(), &worker.packed).unwrap();
    let mut out = Buffer::zeroed(LEN);
    let feedback = worker.feedback.clone();
    worker.decompress(&sums, 1, range, &mut out);
    let want = worker.table.quantization_error() + worker.table.truncation_error();
    let got = nmse(&worker.gradient, &out);
    assert!((got / want - 1.0).abs() < 0.05, "{got} {want}");
    // Both ways of compressing give the same.
    let mut other = Worker::new();
    other.compress_through(&rounding, &mut Buffer::zeroed(LEN));
    assert!(other.packed == worker.packed && other.feedback == worker.feedback);
    // What was sent and what is kept make up the gradient.
    let sum: Vec<f32> = out.iter().zip(feedback.iter()).map(|(a, b)| a + b).collect();
    assert!(nmse(&worker.gradient, &sum) < 1e-10);

    figures.push(against("compress, 2^20, over memcpy of 4 MiB", 10.0, 16.0, copy_of(LEN), || {
        black_box(worker.compress(black_box(&rounding)));
    }));
    let mut work = Buffer::zeroed(LEN);
    figures.push(against(
        "compress through a work buffer, 2^20, over memcpy of 4 MiB",
        10.0,
        16.0,
        copy_of(LEN),
        || worker.compress_through(black_box(&rounding), &mut work),
    ));
    figures.push(against("decompress, 2^20, over memcpy of 4 MiB", 5.0, 7.0, copy_of(LEN), || {
        worker.decompress(black_box(&sums), 1, range, &mut out);
    }));
    let mut part = |name, aim, floor, work: &mut dyn FnMut()| {
        figures.push(against(name, aim, floor, copy_of(LEN), work));
    };
    part("part of compress: sum and its norm", 1.5, 3.0, &mut || {
        black_box(norm::l2_add(&mut worker.feedback, &worker.gradient)).unwrap();
    });
    let mut rotated = worker.gradient.clone();
    rht::forward(&mut rotated, KEY).unwrap();
    part("part of compress: quantize and pack", 2.0, 4.0, &mut || {
        worker.quantizer.quantize_packed4(&mut rotated, range, &rounding, 0, &mut worker.packed).unwrap();
    });
    part("part of decompress: dequantize", 1.0, 2.0, &mut || {
        dequantize8(black_box(&sums), 1, 30, range, &mut out).unwrap();
    });
}

/// Eight partitions on two threads against the same eight on one.
fn threads(figures: &mut Vec<Figure>) {
    const EACH: usize = 4;
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("not run: two threads need two cores");
        return;
    }
    let rounding = Rounding::new(3, 2, 0);
    let mut halves = [Worker::new(), Worker::new()];
    let mut alone = [Worker::new(), Worker::new()];
    let some = |worker: &mut Worker| {
        for _ in 0..EACH {
            black_box(worker.compress(black_box(&rounding)));
        }
    };
    let serial = |workers: &mut [Worker; 2]| workers.iter_mut().for_each(some);
    let parallel = |workers: &mut [Worker; 2]| {
        std::thread::scope(|scope| {
            for worker in workers {
                scope.spawn(move || some(worker));
            }
        });
    };
    serial(&mut alone);
    parallel(&mut halves);
    assert!(halves.iter().zip(&alone).all(|(a, b)| a.packed == b.packed && a.feedback == b.feedback));
    let (serial, parallel) = (|| serial(&mut alone), || parallel(&mut halves));
    figures.push(against("compress on two threads over one thread", 0.55, 0.7, serial, parallel));
}

fn aggregation(figures: &mut Vec<Figure>) {
    let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
    let values = table.values16();
    let packed: Vec<u8> = (0..LEN as u64 / 2).map(|i| mix(i) as u8).collect();
    let mut lanes = vec![0; LEN];
    aggregate::lookup_set4(&mut lanes, &values, &packed).unwrap();
    for packet in 0..LEN / PACKET {
        let indices = &packed[packet * PACKET / 2..][..PACKET / 2];
        aggregate::lookup_add4(&mut lanes[packet * PACKET..][..PACKET], &values, indices).unwrap();
    }
    for (i, lane) in lanes.iter().enumerate() {
        let index = packed[i / 2] >> (4 - i % 2 * 4) & 15;
        assert_eq!(*lane, 2 * values[usize::from(index)]);
    }
    figures.push(against(
        "aggregate 2^20 indices in packets, over memcpy of 1 MiB",
        1.2,
        2.0,
        copy_of(LEN / 4),
        || {
            for (lanes, packed) in
                lanes.chunks_exact_mut(PACKET).zip(black_box(&packed).chunks_exact(PACKET / 2))
            {
                aggregate::lookup_add4(lanes, &values, packed).unwrap();
            }
        },
    ));
    let mut wide = vec![0; 2 * LEN];
    figures.push(against(
        "aggregate 2^20 indices into 16-bit lanes, over memcpy of 2 MiB",
        1.2,
        2.0,
        copy_of(LEN / 2),
        || {
            for (lanes, packed) in
                wide.chunks_exact_mut(PACKET).zip(black_box(&packed).chunks_exact(PACKET / 4))
            {
                aggregate::lookup_add4_wide(lanes, &values, packed).unwrap();
            }
        },
    ));
}

fn solver(figures: &mut Vec<Figure>) {
    let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
    assert_eq!(table.values(), [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30]);
    let times = (0..REPETITIONS)
        .map(|_| {
            seconds(|| {
                black_box(LookupTable::solve(4, 51, black_box(1.0 / 32.0))).unwrap();
            })
        })
        .collect();
    figures.push(Figure {
        name: "table solver, b=4 g=51, in us over 100 us",
        ratio: median(times) * 1e6 / 100.0,
        aim: 1.0,
        floor: 10.0,
        detail: "time of one table divided by 100 us".to_owned(),
    });
    let mut tables = 0;
    let time = seconds(|| {
        for bits in 2..=4 {
            for g in (1 << bits) - 1..=60 {
                for i in 1..=40 {
                    let fraction = (-0.3 * f64::from(i)).exp();
                    black_box(LookupTable::solve(bits, g, fraction)).unwrap();
                    tables += 1;
                }
            }
        }
    });
    figures.push(Figure {
        name: "sweep of tables, b=2..4 g<=60 p=40 values, over 2 s",
        ratio: time / 2.0,
        aim: 1.0,
        floor: 5.0,
        detail: format!("{tables} tables in {:.0} ms", time * 1e3),
    });
}

fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")), PathBuf::from)
}

fn main() {
    // `cargo test --benches` runs this without `--bench`: then there is nothing to measure.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    if let Ok(name) = std::env::var("THC_BENCH_ISA") {
        Isa::available()
            .find(|i| i.name() == name)
            .unwrap_or_else(|| panic!("THC_BENCH_ISA: this machine has no {name}"))
            .select();
    }
    let mut figures = Vec::new();
    transform(&mut figures);
    whole_worker(&mut figures);
    threads(&mut figures);
    aggregation(&mut figures);
    solver(&mut figures);

    println!("{:64} {:>7} {:>6} {:>6}  detail", "name", "ratio", "aim", "floor");
    for f in &figures {
        println!("{:64} {:7.2} {:6.1} {:6.1}  {}", f.name, f.ratio, f.aim, f.floor, f.detail);
    }
    let dir = target_dir().join("bench");
    std::fs::create_dir_all(&dir).unwrap();
    let json: Vec<Value> = figures.iter().map(Figure::json).collect();
    let path = dir.join("codec.json");
    std::fs::write(&path, serde_json::to_string_pretty(&json).unwrap()).unwrap();
    println!("written to {}", path.display());
}
