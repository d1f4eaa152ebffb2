//! Every kernel of every instruction set against the scalar definition: all tail lengths, all
//! alignments, bit for bit.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{aggregate, block, norm, pack, quantize, rht};
use crate::arguments::{Compressing, Estimating};
use crate::grid::Bounds;
use crate::isa::Isa;
use crate::quantizer::Quantizer;
use crate::rounding::Rounding;
use crate::scalar;
use crate::signs::{SignKey, Signs, mix};
use crate::table::LookupTable;

/// Floats from a seed: mostly moderate, some huge, tiny, zero or of either sign.
fn floats(len: usize, seed: u64) -> Vec<f32> {
    (0..len as u64)
        .map(|i| {
            let w = mix(seed.wrapping_add(mix(i)));
            let v = (w >> 40) as f32 / (1 << 23) as f32 - 1.0;
            match w & 63 {
                0 => v * 1e18,
                1 => v * 1e-30,
                2 => 0.0,
                3 => -0.0,
                _ => v,
            }
        })
        .collect()
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| mix(seed ^ mix(i)) as u8).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

fn signs(seed: u64) -> Signs {
    SignKey { job_seed: seed, call: 1, partition: 0 }.signs()
}

/// A copy of `x` in memory that begins `offset` elements after a 64-byte boundary.
struct Misaligned<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Misaligned<T> {
    fn new(x: &[T], offset: usize) -> Self {
        let mut memory = vec![T::default(); x.len() + 128];
        let start = memory.as_ptr().align_offset(64) + offset;
        memory[start..start + x.len()].copy_from_slice(x);
        Self { memory, start, len: x.len() }
    }

    fn get(&mut self) -> &mut [T] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

fn check_rht(isa: Isa, log: u32, seed: u64, offset: usize) {
    let d = 1 << log;
    let (x, e) = (floats(d, seed), floats(d, !seed));
    let (scale, signs) = (crate::rht::scale(d), signs(seed));

    let mut want = x.clone();
    scalar::rht::forward(&mut want, scale, signs);
    let mut got = Misaligned::new(&x, offset);
    rht::forward(isa, got.get(), scale, signs);
    assert_eq!(bits(&want), bits(got.get()), "forward of 2^{log}");

    let mut want = x.clone();
    scalar::rht::inverse(&mut want, scale, signs);
    let mut got = Misaligned::new(&x, offset);
    rht::inverse(isa, got.get(), scale, signs);
    assert_eq!(bits(&want), bits(got.get()), "inverse of 2^{log}");

    for len in [d, d - d / 3] {
        let mut out = Misaligned::new(&vec![7.0; len], offset);
        rht::inverse_into(isa, &mut x.clone(), out.get(), scale, signs);
        assert_eq!(bits(&want[..len]), bits(out.get()), "inverse_into {len} of 2^{log}");

        let (mut x, mut e) = (Misaligned::new(&x[..len], offset), Misaligned::new(&e[..len], 3));
        let (mut want, mut got) = (vec![7.0; d], Misaligned::new(&vec![7.0; d], 5));
        scalar::rht::forward_into(x.get(), &mut want, scale, signs);
        rht::forward_into(isa, x.get(), got.get(), scale, signs);
        assert_eq!(bits(&want), bits(got.get()), "forward_into {len} of 2^{log}");

        let mut want = vec![7.0; d];
        scalar::rht::forward_sum(x.get(), e.get(), &mut want, scale, signs);
        let mut got = vec![7.0; d];
        rht::forward_sum(isa, x.get(), e.get(), &mut got, scale, signs);
        assert_eq!(bits(&want), bits(&got), "forward_sum {len} of 2^{log}");
    }
}

fn check_block(isa: Isa, log: u32, granularity: u16, seed: u64, offset: usize) {
    let d = 1 << log;
    let (x, e) = (floats(d, seed), floats(d, !seed));
    let table = LookupTable::solve(4, granularity, 1.0 / 32.0).unwrap();
    let quantizer = Quantizer::new(&table);
    let how = Compressing {
        grid: quantizer.grid(),
        span: Bounds::new(-1.5, 1.5, granularity as u8).unwrap(),
        rounding: Rounding::new(seed, 3, 1),
        scale: crate::rht::scale(d),
        signs: signs(seed),
        far: seed & 1 == 1,
    };
    // Memory to be prefetched may be of any length.
    let next = [&e[..d / 2 + 1], &x[..]];
    let (mut gradient, mut kept) = (Misaligned::new(&x, offset), Misaligned::new(&e, offset + 2));
    for feedback in [false, true] {
        let (mut want, mut left) = (vec![0; d / 2], vec![0.0; d]);
        let fed = feedback.then_some((&e[..], &mut left[..]));
        scalar::block::compress(&how, &x, fed, next, &mut vec![0.0; d], &mut want);

        let (mut got, mut out) = (vec![0; d / 2], Misaligned::new(&vec![7.0; d], offset));
        let fed = feedback.then(|| (&*kept.get(), out.get()));
        block::compress(isa, &how, gradient.get(), fed, next, &mut vec![7.0; d], &mut got);
        assert_eq!(want, got, "2^{log}");
        if feedback {
            assert_eq!(bits(&left), bits(out.get()), "feedback of 2^{log}");
        }
    }
    let sums = bytes(2 * d, seed);
    for wide in [false, true] {
        let sums = if wide { &sums } else { &sums[..d] };
        let whole = (d, 0);
        let how = Estimating {
            sums,
            packet: whole,
            wide,
            step: 0.1,
            lo: -1.5,
            scale: how.scale,
            signs: how.signs,
            far: how.far,
        };
        let (mut want, mut got) = (vec![0.0; d], Misaligned::new(&vec![7.0; d], offset));
        scalar::block::decompress(&how, &[], &mut [], &mut want);
        block::decompress(isa, &how, &x[..d - 1], &mut vec![7.0; d + 1], got.get());
        assert_eq!(bits(&want), bits(got.get()), "mean of 2^{log}");
        // The same from packets, with something else between.
        for packet in [512, 1024, 2048].into_iter().filter(|&packet| packet <= d) {
            let len = packet << u32::from(wide);
            let apart: Vec<u8> = sums.chunks(len).flat_map(|sums| [sums, &[0xEE; 20]].concat()).collect();
            let how = Estimating { sums: &apart, packet: (packet, len + 20), ..how };
            let mut scalar = vec![0.0; d];
            scalar::block::decompress(&how, &[], &mut [], &mut scalar);
            block::decompress(isa, &how, &[], &mut [], got.get());
            assert_eq!(
                (bits(&want), bits(&want)),
                (bits(&scalar), bits(got.get())),
                "packets of {packet}, 2^{log}"
            );
        }
    }
}

fn check_norm(isa: Isa, x: &[f32], e: &[f32], offset: usize) {
    // NaN results may differ in payload.
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let (mut mx, mut me) = (Misaligned::new(x, offset), Misaligned::new(e, offset + 1));
    assert!(same(scalar::norm::squares(x), norm::squares(isa, mx.get())));
    assert!(same(scalar::norm::squares_sum(x, e), norm::squares_sum(isa, mx.get(), me.get())));
    assert_eq!(scalar::norm::max_abs_bits(x), norm::max_abs_bits(isa, mx.get()));
}

fn check_quantize(isa: Isa, table: &LookupTable, x: &[f32], lo: f32, hi: f32, first: u64, offset: usize) {
    let quantizer = Quantizer::new(table);
    let grid = quantizer.grid();
    let span = Bounds::new(lo, hi, table.granularity() as u8).unwrap();
    let rounding = Rounding::new(first ^ 99, 5, 1).in_stratum(Rounding::stratum(first as u8 ^ offset as u8));

    let mut want = x.to_vec();
    let mut want_out = vec![0xEE; x.len()];
    scalar::quantize::indices::<false>(grid, &span, &mut want, rounding, first, &mut want_out);
    let mut got = Misaligned::new(x, offset);
    let mut got_out = Misaligned::new(&vec![0xDD; x.len()], offset);
    quantize::indices(isa, grid, &span, got.get(), rounding, first, got_out.get());
    assert_eq!(want_out, got_out.get());
    let same = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
    };
    assert!(same(&want, got.get()));

    if table.bits() <= 4 {
        let x = &x[..x.len() & !1];
        let mut want = x.to_vec();
        let mut want_out = vec![0xEE; x.len() / 2];
        scalar::quantize::indices::<true>(grid, &span, &mut want, rounding, first, &mut want_out);
        let mut got = Misaligned::new(x, offset);
        let mut got_out = Misaligned::new(&vec![0xDD; x.len() / 2], offset);
        quantize::packed4(isa, grid, &span, got.get(), rounding, first, got_out.get());
        assert_eq!(want_out, got_out.get());
        assert!(same(&want, got.get()));
    }
}

fn check_dequantize(isa: Isa, len: usize, seed: u64, offset: usize) {
    let sums = bytes(2 * len, seed);
    let (step, lo) = (1.0 / (1.0 + (seed & 0xFF) as f32), -((seed >> 8 & 0xFF) as f32));
    let mut input = Misaligned::new(&sums, offset);
    let mut want = vec![7.0; len];
    let mut got = Misaligned::new(&want, offset);
    scalar::quantize::dequantize8(&sums[..len], step, lo, &mut want);
    quantize::dequantize8(isa, &input.get()[..len], step, lo, got.get());
    assert_eq!(bits(&want), bits(got.get()));
    scalar::quantize::dequantize16(&sums, step, lo, &mut want);
    quantize::dequantize16(isa, input.get(), step, lo, got.get());
    assert_eq!(bits(&want), bits(got.get()));
}

fn check_aggregate(isa: Isa, len: usize, seed: u64, offset: usize) {
    type Lookup = fn(&mut [u8], &[u8; 16], &[u8]);
    type Dispatched = fn(Isa, &mut [u8], &[u8; 16], &[u8]);
    let mut packed = Misaligned::new(&bytes(len, seed), offset);
    let packed = packed.get();
    let table: [u8; 16] = bytes(16, !seed).try_into().unwrap();
    let lookups: [(usize, Lookup, Dispatched); 6] = [
        (1, scalar::aggregate::lookup4_half::<false>, aggregate::lookup_set4_half),
        (1, scalar::aggregate::lookup4_half::<true>, aggregate::lookup_add4_half),
        (2, scalar::aggregate::lookup4::<false>, aggregate::lookup_set4),
        (2, scalar::aggregate::lookup4::<true>, aggregate::lookup_add4),
        (4, scalar::aggregate::lookup4_wide::<false>, aggregate::lookup_set4_wide),
        (4, scalar::aggregate::lookup4_wide::<true>, aggregate::lookup_add4_wide),
    ];
    for (i, (lanes, plain, dispatched)) in lookups.into_iter().enumerate() {
        let mut want = bytes(lanes * len, seed ^ 5);
        let mut got = Misaligned::new(&want, offset + 1);
        plain(&mut want, &table, packed);
        dispatched(isa, got.get(), &table, packed);
        assert_eq!(want, got.get(), "lookup {i}");
    }
    let (mut want, mut got) =
        (bytes(2 * len, seed ^ 7), Misaligned::new(&bytes(2 * len, seed ^ 7), offset + 1));
    scalar::aggregate::values_wide::<true>(&mut want, packed);
    aggregate::add8_wide(isa, got.get(), packed);
    assert_eq!(want, got.get(), "add8_wide");
    scalar::aggregate::values_wide::<false>(&mut want, packed);
    aggregate::set8_wide(isa, got.get(), packed);
    assert_eq!(want, got.get(), "set8_wide");
    let packed = &packed[..len & !3];
    let mut want = bytes(packed.len(), seed ^ 6);
    let mut got = Misaligned::new(&want, offset + 1);
    scalar::aggregate::raw_add(&mut want, packed);
    aggregate::raw_add(isa, got.get(), packed);
    assert_eq!(want, got.get(), "raw_add");
}

fn check_pack(isa: Isa, groups: usize, seed: u64, offset: usize) {
    type Pack = fn(&[u8], &mut [u8]);
    type Dispatched = fn(Isa, &[u8], &mut [u8]);
    let kernels: [(usize, usize, Pack, Dispatched); 7] = [
        (8, 2, scalar::pack::narrow::<1, 2>, pack::narrow1),
        (8, 4, scalar::pack::narrow::<2, 4>, pack::narrow2),
        (8, 6, scalar::pack::narrow::<3, 6>, pack::narrow3),
        (2, 8, scalar::pack::widen::<1, 2>, pack::widen1),
        (4, 8, scalar::pack::widen::<2, 4>, pack::widen2),
        (6, 8, scalar::pack::widen::<3, 6>, pack::widen3),
        (1, 2, scalar::pack::spread4, pack::spread4),
    ];
    for (i, (from, to, plain, dispatched)) in kernels.into_iter().enumerate() {
        let mut input = Misaligned::new(&bytes(from * groups, seed), offset);
        let (mut want, mut got) = (vec![1; to * groups], Misaligned::new(&vec![2; to * groups], offset + 1));
        plain(input.get(), &mut want);
        dispatched(isa, input.get(), got.get());
        assert_eq!(want, got.get(), "pack {i}");
    }
}

/// Tables at the edges of what vector kernels distinguish: few values, one word of cells, all.
fn tables() -> Vec<LookupTable> {
    let solve = |b, g| LookupTable::solve(b, g, 1.0 / 32.0).unwrap();
    vec![
        solve(1, 1),
        solve(2, 9),
        solve(3, 127),
        solve(4, 15),
        solve(4, 30),
        solve(4, 31),
        solve(4, 32),
        solve(4, 51),
        solve(4, 63),
        solve(4, 64),
        solve(4, 128),
        solve(4, 255),
        solve(5, 40),
        solve(8, 255),
        LookupTable::complete(15, 1.0 / 32.0).unwrap(),
        LookupTable::complete(31, 1.0 / 32.0).unwrap(),
        LookupTable::complete(50, 1.0 / 32.0).unwrap(),
        LookupTable::complete(255, 1.0 / 32.0).unwrap(),
    ]
}

/// The suite for one instruction set. `isa()` is `None` where the processor lacks it.
macro_rules! suite {
    ($isa:ident) => {
        mod $isa {
            use super::*;

            fn isa() -> Option<Isa> {
                let name = stringify!($isa);
                let found = Isa::available().find(|i| i.name() == name);
                if found.is_none() {
                    println!("not run: no {name}");
                }
                found
            }

            #[test]
            fn rht_of_every_length_and_alignment() {
                let Some(isa) = isa() else { return };
                for log in 0..=16 {
                    for offset in 0..if log < 13 { 16 } else { 2 } {
                        check_rht(isa, log, u64::from(log) + 100, offset);
                    }
                }
                check_rht(isa, 20, 20, 0);
                check_rht(isa, 22, 22, 1);
            }

            #[test]
            fn blocks_of_every_size() {
                let Some(isa) = isa() else { return };
                for log in 10..=17 {
                    for (seed, offset) in [0, 0, 1, 13].into_iter().enumerate() {
                        for granularity in [30, 31, 51, 100] {
                            check_block(isa, log, granularity, seed as u64, offset);
                        }
                    }
                }
                check_block(isa, 20, 30, 3, 0);
            }

            #[test]
            fn norm_of_every_tail_and_alignment() {
                let Some(isa) = isa() else { return };
                for len in 0..140 {
                    for offset in 0..16 {
                        let seed = len as u64;
                        check_norm(isa, &floats(len, seed), &floats(len, !seed), offset);
                    }
                }
            }

            #[test]
            fn norm_of_non_finite_values() {
                let Some(isa) = isa() else { return };
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                    for at in [0, 17, 31, 64, 99] {
                        let mut x = floats(100, 1);
                        x[at] = bad;
                        check_norm(isa, &x, &floats(100, 2), 0);
                    }
                }
            }

            #[test]
            fn quantize_every_tail_alignment_and_table() {
                let Some(isa) = isa() else { return };
                for table in tables() {
                    // Tails after whole steps, and beginnings at every place of a group.
                    for len in 0..140 {
                        check_quantize(isa, &table, &floats(len, 3), -0.8, 0.8, 64, len % 16);
                        check_quantize(isa, &table, &floats(len, 3), -0.8, 0.8, len as u64 * 7, len % 16);
                    }
                    for first in 0..34 {
                        check_quantize(isa, &table, &floats(150, 3), -0.8, 0.8, first, 0);
                    }
                    for offset in 0..16 {
                        check_quantize(isa, &table, &floats(333, 4), -0.9, 1.1, 1 << 33, offset);
                    }
                    // Grid points themselves, and a range with and without width.
                    let grid: Vec<f32> = (0..=100).map(|i| i as f32 / 50.0 - 1.0).collect();
                    check_quantize(isa, &table, &grid, -1.0, 1.0, u64::MAX - 50, 0);
                    check_quantize(isa, &table, &grid, -1e-44, 1e-44, 0, 0);
                    check_quantize(isa, &table, &grid, 0.5, 0.5, 0, 0);
                    check_quantize(isa, &table, &grid, -2e37, 2e37, 0, 0);
                }
            }

            #[test]
            fn dequantize_every_tail_and_alignment() {
                let Some(isa) = isa() else { return };
                for len in 0..70 {
                    for offset in 0..16 {
                        check_dequantize(isa, len, len as u64 * 77, offset);
                    }
                }
            }

            #[test]
            fn aggregate_every_tail_and_alignment() {
                let Some(isa) = isa() else { return };
                for len in 0..150 {
                    for offset in [0, 1, 7, 31, 63] {
                        check_aggregate(isa, len, len as u64 * 31, offset);
                    }
                }
            }

            #[test]
            fn pack_every_tail_and_alignment() {
                let Some(isa) = isa() else { return };
                for groups in 0..40 {
                    for offset in [0, 1, 7, 31, 63] {
                        check_pack(isa, groups, groups as u64 * 31, offset);
                    }
                }
            }

            proptest! {
                #[test]
                fn any_bits(
                    raw in prop::collection::vec(any::<u32>(), 0..100),
                    table in prop::sample::select(tables()),
                    lo in -1e30f32..1.0,
                    width in 0.0f32..1e30,
                    first: u64,
                    offset in 0usize..16,
                ) {
                    if let Some(isa) = isa() {
                        let x: Vec<f32> = raw.iter().copied().map(f32::from_bits).collect();
                        check_quantize(isa, &table, &x, lo, lo + width, first, offset);
                        check_norm(isa, &x, &x, offset);
                        check_aggregate(isa, raw.len(), first, offset);
                        check_dequantize(isa, raw.len(), first, offset);
                    }
                }

                #[test]
                fn rht_of_any_seed(log in 0u32..14, seed: u64, offset in 0usize..16) {
                    if let Some(isa) = isa() {
                        check_rht(isa, log, seed, offset);
                    }
                }
            }
        }
    };
}

suite!(avx2);
suite!(avx512);
suite!(avx512vbmi);
suite!(neon);
