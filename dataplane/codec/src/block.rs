//! One block of coordinates at a time: rotated, quantized, packed and its residual rotated back, or sums turned into the
//! mean.
//!
//! A block is a partition of any size from [`MIN_PARTITION`] to [`MAX_PARTITION`], with its own norm. The
//! smaller it is, the fewer stages its transform has, and one of up to 2^13 coordinates (32 KiB) stays in the
//! first-level cache of common processors from the first stage to the last: gradient and feedback are read
//! once, indices and new feedback written once. Only speed depends on the size; all functions give the same
//! bits as those of [`rht`] and [`quantizer`](crate::quantizer) one after the other.
//!
//! The norm, which the quantizer's range needs, comes from [`norm::l2`](crate::norm::l2) or
//! [`norm::l2_sum`](crate::norm::l2_sum) in a pass of its own, since all workers' norms must be known before
//! anything is quantized.
//!
//! [`MIN_PARTITION`]: crate::partition::MIN_PARTITION
//! [`MAX_PARTITION`]: crate::partition::MAX_PARTITION

use crate::arch;
use crate::arguments::{Compressing, Estimating};
use crate::error::CodecError;
use crate::isa::Isa;
use crate::packing::{narrow, packed_len, spread4};
use crate::partition::MIN_PARTITION;
use crate::quantizer::{Quantizer, dequantize4, sum_step, symmetric};
use crate::rht;
use crate::rounding::Rounding;
use crate::signs::SignKey;

/// Most coordinates of a block whose narrow indices, or sums of 4 bits, are widened to the usual width in the
/// first-level cache.
const NARROW: usize = 1 << 14;

/// The parameters with which one block of one call is compressed and decompressed.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// Table to quantize with, and the width of its indices.
    pub quantizer: &'a Quantizer,
    /// Signs, the same for all workers.
    pub key: SignKey,
    /// This worker's roundings.
    pub rounding: Rounding,
    /// M: t_p/√d times the largest norm of the workers' blocks; positive, at most 2e37.
    pub range: f32,
    /// Coordinates that the next block reads (gradient and feedback) or writes (its mean), to be prefetched
    /// meanwhile. They affect only time, and may be empty.
    pub next: [&'a [f32]; 2],
    /// `true` if the tensor is larger than caches. Then new feedback and means are written past them: they displace nothing
    /// there, and their memory is not read first. This affects only time.
    pub far: bool,
}

impl Block<'_> {
    /// Compresses gradient `x` with its error feedback to packed indices and new feedback.
    ///
    /// `work` is memory for one block and defines its length, a power of two of at most 2^22. Use the same
    /// memory for all blocks, so that it stays in the cache. `x` may be shorter, as in the last block of a
    /// tensor, and is padded with zeros. `feedback` is the old feedback, which is read, and memory for the new;
    /// both are as long as `x`. So the old feedback is intact until the caller drops it. `out` takes the
    /// indices as [`quantize_packed`](Quantizer::quantize_packed) writes them: of 4 bits, half as many bytes
    /// as `work` has coordinates. The content of `work` is unspecified afterwards; after an error so is that
    /// of `out`, and the new feedback is unchanged.
    ///
    /// # Errors
    /// If a length or the range is not as described.
    pub fn compress(
        &self,
        x: &[f32],
        feedback: Option<(&[f32], &mut [f32])>,
        work: &mut [f32],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        rht::check(work.len())?;
        rht::check_fits(x, work)?;
        if let Some((kept, left)) = &feedback {
            CodecError::check_len("error feedback", x.len(), kept.len())?;
            CodecError::check_len("new error feedback", x.len(), left.len())?;
        }
        let width = self.quantizer.width();
        CodecError::check_len("packed indices", packed_len(width, work.len()), out.len())?;
        let halves = work.len() / 2;
        let fused = x.len() == work.len() && x.len() >= MIN_PARTITION;
        if fused && (width == 4 || width < 4 && x.len() <= NARROW) {
            let span = self.quantizer.pack_bounds(work.len(), self.range, halves)?;
            let how = Compressing {
                grid: self.quantizer.grid(),
                span,
                rounding: self.rounding,
                scale: rht::scale(x.len()),
                signs: self.key.signs(),
                far: self.far,
            };
            let isa = Isa::current();
            if width == 4 {
                arch::block::compress(isa, &how, x, feedback, self.next, work, out);
                return Ok(());
            }
            let nibbles = &mut [0; NARROW / 2][..halves];
            arch::block::compress(isa, &how, x, feedback, self.next, work, nibbles);
            return narrow(width, nibbles, out);
        }
        match &feedback {
            None => rht::forward_into(x, work, self.key)?,
            Some((kept, _)) => rht::forward_sum(x, kept, work, self.key)?,
        }
        self.quantizer.quantize_packed(work, self.range, &self.rounding, 0, out)?;
        feedback.map_or(Ok(()), |(_, left)| rht::inverse_into(work, left, self.key))
    }

    /// Turns 8-bit sums over `count` workers into the mean gradient.
    ///
    /// `sums` has one byte for every coordinate of the block, `out` room for those that exist. If these are fewer, `work` must
    /// have room for all; it should if the mean is written past the caches.
    pub fn decompress8(
        &self,
        sums: &[u8],
        count: u32,
        work: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        self.decompress(sums, false, count, work, out)
    }

    /// [`decompress8`](Self::decompress8) for sums of 4 bits, two a byte.
    pub fn decompress4(
        &self,
        sums: &[u8],
        count: u32,
        work: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        let len = 2 * sums.len();
        let mut bytes = [0; NARROW];
        if let Some(bytes) = bytes.get_mut(..len) {
            spread4(sums, bytes)?;
            return self.decompress8(bytes, count, work, out);
        }
        let granularity = self.quantizer.granularity();
        if out.len() == len {
            dequantize4(sums, count, granularity, self.range, out)?;
            return rht::inverse(out, self.key);
        }
        dequantize4(sums, count, granularity, self.range, work)?;
        rht::inverse_into(work, out, self.key)
    }

    /// [`decompress8`](Self::decompress8) for 16-bit sums, big endian.
    pub fn decompress16(
        &self,
        sums: &[u8],
        count: u32,
        work: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        CodecError::check_multiple("16-bit sums", 2, sums.len())?;
        self.decompress(sums, true, count, work, out)
    }

    /// [`decompress8`](Self::decompress8), or [`decompress16`](Self::decompress16) if sums are `wide`, for
    /// sums as packets brought them: with `(len, stride)`, `len` bytes of sums lie together, and those of
    /// each packet begin `stride` bytes after those of the preceding one. `sums` is from the first packet's
    /// first sum to the last packet's last; `out` has room for all, a whole block of at least
    /// [`MIN_PARTITION`].
    pub fn decompress_packets(
        &self,
        sums: &[u8],
        (len, stride): (usize, usize),
        wide: bool,
        count: u32,
        work: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        let width = 1 + usize::from(wide);
        rht::check(out.len())?;
        CodecError::check_multiple("a block of sums", MIN_PARTITION, out.len())?;
        CodecError::check_multiple("the sums of a packet", width, len)?;
        // A packet without sums has no multiple but 0.
        CodecError::check_multiple("a block of sums", len, out.len() * width)?;
        let packets = out.len() * width / len;
        CodecError::check_len("the sums of packets", (packets - 1) * stride + len, sums.len())?;
        let (lo, hi) = symmetric(self.range)?;
        let step = sum_step(lo, hi, count, self.quantizer.granularity())?;
        let (scale, signs) = (rht::scale(out.len()), self.key.signs());
        let (packet, far) = ((len / width, stride), self.far);
        let how = Estimating { sums, packet, wide, step, lo, scale, signs, far };
        arch::block::decompress(Isa::current(), &how, self.next[0], work, out);
        Ok(())
    }

    fn decompress(
        &self,
        sums: &[u8],
        wide: bool,
        count: u32,
        work: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        let len = if wide { sums.len() / 2 } else { sums.len() };
        rht::check(len)?;
        let (lo, hi) = symmetric(self.range)?;
        let step = sum_step(lo, hi, count, self.quantizer.granularity())?;
        if out.len() == len && len >= MIN_PARTITION {
            let (scale, signs) = (rht::scale(out.len()), self.key.signs());
            let (packet, far) = ((len, 0), self.far);
            let how = Estimating { sums, packet, wide, step, lo, scale, signs, far };
            arch::block::decompress(Isa::current(), &how, self.next[0], work, out);
            return Ok(());
        }
        CodecError::check_len("work memory", len, work.len())?;
        if wide {
            arch::quantize::dequantize16(Isa::current(), sums, step, lo, work);
        } else {
            arch::quantize::dequantize8(Isa::current(), sums, step, lo, work);
        }
        rht::inverse_into(work, out, self.key)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::packing::unpack;
    use crate::table::LookupTable;
    use crate::{aggregate, norm};
    use proptest::prelude::*;

    fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|v| v.to_bits()).collect()
    }

    fn made_up(len: usize, seed: u64) -> Vec<f32> {
        (0..len as u64).map(|i| (crate::signs::mix(seed ^ i) >> 40) as f32 / 8_388_608.0 - 1.0).collect()
    }

    struct Case {
        table: LookupTable,
        quantizer: Quantizer,
        key: SignKey,
        rounding: Rounding,
    }

    impl Case {
        fn new(seed: u64) -> Self {
            let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
            Self {
                quantizer: Quantizer::new(&table),
                table,
                key: SignKey { job_seed: seed, call: 4, partition: 9 },
                rounding: Rounding::new(!seed, 4, 9),
            }
        }

        fn block(&self, range: f32) -> Block<'_> {
            Block {
                quantizer: &self.quantizer,
                key: self.key,
                rounding: self.rounding,
                range,
                next: [&[]; 2],
                far: self.key.job_seed % 2 == 1,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_block_gives_the_bits_of_its_steps(log in 10usize..15, cut in 0usize..1024, seed: u64) {
            let case = Case::new(seed);
            let d = 1 << log;
            let (x, e) = (made_up(d - cut, seed), made_up(d - cut, !seed));
            let range = case.table.t_p() as f32 * rht::scale(d) * norm::l2_sum(&x, &e);

            let mut rotated = vec![0.0; d];
            rht::forward_sum(&x, &e, &mut rotated, case.key).unwrap();
            let mut indices = vec![0; d];
            case.quantizer.quantize(&mut rotated, range, &case.rounding, 0, &mut indices).unwrap();
            rht::inverse(&mut rotated, case.key).unwrap();

            let block = case.block(range);
            let (mut left, mut work, mut packed) = (vec![f32::NAN; d - cut], vec![f32::NAN; d], vec![0; d / 2]);
            block.compress(&x, Some((&e, &mut left)), &mut work, &mut packed).unwrap();
            let mut unpacked = vec![0; d];
            unpack(4, &packed, &mut unpacked).unwrap();
            prop_assert_eq!(&unpacked, &indices);
            prop_assert_eq!(bits(&left), bits(&rotated[..d - cut]));

            // No feedback gives the indices of feedback that is zero.
            let zeros = vec![0.0; d - cut];
            let (mut with, mut without) = (packed.clone(), packed);
            block.compress(&x, Some((&zeros, &mut left)), &mut work, &mut with).unwrap();
            block.compress(&x, None, &mut work, &mut without).unwrap();
            prop_assert_eq!(&with, &without);

            // The mean and the feedback add up to the gradient.
            let mut sums = vec![0; d];
            aggregate::lookup_set4(&mut sums, &case.table.values16(), &with).unwrap();
            // As packets bring them it is the same.
            let mut whole = [vec![0.0; d], vec![0.0; d]];
            let [at_once, apart] = &mut whole;
            block.decompress8(&sums, 1, &mut work, at_once).unwrap();
            let between: Vec<u8> = sums.chunks(1024).flat_map(|sums| [sums, &[1; 20]].concat()).collect();
            let between = &between[..between.len() - 20];
            block.decompress_packets(between, (1024, 1044), false, 1, &mut work, apart).unwrap();
            prop_assert_eq!(bits(at_once), bits(apart));

            let (mut mean, mut wide) = (vec![0.0; d - cut], vec![0.0; d - cut]);
            block.decompress8(&sums, 1, &mut work, &mut mean).unwrap();
            let doubled: Vec<u8> = sums.iter().flat_map(|s| (2 * u16::from(*s)).to_be_bytes()).collect();
            block.decompress16(&doubled, 2, &mut work, &mut wide).unwrap();
            for i in 0..d - cut {
                prop_assert!((mean[i] + left[i] - x[i]).abs() < 1e-4 || cut > 0);
                prop_assert!((mean[i] - wide[i]).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn wrong_lengths_are_errors_and_leave_the_feedback() {
        let case = Case::new(1);
        let block = case.block(1.0);
        let (mut work, mut out) = (vec![0.0; 1024], vec![0; 512]);
        let mut feedback = vec![0.5; 1000];
        for (x, d, bytes) in [(1001, 1024, 512), (1000, 512, 256), (1000, 1000, 500), (1000, 1024, 511)] {
            let both = Some((&[0.1; 1000][..], &mut feedback[..]));
            let result = block.compress(&vec![1.0; x], both, &mut work[..d], &mut out[..bytes]);
            assert!(result.is_err(), "{x} {d} {bytes}");
        }
        assert_eq!(feedback, vec![0.5; 1000]);
        for (kept, left) in [(1000, 999), (999, 1000), (1000, 1001)] {
            let (kept, mut left) = (vec![0.5; kept], vec![0.5; left]);
            let both = Some((&kept[..], &mut left[..]));
            assert!(block.compress(&[1.0; 1000], both, &mut work, &mut out).is_err());
            assert!(left.iter().all(|v| *v == 0.5));
        }
        assert!(block.compress(&[1.0; 1025], None, &mut work, &mut out).is_err());
        assert!(block.decompress8(&[0; 1023], 1, &mut work, &mut feedback).is_err());
        assert!(block.decompress16(&[0; 1024], 1, &mut work, &mut feedback).is_err());
        assert!(block.decompress8(&[0; 1024], 0, &mut work, &mut feedback).is_err());
        assert!(block.decompress8(&[0; 1024], 1, &mut work, &mut vec![0.0; 1025]).is_err());
        let packets = |len: usize, layout: (usize, usize), wide, out: usize| {
            block.decompress_packets(&vec![0; len], layout, wide, 1, &mut [], &mut vec![0.0; out])
        };
        assert_eq!(packets(2068, (1024, 1044), false, 2048), Ok(()));
        assert_eq!(packets(3 * 1044 + 1024, (1024, 1044), true, 2048), Ok(()));
        for (len, layout, wide, out) in [
            (2067, (1024, 1044), false, 2048),
            (2069, (1024, 1044), false, 2048),
            (2068, (1024, 1044), true, 2048),
            (512, (512, 512), false, 512),
            (0, (0, 0), false, 2048),
            (0, (0, 1044), false, 2048),
            (1025, (1025, 1044), true, 2048),
            (3000, (3000, 3000), false, 2048),
            (1500, (1500, 1500), false, 1500),
        ] {
            assert!(packets(len, layout, wide, out).is_err(), "{len} {layout:?} {wide} {out}");
        }
        assert!(case.block(0.0).compress(&feedback.clone(), None, &mut work, &mut out).is_err());
    }
}
