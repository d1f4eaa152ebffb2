//! Every kernel of every instruction set against the scalar definition: all tail lengths, all
//! alignments, bit for bit.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use thc_codec::isa::Isa;
use thc_codec::rounding::Rounding;
use thc_codec::signs::mix;

use super::{codes, draw, spread, values};
use crate::lattice::Lattice;
use crate::scalar;

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

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
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

fn check_lattice(isa: Isa, on: &Lattice, x: &[f32], first: u64, offset: usize) {
    let rounding = Rounding::new(first ^ 77, 3, 2);
    let mut moved = Misaligned::new(x, offset);
    let mut want = vec![0xEEEE; x.len()];
    scalar::codes(on, x, rounding, first, &mut want);
    let mut got = Misaligned::new(&vec![0xDDDD; x.len()], offset + 1);
    codes(isa, on, moved.get(), rounding, first, got.get());
    assert_eq!(want, got.get(), "codes of {} bits", on.bits());

    let mut floats = vec![7.0; x.len()];
    scalar::values(on, &want, &mut floats);
    let mut out = Misaligned::new(&vec![8.0; x.len()], offset);
    values(isa, on, got.get(), out.get());
    assert_eq!(bits(&floats), bits(out.get()), "values of {} bits", on.bits());

    let (want, got) = (scalar::spread(on, x), spread(isa, on, moved.get()));
    assert_eq!(want.to_bits(), got.to_bits(), "spread of {} bits", on.bits());

    for scale in [0.0, 1e3, 16_777_216.0, f32::MAX] {
        let (mut want, mut got) = (vec![1], vec![1]);
        scalar::draw(x, scale, rounding, first as u32, &mut want);
        draw(isa, moved.get(), scale, rounding, first as u32, &mut got);
        assert_eq!(want, got);
    }
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
            fn lattice_of_every_width_tail_and_alignment() {
                let Some(isa) = isa() else { return };
                for bits in 2..=16 {
                    let on = Lattice::with_max(0.9, bits).unwrap();
                    for len in 0..70 {
                        check_lattice(isa, &on, &floats(len, 3), 5, len % 16);
                    }
                    for offset in 0..16 {
                        check_lattice(isa, &on, &floats(333, 4), u64::MAX - 100, offset);
                    }
                    // Multiples themselves, halves, and scales at the ends of what there is.
                    let grid: Vec<f32> = (-200..=200).map(|i| i as f32 / 2.0).collect();
                    for delta in [0.0, f32::MIN_POSITIVE, 0.5, 1.0, 2e37] {
                        check_lattice(isa, &Lattice::new(delta, bits).unwrap(), &grid, 1, 3);
                    }
                }
            }

            proptest! {
                #[test]
                fn any_bits(
                    raw in prop::collection::vec(any::<u32>(), 0..100),
                    delta in 0.0f32..1e30,
                    first: u64,
                    offset in 0usize..16,
                ) {
                    if let Some(isa) = isa() {
                        let x: Vec<f32> = raw.iter().copied().map(f32::from_bits).collect();
                        let on = Lattice::new(delta, 2 + (first % 15) as u8).unwrap();
                        check_lattice(isa, &on, &x, first, offset);
                    }
                }
            }
        }
    };
}

suite!(avx2);
suite!(avx512);
suite!(neon);
