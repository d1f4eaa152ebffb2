//! n workers and the aggregator model in one process, which exchange real packets without a network.
//!
//! Each worker does what `thc-worker` does for one all-reduce (P4, P5). Its packets go straight to
//! [`thc_protocol::aggregator::Aggregator`], and the RESULTs are decoded.

use std::net::{Ipv4Addr, SocketAddr};

use thc_codec::partition::DEFAULT_BLOCK;
use thc_codec::quantizer::{Quantizer, dequantize8, dequantize16};
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_codec::{norm, partition, rht};
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Lookup, Outcome, Shard, Sink};
use thc_protocol::wire::{Form, HEADER_LEN, Header, Kind, MAX_PACKET, Mode, Norm};
use thc_protocol::{Cookie, Ecn, JobId, Lane, Round, SlotId, TableId, WorkerId};

use crate::error::{Error, Result};

const JOB: JobId = JobId(1);
const TABLE: TableId = TableId(1);
const COOKIE: Cookie = Cookie(0x7463_6801);
const SLOTS: u32 = 64;
const MEMORY: usize = 1 << 20;

/// A job of n workers and an aggregator model, all in this process.
pub struct Loopback {
    aggregator: Aggregator,
    table: LookupTable,
    quantizer: Quantizer,
    workers: u8,
    lane: Lane,
    seed: u64,
    block: u8,
    calls: u64,
    norms: u32,
    packets: u32,
    answer: LastAnswer,
}

/// The last packet that the aggregator sent to all members.
#[derive(Default)]
struct LastAnswer(Vec<u8>);

impl Sink for LastAnswer {
    fn unicast(&mut self, _: Endpoint, _: Ecn, _: &[u8]) {}

    fn multicast(&mut self, _: JobId, _: &[Endpoint], _: Ecn, packet: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(packet);
    }
}

fn endpoint(worker: u8) -> Endpoint {
    Endpoint::udp(SocketAddr::from((Ipv4Addr::LOCALHOST, 10_000 + u16::from(worker))))
}

impl Loopback {
    /// Creates a job with `table` (at most 4 bits) and the narrowest lanes that fit. `seed` decides the shared
    /// signs and the workers' private roundings.
    pub fn new(table: &LookupTable, workers: u8, seed: u64) -> Result<Self> {
        if table.bits() > 4 {
            let bits = table.bits();
            return Err(Error::Usage(format!(
                "a bit budget of {bits} does not fit the wire's 4 bits per coordinate; choose -b 1 to 4"
            )));
        }
        let sum = u32::from(table.granularity()) * u32::from(workers);
        let lane = if sum <= Lane::Bits8.max_sum() { Lane::Bits8 } else { Lane::Bits16 };
        let mut aggregator = Aggregator::new(Shard::WHOLE, MEMORY);
        let form = Form::new(4, lane).unwrap_or(Form::USUAL);
        aggregator.install_table(TABLE, Lookup { form, values: table.values16() })?;
        aggregator.install_job(JobConfig {
            data_slots: SLOTS,
            norm_slots: SLOTS,
            ..JobConfig::new(JOB, COOKIE, workers, vec![TABLE])
        })?;
        for worker in 0..workers {
            aggregator.set_member(JOB, WorkerId(worker), endpoint(worker))?;
        }
        Ok(Self {
            aggregator,
            quantizer: Quantizer::new(table),
            table: table.clone(),
            workers,
            lane,
            seed,
            block: DEFAULT_BLOCK,
            calls: 0,
            norms: 0,
            packets: 0,
            answer: LastAnswer::default(),
        })
    }

    /// Changes the size of full partitions to 2^`block`.
    pub(crate) fn with_block(self, block: u8) -> Self {
        Self { block, ..self }
    }

    /// The bits of a sum: 8, or 16 if n·g needs them.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Runs one all-reduce of the workers' vectors, which must have the same length. Returns the estimate of their mean.
    pub fn allreduce(&mut self, vectors: &[&[f32]]) -> Result<Vec<f32>> {
        let length = vectors.first().map_or(0, |vector| vector.len());
        if vectors.len() != usize::from(self.workers) || vectors.iter().any(|v| v.len() != length) {
            let given =
                format!("{} vectors for {} workers, or of different lengths", vectors.len(), self.workers);
            return Err(Error::Failure(given));
        }
        let mut mean = vec![0.0; length];
        let partitions = partition::split(length, self.block).count() as u32;
        for part in partition::split(length, self.block) {
            let range = part.offset..part.offset + part.len;
            let parts: Vec<&[f32]> = vectors.iter().map(|vector| &vector[range.clone()]).collect();
            let of = (length - part.offset, partitions);
            self.partition(&parts, part.index, part.padded, of, &mut mean[range])?;
        }
        self.calls += 1;
        Ok(mean)
    }

    fn partition(
        &mut self,
        parts: &[&[f32]],
        index: u32,
        padded: usize,
        of: (usize, u32),
        mean: &mut [f32],
    ) -> Result<()> {
        let largest = self.largest_norm(parts, of)?;
        if largest == 0.0 {
            mean.fill(0.0);
            return Ok(());
        }
        let range = (self.table.t_p() / (padded as f64).sqrt() * f64::from(largest)) as f32;
        let key = SignKey { job_seed: self.seed, call: self.calls, partition: index };
        let mut rotated = vec![0.0f32; padded];
        let mut packed = Vec::with_capacity(parts.len());
        for (worker, part) in (0u64..).zip(parts) {
            rotated[..part.len()].copy_from_slice(part);
            rotated[part.len()..].fill(0.0);
            rht::forward(&mut rotated, key)?;
            let private = self.seed.wrapping_add(worker + 1);
            let rounding = Rounding::new(private, self.calls, index);
            let mut indices = vec![0; padded / 2];
            self.quantizer.quantize_packed4(&mut rotated, range, &rounding, 0, &mut indices)?;
            packed.push(indices);
        }
        let sums = self.sums(&packed)?;
        let (count, granularity) = (u32::from(self.workers), u32::from(self.table.granularity()));
        match self.lane {
            Lane::Bits4 | Lane::Bits8 => dequantize8(&sums, count, granularity, range, &mut rotated)?,
            Lane::Bits16 => dequantize16(&sums, count, granularity, range, &mut rotated)?,
        }
        Ok(rht::inverse_into(&mut rotated, mean, key)?)
    }

    /// Runs the norm stage of one partition, and returns the largest norm of all workers. Each NORM also carries the tensor's
    /// length from the partition on, and its partitions.
    fn largest_norm(&mut self, parts: &[&[f32]], (length, partitions): (usize, u32)) -> Result<f32> {
        let seq = self.norms;
        self.norms += 1;
        for (worker, part) in (0..self.workers).zip(parts) {
            let norm = Norm {
                tag: 0,
                value: norm::l2(part).to_bits(),
                length: length as u32,
                call: self.calls as u16,
                table: TABLE,
                mode: Mode::Compressed as u8,
                key: 0,
            };
            self.send(Kind::Norm, worker, seq, &norm.with_tag(partitions).to_bytes())?;
        }
        let (_, payload) = self.result(Kind::NormResult)?;
        let value = Norm::parse(payload).map_or(0, |norm| norm.value);
        Ok(f32::from_bits(value))
    }

    /// Sends all workers' packed indices, and returns the sums in their form on the wire.
    fn sums(&mut self, packed: &[Vec<u8>]) -> Result<Vec<u8>> {
        let bytes = Form::new(4, self.lane).unwrap_or(Form::USUAL).data_len();
        let packets = packed.first().map_or(0, Vec::len) / bytes;
        let mut sums = Vec::new();
        for packet in 0..packets {
            let seq = self.packets;
            self.packets = self.packets.wrapping_add(1);
            for (worker, indices) in (0..self.workers).zip(packed) {
                self.send(Kind::Data, worker, seq, &indices[packet * bytes..][..bytes])?;
            }
            let (_, payload) = self.result(Kind::Result)?;
            sums.extend_from_slice(payload);
        }
        Ok(sums)
    }

    /// Passes one packet to the aggregator.
    fn send(&mut self, kind: Kind, worker: u8, seq: u32, payload: &[u8]) -> Result<()> {
        let header = Header {
            table: if kind == Kind::Data { TABLE } else { TableId(0) },
            round: Round(seq / SLOTS),
            slot: SlotId((seq % SLOTS) as u16),
            ..Header::new(kind, self.workers, JOB, WorkerId(worker), COOKIE)
        };
        let mut buffer = [0; MAX_PACKET];
        let packet = header.emit_packet(&mut buffer, payload);
        match self.aggregator.handle(endpoint(worker), packet, &mut self.answer) {
            Outcome::Handled(_) => Ok(()),
            Outcome::Passed => Err(wrong_answer("what a rack passes on")),
            Outcome::Dropped(reason) => {
                Err(Error::Failure(format!("the aggregator model dropped a packet: {reason:?}")))
            }
        }
    }

    /// The answer that all members received, which must have this kind and include all workers.
    fn result(&self, kind: Kind) -> Result<(Header, &[u8])> {
        match Header::parse(&self.answer.0) {
            Ok((header, payload))
                if header.kind == kind
                    && header.count == u16::from(self.workers)
                    && self.answer.0.len() > HEADER_LEN =>
            {
                Ok((header, payload))
            }
            other => Err(wrong_answer(&format!("{:?}", other.map(|(header, _)| header)))),
        }
    }
}

fn wrong_answer(answer: &str) -> Error {
    Error::Failure(format!("the aggregator model answered {answer} where a result of all workers was due"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;

    #[test]
    fn sums_are_those_of_the_table_values() {
        for (workers, wide) in [(4u8, false), (17, true)] {
            let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
            let mut loopback = Loopback::new(&table, workers, 1).unwrap();
            assert_eq!(loopback.lane() == Lane::Bits16, wide);
            let packed: Vec<Vec<u8>> = (0..workers)
                .map(|w| (0..2048u32).map(|i| (i * 37 + u32::from(w) * 101) as u8).collect())
                .collect();
            // The test uses all slots three times, to show that nothing stays from earlier uses.
            for _ in 0..48 {
                let sums = loopback.sums(&packed).unwrap();
                for coordinate in 0..4096 {
                    let expected: u32 = packed
                        .iter()
                        .map(|bytes| bytes[coordinate / 2] >> (4 - 4 * (coordinate % 2)) & 15)
                        .map(|index| u32::from(table.values()[usize::from(index)]))
                        .sum();
                    let sum = if wide {
                        u32::from(u16::from_be_bytes([sums[2 * coordinate], sums[2 * coordinate + 1]]))
                    } else {
                        u32::from(sums[coordinate])
                    };
                    assert_eq!(sum, expected, "coordinate {coordinate} of {workers} workers");
                }
            }
        }
    }

    #[test]
    fn the_mean_is_estimated_whatever_the_length() {
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        for length in [1usize, 1000, 1025, 7000] {
            let vectors: Vec<Vec<f32>> = (0..4).map(|w| Distribution::Normal.sample(length, 9, w)).collect();
            let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
            let mut loopback = Loopback::new(&table, 4, 2).unwrap();
            // Apart from truncation, the mean of many all-reduces is close to the exact mean.
            let trials = 400;
            let mut average = vec![0.0f64; length];
            for _ in 0..trials {
                for (sum, x) in average.iter_mut().zip(loopback.allreduce(&vectors).unwrap()) {
                    *sum += f64::from(x) / f64::from(trials);
                }
            }
            let mut error = 0.0;
            let mut norm = 0.0;
            for i in 0..length {
                let exact: f64 = vectors.iter().map(|v| f64::from(v[i]) / 4.0).sum();
                error += (average[i] - exact).powi(2);
                norm += exact * exact;
            }
            assert!(error / norm < 0.01, "length {length}: {}", error / norm);
        }
    }

    #[test]
    fn zeros_stay_zeros_and_wrong_vectors_are_refused() {
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        let mut loopback = Loopback::new(&table, 2, 2).unwrap();
        assert_eq!(loopback.allreduce(&[&[0.0; 5000], &[0.0; 5000]]).unwrap(), [0.0; 5000]);
        for (vectors, count) in [(&[&[1.0_f32][..]][..], 1), (&[&[1.0], &[1.0, 2.0]], 2)] {
            let error = loopback.allreduce(vectors).unwrap_err();
            assert_eq!(error.to_string(), format!("{count} vectors for 2 workers, or of different lengths"));
        }
        let wide = LookupTable::solve(5, 60, 0.1).unwrap();
        let error = Loopback::new(&wide, 2, 0).err().unwrap();
        assert!(error.exit_status() == 2 && error.to_string().starts_with("a bit budget of 5"), "{error}");
    }
}
