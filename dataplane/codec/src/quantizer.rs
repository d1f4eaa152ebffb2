//! Stochastic quantization onto a lookup table's values, and back (P31; paper, sections 4.3 and 5).
//!
//! The table's values are points of a uniform grid of g + 1 points on [lo, hi], where
//! lo = −M and hi = M for non-uniform THC. Every operation below is one IEEE `f32` operation unless
//! it says `f64`, and its order is part of the definition:
//!
//! ```text
//! scale = g / (hi − lo)            in f64, rounded to f32, at most f32::MAX
//! bias  = −lo · scale              in f64, rounded to f32
//! step  = (hi − lo) / g            in f64, rounded to f32
//! q     = x · scale + bias, rounded once, clamped to [0, g]   position on the grid (NaN becomes 0)
//! z     = largest index with T[z] ≤ ⌊q⌋
//! slope = 1 / (T[z+1] − T[z])                           in f64, rounded to f32; 0 for the last index
//! start = 1 − T[z] · slope                              in f64, rounded to f32; 0 for the last index
//! t     = q · slope + start, rounded once               1 + (q − T[z]) / (T[z+1] − T[z])
//! index = z + 1 if 1 + the coordinate's draw / 2^23 is below t, else z
//! value = T[index] · step + lo
//! x     := x − value               the residual, of the coordinate before clamping
//! ```
//!
//! Between 1 and 2, floats are multiples of 2^-23, so a draw becomes a float by setting bits. The mean of
//! `value` over the draws is x clamped to [lo, hi], up to 2^-15 of a gap. The residual feeds error feedback:
//! the transform is linear, so the inverse transform of the residual is exactly what quantization lost (paper
//! Algorithm 3, line 21).
//!
//! Workers need to agree only on `step` and `value`: others see indices, of which only the mean matters.

use crate::arch;
use crate::error::CodecError;
use crate::grid::{Bounds, Grid};
use crate::isa::Isa;
use crate::packing::{narrow, packed_len, spread4};
use crate::rounding::Rounding;
use crate::table::LookupTable;

/// Coordinates that are packed at a time if that takes two passes: they stay in the first-level cache.
const CHUNK: usize = 2048;

/// Quantizes rotated coordinates onto the values of one lookup table.
#[derive(Debug, Clone)]
pub struct Quantizer {
    bits: u8,
    /// Bits per index as [`Quantizer::quantize_packed`] writes them.
    width: u8,
    grid: Grid,
}

impl Quantizer {
    /// Prepares a table.
    #[must_use]
    pub fn new(table: &LookupTable) -> Self {
        let grid = Grid::new(table);
        Self { bits: table.bits(), width: if grid.narrow() { 4 } else { 8 }, grid }
    }

    /// Makes [`Self::quantize_packed`] write indices of `width` bits, 1 to 4 or 8; the default is 4, or 8 for
    /// a table of more bits.
    ///
    /// # Errors
    /// [`CodecError::Bits`] if there is no such width, or the table has more bits.
    pub fn with_width(self, width: u8) -> Result<Self, CodecError> {
        if !matches!(width, 1..=4 | 8) {
            return Err(CodecError::Bits { bits: width, supported: "1, 2, 3, 4 or 8" });
        }
        if width < self.bits {
            return Err(CodecError::Bits { bits: self.bits, supported: "no more than indices have" });
        }
        Ok(Self { width, ..self })
    }

    /// The factor and the addend of quantizing on [−range, range], for kernels outside of this crate.
    ///
    /// # Errors
    /// If `range` is not positive or above 2e37.
    pub fn affine(&self, range: f32) -> Result<Affine, CodecError> {
        let Bounds { lo, scale, bias, step, .. } = Bounds::symmetric(range, self.grid.granularity)?;
        Ok(Affine { lo, scale, bias, step })
    }

    /// Bits per index as [`Self::quantize_packed`] writes them.
    #[must_use]
    pub fn width(&self) -> u8 {
        self.width
    }

    /// Bit budget of the table.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Granularity of the table.
    #[must_use]
    pub fn granularity(&self) -> u32 {
        u32::from(self.grid.granularity)
    }

    pub(crate) fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Quantizes `x`, the rotated coordinates number `first`, `first + 1`, .. of a partition, on
    /// [−range, range] and writes one index per byte. `x` becomes the residual.
    ///
    /// `indices` must be as long as `x`; `range` must be positive and at most 2e37. NaN
    /// coordinates become index 0 (the norm stage refuses them before).
    pub fn quantize(
        &self,
        x: &mut [f32],
        range: f32,
        rounding: &Rounding,
        first: u64,
        indices: &mut [u8],
    ) -> Result<(), CodecError> {
        let span = Bounds::symmetric(range, self.grid.granularity)?;
        self.write_indices(x, span, rounding, first, indices)
    }

    /// Like [`quantize`](Self::quantize) on [lo, hi], for uniform THC (paper Algorithm 1).
    pub fn quantize_between(
        &self,
        x: &mut [f32],
        lo: f32,
        hi: f32,
        rounding: &Rounding,
        first: u64,
        indices: &mut [u8],
    ) -> Result<(), CodecError> {
        let span = Bounds::new(lo, hi, self.grid.granularity)?;
        self.write_indices(x, span, rounding, first, indices)
    }

    fn write_indices(
        &self,
        x: &mut [f32],
        span: Bounds,
        rounding: &Rounding,
        first: u64,
        indices: &mut [u8],
    ) -> Result<(), CodecError> {
        CodecError::check_len("indices", x.len(), indices.len())?;
        arch::quantize::indices(Isa::current(), &self.grid, &span, x, *rounding, first, indices);
        Ok(())
    }

    /// The span for `coordinates` packed indices, which must take `bytes` bytes.
    pub(crate) fn pack_bounds(
        &self,
        coordinates: usize,
        range: f32,
        bytes: usize,
    ) -> Result<Bounds, CodecError> {
        let span = Bounds::symmetric(range, self.grid.granularity)?;
        if self.bits > 4 {
            return Err(CodecError::Bits { bits: self.bits, supported: "1 to 4" });
        }
        CodecError::check_multiple("the slice of coordinates", 2, coordinates)?;
        CodecError::check_len("packed indices", coordinates / 2, bytes)?;
        Ok(span)
    }

    /// Like [`quantize`](Self::quantize), packed as on the wire: two indices per byte, the first
    /// coordinate in the high nibble.
    ///
    /// `x` must have an even length, `out` half of it, and the table at most 4 bits (a narrower
    /// index still takes 4 bits on the wire).
    pub fn quantize_packed4(
        &self,
        x: &mut [f32],
        range: f32,
        rounding: &Rounding,
        first: u64,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let span = self.pack_bounds(x.len(), range, out.len())?;
        arch::quantize::packed4(Isa::current(), &self.grid, &span, x, *rounding, first, out);
        Ok(())
    }
}

impl Quantizer {
    /// Like [`quantize`](Self::quantize), packed at this quantizer's [`width`](Self::width) as
    /// [`pack`](crate::packing::pack) does.
    ///
    /// `x` must be a multiple of 16 long, `out` have [`packed_len`] bytes.
    pub fn quantize_packed(
        &self,
        x: &mut [f32],
        range: f32,
        rounding: &Rounding,
        first: u64,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        match self.width {
            4 => return self.quantize_packed4(x, range, rounding, first, out),
            8 => return self.quantize(x, range, rounding, first, out),
            _ => {}
        }
        CodecError::check_multiple("the slice of coordinates", 16, x.len())?;
        CodecError::check_len("packed indices", packed_len(self.width, x.len()), out.len())?;
        let mut nibbles = [0; CHUNK / 2];
        let outs = out.chunks_mut(packed_len(self.width, CHUNK));
        for ((at, x), out) in (first..).step_by(CHUNK).zip(x.chunks_mut(CHUNK)).zip(outs) {
            let nibbles = &mut nibbles[..x.len() / 2];
            self.quantize_packed4(x, range, rounding, at, nibbles)?;
            narrow(self.width, nibbles, out)?;
        }
        Ok(())
    }
}

/// The constants of a range, as the module's text defines them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Affine {
    /// −M.
    pub lo: f32,
    /// g / 2M.
    pub scale: f32,
    /// M · scale.
    pub bias: f32,
    /// 2M / g.
    pub step: f32,
}

/// The factor by which [`dequantize8`] multiplies a sum over `count` workers before it adds −range.
///
/// # Errors
/// If `range` is not positive or above 2e37, or a number is 0.
pub fn step_of_sums(range: f32, count: u32, granularity: u32) -> Result<f32, CodecError> {
    let (lo, hi) = symmetric(range)?;
    sum_step(lo, hi, count, granularity)
}

/// Width of one unit of a sum over `count` workers: (hi − lo) / (g · count), in f64 rounded to f32.
pub(crate) fn sum_step(lo: f32, hi: f32, count: u32, granularity: u32) -> Result<f32, CodecError> {
    // The ends obey the same limits as when quantizing.
    Bounds::new(lo, hi, 1)?;
    if count == 0 || granularity == 0 {
        return Err(CodecError::EmptySum);
    }
    let width = f64::from(hi) - f64::from(lo);
    Ok((width / (f64::from(granularity) * f64::from(count))) as f32)
}

pub(crate) fn symmetric(range: f32) -> Result<(f32, f32), CodecError> {
    if range > 0.0 { Ok((-range, range)) } else { Err(CodecError::Range { lo: -range, hi: range }) }
}

/// Turns 8-bit sums over `count` workers into the mean of their values:
/// `out = sum · (2·range / (granularity · count)) − range`, the factor in `f64` rounded to `f32`,
/// then one `f32` multiplication and one addition. Lengths of `sums` and `out` must agree.
pub fn dequantize8(
    sums: &[u8],
    count: u32,
    granularity: u32,
    range: f32,
    out: &mut [f32],
) -> Result<(), CodecError> {
    let (lo, hi) = symmetric(range)?;
    let step = sum_step(lo, hi, count, granularity)?;
    CodecError::check_len("output", sums.len(), out.len())?;
    arch::quantize::dequantize8(Isa::current(), sums, step, lo, out);
    Ok(())
}

/// [`dequantize8`] for sums of 4 bits, two per byte, the first in the high half.
pub fn dequantize4(
    sums: &[u8],
    count: u32,
    granularity: u32,
    range: f32,
    out: &mut [f32],
) -> Result<(), CodecError> {
    CodecError::check_len("output", 2 * sums.len(), out.len())?;
    let mut bytes = [0; CHUNK];
    for (sums, out) in sums.chunks(CHUNK / 2).zip(out.chunks_mut(CHUNK)) {
        let bytes = &mut bytes[..out.len()];
        spread4(sums, bytes)?;
        dequantize8(bytes, count, granularity, range, out)?;
    }
    Ok(())
}

/// [`dequantize8`] for 16-bit sums as they are on the wire: big endian, two bytes per coordinate.
pub fn dequantize16(
    sums: &[u8],
    count: u32,
    granularity: u32,
    range: f32,
    out: &mut [f32],
) -> Result<(), CodecError> {
    let (lo, hi) = symmetric(range)?;
    let step = sum_step(lo, hi, count, granularity)?;
    CodecError::check_multiple("16-bit sums", 2, sums.len())?;
    CodecError::check_len("output", sums.len() / 2, out.len())?;
    arch::quantize::dequantize16(Isa::current(), sums, step, lo, out);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use statrs::distribution::ContinuousCDF;

    fn table() -> LookupTable {
        LookupTable::solve(4, 30, 1.0 / 32.0).unwrap()
    }

    /// Any valid table of up to 8 bits.
    fn any_table() -> impl Strategy<Value = LookupTable> {
        (1u8..=8, any::<u64>()).prop_map(|(bits, seed)| {
            let len = 1_usize << bits;
            let mut values: Vec<u8> = (0..=255).collect();
            // Drop random values above 0 until enough are left.
            let mut i = 0;
            while values.len() > len {
                i += 1;
                let at = 1 + crate::signs::mix(seed ^ i) as usize % (values.len() - 1);
                values.remove(at);
            }
            LookupTable::from_values(&values, 0.1).unwrap()
        })
    }

    #[test]
    fn values_of_the_table_are_kept_exactly() {
        let table = table();
        let q = Quantizer::new(&table);
        let range = 3.0;
        let mut x: Vec<f32> = table.values().iter().map(|v| f32::from(*v) * (6.0 / 30.0) - 3.0).collect();
        let mut indices = [0; 16];
        q.quantize(&mut x, range, &Rounding::new(1, 2, 3), 0, &mut indices).unwrap();
        assert!(x.iter().all(|r| r.abs() < 1e-6), "{x:?}");
        assert_eq!(indices.to_vec(), (0..16).collect::<Vec<u8>>());
    }

    #[test]
    fn indices_are_packed_at_their_width() {
        let mut random = crate::signs::mix(9);
        let x: Vec<f32> = (0..5008)
            .map(|i| {
                random = crate::signs::mix(random ^ i);
                (random >> 40) as f32 / 8_388_608.0 - 1.0
            })
            .collect();
        let rounding = Rounding::new(1, 2, 3);
        let identity: Vec<u8> = (0..=255).collect();
        for (bits, widths) in [(1, &[1, 2, 3, 4][..]), (2, &[2, 3, 4]), (3, &[3, 4]), (4, &[4]), (8, &[8])] {
            let table = match bits {
                8 => LookupTable::from_values(&identity, 0.01).unwrap(),
                bits => LookupTable::solve(bits, 3 << bits, 0.01).unwrap(),
            };
            let (mut want, mut indices) = (x.clone(), vec![0; x.len()]);
            Quantizer::new(&table).quantize(&mut want, 1.1, &rounding, 32, &mut indices).unwrap();
            for &width in widths {
                let quantizer = Quantizer::new(&table).with_width(width).unwrap();
                let mut expected = vec![0; packed_len(width, x.len())];
                crate::packing::pack(width, &indices, &mut expected).unwrap();
                let (mut residual, mut out) = (x.clone(), vec![0xAA; expected.len()]);
                quantizer.quantize_packed(&mut residual, 1.1, &rounding, 32, &mut out).unwrap();
                assert!(out == expected, "{bits} bits at {width}");
                assert_eq!(residual, want);
                assert!(
                    quantizer.quantize_packed(&mut residual[..32], 1.1, &rounding, 0, &mut out[..1]).is_err()
                );
            }
            assert!(widths[0] == 1 || Quantizer::new(&table).with_width(widths[0] - 1).is_err());
            assert!(Quantizer::new(&table).with_width(5).is_err());
        }
    }

    #[test]
    fn sums_of_4_bits_are_as_those_of_8() {
        let packed: Vec<u8> = (0..=255).cycle().take(1600).collect();
        let sums: Vec<u8> = packed.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect();
        let (mut want, mut got) = (vec![0.0; 3200], vec![1.0; 3200]);
        dequantize8(&sums, 3, 5, 0.7, &mut want).unwrap();
        dequantize4(&packed, 3, 5, 0.7, &mut got).unwrap();
        assert_eq!(want, got);
        assert!(dequantize4(&packed, 3, 5, 0.7, &mut got[1..]).is_err());
    }

    #[test]
    fn coordinates_out_of_range_are_clamped_and_nan_is_harmless() {
        let q = Quantizer::new(&table());
        let mut x = [-5.0, 5.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
        let mut indices = [9; 8];
        q.quantize(&mut x, 2.0, &Rounding::new(1, 2, 3), 0, &mut indices).unwrap();
        assert_eq!(indices, [0, 15, 15, 0, 15, 0, 0, 0]);
        assert_eq!(x[..2], [-3.0, 3.0]);
    }

    #[test]
    fn bad_arguments_are_errors() {
        let q = Quantizer::new(&table());
        let r = Rounding::new(1, 2, 3);
        for range in [0.0, -1.0, f32::NAN, f32::INFINITY, f32::MAX] {
            assert!(matches!(q.quantize(&mut [0.0], range, &r, 0, &mut [0]), Err(CodecError::Range { .. })));
            assert!(matches!(dequantize8(&[0], 1, 30, range, &mut [0.0]), Err(CodecError::Range { .. })));
        }
        assert!(q.quantize_between(&mut [0.0], 1.0, 0.0, &r, 0, &mut [0]).is_err());
        assert!(q.quantize(&mut [0.0], 1.0, &r, 0, &mut [0; 2]).is_err());
        assert!(q.quantize_packed4(&mut [0.0; 3], 1.0, &r, 0, &mut [0; 2]).is_err());
        assert!(q.quantize_packed4(&mut [0.0; 4], 1.0, &r, 0, &mut [0; 1]).is_err());
        let wide = Quantizer::new(&LookupTable::uniform(5).unwrap());
        assert!(matches!(
            wide.quantize_packed4(&mut [0.0; 2], 1.0, &r, 0, &mut [0]),
            Err(CodecError::Bits { bits: 5, .. })
        ));
        assert_eq!(dequantize8(&[0], 0, 30, 1.0, &mut [0.0]), Err(CodecError::EmptySum));
        assert_eq!(dequantize16(&[0; 2], 1, 0, 1.0, &mut [0.0]), Err(CodecError::EmptySum));
        assert!(dequantize8(&[0; 2], 1, 30, 1.0, &mut [0.0]).is_err());
        assert!(dequantize16(&[0; 3], 1, 30, 1.0, &mut [0.0]).is_err());
        assert!(dequantize16(&[0; 2], 1, 30, 1.0, &mut [0.0; 2]).is_err());
    }

    #[test]
    fn a_vanishing_range_stays_consistent() {
        // Denormal gradients: nothing useful to send, but no panic and no lost residual.
        let q = Quantizer::new(&table());
        let range = 1e-44;
        let x = [1e-44, -1e-44, 0.0, 4e-45];
        let mut residual = x;
        let mut indices = [0; 4];
        q.quantize(&mut residual, range, &Rounding::new(1, 2, 3), 0, &mut indices).unwrap();
        for i in 0..4 {
            let mut value = [0.0];
            let sum = table().values()[usize::from(indices[i])];
            dequantize8(&[sum], 1, 30, range, &mut value).unwrap();
            assert_eq!(residual[i] + value[0], x[i]);
        }
    }

    #[test]
    fn a_constant_gradient_survives_uniform_thc() {
        let q = Quantizer::new(&LookupTable::uniform(4).unwrap());
        let mut x = [2.5; 4];
        let mut indices = [7; 4];
        q.quantize_between(&mut x, 2.5, 2.5, &Rounding::new(1, 2, 3), 0, &mut indices).unwrap();
        assert_eq!((indices, x), ([0; 4], [0.0; 4]));
    }

    #[test]
    fn rounding_is_unbiased() {
        let table = table();
        let q = Quantizer::new(&table);
        let n = 1 << 18;
        for at in [-2.0, -1.999, -1.7, -0.3, 0.0, 0.01, 0.9, 1.81, 1.999_99] {
            let mut x = vec![at; n];
            let mut indices = vec![0; n];
            q.quantize(&mut x, 2.0, &Rounding::new(42, 1, 0), 0, &mut indices).unwrap();
            let mean = x.iter().map(|r| f64::from(*r)).sum::<f64>() / n as f64;
            // The gap is at most 3 units of 4/30, so one rounding deviates by at most 0.2.
            let sigma = 0.2 / (n as f64).sqrt();
            assert!(mean.abs() < 5.0 * sigma, "{at}: {mean}");
        }
    }

    #[test]
    fn error_on_normal_coordinates_is_what_the_table_promises() {
        let table = table();
        let q = Quantizer::new(&table);
        let n = 1 << 18;
        // Equally likely quantiles: a normal sample without sampling noise.
        let normal = statrs::distribution::Normal::standard();
        let mut x: Vec<f32> =
            (0..n).map(|i| normal.inverse_cdf((f64::from(i) + 0.5) / f64::from(n)) as f32).collect();
        let mut indices = vec![0; x.len()];
        q.quantize(&mut x, table.t_p() as f32, &Rounding::new(9, 1, 0), 0, &mut indices).unwrap();
        let mse = x.iter().map(|r| f64::from(*r).powi(2)).sum::<f64>() / f64::from(n);
        let want = table.quantization_error() + table.truncation_error();
        assert!((mse / want - 1.0).abs() < 0.005, "{mse} {want}");
    }

    proptest! {
        #[test]
        fn index_brackets_the_coordinate(
            table in any_table(),
            x in prop::collection::vec(-1.3f32..1.3, 1..64),
            seed: u64,
            range in 0.1f32..2.0,
        ) {
            let q = Quantizer::new(&table);
            let mut residual = x.clone();
            let mut indices = vec![0; x.len()];
            q.quantize(&mut residual, range, &Rounding::new(seed, 0, 0), 0, &mut indices).unwrap();
            let g = f32::from(table.granularity());
            for ((x, r), z) in x.iter().zip(&residual).zip(&indices) {
                let z = usize::from(*z);
                prop_assert!(z < table.values().len());
                let at = |z: usize| f32::from(table.values()[z]) * 2.0 * range / g - range;
                prop_assert!((x - r - at(z)).abs() < 1e-6 * (1.0 + range));
                let c = x.clamp(-range, range);
                let slack = 1e-5 * range;
                if z > 0 {
                    prop_assert!(c > at(z - 1) - slack);
                }
                if z + 1 < table.values().len() {
                    prop_assert!(c < at(z + 1) + slack);
                }
            }
        }

        #[test]
        fn chunks_give_the_same_as_the_whole(
            x in prop::collection::vec(-2.0f32..2.0, 1..200),
            cut in 0usize..200,
            first in 0u64..10_000_000_000,
            seed: u64,
        ) {
            let x = &x[..x.len() & !1];
            let cut = cut.min(x.len()) & !1;
            let q = Quantizer::new(&table());
            let r = Rounding::new(seed, 7, 1);
            let mut whole = x.to_vec();
            let mut indices = vec![0; x.len()];
            q.quantize(&mut whole, 1.5, &r, first, &mut indices).unwrap();
            let mut parts = x.to_vec();
            let mut packed = vec![0; x.len() / 2];
            let (a, b) = parts.split_at_mut(cut);
            let (pa, pb) = packed.split_at_mut(cut / 2);
            q.quantize_packed4(a, 1.5, &r, first, pa).unwrap();
            q.quantize_packed4(b, 1.5, &r, first + cut as u64, pb).unwrap();
            prop_assert_eq!(&whole, &parts);
            let mut unpacked = vec![0; x.len()];
            crate::packing::unpack(4, &packed, &mut unpacked).unwrap();
            prop_assert_eq!(indices, unpacked);
        }

        #[test]
        fn any_bits_are_safe(x: Vec<u32>, table in any_table(), lo: u32, hi: u32, seed: u64) {
            let mut x: Vec<f32> = x.into_iter().map(f32::from_bits).collect();
            let mut indices = vec![0; x.len()];
            let q = Quantizer::new(&table);
            let (lo, hi) = (f32::from_bits(lo), f32::from_bits(hi));
            let _ = q.quantize_between(&mut x, lo, hi, &Rounding::new(seed, 0, 0), seed, &mut indices);
            let top = (table.values().len() - 1) as u8;
            prop_assert!(indices.iter().all(|z| *z <= top));
        }

        #[test]
        fn decoding_the_sum_is_the_mean_of_the_values(
            workers in 1u32..9,
            len in 1usize..40,
            range in 1e-6f32..1e6,
            seed: u64,
        ) {
            // Homomorphism (paper, Definition 3), on both lane widths.
            let table = table();
            let (g, len) = (u32::from(table.granularity()), 2 * len);
            let q = Quantizer::new(&table);
            let mut narrow = vec![0; len];
            let mut wide = vec![0; 2 * len];
            let mut mean = vec![0.0; len];
            let mut integers = vec![0_u32; len];
            for w in 0..workers {
                let r = Rounding::new(seed.wrapping_add(u64::from(w)), 1, 0);
                let mut x: Vec<f32> = (0..len as u64)
                    .map(|i| range * 1.2 * (2.0 * r.uniform(i + 1000) - 1.0))
                    .collect();
                let original = x.clone();
                let mut packed = vec![0; len / 2];
                q.quantize_packed4(&mut x, range, &r, 0, &mut packed).unwrap();
                if w == 0 {
                    crate::aggregate::lookup_set4(&mut narrow, &table.values16(), &packed).unwrap();
                    crate::aggregate::lookup_set4_wide(&mut wide, &table.values16(), &packed).unwrap();
                } else {
                    crate::aggregate::lookup_add4(&mut narrow, &table.values16(), &packed).unwrap();
                    crate::aggregate::lookup_add4_wide(&mut wide, &table.values16(), &packed).unwrap();
                }
                let mut indices = vec![0; len];
                crate::packing::unpack(4, &packed, &mut indices).unwrap();
                for i in 0..len {
                    integers[i] += u32::from(table.values()[usize::from(indices[i])]);
                    mean[i] += f64::from(original[i] - x[i]) / f64::from(workers);
                }
            }
            let mut out = vec![0.0; len];
            let mut out16 = vec![0.0; len];
            dequantize8(&narrow, workers, g, range, &mut out).unwrap();
            dequantize16(&wide, workers, g, range, &mut out16).unwrap();
            prop_assert_eq!(&out, &out16);
            for i in 0..len {
                prop_assert_eq!(u32::from(narrow[i]), integers[i]);
                prop_assert!((f64::from(out[i]) - mean[i]).abs() < 1e-6 * f64::from(range));
            }
        }
    }
}
