//! Speed of the kernels as ratios to a memory copy, and to their rooflines, measured in the same run:
//! `cargo bench -p thc-codec`.
//!
//! Every figure is checked before it is timed. Each repetition times the kernel and its yardsticks
//! one after the other, so that a change of clock or a busy neighbour hits both; reported is the
//! median of the ratios. Results go to `bench/codec.json` in the target directory.
//! `THC_BENCH_ISA=avx2` (or `scalar`) measures another instruction set than the best.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use serde_json::Value;
use thc_bench::is_measuring;
use thc_codec::block::Block;
use thc_codec::buffer::Buffer;
use thc_codec::isa::Isa;
use thc_codec::partition::DEFAULT_BLOCK;
use thc_codec::quantizer::{Quantizer, dequantize8};
use thc_codec::rounding::Rounding;
use thc_codec::signs::{SignKey, mix};
use thc_codec::table::LookupTable;
use thc_codec::{aggregate, norm, rht};

mod figure;
mod roofline;
mod stages;
mod tables;

use figure::{Figure, compare, one};
use roofline::copy_of;

/// Coordinates in a full partition.
const LEN: usize = 1 << 20;
/// Coordinates in a block as jobs have it by default; it fits the first cache.
const BLOCK: usize = 1 << DEFAULT_BLOCK;
/// Indices in a packet.
const PACKET: usize = 1024;
const KEY: SignKey = SignKey { job_seed: 1, call: 2, partition: 0 };

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

/// The memory of one worker.
struct WorkerMemory {
    gradient: Buffer,
    feedback: Buffer,
    /// Memory for the new feedback.
    left: Buffer,
    packed: Vec<u8>,
    quantizer: Quantizer,
    table: LookupTable,
}

impl WorkerMemory {
    fn new() -> Self {
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        Self {
            gradient: gradient(1),
            feedback: Buffer::zeroed(LEN),
            left: Buffer::zeroed(LEN),
            packed: vec![0; LEN / 2],
            quantizer: Quantizer::new(&table),
            table,
        }
    }

    /// Gradient and, if it is to `feed` that, feedback to packed indices and new feedback, in blocks of as many coordinates as
    /// `work` has, as a task of `thc-worker` does.
    fn compress(&mut self, work: &mut [f32], feed: bool) {
        let d = work.len();
        let range = self.table.t_p() as f32 * rht::scale(d) * norm::l2(&self.gradient[..d]);
        let WorkerMemory { gradient, feedback, left, packed, quantizer, .. } = self;
        let at = |i: usize| i * d..(i + 1) * d;
        for (i, (left, out)) in left.chunks_exact_mut(d).zip(packed.chunks_exact_mut(d / 2)).enumerate() {
            let (x, kept) = (&gradient[at(i)], &feedback[at(i)]);
            black_box(if feed { norm::l2_sum(x, kept) } else { norm::l2(x) });
            let next = [gradient.get(at(i + 1)), feedback.get(at(i + 1)).filter(|_| feed)];
            let block = Block { next: next.map(Option::unwrap_or_default), ..block(quantizer, i, range) };
            block.compress(x, feed.then_some((kept, left)), work, out).unwrap();
        }
        if feed {
            std::mem::swap(&mut self.feedback, &mut self.left);
        }
    }
}

/// Squared distance of `x` and `y` relative to that of `x` and 0.
fn nmse(x: &[f32], y: &[f32]) -> f64 {
    let square = |v: f32| f64::from(v) * f64::from(v);
    x.iter().zip(y).map(|(a, b)| square(a - b)).sum::<f64>() / x.iter().map(|a| square(*a)).sum::<f64>()
}

fn key(block: usize) -> SignKey {
    SignKey { partition: block as u32, ..KEY }
}

fn block(quantizer: &Quantizer, number: usize, range: f32) -> Block<'_> {
    Block {
        quantizer,
        key: key(number),
        rounding: Rounding::new(3, 2, number as u32),
        range,
        next: [&[]; 2],
        far: false,
    }
}

/// Forward and inverse of all blocks of `d` of a partition.
fn transform(figures: &mut Vec<Figure>, d: usize, aim: f64) {
    let x = gradient(2);
    let mut y = x.clone();
    let forward = |y: &mut [f32]| {
        y.chunks_exact_mut(d).enumerate().for_each(|(i, y)| rht::forward(black_box(y), key(i)).unwrap());
    };
    let inverse = |y: &mut [f32]| {
        y.chunks_exact_mut(d).enumerate().for_each(|(i, y)| rht::inverse(black_box(y), key(i)).unwrap());
    };
    forward(&mut y);
    inverse(&mut y);
    assert!(nmse(&x, &y) < 1e-12);
    let log = d.ilog2();
    let over = format!("2^20 in blocks of 2^{log}, over memcpy of 4 MiB");
    figures.push(compare(format!("rht forward, {over}"), (aim, 5.5), true, one(copy_of(LEN)), || {
        forward(&mut y);
    }));
    figures.push(compare(format!("rht inverse, {over}"), (aim, 5.5), true, one(copy_of(LEN)), || {
        inverse(&mut y);
    }));
    let work = roofline::Work { len: LEN, bytes: 8.0, operations: roofline::transform(d) };
    let over = format!("2^20 in blocks of 2^{log}, over its roofline");
    figures
        .push(compare(format!("rht forward, {over}"), (1.5, 4.0), true, work.bounds(), || forward(&mut y)));
    figures
        .push(compare(format!("rht inverse, {over}"), (1.5, 4.0), true, work.bounds(), || inverse(&mut y)));
    // One block alone, in the first cache.
    let some = roofline::Work { len: d, bytes: 8.0, operations: roofline::transform(d) };
    if d < LEN {
        let name = format!("rht forward, one block of 2^{log}, over its roofline");
        figures.push(compare(name, (1.5, 4.0), true, some.bounds(), || {
            rht::forward(black_box(&mut y[..d]), KEY).unwrap();
        }));
    }
}

/// All blocks of `d` of a partition as a worker handles them: the sums' norms, compressing with error feedback into the
/// feedback itself, decompressing.
fn blocks(figures: &mut Vec<Figure>, d: usize) {
    let log = d.ilog2();
    let mut worker = WorkerMemory::new();
    let rounding = Rounding::new(3, 2, 0);
    let mut work = Buffer::zeroed(d);
    let range = worker.table.t_p() as f32 * rht::scale(d) * norm::l2(&worker.gradient[..d]);
    let decompress = |worker: &WorkerMemory, sums: &[u8], work: &mut [f32], out: &mut [f32]| {
        for (i, (sums, out)) in sums.chunks_exact(d).zip(out.chunks_exact_mut(d)).enumerate() {
            block(&worker.quantizer, i, range).decompress8(black_box(sums), 1, work, out).unwrap();
        }
    };
    worker.compress(&mut work, true);
    let mut sums = vec![0; LEN];
    aggregate::lookup_set4(&mut sums, &worker.table.values16(), &worker.packed).unwrap();
    let mut out = Buffer::zeroed(LEN);
    decompress(&worker, &sums, &mut work, &mut out);
    // The mean and the feedback add up to the gradient.
    let sum: Vec<f32> = out.iter().zip(worker.feedback.iter()).map(|(a, b)| a + b).collect();
    assert!(nmse(&worker.gradient, &sum) < 1e-10);

    let over = format!("2^20 in blocks of 2^{log}, over memcpy of 4 MiB");
    let name = format!("compress with feedback, {over}");
    figures.push(compare(name, (7.0, 16.0), true, one(copy_of(LEN)), || worker.compress(&mut work, true)));
    let name = format!("compress without feedback, {over}");
    figures.push(compare(name, (5.0, 12.0), true, one(copy_of(LEN)), || {
        worker.compress(&mut work, false);
    }));
    let name = format!("decompress, {over}");
    figures.push(compare(name, (3.0, 7.0), true, one(copy_of(LEN)), || {
        decompress(&worker, &sums, &mut work, &mut out);
    }));

    // Gradient and feedback once for the norm, once more; feedback, indices written.
    let over = format!("2^20 in blocks of 2^{log}, over its roofline");
    let operations = roofline::NORM + 2.0 * roofline::transform(d) + 1.0 + roofline::QUANTIZE;
    let whole = roofline::Work { len: LEN, bytes: 12.5, operations };
    let name = format!("compress with feedback, {over}");
    figures.push(compare(name, (2.0, 5.0), true, whole.bounds(), || worker.compress(&mut work, true)));
    let operations = roofline::transform(d) + roofline::DEQUANTIZE;
    let whole = roofline::Work { len: LEN, bytes: 5.0, operations };
    let name = format!("decompress, {over}");
    figures.push(compare(name, (2.0, 5.0), true, whole.bounds(), || {
        decompress(&worker, &sums, &mut work, &mut out);
    }));

    if d == BLOCK {
        // Quantizing leaves another residual each time, so it begins from the same coordinates.
        let mut rotated = worker.gradient.clone();
        rht::forward(&mut rotated, KEY).unwrap();
        let range = worker.table.t_p() as f32 * rht::scale(LEN) * norm::l2(&worker.gradient);
        let WorkerMemory { quantizer, packed, gradient, feedback, .. } = &mut worker;
        let mut part = |name: &str, bytes, operations, work: &mut dyn FnMut()| {
            let bounds = roofline::Work { len: LEN, bytes, operations }.bounds();
            figures.push(compare(format!("{name}, over its roofline"), (1.5, 4.0), true, bounds, work));
        };
        part("quantize and pack 2^20 in packets", 8.5, roofline::QUANTIZE, &mut || {
            let parts = rotated.chunks_exact_mut(PACKET).zip(packed.chunks_exact_mut(PACKET / 2));
            for (i, (x, out)) in parts.enumerate() {
                quantizer.quantize_packed4(x, range, &rounding, (i * PACKET) as u64, out).unwrap();
            }
        });
        part("dequantize 2^20", 5.0, roofline::DEQUANTIZE, &mut || {
            dequantize8(black_box(&sums), 1, 30, range, &mut out).unwrap();
        });
        part("norm of gradient + feedback, 2^20", 8.0, roofline::NORM, &mut || {
            black_box(norm::l2_sum(black_box(gradient), feedback));
        });
    }
}

/// All of a worker's computing on a tensor larger than the caches, in blocks of `d`: norms of all blocks, compressing,
/// decompressing.
fn cold(figures: &mut Vec<Figure>, d: usize) {
    const PARTS: usize = 16;
    let len = PARTS * LEN;
    let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
    let quantizer = Quantizer::new(&table);
    let mut tensor = Buffer::zeroed(len);
    tensor.chunks_exact_mut(LEN).for_each(|part| part.copy_from_slice(&gradient(5)));
    let (mut kept, mut left, mut other) = (Buffer::zeroed(len), Buffer::zeroed(len), Buffer::zeroed(len));
    let (mut packed, mut work) = (vec![0; len / 2], Buffer::zeroed(d));
    let sums: Vec<u8> = (0..len as u64).map(|i| (mix(i) % 31) as u8).collect();
    let range = table.t_p() as f32 * rht::scale(d) * norm::l2(&tensor[..d]);
    let block = |i| Block { far: true, ..block(&quantizer, i, range) };
    let at = |i: usize| i * d..(i + 1) * d;
    let mut run = |feed: bool| {
        if feed {
            for (x, e) in tensor.chunks_exact(d).zip(kept.chunks_exact(d)) {
                black_box(norm::l2_sum(x, e));
            }
        } else {
            tensor.chunks_exact(d).for_each(|x| {
                black_box(norm::l2(x));
            });
        }
        for (i, out) in packed.chunks_exact_mut(d / 2).enumerate() {
            let fed = feed.then(|| (&kept[at(i)], &mut left[at(i)]));
            let next = [&tensor, &kept].map(|x| x.get(at(i + 1)).unwrap_or_default());
            let block = Block { next: if feed { next } else { [next[0], &[]] }, ..block(i) };
            block.compress(&tensor[at(i)], fed, &mut work, out).unwrap();
        }
        if feed {
            std::mem::swap(&mut kept, &mut left);
        }
        // Into another tensor, so that all repetitions compress the same.
        for (i, sums) in sums.chunks_exact(d).enumerate() {
            let (out, next) = other[i * d..].split_at_mut(d);
            let block = Block { next: [&next[..d.min(next.len())], &[]], ..block(i) };
            block.decompress8(sums, 1, &mut work, out).unwrap();
        }
    };
    // Written, since pages that never were are all the same page.
    let (from, mut to) = (tensor.clone(), Buffer::zeroed(len));
    let mut copy = || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    };
    let over = format!("64 MiB in blocks of 2^{}, memory-cold, over memcpy of 64 MiB", d.ilog2());
    let name = format!("norms, compress, decompress, {over}");
    figures.push(compare(name, (4.0, 12.0), false, one(&mut copy), || run(false)));
    let name = format!("the same with feedback, {over}");
    figures.push(compare(name, (6.0, 16.0), false, one(&mut copy), || run(true)));
}

/// Eight partitions on two threads against the same eight on one.
fn threads(figures: &mut Vec<Figure>) {
    const EACH: usize = 4;
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("not run: two threads need two cores");
        return;
    }
    let mut halves = [WorkerMemory::new(), WorkerMemory::new()];
    let mut alone = [WorkerMemory::new(), WorkerMemory::new()];
    let some = |worker: &mut WorkerMemory| {
        let mut work = Buffer::zeroed(BLOCK);
        for _ in 0..EACH {
            worker.compress(&mut work, true);
        }
    };
    let serial = |workers: &mut [WorkerMemory; 2]| workers.iter_mut().for_each(some);
    let parallel = |workers: &mut [WorkerMemory; 2]| {
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
    figures.push(compare(
        "compress with feedback in blocks of 2^13, two threads over one",
        (0.53, 0.7),
        true,
        one(serial),
        parallel,
    ));
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
    figures.push(compare(
        "aggregate 2^20 indices in packets, over memcpy of 1 MiB",
        (1.2, 2.0),
        true,
        one(copy_of(LEN / 4)),
        || {
            for (lanes, packed) in
                lanes.chunks_exact_mut(PACKET).zip(black_box(&packed).chunks_exact(PACKET / 2))
            {
                aggregate::lookup_add4(lanes, &values, packed).unwrap();
            }
        },
    ));
    let mut wide = vec![0; 2 * LEN];
    figures.push(compare(
        "aggregate 2^20 indices into 16-bit lanes, over memcpy of 2 MiB",
        (1.2, 2.0),
        true,
        one(copy_of(LEN / 2)),
        || {
            for (lanes, packed) in
                wide.chunks_exact_mut(PACKET).zip(black_box(&packed).chunks_exact(PACKET / 4))
            {
                aggregate::lookup_add4_wide(lanes, &values, packed).unwrap();
            }
        },
    ));
}

fn main() {
    // `cargo test --benches` runs this without `--bench`: then there is nothing to measure.
    if !is_measuring() {
        return;
    }
    if let Ok(name) = std::env::var("THC_BENCH_ISA") {
        Isa::available()
            .find(|i| i.name() == name)
            .unwrap_or_else(|| panic!("THC_BENCH_ISA: this machine has no {name}"))
            .select();
    }
    stages::print();
    let mut figures = Vec::new();
    transform(&mut figures, BLOCK, 2.2);
    transform(&mut figures, LEN, 3.2);
    blocks(&mut figures, BLOCK);
    blocks(&mut figures, LEN);
    cold(&mut figures, BLOCK);
    cold(&mut figures, LEN);
    threads(&mut figures);
    aggregation(&mut figures);
    tables::solver(&mut figures);

    println!("{:80} {:>7} {:>6} {:>6}  detail", "name", "ratio", "aim", "floor");
    for f in &figures {
        println!("{:80} {:7.2} {:6.1} {:6.1}  {}", f.name, f.ratio, f.aim, f.floor, f.detail);
    }
    let json: Vec<Value> = figures.iter().map(Figure::json).collect();
    thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "codec", &json).unwrap();
}
