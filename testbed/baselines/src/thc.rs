//! THC itself, with the same kernels as the worker library.

use super::lanes::{Lanes, pad};
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide, with_feedback};
use thc_codec::norm;
use thc_codec::partition::Partition;
use thc_codec::quantizer::Quantizer;
use thc_codec::rht;
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;

/// THC (Li et al., NSDI 2024, Algorithm 3): transform, truncation, optimal table, error feedback.
///
/// The server looks up and adds. An index counts b bits. A sum counts 8 bits, or 16 if g·n exceeds
/// 255.
#[derive(Debug, Clone, PartialEq)]
pub struct Thc {
    table: LookupTable,
}

impl Thc {
    /// Creates the scheme with the optimal table for bit budget b, granularity g and fraction p.
    pub fn new(bits: u8, granularity: u16, fraction: f64) -> Result<Self> {
        Ok(Self { table: LookupTable::solve(bits, granularity, fraction)? })
    }

    /// Creates the scheme with a given table, which must have a finite threshold (unlike [`LookupTable::uniform`]).
    #[must_use]
    pub fn with_table(table: LookupTable) -> Self {
        Self { table }
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &LookupTable {
        &self.table
    }

    fn lanes(&self, dimension: usize, workers: u32) -> Result<Lanes> {
        Lanes::new(&self.table, dimension, workers, true)
    }
}

impl Scheme for Thc {
    fn name(&self) -> String {
        let (bits, granularity) = (self.table.bits(), self.table.granularity());
        format!("THC b = {bits}, g = {granularity}, p = 1/{:.0}", 1.0 / self.table.fraction())
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: false, homomorphic: true, error_feedback: true, recompressed: false }
    }

    fn bits(&self, dimension: usize, workers: u32) -> Result<Bits> {
        let lanes = self.lanes(dimension, workers)?;
        let norms = 32 * lanes.partitions.len() as u64;
        Ok(Bits { up: norms + lanes.bits_up(), down: norms + lanes.bits_down() })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        Ok(Box::new(ThcWorker {
            lanes: self.lanes(participant.dimension, participant.workers)?,
            quantizer: Quantizer::new(&self.table),
            t_p: self.table.t_p(),
            feedback: vec![0.0; participant.dimension],
            participant,
            ranges: Vec::new(),
            call: 0,
        }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        Ok(Box::new(ThcServer { lanes: self.lanes(participant.dimension, participant.workers)? }))
    }
}

struct ThcWorker {
    lanes: Lanes,
    quantizer: Quantizer,
    t_p: f64,
    feedback: Vec<f32>,
    participant: Participant,
    /// M of every partition.
    ranges: Vec<f32>,
    call: u64,
}

impl ThcWorker {
    fn key(&self, call: u64, part: &Partition) -> SignKey {
        SignKey { job_seed: self.participant.shared_seed, call, partition: part.index }
    }
}

impl WorkerSide for ThcWorker {
    fn announce(&mut self, gradient: &[f32]) -> Result<Message> {
        let x = with_feedback(gradient, &self.feedback)?;
        let norm = |p: &Partition| norm::l2(&x[p.offset..p.offset + p.len]);
        Ok(Message::from_floats(&self.lanes.partitions.iter().map(norm).collect::<Vec<f32>>()))
    }

    fn compress(&mut self, gradient: &[f32], agreed: &Message) -> Result<Message> {
        let x = with_feedback(gradient, &self.feedback)?;
        let norms = agreed.floats(self.lanes.partitions.len())?;
        self.ranges.clear();
        let mut indices = Vec::new();
        for (p, norm) in self.lanes.partitions.iter().zip(norms) {
            let mut part = pad(&x, p);
            let range = (self.t_p / (part.len() as f64).sqrt() * f64::from(norm)) as f32;
            self.ranges.push(range);
            let start = indices.len();
            indices.resize(start + part.len(), 0);
            let key = self.key(self.call, p);
            let out = &mut self.feedback[p.offset..p.offset + p.len];
            // The numbers of all workers are zeros, or too small for a range.
            if range == 0.0 {
                out.copy_from_slice(&part[..p.len]);
                continue;
            }
            rht::forward(&mut part, key)?;
            let rounding = Rounding::new(self.participant.private_seed, self.call, p.index);
            self.quantizer.quantize(&mut part, range, &rounding, 0, &mut indices[start..])?;
            rht::inverse_into(&mut part, out, key)?;
        }
        self.call += 1;
        self.lanes.encode(&indices)
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        let units = f64::from(self.quantizer.granularity()) * f64::from(count);
        let value = |part: usize, sum: u32| {
            let range = f64::from(self.ranges[part]);
            (f64::from(sum) * 2.0 * range / units - range) as f32
        };
        let mut mean = Vec::with_capacity(self.participant.dimension);
        for (i, (mut part, p)) in
            self.lanes.decode(result, value)?.into_iter().zip(&self.lanes.partitions).enumerate()
        {
            if self.ranges[i] > 0.0 {
                rht::inverse(&mut part, self.key(self.call - 1, p))?;
            }
            mean.extend_from_slice(&part[..p.len]);
        }
        Ok(mean)
    }

    fn feedback(&self) -> Option<&[f32]> {
        Some(&self.feedback)
    }
}

struct ThcServer {
    lanes: Lanes,
}

impl ServerSide for ThcServer {
    fn agree(&mut self, announcements: &[Message]) -> Result<Message> {
        let mut norms = vec![0.0_f32; self.lanes.partitions.len()];
        for message in announcements {
            let own = message.floats(norms.len())?;
            norms.iter_mut().zip(own).for_each(|(norm, own)| *norm = norm.max(own));
        }
        Ok(Message::from_floats(&norms))
    }

    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        self.lanes.aggregate(messages)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::SchemeGroup;
    use super::*;

    #[test]
    fn sizes_by_hand() {
        let scheme = Thc::new(4, 30, 1.0 / 32.0).unwrap();
        assert_eq!(scheme.name(), "THC b = 4, g = 30, p = 1/32");
        // 1500 coordinates: partitions of 1024 and 1024, a norm each.
        assert_eq!(scheme.bits(1500, 8).unwrap(), Bits { up: 64 + 8192, down: 64 + 16_384 });
        assert_eq!(scheme.bits(1500, 9).unwrap(), Bits { up: 64 + 8192, down: 64 + 32_768 });
        let three = Thc::new(3, 16, 1.0 / 32.0).unwrap();
        assert_eq!(three.bits(1024, 1).unwrap(), Bits { up: 32 + 3072, down: 32 + 8192 });
    }

    #[test]
    fn zeros_stay_zeros_and_copies_follow_theory() {
        let scheme = Thc::new(4, 30, 1.0 / 32.0).unwrap();
        let d = 1 << 15;
        let mut group = SchemeGroup::new(&scheme, d, 4, 1).unwrap();
        let zeros = vec![0.0; d];
        assert_eq!(group.allreduce(&[&zeros[..]; 4]).unwrap().mean, zeros);
        let table = scheme.table();
        let theory = table.quantization_error() / 4.0 + table.truncation_error();
        let x: Vec<f32> = (0..d).map(|i| (i as f32 * 0.77).sin().exp()).collect();
        let squares: f64 = x.iter().map(|v| f64::from(*v).powi(2)).sum();
        let mut error = 0.0;
        for seed in 0..10 {
            let mean = SchemeGroup::new(&scheme, d, 4, seed).unwrap().allreduce(&[&x[..]; 4]).unwrap().mean;
            error += x.iter().zip(mean).map(|(x, m)| f64::from(x - m).powi(2)).sum::<f64>();
        }
        let found = error / 10.0 / squares;
        assert!((found / theory - 1.0).abs() < 0.03, "{found} {theory}");
    }
}
