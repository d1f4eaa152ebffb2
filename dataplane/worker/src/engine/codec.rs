//! The codec as a session uses it: table, seeds, ranges (P5).

use super::active::PartWork;
use crate::WorkerError;
use thc_codec::quantizer::{self, Quantizer};
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_protocol::wire::{BLOCK, RAW_WORDS, Welcome};
use thc_protocol::worker::Place;
use thc_protocol::{Lane, WorkerId};

/// Everything about numbers that a session fixes.
pub(super) struct Codec {
    pub table: LookupTable,
    pub lane: Lane,
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
        if welcome.block != BLOCK {
            let reason = format!(
                "blocks of 2^{} coordinates: this build transforms blocks of 2^{BLOCK}",
                welcome.block
            );
            return Err(unusable(reason));
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
        Ok(Codec {
            quantizer: Quantizer::new(&table),
            table,
            lane: welcome.lane,
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

    pub fn round(&self, place: Place, norm: u32, padded: usize) -> Round<'_> {
        Round {
            quantizer: &self.quantizer,
            rounding: Rounding::new(self.private_seed, place.call, place.partition),
            range: self.range(norm, padded),
            coordinates: self.lane.coordinates(),
        }
    }

    /// The estimate of one packet's coordinates of the transformed mean.
    pub fn dequantize(&self, sums: &[u8], count: u8, work: &PartWork, out: &mut [f32]) {
        let (count, granularity) = (u32::from(count), self.quantizer.granularity());
        let range = self.range(work.norm, work.part.padded);
        let result = match self.lane {
            Lane::Bits8 => quantizer::dequantize8(sums, count, granularity, range, out),
            Lane::Bits16 => quantizer::dequantize16(sums, count, granularity, range, out),
        };
        debug_assert!(result.is_ok(), "lengths follow from the lane, the range from a checked norm");
    }

    /// s of P5: the power of two that coordinates are multiplied by.
    pub fn raw_scale(&self, norm: u32) -> f64 {
        let largest = f64::from(f32::from_bits(norm));
        let exponent = largest.log2().floor() as i32 + 1;
        let bits = u8::BITS - (self.workers.max(1) - 1).leading_zeros();
        2f64.powi(30 - exponent - bits as i32)
    }
}

/// One partition of one call.
pub(super) struct Round<'a> {
    quantizer: &'a Quantizer,
    rounding: Rounding,
    range: f32,
    coordinates: usize,
}

impl Round<'_> {
    /// Fills a DATA payload from the transformed partition, which becomes the residual.
    pub fn quantize(&self, at: Place, scratch: &mut [f32], payload: &mut [u8]) {
        let first = at.packet as usize * self.coordinates;
        let x = &mut scratch[first..first + self.coordinates];
        let result = self.quantizer.quantize_packed4(x, self.range, &self.rounding, first as u64, payload);
        debug_assert!(result.is_ok(), "lengths follow from the lane, the range from a checked norm");
    }
}

/// Fills a RAW payload; coordinates beyond `x` are zeros.
pub(super) fn write_raw(x: &[f32], at: Place, scale: f64, payload: &mut [u8]) {
    let first = at.packet as usize * RAW_WORDS;
    let mut values = x.get(first..).unwrap_or(&[]).iter();
    for word in payload.chunks_exact_mut(4) {
        let value = values.next().map_or(0.0, |&v| f64::from(v) * scale);
        word.copy_from_slice(&(value.round_ties_even() as i32).to_be_bytes());
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
