//! Q_(δ,b): stochastic rounding onto multiples of a scale (double quantization, section 3).
//!
//! dom(δ, b) holds the multiples of δ from −2^(b−1) to 2^(b−1) − 1. A coordinate between two of them becomes
//! either, with the probabilities that make the mean right; one outside becomes the closest. Every
//! operation below is one IEEE `f32` operation unless it says `f64`, and its order is part of the definition:
//!
//! ```text
//! half  = 2^(b−1)
//! per   = 1 / δ                    0 if δ is 0, at most f32::MAX
//! q     = x · per clamped to [−half, half − 1]       (NaN becomes −half)
//! k     = ⌊q⌋
//! up    = the top 24 bits of the coordinate's random word are below (q − k) · 2^24
//! code  = k + half + up            b bits, unsigned
//! value = (code − half) · δ
//! ```
//!
//! Codes are packed at their width, the first in the most significant bits. The variance of one coordinate is
//! f (1 − f) δ² for f = q − k; [`Lattice::variance`] adds it up, which is what condition (2) of the paper asks for.

use thc_codec::CodecError;
use thc_codec::isa::Isa;
use thc_codec::norm;
use thc_codec::packing::packed_len;
use thc_codec::rounding::Rounding;

use crate::codec::kernels::{self, Steps};

/// Fewest and most bits per coordinate.
pub const BITS: std::ops::RangeInclusive<u8> = 2..=16;

/// Largest scale, as for other quantizers: keeps its reciprocal a normal float.
const MAX_DELTA: f32 = 2.0e37;

/// Coordinates that are rounded before they are packed: a multiple of 8, so that each block is whole bytes.
const BLOCK: usize = 256;

/// dom(δ, b) and what is derived from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lattice {
    pub(crate) steps: Steps,
    bits: u8,
}

impl Lattice {
    /// The multiples of `delta` with `bits` bits.
    ///
    /// # Errors
    /// [`CodecError::Bits`] unless `bits` is 2 to 16; [`CodecError::Parameter`] unless `delta` is from 0 to 2e37.
    pub fn new(delta: f32, bits: u8) -> Result<Self, CodecError> {
        if !BITS.contains(&bits) {
            return Err(CodecError::Bits { bits, supported: "2 to 16" });
        }
        if !(0.0..=MAX_DELTA).contains(&delta) {
            let value = f64::from(delta);
            return Err(CodecError::Parameter { what: "the scale", value, allowed: "0 to 2e37" });
        }
        let half = 1 << (bits - 1);
        // Scales that are not normal floats would have coarse reciprocals: what needs them is zero to all ends.
        let delta = if delta < f32::MIN_POSITIVE { 0.0 } else { delta };
        let per = if delta == 0.0 { 0.0 } else { (1.0 / delta).min(f32::MAX) };
        let steps = Steps { delta, per, half, lo: -half as f32, hi: (half - 1) as f32 };
        Ok(Self { steps, bits })
    }

    /// The finest lattice of `bits` bits that holds all of `x` without saturation: δ = ‖x‖∞ / (2^(b−1) − 1).
    ///
    /// # Errors
    /// As [`Self::new`]; a coordinate that is infinite or NaN is an error of the scale.
    pub fn fit(x: &[f32], bits: u8) -> Result<Self, CodecError> {
        Self::with_max(norm::max_abs(x), bits)
    }

    /// [`Self::fit`] for a vector whose largest magnitude is known.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_max(max: f32, bits: u8) -> Result<Self, CodecError> {
        let steps = if BITS.contains(&bits) { (1_u32 << (bits - 1)) - 1 } else { 1 };
        Self::new(max / steps as f32, bits)
    }

    /// The scale δ.
    #[must_use]
    pub fn delta(&self) -> f32 {
        self.steps.delta
    }

    /// Bits per coordinate.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// The value of a code.
    #[must_use]
    pub fn value(&self, code: u16) -> f32 {
        (i32::from(code) - self.steps.half) as f32 * self.steps.delta
    }

    /// Rounds `x`, the coordinates number `first`, `first + 1`, … of a vector, and packs the codes. `packed` must have
    /// [`packed_len`] bytes.
    ///
    /// # Errors
    /// [`CodecError::Length`].
    pub fn quantize(
        &self,
        x: &[f32],
        rounding: Rounding,
        first: u64,
        packed: &mut [u8],
    ) -> Result<(), CodecError> {
        let expected = packed_len(self.bits, x.len());
        CodecError::check_len("packed codes", expected, packed.len())?;
        let isa = Isa::current();
        let mut codes = [0; BLOCK];
        let bytes = BLOCK / 8 * usize::from(self.bits);
        for (i, (x, packed)) in x.chunks(BLOCK).zip(packed.chunks_mut(bytes)).enumerate() {
            let codes = &mut codes[..x.len()];
            kernels::codes(isa, &self.steps, x, rounding, first.wrapping_add((i * BLOCK) as u64), codes);
            pack(self.bits, codes, packed);
        }
        Ok(())
    }

    /// Undoes [`Self::quantize`]: the values.
    ///
    /// # Errors
    /// [`CodecError::Length`].
    pub fn dequantize(&self, packed: &[u8], out: &mut [f32]) -> Result<(), CodecError> {
        let expected = packed_len(self.bits, out.len());
        CodecError::check_len("packed codes", expected, packed.len())?;
        let isa = Isa::current();
        let mut codes = [0; BLOCK];
        let bytes = BLOCK / 8 * usize::from(self.bits);
        for (packed, out) in packed.chunks(bytes).zip(out.chunks_mut(BLOCK)) {
            let codes = &mut codes[..out.len()];
            unpack(self.bits, codes, packed);
            kernels::values(isa, &self.steps, codes, out);
        }
        Ok(())
    }

    /// E‖Q(x) − x‖² of the rounding alone, without what saturation cuts off. NaN coordinates count as 0.
    ///
    /// Terms are `f32`; they go into 32 partial sums of `f64`, like those of [`norm`].
    #[must_use]
    pub fn variance(&self, x: &[f32]) -> f64 {
        kernels::spread(Isa::current(), &self.steps, x)
            * f64::from(self.steps.delta)
            * f64::from(self.steps.delta)
    }
}

/// Calls a function with the width as its parameter; `bits` is 2 to 16.
macro_rules! with_width {
    ($bits:expr, $function:ident($codes:expr, $packed:expr)) => {
        with_width!($bits, $function($codes, $packed), 2 3 4 5 6 7 9 10 11 12 13 14 15)
    };
    ($bits:expr, $function:ident($codes:expr, $packed:expr), $($width:literal)*) => {
        match $bits {
            $($width => $function::<$width>($codes, $packed),)*
            _ => $function::<16>($codes, $packed),
        }
    };
}

/// Packs codes of 2 to 16 bits, most significant bit first; unused bits of the last byte are 0.
///
/// Other than [`thc_codec::packing::pack`] for indices of a table, which have one byte each. `packed` must have
/// `packed_len(bits, codes.len())` bytes.
fn pack(bits: u8, codes: &[u16], packed: &mut [u8]) {
    if bits == 8 {
        packed.iter_mut().zip(codes).for_each(|(byte, code)| *byte = *code as u8);
    } else {
        with_width!(bits, pack_groups(codes, packed));
    }
}

/// Undoes [`pack`].
fn unpack(bits: u8, codes: &mut [u16], packed: &[u8]) {
    if bits == 8 {
        codes.iter_mut().zip(packed).for_each(|(code, byte)| *code = u16::from(*byte));
    } else {
        with_width!(bits, unpack_groups(codes, packed));
    }
}

/// Eight codes of `B` bits make `B` bytes. Each half of them fits 64 bits.
fn pack_groups<const B: usize>(codes: &[u16], packed: &mut [u8]) {
    let half = |codes: &[u16]| codes.iter().fold(0_u64, |word, code| word << B | u64::from(*code));
    let bytes = |codes: &[u16; 8]| {
        let word = u128::from(half(&codes[..4])) << (4 * B) | u128::from(half(&codes[4..]));
        word.to_be_bytes()
    };
    let (groups, rest) = codes.as_chunks::<8>();
    let (whole, last) = packed.split_at_mut(groups.len() * B);
    for (group, packed) in groups.iter().zip(whole.chunks_exact_mut(B)) {
        packed.copy_from_slice(&bytes(group)[16 - B..]);
    }
    let mut group = [0; 8];
    group[..rest.len()].copy_from_slice(rest);
    last.copy_from_slice(&bytes(&group)[16 - B..][..last.len()]);
}

fn unpack_groups<const B: usize>(codes: &mut [u16], packed: &[u8]) {
    for (packed, codes) in packed.chunks(B).zip(codes.chunks_mut(8)) {
        let mut word = [0; 16];
        word[16 - B..16 - B + packed.len()].copy_from_slice(packed);
        let word = u128::from_be_bytes(word);
        let halves = [(word >> (4 * B)) as u64, word as u64];
        for (i, code) in codes.iter_mut().enumerate() {
            *code = (halves[i / 4] >> ((3 - i % 4) * B)) as u16 & (u16::MAX >> (16 - B));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thc_codec::signs::mix;

    /// The codes of `x`, whose first coordinate is number `first`.
    fn round(lattice: &Lattice, x: &[f32], rounding: Rounding, first: u64) -> Vec<u16> {
        let (mut packed, mut codes) = (vec![0; packed_len(lattice.bits(), x.len())], vec![0; x.len()]);
        lattice.quantize(x, rounding, first, &mut packed).unwrap();
        unpack(lattice.bits(), &mut codes, &packed);
        codes
    }

    fn vector(len: usize, seed: u64) -> Vec<f32> {
        (0..len as u64).map(|i| (mix(seed ^ mix(i)) >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    #[test]
    fn by_hand() {
        // dom(0.5, 3): −2, −1.5, … 1.5. Multiples stay, what is outside saturates.
        let lattice = Lattice::new(0.5, 3).unwrap();
        let x = [-9.0, -2.0, -1.5, 0.0, 0.5, 1.5, 7.0, f32::NAN];
        let codes = round(&lattice, &x, Rounding::new(1, 2, 3), 0);
        assert_eq!(codes, [0, 0, 1, 4, 5, 7, 7, 0]);
        let values: Vec<f32> = codes.iter().map(|code| lattice.value(*code)).collect();
        assert_eq!(values, [-2.0, -2.0, -1.5, 0.0, 0.5, 1.5, 1.5, -2.0]);
        let mut packed = [0; 3];
        lattice.quantize(&x, Rounding::new(1, 2, 3), 0, &mut packed).unwrap();
        // 000 000 00|1 100 101 1|11 111 000
        assert_eq!(packed, [0, 0xCB, 0xF8]);
        // 0.25 is half-way: variance ¼ δ² each.
        assert_eq!(lattice.variance(&[0.25, -0.25, 0.5]), 2.0 * 0.25 * 0.25);
    }

    #[test]
    fn packing_what_was_rounded_is_quantizing() {
        let x = vector(1003, 7);
        for bits in BITS {
            let (lattice, rounding) = (Lattice::fit(&x, bits).unwrap(), Rounding::new(1, 2, 3));
            let mut codes = vec![0; x.len()];
            kernels::codes(Isa::current(), &lattice.steps, &x, rounding, 0, &mut codes);
            let mut packed = [vec![0; packed_len(bits, x.len())], vec![1; packed_len(bits, x.len())]];
            lattice.quantize(&x, rounding, 0, &mut packed[0]).unwrap();
            pack(bits, &codes, &mut packed[1]);
            assert_eq!(packed[0], packed[1], "{bits} bits");
        }
    }

    #[test]
    fn wrong_arguments_are_errors() {
        assert!(matches!(Lattice::new(1.0, 1), Err(CodecError::Bits { bits: 1, .. })));
        assert!(matches!(Lattice::new(1.0, 17), Err(CodecError::Bits { .. })));
        assert!(matches!(Lattice::with_max(1.0, 200), Err(CodecError::Bits { .. })));
        for delta in [-1.0, f32::NAN, f32::INFINITY, 3e37] {
            assert!(matches!(Lattice::new(delta, 8), Err(CodecError::Parameter { .. })), "{delta}");
        }
        assert!(Lattice::fit(&[1.0, f32::NAN], 8).is_err());
        assert!(Lattice::fit(&[1.0, f32::INFINITY], 8).is_err());
        let lattice = Lattice::new(1.0, 8).unwrap();
        assert!(lattice.quantize(&[0.0; 3], Rounding::new(0, 0, 0), 0, &mut [0; 4]).is_err());
        assert!(lattice.dequantize(&[0; 3], &mut [0.0; 2]).is_err());
    }

    #[test]
    fn nothing_and_next_to_nothing_become_zero() {
        for x in [vec![0.0; 9], vec![1e-42; 9], vec![]] {
            let lattice = Lattice::fit(&x, 8).unwrap();
            let mut packed = vec![0; x.len()];
            lattice.quantize(&x, Rounding::new(0, 0, 0), 0, &mut packed).unwrap();
            let mut out = vec![1.0; x.len()];
            lattice.dequantize(&packed, &mut out).unwrap();
            assert!(out.iter().all(|v| *v == 0.0));
        }
    }

    #[test]
    fn rounding_is_unbiased_and_has_the_stated_variance() {
        let x = vector(64, 5);
        for bits in [2, 3, 4, 8, 12] {
            let lattice = Lattice::fit(&x, bits).unwrap();
            let rounds = 20_000;
            let (mut mean, mut error) = (vec![0.0; 64], 0.0);
            for number in 0..rounds {
                let codes = round(&lattice, &x, Rounding::new(9, number, 0), 0);
                for ((mean, code), x) in mean.iter_mut().zip(&codes).zip(&x) {
                    let off = f64::from(lattice.value(*code)) - f64::from(*x);
                    *mean += off / rounds as f64;
                    error += off * off / rounds as f64;
                }
            }
            let delta = f64::from(lattice.delta());
            // A standard deviation of a mean is at most δ / (2 √rounds).
            let sigma = delta / 2.0 / (rounds as f64).sqrt();
            assert!(mean.iter().all(|m| m.abs() < 5.0 * sigma), "{bits} bits");
            let stated = lattice.variance(&x);
            assert!((error / stated - 1.0).abs() < 0.05, "{bits} bits: {error} against {stated}");
            // No coordinate has more than δ²/4.
            assert!(stated <= 64.0 * delta * delta / 4.0);
        }
    }

    #[test]
    fn chunks_give_the_same_codes() {
        let (x, rounding) = (vector(1000, 3), Rounding::new(4, 5, 6));
        let lattice = Lattice::fit(&x, 11).unwrap();
        let parts = [round(&lattice, &x[..333], rounding, 7), round(&lattice, &x[333..], rounding, 340)];
        assert_eq!(round(&lattice, &x, rounding, 7), parts.concat());
    }

    proptest! {
        #[test]
        fn packing_round_trip(bits in 2_u8..=16, raw in prop::collection::vec(any::<u16>(), 0..600)) {
            let mask = (1_u32 << bits).wrapping_sub(1) as u16;
            let codes: Vec<u16> = raw.iter().map(|code| code & mask).collect();
            let mut packed = vec![0xFF; packed_len(bits, codes.len())];
            pack(bits, &codes, &mut packed);
            let mut back = vec![0xFFFF; codes.len()];
            unpack(bits, &mut back, &packed);
            prop_assert_eq!(&codes, &back);
            // Most significant first: the bits in a row are those of the codes in a row.
            for (i, code) in codes.iter().enumerate() {
                for k in 0..usize::from(bits) {
                    let at = i * usize::from(bits) + k;
                    let bit = u16::from(packed[at / 8] >> (7 - at % 8) & 1);
                    prop_assert_eq!(bit, code >> (usize::from(bits) - 1 - k) & 1);
                }
            }
        }

        #[test]
        fn values_are_within_one_step(
            bits in 2_u8..=16,
            x in prop::collection::vec(-1e30f32..1e30, 1..600),
            seed: u64,
        ) {
            let lattice = Lattice::fit(&x, bits).unwrap();
            let mut packed = vec![0; packed_len(bits, x.len())];
            lattice.quantize(&x, Rounding::new(seed, 0, 0), 0, &mut packed).unwrap();
            let mut out = vec![0.0; x.len()];
            lattice.dequantize(&packed, &mut out).unwrap();
            for (x, out) in x.iter().zip(&out) {
                // Products and quotients are rounded to 24 bits, values have up to 15.
                prop_assert!((x - out).abs() <= lattice.delta() * 1.01, "{} became {}", x, out);
            }
        }

        #[test]
        fn outside_saturates(bits in 2_u8..=16, over in 1.0f32..1e6, seed: u64) {
            let lattice = Lattice::new(0.25, bits).unwrap();
            let end = lattice.steps.half as f32 * 0.25;
            let codes = round(&lattice, &[end * over, -end * over], Rounding::new(seed, 0, 0), 0);
            prop_assert_eq!(lattice.value(codes[0]), end - 0.25);
            prop_assert_eq!(lattice.value(codes[1]), -end);
        }
    }
}
