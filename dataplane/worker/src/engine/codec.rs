//! The codec as a session uses it: table, seeds, ranges (P5).

use super::active::PartWork;
use crate::WorkerError;
use thc_codec::error::CodecError;
use thc_codec::quantizer::{self, Quantizer};
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_protocol::wire::{RAW_WORDS, Welcome};
use thc_protocol::worker::Place;
use thc_protocol::{Lane, WorkerId};

/// t_p of usable tables: with it every norm gives a normal range for every d, and estimates whose norm is finite (P5).
const T_P: std::ops::RangeInclusive<f64> = 1.0 / 65536.0..=38.0;

/// Everything about numbers that a session fixes.
pub(super) struct Codec {
    pub table: LookupTable,
    pub lane: Lane,
    /// log₂ of the coordinates of a full partition (P4).
    pub block: u8,
    quantizer: Quantizer,
    workers: u8,
    job_seed: u64,
    private_seed: u64,
}

impl Codec {
    pub fn new(
        welcome: &Welcome,
        workers: u8,
        worker: WorkerId,
        seed: Option<u64>,
    ) -> Result<Codec, WorkerError> {
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
        Ok(Codec {
            quantizer: Quantizer::new(&table),
            table,
            lane: welcome.lane,
            block: welcome.block,
            workers,
            job_seed: welcome.job_seed,
            private_seed: seed.unwrap_or_else(|| private_seed(welcome.job_seed, worker)),
        })
    }

    pub fn sign_key(&self, call: u64, partition: u32) -> SignKey {
        SignKey { job_seed: self.job_seed, round: call, partition }
    }

    /// M = t_p/√d · ℓ (P5).
    fn range(&self, norm: u32, padded: usize) -> f32 {
        (self.table.t_p() / (padded as f64).sqrt() * f64::from(f32::from_bits(norm))) as f32
    }

    /// What one partition is quantized with.
    ///
    /// # Errors
    /// If the norm gives no range to quantize on.
    pub fn round(&self, place: Place, norm: u32, padded: usize) -> Result<Round<'_>, CodecError> {
        let round = Round {
            table: &self.table,
            quantizer: &self.quantizer,
            rounding: Rounding::new(self.private_seed, place.call, place.partition),
            range: self.range(norm, padded),
            coordinates: self.lane.coordinates(),
        };
        round.quantizer.quantize(&mut [], round.range, &round.rounding, 0, &mut [])?;
        Ok(round)
    }

    /// The estimate of one packet's coordinates of the transformed mean.
    pub fn dequantize(
        &self,
        sums: &[u8],
        count: u8,
        work: &PartWork,
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        let (count, granularity) = (u32::from(count), self.quantizer.granularity());
        let range = self.range(work.norm, work.part.padded);
        match self.lane {
            Lane::Bits8 => quantizer::dequantize8(sums, count, granularity, range, out),
            Lane::Bits16 => quantizer::dequantize16(sums, count, granularity, range, out),
        }
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

/// One partition of one call.
pub(super) struct Round<'a> {
    table: &'a LookupTable,
    quantizer: &'a Quantizer,
    rounding: Rounding,
    range: f32,
    coordinates: usize,
}

impl Round<'_> {
    /// Fills a DATA payload from the transformed partition, which becomes the residual.
    pub fn quantize(&self, at: Place, scratch: &mut [f32], payload: &mut [u8]) -> Result<(), CodecError> {
        let first = at.packet as usize * self.coordinates;
        let x = &mut scratch[first..first + self.coordinates];
        self.quantizer.quantize_packed4(x, self.range, &self.rounding, first as u64, payload)
    }

    /// Adds what a DATA payload carries to the residual it left: the transformed coordinates, up to rounding.
    pub fn add_sent(&self, at: Place, payload: &[u8], scratch: &mut [f32]) -> Result<(), CodecError> {
        let first = at.packet as usize * self.coordinates;
        let x = &mut scratch[first..first + self.coordinates];
        let values = self.table.values16();
        let (mut sums, mut sent) = ([0; Lane::Bits8.coordinates()], [0.0; Lane::Bits8.coordinates()]);
        for (two, byte) in sums.chunks_exact_mut(2).zip(payload) {
            two[0] = values[usize::from(byte >> 4)];
            two[1] = values[usize::from(byte & 15)];
        }
        let (sums, sent) = (&sums[..x.len()], &mut sent[..x.len()]);
        quantizer::dequantize8(sums, 1, self.quantizer.granularity(), self.range, sent)?;
        x.iter_mut().zip(sent).for_each(|(x, sent)| *x += *sent);
        Ok(())
    }
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
    use thc_protocol::wire::Norm;
    use thc_protocol::{Cookie, Policy, TableId};

    fn codec(workers: u8, fraction: f64, bits: u8) -> Result<Codec, WorkerError> {
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
        };
        Codec::new(&welcome, workers, WorkerId(0), None)
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
            let codec = codec(workers, 0.03, 4).unwrap();
            for bits in [Norm::MIN, Norm::MIN + 1, 0x3F7F_FFFF, 0x3F80_0000, Norm::MAX - 1, Norm::MAX] {
                let (scale, limit) = (codec.raw_scale(bits), codec.raw_limit());
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
                let codec = codec(64, fraction, bits).unwrap();
                for norm in [Norm::MIN, Norm::MAX] {
                    let at = Place { call: 0, partition: 0, packet: 0 };
                    let round = codec.round(at, norm, padded).unwrap();
                    let n = round.coordinates;
                    // All of the norm in one coordinate, and beyond the range both ways.
                    let mut x = vec![0.0; n];
                    x[0] = f32::from_bits(norm);
                    x[1] = -x[0];
                    let mut payload = vec![0; n / 2];
                    round.quantize(at, &mut x, &mut payload).unwrap();
                    assert!(x.iter().all(|v| v.is_finite()));
                    round.add_sent(at, &payload, &mut x).unwrap();
                    assert!((x[0] / f32::from_bits(norm) - 1.0).abs() < 1e-5);
                    // All sums at the upper end: the inverse transform gathers them in one coordinate.
                    let sum = 64 * u16::from(u8::try_from(codec.table.granularity()).unwrap());
                    let sums: Vec<u8> = (0..n).flat_map(|_| sum.to_be_bytes()).collect();
                    let mut mean = vec![0.0; n];
                    let range = codec.range(norm, padded);
                    quantizer::dequantize16(&sums, 64, codec.quantizer.granularity(), range, &mut mean)
                        .unwrap();
                    assert!((mean[0] / range - 1.0).abs() < 1e-5 && range.is_normal());
                    let mut whole = vec![range; padded];
                    rht::inverse(&mut whole, codec.sign_key(0, 0)).unwrap();
                    assert!(whole.iter().all(|v| v.is_finite()), "p = {fraction:e}, d = {padded}");
                }
            }
        }
        let refused = codec(64, 1.0 - 1e-12, 4).err().unwrap();
        assert!(matches!(refused, WorkerError::Unusable { .. }), "{refused}");
        assert!(refused.to_string().contains("t_p = "), "{refused}");
    }

    #[test]
    fn a_norm_without_a_range_is_an_error_not_a_wrong_packet() {
        let codec = codec(2, 0.03, 4).unwrap();
        let at = Place { call: 0, partition: 0, packet: 0 };
        for norm in [0, f32::INFINITY.to_bits(), f32::NAN.to_bits(), 0x8000_0000, f32::MAX.to_bits()] {
            assert!(codec.round(at, norm, 1024).is_err(), "{norm:#x}");
        }
    }
}
