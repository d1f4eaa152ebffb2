//! The loops over coordinates: plain Rust, which defines every result. [`crate::codec::lattice`] and [`crate::codec::sparsify`]
//! document the arithmetic.
//!
//! Each loop has a form without branches and conversions that saturate, from which compilers make vector instructions, and is compiled
//! twice: for the processors of the target, and on x86-64 for those with AVX2. Both are the same IEEE operations in the same order.

use thc_codec::isa::{InstructionSet, Isa};
use thc_codec::norm::{PARTIAL_SUMS, reduce};
use thc_codec::rounding::Rounding;

/// 2^24, the number of different uniforms that the top bits of a coordinate's random word give.
pub(crate) const UNIFORMS: f32 = 16_777_216.0;

/// 1.5 · 2^23: a float of at most 2^22 that is added to it is rounded to a multiple of 1, which then is in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

/// Coordinates of which it is decided together whether they are kept.
const GROUP: usize = 64;

macro_rules! kernels {
    ($($(#[$doc:meta])* fn $kernel:ident($($name:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {
        /// The definitions.
        mod plain {
            use super::*;
            $($(#[$doc])* #[inline(always)] pub(super) fn $kernel($($name: $type),*) $(-> $result)? $body)*
        }

        /// The definitions, compiled for AVX2.
        #[cfg(target_arch = "x86_64")]
        mod avx2 {
            use super::*;
            $(#[target_feature(enable = "avx2")]
            pub(super) fn $kernel($($name: $type),*) $(-> $result)? { plain::$kernel($($name),*) })*
        }

        $($(#[$doc])*
        pub(crate) fn $kernel(isa: Isa, $($name: $type),*) $(-> $result)? {
            match isa.level() {
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 | InstructionSet::Avx512 | InstructionSet::Avx512Vbmi => {
                    // SAFETY: `Isa` values come from detection alone, so the processor has AVX2, which those with AVX-512 have, too.
                    #[allow(unsafe_code)]
                    unsafe { avx2::$kernel($($name),*) }
                }
                _ => plain::$kernel($($name),*),
            }
        })*
    };
}

/// The numbers of a lattice that the loops use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    pub delta: f32,
    pub per: f32,
    /// 2^(b−1).
    pub half: i32,
    /// −half as a float.
    pub lo: f32,
    /// half − 1 as a float.
    pub hi: f32,
}

/// The position of `x` on the lattice: the multiple below it, and its distance above that, in [0, 1].
#[inline(always)]
fn place(steps: &Steps, x: f32) -> (i32, f32) {
    let q = x * steps.per;
    // Comparisons, not `clamp`: they send NaN to the lower end.
    let q = if q > steps.lo { q } else { steps.lo };
    let q = if q < steps.hi { q } else { steps.hi };
    let near = (q + ROUND) - ROUND;
    let below = if near > q { near - 1.0 } else { near };
    ((below + ROUND).to_bits() as i32 - ROUND.to_bits() as i32, q - below)
}

/// The top 24 bits of a coordinate's random word.
#[inline(always)]
fn uniform(rounding: Rounding, i: u64) -> f32 {
    (rounding.word(i) >> 8) as i32 as f32
}

/// Adds f (1 − f) of `x`, which begins at a multiple of [`PARTIAL_SUMS`].
#[inline(always)]
fn add_spread(lanes: &mut [f64; PARTIAL_SUMS], steps: &Steps, x: &[f32]) {
    for (lane, x) in lanes.iter_mut().zip(x) {
        let (_, above) = place(steps, *x);
        *lane += f64::from(above * (1.0 - above));
    }
}

kernels! {
    /// One code per coordinate.
    fn codes(steps: &Steps, x: &[f32], rounding: Rounding, first: u64, out: &mut [u16]) {
        for (i, (x, out)) in x.iter().zip(out).enumerate() {
            let (below, above) = place(steps, *x);
            let up = uniform(rounding, first.wrapping_add(i as u64)) < above * UNIFORMS;
            *out = (below + steps.half + i32::from(up)) as u16;
        }
    }

    /// The values of codes.
    fn values(steps: &Steps, codes: &[u16], out: &mut [f32]) {
        for (code, out) in codes.iter().zip(out) {
            *out = (i32::from(*code) - steps.half) as f32 * steps.delta;
        }
    }

    /// Sum of f (1 − f), in steps squared.
    fn spread(steps: &Steps, x: &[f32]) -> f64 {
        let mut lanes = [0.0; PARTIAL_SUMS];
        let chunks = x.chunks_exact(PARTIAL_SUMS);
        let tail = chunks.remainder();
        for chunk in chunks {
            add_spread(&mut lanes, steps, chunk);
        }
        add_spread(&mut lanes, steps, tail);
        reduce(lanes)
    }

    /// Appends the numbers of the coordinates that are drawn, each with probability |x| · scale.
    fn draw(x: &[f32], scale: f32, rounding: Rounding, out: &mut Vec<u32>) {
        let mut drawn = [false; GROUP];
        for (group, x) in x.chunks(GROUP).enumerate() {
            let first = group * GROUP;
            for (i, (x, drawn)) in x.iter().zip(&mut drawn).enumerate() {
                *drawn = uniform(rounding, (first + i) as u64) < x.abs() * scale;
            }
            let numbers = (first as u32..).zip(&drawn[..x.len()]);
            out.extend(numbers.filter(|(_, drawn)| **drawn).map(|(number, _)| number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::lattice::Lattice;
    use proptest::prelude::*;
    use thc_codec::signs::mix;

    /// Floats from a seed: mostly moderate, some huge, tiny, zero, not a number, or of either sign.
    fn floats(len: usize, seed: u64) -> Vec<f32> {
        let float = |i: u64| {
            let word = mix(seed.wrapping_add(mix(i)));
            let v = (word >> 40) as f32 / (1 << 23) as f32 - 1.0;
            match word & 63 {
                0 => v * 1e18,
                1 => v * 1e-30,
                2 => 0.0,
                3 => -0.0,
                4 => f32::NAN,
                _ => v,
            }
        };
        (0..len as u64).map(float).collect()
    }

    /// The arithmetic as [`crate::codec::lattice`] documents it, without what makes it fit vectors.
    fn documented_code(steps: &Steps, x: f32, word: u32) -> u16 {
        let q = x * steps.per;
        let q = if q.is_nan() { steps.lo } else { q.clamp(steps.lo, steps.hi) };
        let up = ((word >> 8) as f32) < (q - q.floor()) * UNIFORMS;
        (q.floor() as i32 + steps.half + i32::from(up)) as u16
    }

    proptest! {
        #[test]
        fn every_instruction_set_gives_the_documented_results(
            len in 0_usize..200,
            seed in any::<u64>(),
            first in any::<u32>(),
            bits in 2_u8..=16,
            delta in prop_oneof![Just(0.0_f32), 1e-3_f32..1.0, Just(1e-38)],
        ) {
            let (x, rounding) = (floats(len, seed), Rounding::new(seed, 1, 2));
            let lattice = Lattice::new(delta, bits).expect("bits and scale are in range");
            let isa = Isa::current();
            let mut out = vec![0; len];
            codes(isa, &lattice.steps, &x, rounding, u64::from(first), &mut out);
            for (i, (x, code)) in x.iter().zip(&out).enumerate() {
                let word = rounding.word(u64::from(first) + i as u64);
                prop_assert_eq!(*code, documented_code(&lattice.steps, *x, word), "{} at {}", x, i);
            }
            let mut values_of = [vec![0.0; len], vec![0.0; len]];
            values(isa, &lattice.steps, &out, &mut values_of[0]);
            plain::values(&lattice.steps, &out, &mut values_of[1]);
            prop_assert_eq!(&values_of[0], &values_of[1]);
            prop_assert_eq!(
                spread(isa, &lattice.steps, &x).to_bits(),
                plain::spread(&lattice.steps, &x).to_bits()
            );
            let mut drawn = Vec::new();
            draw(isa, &x, UNIFORMS / 3.0, rounding, &mut drawn);
            let expected: Vec<u32> = (0..len as u32)
                .filter(|i| ((rounding.word(u64::from(*i)) >> 8) as f32) < x[*i as usize].abs() * (UNIFORMS / 3.0))
                .collect();
            prop_assert_eq!(drawn, expected);
        }
    }
}
