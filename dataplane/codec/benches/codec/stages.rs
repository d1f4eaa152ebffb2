//! What a coordinate costs in each stage: cycles and nanoseconds, beside a copy and beside the stage's floor.
//!
//! A stage runs many times over one block, which stays in the cache, or over 64 MiB from memory. Reported is the processor
//! time that a tenth of the repetitions stay below, since other programs only ever add. The floor of a stage is the time
//! of copying as many bytes as it must load and store. The clock is measured by instructions that wait for one another.

use std::hint::black_box;

use thc_bench::thread_time;
use thc_codec::buffer::Buffer;
use thc_codec::quantizer::{Quantizer, dequantize8};
use thc_codec::rounding::Rounding;
use thc_codec::table::LookupTable;
use thc_codec::{norm, rht};

use crate::{BLOCK, block, gradient, key};

/// Times over a block that are measured as one.
const TURNS: usize = 32;
/// Coordinates of the tensor that comes from memory.
const TENSOR: usize = 1 << 24;

/// The time that a tenth of `repetitions` stay below.
fn low(repetitions: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut time = || {
        let before = thread_time();
        work();
        (thread_time() - before).as_secs_f64()
    };
    let mut times: Vec<f64> = (0..repetitions).map(|_| time()).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 10]
}

/// Cycles of a nanosecond: a shift and an exclusive or take one cycle each on every processor with these kernels.
fn clock() -> f64 {
    const ROUNDS: u32 = 20_000;
    let time = low(100, || {
        let mut x = black_box(1_u64 << 40 | 1);
        for _ in 0..ROUNDS {
            x ^= x >> 7;
            x ^= x << 9;
        }
        black_box(x);
    });
    4.0 * f64::from(ROUNDS) / time / 1e9
}

/// The memory of a worker, and what has the answers.
struct Memory {
    x: Buffer,
    kept: Buffer,
    left: Buffer,
    mean: Buffer,
    work: Buffer,
    packed: Vec<u8>,
    sums: Vec<u8>,
    quantizer: Quantizer,
    range: f32,
}

impl Memory {
    /// For `len` coordinates, whose first block has been compressed.
    fn new(len: usize) -> Self {
        let part = gradient(5);
        let zeros = || {
            let mut zeros = Buffer::zeroed(len);
            // Pages that were never written are all the same page.
            zeros.fill(0.0);
            zeros
        };
        let mut x = zeros();
        x.chunks_mut(part.len()).for_each(|x| x.copy_from_slice(&part[..x.len()]));
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        let range = table.t_p() as f32 * rht::scale(BLOCK) * norm::l2(&x[..BLOCK]);
        let sums = (0..len as u64).map(|i| (thc_codec::signs::mix(i) % 31) as u8).collect();
        let quantizer = Quantizer::new(&table);
        let (kept, left, mean, work) = (zeros(), zeros(), zeros(), Buffer::zeroed(BLOCK));
        Self { x, kept, left, mean, work, packed: vec![0; len / 2], sums, quantizer, range }
    }

    fn norms(&mut self, feed: bool) {
        for (x, kept) in self.x.chunks_exact(BLOCK).zip(self.kept.chunks_exact(BLOCK)) {
            black_box(if feed { norm::l2_sum(black_box(x), kept) } else { norm::l2(black_box(x)) });
        }
    }

    fn compress(&mut self, feed: bool) {
        let at = |i: usize| i * BLOCK..(i + 1) * BLOCK;
        for (i, out) in self.packed.chunks_exact_mut(BLOCK / 2).enumerate() {
            let fed = feed.then(|| (&self.kept[at(i)], &mut self.left[at(i)]));
            let next = [&self.x, &self.kept].map(|x| x.get(at(i + 1)).unwrap_or_default());
            let mut block = block(&self.quantizer, i, self.range);
            block.next = if feed { next } else { [next[0], &[]] };
            block.far = self.x.len() == TENSOR;
            block.compress(black_box(&self.x[at(i)]), fed, &mut self.work, out).unwrap();
        }
    }

    fn decompress(&mut self) {
        for (i, sums) in self.sums.chunks_exact(BLOCK).enumerate() {
            let (out, next) = self.mean[i * BLOCK..].split_at_mut(BLOCK);
            let mut block = block(&self.quantizer, i, self.range);
            block.next = [next.get(..BLOCK).unwrap_or_default(), &[]];
            block.far = self.sums.len() == TENSOR;
            block.decompress8(black_box(sums), 1, &mut self.work, out).unwrap();
        }
    }

    // Steps of the first block.

    fn forward(&mut self) {
        rht::forward_into(black_box(&self.x[..BLOCK]), &mut self.work, key(0)).unwrap();
    }

    fn quantize(&mut self) {
        let (rounding, out) = (Rounding::new(3, 2, 0), &mut self.packed[..BLOCK / 2]);
        self.quantizer.quantize_packed4(&mut self.work, self.range, &rounding, 0, out).unwrap();
    }

    fn inverse(&mut self) {
        rht::inverse_into(&mut self.work, &mut self.left[..BLOCK], key(0)).unwrap();
    }

    fn dequantize(&mut self) {
        dequantize8(black_box(&self.sums[..BLOCK]), 1, 30, self.range, &mut self.mean[..BLOCK]).unwrap();
    }

    fn inverse_in_place(&mut self) {
        rht::inverse(&mut self.mean[..BLOCK], key(0)).unwrap();
    }
}

/// The stages one after the other give what the whole does.
fn check() {
    let (mut whole, mut steps) = (Memory::new(BLOCK), Memory::new(BLOCK));
    whole.compress(true);
    whole.decompress();
    steps.forward();
    steps.quantize();
    steps.inverse();
    steps.dequantize();
    steps.inverse_in_place();
    assert!(whole.packed == steps.packed && whole.left == steps.left && whole.mean == steps.mean);
    let packed = whole.packed.clone();
    whole.packed.fill(0);
    whole.compress(false);
    assert!(whole.packed == packed);
}

/// One line: nanoseconds a coordinate, and those of its floor.
fn line(name: &str, nanoseconds: f64, clock: f64, copy: f64, bytes: f64) {
    println!(
        "{name:40} {:8.2} {nanoseconds:8.3} {:10.2} {:8.2}",
        nanoseconds * clock,
        nanoseconds / copy,
        copy * bytes / 8.0 * clock
    );
}

type Stage = (&'static str, f64, fn(&mut Memory));

/// The stages of a block in the cache, with the bytes that each loads and stores.
const STAGES: [Stage; 9] = [
    ("norm", 4.0, |m| m.norms(false)),
    ("norm of gradient + feedback", 8.0, |m| m.norms(true)),
    ("signs, transform", 8.0, Memory::forward),
    ("quantize, random numbers, pack", 8.5, Memory::quantize),
    ("inverse transform, signs, write", 8.0, Memory::inverse),
    ("dequantize", 5.0, Memory::dequantize),
    ("compress, all of it", 4.5, |m| m.compress(false)),
    ("compress with feedback", 12.5, |m| m.compress(true)),
    ("decompress, all of it", 5.0, Memory::decompress),
];

/// What a worker does to a tensor that no cache holds.
const WHOLE: [Stage; 7] = [
    ("norms", 4.0, |m| m.norms(false)),
    ("norms of gradient + feedback", 8.0, |m| m.norms(true)),
    ("compress", 4.5, |m| m.compress(false)),
    ("compress with feedback", 12.5, |m| m.compress(true)),
    ("decompress", 5.0, Memory::decompress),
    ("all", 13.5, |m| {
        m.norms(false);
        m.compress(false);
        m.decompress();
    }),
    ("all with feedback", 25.5, |m| {
        m.norms(true);
        m.compress(true);
        m.decompress();
    }),
];

/// A copy of `x`.
fn copy_of(x: &Buffer) -> impl FnMut() + use<> {
    let (from, mut to) = (x.clone(), x.clone());
    move || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    }
}

/// Prints both tables.
pub fn print() {
    check();
    let clock = clock();
    let header = |what: &str, copy: f64| {
        println!("{what:40} {:>8} {:>8} {:>10} {:>8}", "cycles", "ns", "x memcpy", "floor");
        line("memcpy", copy, clock, copy, 8.0);
    };
    let some = |len: usize, repetitions: usize, turns: usize, work: &mut dyn FnMut()| {
        low(repetitions, || (0..turns).for_each(|_| work())) / (turns * len) as f64 * 1e9
    };
    println!("a coordinate costs, at {clock:.2} GHz:");
    let mut memory = Memory::new(BLOCK);
    let copy = some(BLOCK, 300, TURNS, &mut copy_of(&memory.x));
    header("one block of 2^13, in the cache", copy);
    for (name, bytes, stage) in STAGES {
        // Feedback that is not fed back stays zero, and no residual grows.
        line(name, some(BLOCK, 300, TURNS, &mut || stage(&mut memory)), clock, copy, bytes);
        memory.forward();
    }
    let mut memory = Memory::new(TENSOR);
    let copy = some(TENSOR, 20, 1, &mut copy_of(&memory.x));
    header("64 MiB from memory, in blocks of 2^13", copy);
    for (name, bytes, stage) in WHOLE {
        line(name, some(TENSOR, 20, 1, &mut || stage(&mut memory)), clock, copy, bytes);
    }
    println!();
}
