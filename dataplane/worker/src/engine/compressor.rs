//! Compression as a session does it: its table, seeds, ranges (P5), mode by mode.
//!
//! This is the seam for other tables, widths of indices and devices than the CPU: the engine knows how many packets there
//! are and how long they are, and asks for norms, packed indices, error feedback and means. It never looks at a number.

use crate::WorkerError;
use thc_codec::block::Block;
use thc_codec::error::CodecError;
use thc_codec::partition::Partition;
use thc_codec::quantizer::{self, Quantizer};
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_codec::{norm, rht};
use thc_protocol::wire::{Mode, Norm, RAW_WORDS, RESULT_LEN, Welcome};
use thc_protocol::worker::Place;
use thc_protocol::{Lane, WorkerId};

/// t_p of usable tables: with it every norm gives a normal range for every d, and estimates whose norm is finite (P5).
const T_P: std::ops::RangeInclusive<f64> = 1.0 / 65536.0..=38.0;

/// Everything about numbers that a session fixes.
pub(super) struct Compressor {
    pub table: LookupTable,
    pub lane: Lane,
    /// log₂ of the coordinates of a full partition (P4).
    pub block: u8,
    quantizer: Quantizer,
    workers: u8,
    worker: WorkerId,
    job_seed: u64,
    private_seed: u64,
}

/// A partition and the largest norm of its workers, f32 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub part: Partition,
    pub norm: u32,
}

impl Compressor {
    pub fn new(
        welcome: &Welcome,
        workers: u8,
        worker: WorkerId,
        seed: Option<u64>,
    ) -> Result<Compressor, WorkerError> {
        let unusable = |reason: String| WorkerError::Unusable { reason };
        if !(1..=4).contains(&welcome.bits) {
            return Err(unusable(format!("bit budget {}: packets carry 1 to 4 bits", welcome.bits)));
        }
        if welcome.features != 0 {
            return Err(unusable(format!(
                "it needs features {:#x} that this build does not know: install a newer one",
                welcome.features
            )));
        }
        let values = &welcome.values[..1 << welcome.bits];
        let table = LookupTable::with_threshold(values, welcome.fraction, welcome.t_p)
            .map_err(|e| unusable(e.to_string()))?;
        if table.granularity() != welcome.granularity {
            return Err(unusable(format!(
                "its table ends with {}, but its granularity is {}",
                table.granularity(),
                welcome.granularity
            )));
        }
        let sum = u32::from(workers) * u32::from(table.granularity());
        if workers == 0 || sum > welcome.lane.max_sum() {
            return Err(unusable(format!(
                "{workers} workers with granularity {} overflow {}-bit lanes",
                table.granularity(),
                welcome.lane.bits()
            )));
        }
        if !T_P.contains(&table.t_p()) {
            return Err(unusable(format!(
                "t_p = {:e} of p = {}: norms leave room from {:e} to {} (P5)",
                table.t_p(),
                welcome.fraction,
                T_P.start(),
                T_P.end()
            )));
        }
        Ok(Compressor {
            quantizer: Quantizer::new(&table),
            table,
            lane: welcome.lane,
            block: welcome.block,
            workers,
            worker,
            job_seed: welcome.job_seed,
            private_seed: seed.unwrap_or_else(|| private_seed(welcome.job_seed, worker)),
        })
    }

    /// M = t_p/√d · ℓ (P5).
    fn range(&self, norm: u32, padded: usize) -> f32 {
        (self.table.t_p() / (padded as f64).sqrt() * f64::from(f32::from_bits(norm))) as f32
    }

    /// Coordinates of a packet, DATA or RAW.
    pub fn coordinates(&self, mode: Mode) -> usize {
        match mode {
            Mode::Compressed => self.lane.coordinates(),
            Mode::Raw => RAW_WORDS,
        }
    }

    /// The value of a partition's NORM (P5, P19).
    pub fn norm(&self, mode: Mode, x: &[f32], kept: Option<&[f32]>) -> u32 {
        let value = match (mode, kept) {
            (Mode::Raw, _) => norm::max_abs(x),
            (Mode::Compressed, Some(kept)) => norm::l2_sum(x, kept),
            (Mode::Compressed, None) => norm::l2(x),
        };
        if value.is_nan() || value > f32::from_bits(Norm::MAX) {
            Norm::non_finite(self.worker)
        } else if value < f32::from_bits(Norm::MIN) {
            0
        } else {
            value.to_bits()
        }
    }

    /// What compressing and decompressing a partition takes.
    fn block(&self, call: u64, at: &Measured) -> Block<'_> {
        Block {
            quantizer: &self.quantizer,
            key: SignKey { job_seed: self.job_seed, round: call, partition: at.part.index },
            rounding: Rounding::new(self.private_seed, call, at.part.index),
            range: self.range(at.norm, at.part.padded),
            next: [&[]; 2],
        }
    }

    /// A partition to the indices of all its packets, and `kept`, its error feedback, to `left`, what it is after the call.
    /// `work` is memory for the partition, which keeps nothing of use; `next` the gradient and error feedback of the next one,
    /// if that is known.
    ///
    /// # Errors
    /// If the norm gives no range to quantize on.
    pub fn compress(
        &self,
        (call, at): (u64, &Measured),
        x: &[f32],
        feedback: Option<(&[f32], &mut [f32])>,
        next: [&[f32]; 2],
        work: &mut [f32],
        packed: &mut [u8],
    ) -> Result<(), CodecError> {
        Block { next, ..self.block(call, at) }.compress_beside(x, feedback, work, packed)
    }

    /// The same up to the indices: `work` becomes the residual in the rotated domain, which [`Self::feed_back`] ends with.
    ///
    /// # Errors
    /// As [`Self::compress`].
    pub fn rotate(
        &self,
        (call, at): (u64, &Measured),
        x: &[f32],
        kept: &[f32],
        work: &mut [f32],
        packed: &mut [u8],
    ) -> Result<(), CodecError> {
        let block = self.block(call, at);
        rht::forward_sum(x, kept, work, block.key)?;
        self.quantizer.quantize_packed4(work, block.range, &block.rounding, 0, packed)
    }

    /// Adds what a DATA payload carries to the residual that it left: the transformed coordinates, up to rounding. `x` is the
    /// packet's residual.
    ///
    /// # Errors
    /// As [`Self::compress`].
    pub fn add_sent(&self, at: &Measured, payload: &[u8], x: &mut [f32]) -> Result<(), CodecError> {
        let values = self.table.values16();
        let (mut sums, mut sent) = ([0; Lane::Bits8.coordinates()], [0.0; Lane::Bits8.coordinates()]);
        for (two, byte) in sums.chunks_exact_mut(2).zip(payload) {
            two[0] = values[usize::from(byte >> 4)];
            two[1] = values[usize::from(byte & 15)];
        }
        let (sums, sent) = (&sums[..x.len()], &mut sent[..x.len()]);
        let range = self.range(at.norm, at.part.padded);
        quantizer::dequantize8(sums, 1, self.quantizer.granularity(), range, sent)?;
        x.iter_mut().zip(sent).for_each(|(x, sent)| *x += *sent);
        Ok(())
    }

    /// The residual in the rotated domain to the error feedback that it leaves.
    ///
    /// # Errors
    /// None with memory of the right length.
    pub fn feed_back(
        &self,
        (call, at): (u64, &Measured),
        residual: &mut [f32],
        left: &mut [f32],
    ) -> Result<(), CodecError> {
        rht::inverse_into(residual, left, self.block(call, at).key)
    }

    /// The results of a partition to its mean. `counts` has how many workers are in the sums of each packet, 0 where they are
    /// lost; `sums` those of one packet after the other. `work` is memory for the partition, used if it is padded; `next` what
    /// the next one's mean goes to, if that is known.
    ///
    /// # Errors
    /// If the norm gives no range.
    pub fn finish(
        &self,
        (call, at): (u64, &Measured),
        counts: &[u8],
        sums: &[u8],
        next: &[f32],
        work: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        let block = Block { next: [next, &[]], ..self.block(call, at) };
        if counts[0] > 0 && counts.iter().all(|&count| count == counts[0]) {
            let work = work.get_mut(..at.part.padded).unwrap_or_default();
            return match self.lane {
                Lane::Bits8 => block.decompress8(sums, u32::from(counts[0]), work, out),
                Lane::Bits16 => block.decompress16(sums, u32::from(counts[0]), work, out),
            };
        }
        let estimate = |counts: &[u8], sums: &[u8], x: &mut [f32]| {
            let count = u32::from(counts[0]);
            let granularity = self.quantizer.granularity();
            match self.lane {
                _ if count == 0 => {
                    x.fill(0.0);
                    Ok(())
                }
                Lane::Bits8 => quantizer::dequantize8(sums, count, granularity, block.range, x),
                Lane::Bits16 => quantizer::dequantize16(sums, count, granularity, block.range, x),
            }
        };
        let estimates = |x: &mut [f32]| {
            let packets = counts.chunks(1).zip(sums.chunks(RESULT_LEN));
            let mut packets = packets.zip(x.chunks_mut(self.lane.coordinates()));
            packets.try_for_each(|((count, sums), x)| estimate(count, sums, x))
        };
        if out.len() == at.part.padded {
            estimates(out)?;
            return rht::inverse(out, block.key);
        }
        let work = &mut work[..at.part.padded];
        estimates(work)?;
        rht::inverse_into(work, out, block.key)
    }

    /// s of P5: the power of two that coordinates are multiplied by, from the maximum's f32 bits.
    pub fn raw_scale(&self, norm: u32) -> f64 {
        power_of_two(self.raw_bits() - exponent(norm))
    }

    /// The largest magnitude of one worker's integers, 2^(30 − ⌈log₂ n⌉): n of them add up to 2^30 at most.
    pub fn raw_limit(&self) -> f64 {
        power_of_two(self.raw_bits())
    }

    fn raw_bits(&self) -> i32 {
        30 - (u8::BITS - (self.workers.max(1) - 1).leading_zeros()) as i32
    }
}

/// The least e with value < 2^e, for a finite positive f32 given by its bits.
fn exponent(bits: u32) -> i32 {
    let (field, fraction) = ((bits >> 23 & 0xFF) as i32, bits & 0x7F_FFFF);
    if field > 0 { field - 126 } else { u32::BITS as i32 - fraction.leading_zeros() as i32 - 149 }
}

/// 2^e exactly, for normal f64.
fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((1023 + e) as u64) << 52)
}

/// Fills a RAW payload; coordinates beyond `x` are zeros, integers beyond `limit` are cut off: with a quorum below n
/// the maximum may not be of this worker.
pub(super) fn write_raw(x: &[f32], at: Place, scale: f64, limit: f64, payload: &mut [u8]) {
    let first = at.packet as usize * RAW_WORDS;
    let mut values = x.get(first..).unwrap_or(&[]).iter();
    for word in payload.chunks_exact_mut(4) {
        let value = values.next().map_or(0.0, |&v| f64::from(v) * scale);
        let value = value.round_ties_even().clamp(-limit, limit);
        word.copy_from_slice(&(value as i32).to_be_bytes());
    }
}

/// Reads the mean out of a RAW_RESULT; `out` is what of the packet's 256 coordinates exists.
pub(super) fn read_raw(sums: &[u8], count: u8, scale: f64, out: &mut [f32]) {
    let factor = 1.0 / (scale * f64::from(count));
    for (value, word) in out.iter_mut().zip(sums.chunks_exact(4)) {
        *value = (f64::from(i32::from_be_bytes([word[0], word[1], word[2], word[3]])) * factor) as f32;
    }
}

/// A seed that only this worker uses, the same in every run.
fn private_seed(job_seed: u64, worker: WorkerId) -> u64 {
    job_seed.wrapping_add((u64::from(worker.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Duration;
    use thc_codec::partition::MIN_PARTITION;
    use thc_codec::rht;
    use thc_protocol::wire::{Norm, Shares};
    use thc_protocol::{Cookie, Policy, TableId};

    fn compressor(workers: u8, fraction: f64, bits: u8) -> Result<Compressor, WorkerError> {
        let table = LookupTable::solve(bits, (1 << bits) - 1, fraction).unwrap();
        let welcome = Welcome {
            session: Cookie(1),
            data_slots: 64,
            norm_slots: 8,
            quorum: workers,
            lane: Lane::Bits16,
            policy: Policy::Reliable,
            shards: 1,
            deadline: Duration::ZERO,
            table: TableId(0),
            bits,
            granularity: (1 << bits) - 1,
            fraction,
            values: table.values16(),
            job_seed: 1,
            nonce: 0,
            t_p: table.t_p(),
            block: 20,
            min_workers: workers,
            max_workers: workers,
            credit: 0,
            features: 0,
            shares: Shares::NONE,
        };
        Compressor::new(&welcome, workers, WorkerId(0), None)
    }

    fn measured(padded: usize, norm: u32) -> Measured {
        Measured { part: Partition { index: 0, offset: 0, len: padded, padded }, norm }
    }

    #[test]
    fn the_exponent_is_the_least_above_also_of_denormals() {
        let patterns = (0..=0xFE).flat_map(|field| [0, 1, 0x40_0000, 0x7F_FFFF].map(|low| field << 23 | low));
        for bits in patterns.chain((0..23).map(|i| 1 << i)).filter(|&bits| bits != 0) {
            let (value, e) = (f64::from(f32::from_bits(bits)), exponent(bits));
            assert!(value < 2f64.powi(e) && value >= 2f64.powi(e - 1), "{value:e}: {e}");
            assert_eq!(power_of_two(e), 2f64.powi(e));
        }
    }

    #[test]
    fn raw_integers_of_all_workers_never_overflow() {
        let at = Place { call: 0, partition: 0, packet: 0 };
        for workers in 1..=64 {
            let compressor = compressor(workers, 0.03, 4).unwrap();
            for bits in [Norm::MIN, Norm::MIN + 1, 0x3F7F_FFFF, 0x3F80_0000, Norm::MAX - 1, Norm::MAX] {
                let (scale, limit) = (compressor.raw_scale(bits), compressor.raw_limit());
                let max = f32::from_bits(bits);
                // The last is of a worker that came after the quorum.
                let mut payload = [0; 4 * RAW_WORDS];
                write_raw(&[max, -max, max / 3.0, 1e38, f32::MIN], at, scale, limit, &mut payload);
                let words: Vec<i64> = payload
                    .chunks_exact(4)
                    .map(|w| i64::from(i32::from_be_bytes(w.try_into().unwrap())))
                    .collect();
                let sums: Vec<i64> = words.iter().map(|w| w * i64::from(workers)).collect();
                assert!(sums.iter().all(|sum| sum.abs() <= 1 << 30), "{workers} workers, {max:e}: {sums:?}");
                assert!(sums[0] >= 1 << 28, "{workers} workers, {max:e}: bits are wasted: {sums:?}");
                let bytes: Vec<u8> = sums.iter().flat_map(|&sum| (sum as i32).to_be_bytes()).collect();
                let mut mean = [0.0; 3];
                read_raw(&bytes, workers, scale, &mut mean);
                for (got, want) in mean.iter().zip([max, -max, max / 3.0]) {
                    assert!((got - want).abs() <= max * 2f32.powi(-22), "{got:e} {want:e}");
                }
            }
        }
    }

    #[test]
    fn every_norm_of_every_table_gives_finite_numbers() {
        for fraction in [f64::MIN_POSITIVE, 1e-30, 1.0 / 1024.0, 0.03, 0.5, 0.999] {
            for (bits, padded) in [1, 4].into_iter().flat_map(|bits| [(bits, MIN_PARTITION), (bits, 1 << 20)])
            {
                let compressor = compressor(64, fraction, bits).unwrap();
                for norm in [Norm::MIN, Norm::MAX] {
                    let at = measured(padded, norm);
                    let norm = f32::from_bits(norm);
                    // Gradient and feedback so that all of the norm is in one rotated coordinate.
                    let mut x = vec![0.0; padded];
                    x[5] = norm;
                    rht::inverse(&mut x, compressor.block(0, &at).key).unwrap();
                    let kept = vec![0.0; padded];
                    let (mut residual, mut packed) = (vec![0.0; padded], vec![0; padded / 2]);
                    compressor.rotate((0, &at), &x, &kept, &mut residual, &mut packed).unwrap();
                    let (mut left, mut work, mut again) = (kept.clone(), kept.clone(), packed.clone());
                    let fed = Some((&kept[..], &mut left[..]));
                    compressor.compress((0, &at), &x, fed, [&x, &kept], &mut work, &mut again).unwrap();
                    assert!(again == packed && left.iter().chain(&residual).all(|v| v.is_finite()));
                    let n = compressor.coordinates(Mode::Compressed);
                    compressor.add_sent(&at, &packed, &mut residual[..n]).unwrap();
                    assert!((residual[5] / norm - 1.0).abs() < 1e-4, "{} {norm}", residual[5]);
                    compressor.feed_back((0, &at), &mut residual, &mut left).unwrap();
                    assert!(left.iter().all(|v| v.is_finite()));
                    // All sums at the upper end: the inverse transform gathers them in one coordinate.
                    let sum = 64 * u16::from(u8::try_from(compressor.table.granularity()).unwrap());
                    let sums: Vec<u8> = (0..padded).flat_map(|_| sum.to_be_bytes()).collect();
                    let (mut mean, mut counts) = (vec![0.0; padded], vec![64; padded / n]);
                    compressor.finish((0, &at), &counts, &sums, &[], &mut [], &mut mean).unwrap();
                    assert!(mean.iter().all(|v| v.is_finite()), "p = {fraction:e}, d = {padded}");
                    assert!(compressor.range(at.norm, padded).is_normal());
                    // A packet less, and one of fewer workers.
                    counts[0] = 0;
                    counts[padded / n - 1] = 32;
                    compressor.finish((0, &at), &counts, &sums, &[], &mut work, &mut mean[1..]).unwrap();
                    assert!(mean.iter().all(|v| v.is_finite()), "p = {fraction:e}, d = {padded}");
                }
            }
        }
        let refused = compressor(64, 1.0 - 1e-12, 4).err().unwrap();
        assert!(matches!(refused, WorkerError::Unusable { .. }), "{refused}");
        assert!(refused.to_string().contains("t_p = "), "{refused}");
    }

    #[test]
    fn a_norm_without_a_range_is_an_error_not_a_wrong_packet() {
        let compressor = compressor(2, 0.03, 4).unwrap();
        let (x, mut work, mut packed) = ([1.0; 1024], [0.0; 1024], [0; 512]);
        for norm in [0, f32::INFINITY.to_bits(), f32::NAN.to_bits(), 0x8000_0000, f32::MAX.to_bits()] {
            let at = measured(1024, norm);
            assert!(
                compressor.compress((0, &at), &x, None, [&[]; 2], &mut work, &mut packed).is_err(),
                "{norm:#x}"
            );
            assert!(
                compressor.finish((0, &at), &[2, 2], &[0; 2048], &[], &mut [], &mut work).is_err(),
                "{norm:#x}"
            );
        }
    }
}
