//! signSGD, which sends one sign per coordinate up and the majority's sign down.

use super::check_len;
use super::message::Writer;
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide};
use thc_codec::rounding::Rounding;

/// signSGD with majority vote (Bernstein, Wang, Azizzadenesheli, Anandkumar, ICML 2018).
///
/// The paper sends only signs, and the learning rate determines the length of the step. As an estimate of the
/// mean gradient, signs need a scale: here each worker sends the mean magnitude ‖x‖₁/d, which is the best scale
/// for its own signs (Karimireddy, Rebjock, Stich, Jaggi, ICML 2019), and the server sends the mean of these.
/// Zero counts as positive. If as many workers have plus as minus, the server chooses at random, because one
/// bit cannot encode a zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignSgd;

impl Scheme for SignSgd {
    fn name(&self) -> String {
        "signSGD, majority".to_owned()
    }

    fn source(&self) -> &'static str {
        "Bernstein, Wang, Azizzadenesheli, Anandkumar: signSGD, ICML 2018"
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: false, homomorphic: false, error_feedback: false, recompressed: true }
    }

    fn bits(&self, dimension: usize, _: u32) -> Result<Bits> {
        let bits = dimension as u64 + 32;
        Ok(Bits { up: bits, down: bits })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        Ok(Box::new(SignWorker { dimension: participant.dimension }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        Ok(Box::new(Majority { dimension: participant.dimension, seed: participant.private_seed, round: 0 }))
    }
}

struct SignWorker {
    dimension: usize,
}

impl WorkerSide for SignWorker {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        check_len("gradient", self.dimension, gradient.len())?;
        let sum: f64 = gradient.iter().map(|v| f64::from(v.abs())).sum();
        let mut writer = Writer::new(gradient.len() as u64 + 32);
        writer.put_f32((sum / gradient.len() as f64) as f32);
        gradient.iter().for_each(|v| writer.put(u32::from(*v < 0.0), 1));
        Ok(writer.finish())
    }

    fn decompress(&self, result: &Message, _: u32) -> Result<Vec<f32>> {
        let mut reader = result.read(self.dimension as u64 + 32)?;
        let scale = reader.take_f32();
        Ok((0..self.dimension).map(|_| if reader.take(1) == 1 { -scale } else { scale }).collect())
    }
}

struct Majority {
    dimension: usize,
    seed: u64,
    round: u64,
}

impl ServerSide for Majority {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let mut negative = vec![0_u32; self.dimension];
        let mut scale = 0.0;
        for message in messages {
            let mut reader = message.read(self.dimension as u64 + 32)?;
            scale += f64::from(reader.take_f32()) / messages.len() as f64;
            negative.iter_mut().for_each(|votes| *votes += reader.take(1));
        }
        let coins = Rounding::new(self.seed, self.round, 0);
        self.round += 1;
        let mut writer = Writer::new(self.dimension as u64 + 32);
        writer.put_f32(scale as f32);
        for (i, votes) in (0..).zip(negative) {
            let minus = match (2 * votes).cmp(&(messages.len() as u32)) {
                std::cmp::Ordering::Greater => 1,
                std::cmp::Ordering::Equal => coins.word(i) >> 31,
                std::cmp::Ordering::Less => 0,
            };
            writer.put(minus, 1);
        }
        Ok(writer.finish())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::SchemeGroup;
    use super::*;

    #[test]
    fn the_majority_decides() {
        let mut group = SchemeGroup::new(&SignSgd, 3, 3, 1).unwrap();
        let found = group.allreduce(&[&[1.0, -1.0, 0.0], &[-5.0, -1.0, 3.0], &[2.0, 1.0, 1.0]]).unwrap();
        // Mean magnitudes 2/3, 9/3 and 4/3.
        let scale = 5.0 / 3.0;
        for (found, expected) in found.mean.iter().zip([scale, -scale, scale]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        assert_eq!(SignSgd.bits(3, 3).unwrap(), Bits { up: 35, down: 35 });
    }

    #[test]
    fn ties_are_tossed() {
        let d = 4096;
        let mut group = SchemeGroup::new(&SignSgd, d, 2, 1).unwrap();
        let mean = group.allreduce(&[&vec![1.0; d], &vec![-1.0; d]]).unwrap().mean;
        let plus = mean.iter().filter(|v| **v == 1.0).count();
        assert!(mean.iter().all(|v| v.abs() == 1.0) && plus.abs_diff(d / 2) < 5 * 32, "{plus}");
    }
}
