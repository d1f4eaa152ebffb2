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

    /// The code of the value 0.
    #[must_use]
    pub fn zero(&self) -> u16 {
        self.steps.half as u16
    }

    /// The value of a code.
    #[must_use]
    pub fn value(&self, code: u16) -> f32 {
        (i32::from(code) - self.steps.half) as f32 * self.steps.delta
    }

    /// Rounds `x`, the coordinates number `first`, `first + 1`, … of a vector, to one code each in `codes`,
    /// which must be as long.
    ///
    /// # Errors
    /// [`CodecError::Length`].
    pub fn round(
        &self,
        x: &[f32],
        rounding: Rounding,
        first: u64,
        codes: &mut [u16],
    ) -> Result<(), CodecError> {
        CodecError::check_len("codes", x.len(), codes.len())?;
        kernels::codes(Isa::current(), &self.steps, x, rounding, first, codes);
        Ok(())
    }

    /// Rounds and packs. `packed` must have [`packed_len`] bytes.
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

    /// Packs codes of [`Self::round`]. `packed` must have [`packed_len`] bytes.
    ///
    /// # Errors
    /// [`CodecError::Length`].
    pub fn pack(&self, codes: &[u16], packed: &mut [u8]) -> Result<(), CodecError> {
        let expected = packed_len(self.bits, codes.len());
        CodecError::check_len("packed codes", expected, packed.len())?;
        pack(self.bits, codes, packed);
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
            unpack(self.bits, packed, codes);
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

/// Packs codes of 2 to 16 bits, most significant bit first; unused bits of the last byte are 0.
///
/// Other than [`thc_codec::packing::pack`] for indices of a table, which have one byte each. `out` must have
/// `packed_len(bits, codes.len())` bytes.
pub(crate) fn pack(bits: u8, codes: &[u16], out: &mut [u8]) {
    match bits {
        2 => pack_short::<2>(codes, out),
        3 => pack_short::<3>(codes, out),
        4 => pack_short::<4>(codes, out),
        5 => pack_short::<5>(codes, out),
        6 => pack_short::<6>(codes, out),
        7 => pack_short::<7>(codes, out),
        8 => out.iter_mut().zip(codes).for_each(|(out, code)| *out = *code as u8),
        9 => pack_long::<9>(codes, out),
        10 => pack_long::<10>(codes, out),
        11 => pack_long::<11>(codes, out),
        12 => pack_long::<12>(codes, out),
        13 => pack_long::<13>(codes, out),
        14 => pack_long::<14>(codes, out),
        15 => pack_long::<15>(codes, out),
        _ => out.chunks_exact_mut(2).zip(codes).for_each(|(out, code)| {
            out.copy_from_slice(&code.to_be_bytes());
        }),
    }
}

/// Undoes [`pack`].
pub(crate) fn unpack(bits: u8, packed: &[u8], codes: &mut [u16]) {
    match bits {
        2 => unpack_short::<2>(packed, codes),
        3 => unpack_short::<3>(packed, codes),
        4 => unpack_short::<4>(packed, codes),
        5 => unpack_short::<5>(packed, codes),
        6 => unpack_short::<6>(packed, codes),
        7 => unpack_short::<7>(packed, codes),
        8 => codes.iter_mut().zip(packed).for_each(|(code, byte)| *code = u16::from(*byte)),
        9 => unpack_long::<9>(packed, codes),
        10 => unpack_long::<10>(packed, codes),
        11 => unpack_long::<11>(packed, codes),
        12 => unpack_long::<12>(packed, codes),
        13 => unpack_long::<13>(packed, codes),
        14 => unpack_long::<14>(packed, codes),
        15 => unpack_long::<15>(packed, codes),
        _ => codes.iter_mut().zip(packed.chunks_exact(2)).for_each(|(code, bytes)| {
            *code = u16::from_be_bytes([bytes[0], bytes[1]]);
        }),
    }
}

/// Eight codes of up to 7 bits make `B` bytes.
fn pack_short<const B: usize>(codes: &[u16], out: &mut [u8]) {
    let whole = |group: &[u16]| group.iter().fold(0_u64, |word, code| word << B | u64::from(*code));
    let (outs, last) = out.split_at_mut(codes.len() / 8 * B);
    let groups = codes.chunks_exact(8);
    let rest = groups.remainder();
    for (group, out) in groups.zip(outs.chunks_exact_mut(B)) {
        out.copy_from_slice(&whole(group).to_be_bytes()[8 - B..]);
    }
    let word = whole(rest) << ((8 - rest.len()) * B);
    last.iter_mut().zip(&word.to_be_bytes()[8 - B..]).for_each(|(out, byte)| *out = *byte);
}

/// Eight codes of 9 to 15 bits make `B` bytes.
fn pack_long<const B: usize>(codes: &[u16], out: &mut [u8]) {
    let whole = |group: &[u16]| group.iter().fold(0_u128, |word, code| word << B | u128::from(*code));
    let (outs, last) = out.split_at_mut(codes.len() / 8 * B);
    let groups = codes.chunks_exact(8);
    let rest = groups.remainder();
    for (group, out) in groups.zip(outs.chunks_exact_mut(B)) {
        out.copy_from_slice(&whole(group).to_be_bytes()[16 - B..]);
    }
    let word = whole(rest) << ((8 - rest.len()) * B);
    last.iter_mut().zip(&word.to_be_bytes()[16 - B..]).for_each(|(out, byte)| *out = *byte);
}

fn unpack_short<const B: usize>(packed: &[u8], codes: &mut [u16]) {
    for (packed, codes) in packed.chunks(B).zip(codes.chunks_mut(8)) {
        let mut word = [0; 8];
        word[8 - B..8 - B + packed.len()].copy_from_slice(packed);
        let word = u64::from_be_bytes(word);
        for (i, code) in codes.iter_mut().enumerate() {
            *code = (word >> ((7 - i) * B)) as u16 & ((1 << B) - 1);
        }
    }
}

fn unpack_long<const B: usize>(packed: &[u8], codes: &mut [u16]) {
    for (packed, codes) in packed.chunks(B).zip(codes.chunks_mut(8)) {
        let mut word = [0; 16];
        word[16 - B..16 - B + packed.len()].copy_from_slice(packed);
        let word = u128::from_be_bytes(word);
        for (i, code) in codes.iter_mut().enumerate() {
            *code = (word >> ((7 - i) * B)) as u16 & ((1 << B) - 1);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thc_codec::signs::mix;

    fn vector(len: usize, seed: u64) -> Vec<f32> {
        (0..len as u64).map(|i| (mix(seed ^ mix(i)) >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    #[test]
    fn by_hand() {
        // dom(0.5, 3): −2, −1.5, … 1.5. Multiples stay, what is outside saturates.
        let lattice = Lattice::new(0.5, 3).unwrap();
        let x = [-9.0, -2.0, -1.5, 0.0, 0.5, 1.5, 7.0, f32::NAN];
        let mut codes = [0; 8];
        lattice.round(&x, Rounding::new(1, 2, 3), 0, &mut codes).unwrap();
        assert_eq!(codes, [0, 0, 1, 4, 5, 7, 7, 0]);
        assert_eq!(codes.map(|code| lattice.value(code)), [-2.0, -2.0, -1.5, 0.0, 0.5, 1.5, 1.5, -2.0]);
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
            lattice.round(&x, rounding, 0, &mut codes).unwrap();
            let mut packed = [vec![0; packed_len(bits, x.len())], vec![1; packed_len(bits, x.len())]];
            lattice.quantize(&x, rounding, 0, &mut packed[0]).unwrap();
            lattice.pack(&codes, &mut packed[1]).unwrap();
            assert_eq!(packed[0], packed[1], "{bits} bits");
            assert!(lattice.pack(&codes, &mut packed[1][1..]).is_err());
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
        assert!(lattice.round(&[0.0; 3], Rounding::new(0, 0, 0), 0, &mut [0; 2]).is_err());
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
            let mut codes = vec![0; 64];
            for round in 0..rounds {
                lattice.round(&x, Rounding::new(9, round, 0), 0, &mut codes).unwrap();
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
        let (mut whole, mut parts) = (vec![0; 1000], vec![0; 1000]);
        lattice.round(&x, rounding, 7, &mut whole).unwrap();
        lattice.round(&x[..333], rounding, 7, &mut parts[..333]).unwrap();
        lattice.round(&x[333..], rounding, 340, &mut parts[333..]).unwrap();
        assert_eq!(whole, parts);
        let mut packed = vec![0; packed_len(11, 1000)];
        lattice.quantize(&x, rounding, 7, &mut packed).unwrap();
        unpack(11, &packed, &mut parts);
        assert_eq!(whole, parts);
    }

    proptest! {
        #[test]
        fn packing_round_trip(bits in 2_u8..=16, raw in prop::collection::vec(any::<u16>(), 0..600)) {
            let mask = (1_u32 << bits).wrapping_sub(1) as u16;
            let codes: Vec<u16> = raw.iter().map(|code| code & mask).collect();
            let mut packed = vec![0xFF; packed_len(bits, codes.len())];
            pack(bits, &codes, &mut packed);
            let mut back = vec![0xFFFF; codes.len()];
            unpack(bits, &packed, &mut back);
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
            let end = f32::from(lattice.zero()) * 0.25;
            let mut codes = [7; 2];
            lattice.round(&[end * over, -end * over], Rounding::new(seed, 0, 0), 0, &mut codes).unwrap();
            prop_assert_eq!(lattice.value(codes[0]), end - 0.25);
            prop_assert_eq!(lattice.value(codes[1]), -end);
        }
    }
}
