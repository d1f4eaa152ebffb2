//! Uniform THC, which quantizes to the same equidistant values on all workers.

use super::check_len;
use super::lanes::{Lanes, pad};
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide};
use thc_codec::norm;
use thc_codec::quantizer::Quantizer;
use thc_codec::rht;
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;

/// Uniform THC (Li et al., NSDI 2024, Algorithm 1), with or without the transform.
///
/// The workers agree on the smallest and the largest coordinate of each partition among all of them, and
/// round stochastically to 2^b equidistant values between these. Nothing is truncated, so the scheme is
/// unbiased and needs no error feedback. With the transform, the extremes are those of rotated coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniformThc {
    /// The bit budget b, 1 to 8.
    pub bits: u8,
    /// Whether the randomized Hadamard transform rotates gradients first.
    pub rotated: bool,
}

impl UniformThc {
    fn lanes(&self, dimension: usize, workers: u32) -> Result<Lanes> {
        Lanes::new(&LookupTable::uniform(self.bits)?, dimension, workers, self.rotated)
    }
}

impl Scheme for UniformThc {
    fn name(&self) -> String {
        format!("uniform THC {} bit, {} RHT", self.bits, if self.rotated { "with" } else { "without" })
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: true, homomorphic: true, error_feedback: false, recompressed: false }
    }

    fn bits(&self, dimension: usize, workers: u32) -> Result<Bits> {
        let lanes = self.lanes(dimension, workers)?;
        let ranges = 64 * lanes.partitions.len() as u64;
        Ok(Bits { up: ranges + lanes.bits_up(), down: ranges + lanes.bits_down() })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        Ok(Box::new(UniformWorker {
            lanes: self.lanes(participant.dimension, participant.workers)?,
            quantizer: Quantizer::new(&LookupTable::uniform(self.bits)?),
            rotated: self.rotated,
            participant,
            ranges: Vec::new(),
            call: 0,
        }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        Ok(Box::new(UniformServer { lanes: self.lanes(participant.dimension, participant.workers)? }))
    }
}

struct UniformWorker {
    lanes: Lanes,
    quantizer: Quantizer,
    rotated: bool,
    participant: Participant,
    /// The agreed (m, M) of every partition.
    ranges: Vec<(f32, f32)>,
    call: u64,
}

impl UniformWorker {
    fn key(&self, call: u64, partition: u32) -> SignKey {
        SignKey { job_seed: self.participant.shared_seed, call, partition }
    }

    /// The partitions of a gradient, in the form in which they are quantized.
    fn parts(&self, gradient: &[f32]) -> Result<Vec<Vec<f32>>> {
        check_len("gradient", self.participant.dimension, gradient.len())?;
        let part = |p: &thc_codec::partition::Partition| {
            let mut x = pad(gradient, p);
            if self.rotated {
                rht::forward(&mut x, self.key(self.call, p.index))?;
            }
            Ok(x)
        };
        self.lanes.partitions.iter().map(part).collect()
    }
}

fn range(floats: &[f32]) -> (f32, f32) {
    (floats[0], floats[1])
}

impl WorkerSide for UniformWorker {
    fn announce(&mut self, gradient: &[f32]) -> Result<Message> {
        let mut ends = Vec::new();
        for part in self.parts(gradient)? {
            // Finite gradients have extremes, but the transform of finite gradients may overflow.
            let (lo, hi) = norm::min_max(&part).unwrap_or((f32::NAN, f32::NAN));
            ends.extend([lo, hi]);
        }
        Ok(Message::from_floats(&ends))
    }

    fn compress(&mut self, gradient: &[f32], agreed: &Message) -> Result<Message> {
        let mut parts = self.parts(gradient)?;
        self.ranges = agreed.floats(2 * parts.len())?.chunks(2).map(range).collect();
        let mut indices = Vec::new();
        for ((part, p), (lo, hi)) in parts.iter_mut().zip(&self.lanes.partitions).zip(&self.ranges) {
            let rounding = Rounding::new(self.participant.private_seed, self.call, p.index);
            let start = indices.len();
            indices.resize(start + part.len(), 0);
            self.quantizer.quantize_between(part, *lo, *hi, &rounding, 0, &mut indices[start..])?;
        }
        self.call += 1;
        self.lanes.encode(&indices)
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        let steps: Vec<(f64, f64)> = self
            .ranges
            .iter()
            .map(|(lo, hi)| {
                let width = f64::from(*hi) - f64::from(*lo);
                (f64::from(*lo), width / (f64::from(self.quantizer.granularity()) * f64::from(count)))
            })
            .collect();
        let value = |part: usize, sum: u32| (steps[part].0 + f64::from(sum) * steps[part].1) as f32;
        let mut mean = Vec::with_capacity(self.participant.dimension);
        for (mut part, p) in self.lanes.decode(result, value)?.into_iter().zip(&self.lanes.partitions) {
            if self.rotated {
                rht::inverse(&mut part, self.key(self.call - 1, p.index))?;
            }
            mean.extend_from_slice(&part[..p.len]);
        }
        Ok(mean)
    }
}

struct UniformServer {
    lanes: Lanes,
}

impl ServerSide for UniformServer {
    fn agree(&mut self, announcements: &[Message]) -> Result<Message> {
        let count = 2 * self.lanes.partitions.len();
        let mut ends = Vec::new();
        for message in announcements {
            let own = message.floats(count)?;
            if ends.is_empty() {
                ends = own;
                continue;
            }
            for (ends, own) in ends.chunks_mut(2).zip(own.chunks(2)) {
                ends[0] = ends[0].min(own[0]);
                ends[1] = ends[1].max(own[1]);
            }
        }
        Ok(Message::from_floats(&ends))
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
        let plain = UniformThc { bits: 4, rotated: false };
        // 17 workers of at most 15 fit 8 bits, 18 do not; one range of two floats.
        assert_eq!(plain.bits(1000, 17).unwrap(), Bits { up: 4064, down: 8064 });
        assert_eq!(plain.bits(1000, 18).unwrap(), Bits { up: 4064, down: 16_064 });
        // The transform pads 1000 to 1024.
        assert_eq!(
            UniformThc { bits: 4, rotated: true }.bits(1000, 4).unwrap(),
            Bits { up: 4160, down: 8256 }
        );
        assert!(UniformThc { bits: 9, rotated: false }.bits(10, 1).is_err());
    }

    #[test]
    fn equidistant_values_are_kept() {
        let x: Vec<f32> = (0..16).map(|i| i as f32 - 4.0).collect();
        let mut group = SchemeGroup::new(&UniformThc { bits: 4, rotated: false }, 16, 3, 1).unwrap();
        assert_eq!(group.allreduce(&[&x[..]; 3]).unwrap().mean, x);
        let constant = [2.5; 16];
        assert_eq!(group.allreduce(&[&constant[..]; 3]).unwrap().mean, constant);
    }
}
