//! The compression of a session: tables, seeds and ranges (P5).
//!
//! The rest of the engine knows only the number and the length of packets. It asks for norms, packed indices, error
//! feedback and means, and reads none of their numbers.

mod coder;
mod measured;
mod numbers;
mod plan;
mod raw;

pub(super) use measured::Measured;
pub use numbers::{CallKeys, Estimate, Numbers};

use coder::{Coder, T_P};
use raw::{add_feedback, exponent, power_of_two, write_words};
pub(super) use raw::{raw_factor, raw_word, read_raw, write_raw};

use super::loan::Held;
use crate::{Rounding, WorkerError};
use thc_codec::block::Block;
use thc_codec::error::CodecError;
use thc_codec::packing::unpack;
use thc_codec::quantizer;
use thc_codec::rounding::Source;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_codec::{aggregate, norm, rht};
use thc_protocol::wire::{Choice, FEATURE_ROOT, Form, Norm, RAW_WORDS, Welcome};
use thc_protocol::{Lane, Rank, TableId, WorkerId};

/// Most coordinates of a DATA packet.
pub(super) const PACKET: usize = 1024;

/// The tables, seeds and numbers of a session.
pub(super) struct Compressor {
    /// The job's tables, in its order.
    coders: Vec<Coder>,
    /// log₂ of the coordinates of a full partition (P4).
    pub block: u8,
    /// Workers of the job, and this one's place among them, over all racks.
    workers: u16,
    rank: Rank,
    job_seed: u64,
    /// The source of this worker's roundings.
    roundings: Source,
}

impl Compressor {
    pub fn new(welcome: &Welcome, worker: WorkerId, rounding: Rounding) -> Result<Compressor, WorkerError> {
        let unusable = |reason: String| WorkerError::Unusable { reason };
        if welcome.features == FEATURE_ROOT {
            return Err(unusable(
                "it is the root of racks, which workers do not join: give the address of a rack".to_owned(),
            ));
        }
        let (workers, rank) = match welcome.rack {
            Some(rack) => (rack.workers, Rank(rack.first.0 + u16::from(worker.0))),
            None => (welcome.workers.into(), worker.into()),
        };
        if welcome.features != 0 {
            return Err(unusable(format!(
                "it needs features {:#x} that this build does not know: install a newer one",
                welcome.features
            )));
        }
        let coders: Result<Vec<Coder>, _> =
            welcome.tables.iter().map(|table| Coder::new(table, workers)).collect();
        Ok(Compressor {
            coders: coders?,
            block: welcome.block,
            workers,
            rank,
            job_seed: welcome.job_seed,
            roundings: roundings(welcome.job_seed, rank, rounding),
        })
    }

    /// Compression without a session: rank `rank` of `ranks`, with tables on which they have agreed.
    ///
    /// # Errors
    /// If a table's t_p is out of bounds, or its indices do not fit its form.
    pub fn without_session(
        tables: impl IntoIterator<Item = (TableId, LookupTable, Form)>,
        (rank, ranks): (Rank, u16),
        block: u8,
        job_seed: u64,
        seed: Option<u64>,
    ) -> Result<Compressor, WorkerError> {
        let coders = tables.into_iter().map(|(id, table, form)| {
            if !T_P.contains(&table.t_p()) {
                let (least, most) = (T_P.start(), T_P.end());
                let reason = format!(
                    "t_p = {:e} of table {id}: norms leave room from {least:e} to {most} (P5)",
                    table.t_p()
                );
                return Err(WorkerError::Unusable { reason });
            }
            Ok(Coder::from_table(id, table, form)?)
        });
        Ok(Compressor {
            coders: coders.collect::<Result<_, _>>()?,
            block,
            workers: ranks,
            rank,
            job_seed,
            roundings: roundings(job_seed, rank, seed.map_or(Rounding::Stratified, Rounding::Seed)),
        })
    }

    /// Returns whether a partition's indices are bytes and are the table values themselves, since the table has all
    /// points of its grid.
    pub fn indices_are_values(&self, at: &Measured) -> bool {
        let complete =
            |coder: &Coder| coder.table.values().len() == usize::from(coder.table.granularity()) + 1;
        self.coder_of(at).is_ok_and(|coder| coder.form.width() == 8 && complete(coder))
    }

    /// The table values of the indices of whole packets, a byte each.
    ///
    /// # Errors
    /// If there are not as many as `packed` has indices.
    pub fn look_up(&self, at: &Measured, packed: &[u8], values: &mut [u8]) -> Result<(), CodecError> {
        let coder = self.coder_of(at)?;
        if coder.form.width() == 4 {
            return aggregate::lookup_set4(values, &coder.table.values16(), packed);
        }
        CodecError::check_len("table values", packed.len(), values.len())?;
        let table = coder.table.values();
        values
            .iter_mut()
            .zip(packed)
            .for_each(|(value, z)| *value = table.get(usize::from(*z)).copied().unwrap_or(0));
        Ok(())
    }

    /// The job's lookup tables by their numbers, in its order.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &LookupTable)> {
        self.coders.iter().map(|coder| (coder.id, &coder.table))
    }

    /// The choice of a call that names no table.
    pub fn usual(&self) -> Choice {
        self.coders.first().map_or(Choice::Raw, |coder| Choice::Table(coder.id))
    }

    fn coder(&self, choice: Choice) -> Option<&Coder> {
        let Choice::Table(id) = choice else { return None };
        self.coders.iter().find(|coder| coder.id == id)
    }

    /// The coder of a partition that is not RAW; no partition names another table.
    fn coder_of(&self, at: &Measured) -> Result<&Coder, CodecError> {
        self.coder(at.choice).ok_or(CodecError::EmptySum)
    }

    /// The form of packets of this choice; `None` for RAW.
    pub fn form(&self, choice: Choice) -> Option<Form> {
        self.coder(choice).map(|coder| coder.form)
    }

    /// Coordinates of a packet, DATA or RAW.
    pub fn coordinates(&self, choice: Choice) -> usize {
        self.form(choice).map_or(RAW_WORDS, Form::coordinates)
    }

    /// M = t_p/√d · ℓ (P5).
    fn range(coder: &Coder, at: &Measured) -> f32 {
        (coder.table.t_p() / (at.part.padded as f64).sqrt() * f64::from(f32::from_bits(at.norm))) as f32
    }

    /// The value of a partition's NORM (P5, P19).
    pub fn norm(&self, choice: Choice, x: &[f32], kept: Option<&[f32]>) -> u32 {
        let value = match (choice, kept) {
            (Choice::Raw, None) => norm::max_abs(x),
            (Choice::Raw, Some(kept)) => norm::max_abs(&add_feedback(x, kept)),
            (Choice::Table(_), Some(kept)) => norm::l2_sum(x, kept),
            (Choice::Table(_), None) => norm::l2(x),
        };
        self.encode_norm(value)
    }

    /// The value of the NORM of a partition whose norm is `value` (P5, P19).
    pub fn encode_norm(&self, value: f32) -> u32 {
        if value.is_nan() || value > f32::from_bits(Norm::MAX) {
            Norm::non_finite(self.rank)
        } else if value < f32::from_bits(Norm::MIN) {
            0
        } else {
            value.to_bits()
        }
    }

    /// The signs of a partition.
    fn key(&self, call: u64, at: &Measured) -> SignKey {
        SignKey { job_seed: self.job_seed, call, partition: at.part.index }
    }

    /// The codec's view of a partition.
    fn block(&self, call: u64, at: &Measured) -> Result<Block<'_>, CodecError> {
        let coder = self.coder_of(at)?;
        Ok(Block {
            quantizer: &coder.quantizer,
            key: self.key(call, at),
            rounding: self.roundings.rounding(call, at.part.index),
            range: Compressor::range(coder, at),
            next: [&[]; 2],
            far: at.far,
        })
    }

    /// Compresses a partition to the indices of all its packets. `kept` is its error feedback, `left` takes
    /// that after the call, `work` is scratch memory for the partition, and `next` is the gradient and error
    /// feedback of the next one, if known.
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
        Block { next, ..self.block(call, at)? }.compress(x, feedback, work, packed)
    }

    /// Rotates a partition and its error feedback into `work`, which needs no norm. [`Self::quantize`] and
    /// [`Self::feed_back`] do the rest of [`Self::compress`].
    pub fn rotate(
        &self,
        (call, at): (u64, &Measured),
        x: &[f32],
        kept: Option<&[f32]>,
        work: &mut [f32],
    ) -> Result<(), CodecError> {
        let key = self.key(call, at);
        match kept {
            None => rht::forward_into(x, work, key),
            Some(kept) => rht::forward_sum(x, kept, work, key),
        }
    }

    /// Quantizes a rotated partition, and leaves its residual, still in the rotated domain, in `work`.
    ///
    /// # Errors
    /// As [`Self::compress`].
    pub fn quantize(
        &self,
        (call, at): (u64, &Measured),
        work: &mut [f32],
        packed: &mut [u8],
    ) -> Result<(), CodecError> {
        let block = self.block(call, at)?;
        block.quantizer.quantize_packed(work, block.range, &block.rounding, 0, packed)
    }

    /// Adds the values of a DATA payload to the packet's residual `x`, which then has the packet's rotated coordinates, up to
    /// rounding errors.
    pub fn add_sent(&self, at: &Measured, payload: &[u8], x: &mut [f32]) -> Result<(), CodecError> {
        let coder = self.coder_of(at)?;
        let (mut sums, mut sent) = ([0; PACKET], [0.0; PACKET]);
        let (sums, sent) = (&mut sums[..x.len()], &mut sent[..x.len()]);
        unpack(coder.form.width(), payload, sums)?;
        let values = coder.table.values();
        sums.iter_mut().for_each(|sum| *sum = values.get(usize::from(*sum)).copied().unwrap_or(0));
        let granularity = coder.quantizer.granularity();
        quantizer::dequantize8(sums, 1, granularity, Compressor::range(coder, at), sent)?;
        x.iter_mut().zip(sent).for_each(|(x, sent)| *x += *sent);
        Ok(())
    }

    /// Turns the residual in the rotated domain into error feedback.
    pub fn feed_back(
        &self,
        (call, at): (u64, &Measured),
        residual: &mut [f32],
        left: &mut [f32],
    ) -> Result<(), CodecError> {
        rht::inverse_into(residual, left, self.key(call, at))
    }

    /// Turns the results of a partition into its mean. `counts` has the number of workers in the sums of each
    /// packet, 0 if they are lost; `sums` has the sums, packet by packet. `work` is memory for the partition,
    /// needed if it is padded or far; `next` is where the next one's mean goes, if known.
    ///
    /// # Errors
    /// If the norm gives no range.
    pub fn finish(
        &self,
        (call, at): (u64, &Measured),
        counts: &[u16],
        sums: &[u8],
        next: &[f32],
        work: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        let block = Block { next: [next, &[]], ..self.block(call, at)? };
        let form = self.coder_of(at)?.form;
        if counts[0] > 0 && counts.iter().all(|&count| count == counts[0]) {
            let (work, count) = (work.get_mut(..at.part.padded).unwrap_or_default(), u32::from(counts[0]));
            return match form.lane() {
                Lane::Bits4 => block.decompress4(sums, count, work, out),
                Lane::Bits8 => block.decompress8(sums, count, work, out),
                Lane::Bits16 => block.decompress16(sums, count, work, out),
            };
        }
        let estimate = |counts: &[u16], sums: &[u8], x: &mut [f32]| {
            let count = u32::from(counts[0]);
            let granularity = block.quantizer.granularity();
            match form.lane() {
                _ if count == 0 => {
                    x.fill(0.0);
                    Ok(())
                }
                Lane::Bits4 => quantizer::dequantize4(sums, count, granularity, block.range, x),
                Lane::Bits8 => quantizer::dequantize8(sums, count, granularity, block.range, x),
                Lane::Bits16 => quantizer::dequantize16(sums, count, granularity, block.range, x),
            }
        };
        let estimates = |x: &mut [f32]| {
            let packets = counts.chunks(1).zip(sums.chunks(form.lanes_len()));
            let mut packets = packets.zip(x.chunks_mut(form.coordinates()));
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

    /// Computes the mean of a partition without padding from results that are held as received.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_held(
        &self,
        (call, at): (u64, &Measured),
        held: &Held,
        next: &[f32],
        work: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        let block = Block { next: [next, &[]], ..self.block(call, at)? };
        let wide = self.coder_of(at)?.form.lane() == Lane::Bits16;
        block.decompress_packets(held.sums(), held.layout, wide, held.count.into(), work, out)
    }

    /// s of P5: the power of two by which coordinates are multiplied, from the maximum's f32 bits.
    pub fn raw_scale(&self, norm: u32) -> f64 {
        power_of_two(self.raw_bits() - exponent(norm))
    }

    /// The largest magnitude of one worker's integers, 2^(30 − ⌈log₂ n⌉): n of them add up to 2^30 at most.
    pub fn raw_limit(&self) -> f64 {
        power_of_two(self.raw_bits())
    }

    /// All packets of a partition that goes RAW with its error feedback.
    pub fn write_raw_with(&self, at: &Measured, x: &[f32], kept: &[f32], words: &mut [u8]) {
        write_words(add_feedback(x, kept), self.raw_scale(at.norm), self.raw_limit(), words);
    }

    fn raw_bits(&self) -> i32 {
        30 - (u16::BITS - (self.workers.max(1) - 1).leading_zeros()) as i32
    }
}

/// The source of a worker's roundings. `rank` counts the workers of all racks, so no two workers have the same source.
fn roundings(job_seed: u64, rank: Rank, rounding: Rounding) -> Source {
    match rounding {
        Rounding::Stratified => Source::for_worker(job_seed, rank.0),
        Rounding::Independent => Source::independent(rank.0.into()),
        Rounding::Seed(seed) => Source::independent(seed),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_codec::partition::{MIN_PARTITION, Partition};
    use thc_codec::rht;
    use thc_protocol::wire::{Norm, Table, Tables};
    use thc_protocol::worker::PacketId;
    use thc_support::wire_table;

    const TABLE: TableId = TableId(3);

    fn compressor(workers: u8, fraction: f64, bits: u8) -> Result<Compressor, WorkerError> {
        let table = LookupTable::solve(bits, (1 << bits) - 1, fraction).unwrap();
        let table = Table { id: TABLE, ..wire_table(Form::new(bits, Lane::Bits16).unwrap(), &table) };
        let welcome = Welcome { job_seed: 1, ..Welcome::new(workers, Tables::one(table)) };
        Compressor::new(&welcome, WorkerId(0), Rounding::Stratified)
    }

    #[test]
    fn workers_of_different_racks_round_independently() {
        use thc_protocol::wire::Rack;
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        let table = Table { id: TABLE, ..wire_table(Form::new(4, Lane::Bits8).unwrap(), &table) };
        let in_rack = |first| {
            let rack = Some(Rack {
                racks: 2,
                rack: WorkerId(0),
                workers: 4,
                quorum: 4,
                first: Rank(first),
                layout: 0,
            });
            let welcome = Welcome { job_seed: 1, rack, ..Welcome::new(2, Tables::one(table)) };
            Compressor::new(&welcome, WorkerId(0), Rounding::Independent).unwrap().keys(0).roundings
        };
        assert_ne!(in_rack(0), in_rack(2));
    }

    fn measurement(padded: usize, norm: u32) -> Measured {
        let part = Partition { index: 0, offset: 0, len: padded, padded };
        Measured { part, group: 0, start: 0, choice: Choice::Table(TABLE), norm, left_out: false, far: false }
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
        let at = PacketId { call: 0, partition: 0, packet: 0 };
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
                read_raw(&bytes, workers.into(), scale, &mut mean);
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
                    let at = measurement(padded, norm);
                    let norm = f32::from_bits(norm);
                    // Gradient and feedback so that all of the norm is in one rotated coordinate.
                    let mut x = vec![0.0; padded];
                    x[5] = norm;
                    rht::inverse(&mut x, compressor.block(0, &at).unwrap().key).unwrap();
                    let kept = vec![0.0; padded];
                    let (mut residual, mut packed) =
                        (vec![0.0; padded], vec![0; padded * usize::from(bits) / 8]);
                    compressor.rotate((0, &at), &x, Some(&kept), &mut residual).unwrap();
                    compressor.quantize((0, &at), &mut residual, &mut packed).unwrap();
                    let (mut left, mut work, mut again) = (kept.clone(), kept.clone(), packed.clone());
                    let fed = Some((&kept[..], &mut left[..]));
                    compressor.compress((0, &at), &x, fed, [&x, &kept], &mut work, &mut again).unwrap();
                    assert!(again == packed && left.iter().chain(&residual).all(|v| v.is_finite()));
                    let n = compressor.coordinates(compressor.usual());
                    let payload = &packed[..n * usize::from(bits) / 8];
                    compressor.add_sent(&at, payload, &mut residual[..n]).unwrap();
                    assert!((residual[5] / norm - 1.0).abs() < 1e-4, "{} {norm}", residual[5]);
                    compressor.feed_back((0, &at), &mut residual, &mut left).unwrap();
                    assert!(left.iter().all(|v| v.is_finite()));
                    // All sums at the upper end: the inverse transform gathers them in one coordinate.
                    let sum = 64 * u16::from(u8::try_from(compressor.coders[0].table.granularity()).unwrap());
                    let sums: Vec<u8> = (0..padded).flat_map(|_| sum.to_be_bytes()).collect();
                    let (mut mean, mut counts) = (vec![0.0; padded], vec![64; padded / n]);
                    compressor.finish((0, &at), &counts, &sums, &[], &mut [], &mut mean).unwrap();
                    assert!(mean.iter().all(|v| v.is_finite()), "p = {fraction:e}, d = {padded}");
                    assert!(Compressor::range(&compressor.coders[0], &at).is_normal());
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
            let at = measurement(1024, norm);
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
