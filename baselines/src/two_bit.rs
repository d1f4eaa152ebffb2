//! 2-bit compression, which sends −t, 0 or t once a coordinate has accumulated the threshold t.

use super::message::Writer;
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide, with_feedback};
use thc_codec::CodecError;

/// 2-bit compression with a threshold, as in MXNet's key-value store (version 1.0 on), after Strom:
/// Scalable Distributed DNN Training Using Commodity GPU Cloud Computing, Interspeech 2015.
///
/// A coordinate of gradient plus error feedback that has reached the threshold t is sent as t, one at or
/// below −t as −t, and others as 0. Error feedback keeps the difference. The way down is not compressed:
/// the server decodes, adds and sends floats. (With one threshold for all workers it could add digits, so
/// the scheme counts as homomorphic, which MXNet does not use.)
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoBit {
    /// The threshold t, in the unit of the gradient. Users tune it, and it is fixed during a training.
    pub threshold: f32,
}

/// The codes of the digits, which are MXNet's.
const PLUS: u32 = 0b11;
const MINUS: u32 = 0b10;
const ZERO: u32 = 0b00;

impl TwoBit {
    fn check(&self) -> Result<()> {
        if self.threshold.is_finite() && self.threshold > 0.0 {
            return Ok(());
        }
        let value = f64::from(self.threshold);
        Err(CodecError::Parameter { what: "the threshold", value, allowed: "above 0" })
    }
}

impl Scheme for TwoBit {
    fn name(&self) -> String {
        "2-bit, threshold".to_owned()
    }

    fn source(&self) -> &'static str {
        "Strom: Scalable Distributed DNN Training, Interspeech 2015, as in MXNet"
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: false, homomorphic: true, error_feedback: true, recompressed: false }
    }

    fn bits(&self, dimension: usize, _: u32) -> Result<Bits> {
        self.check()?;
        Ok(Bits { up: 2 * dimension as u64, down: 32 * dimension as u64 })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        self.check()?;
        Ok(Box::new(TwoBitWorker { threshold: self.threshold, feedback: vec![0.0; participant.dimension] }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        self.check()?;
        Ok(Box::new(TwoBitServer { threshold: self.threshold, dimension: participant.dimension }))
    }
}

struct TwoBitWorker {
    threshold: f32,
    feedback: Vec<f32>,
}

impl WorkerSide for TwoBitWorker {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        self.feedback = with_feedback(gradient, &self.feedback)?;
        let mut writer = Writer::new(2 * gradient.len() as u64);
        for v in &mut self.feedback {
            if *v >= self.threshold {
                *v -= self.threshold;
                writer.put(PLUS, 2);
            } else if *v <= -self.threshold {
                *v += self.threshold;
                writer.put(MINUS, 2);
            } else {
                writer.put(ZERO, 2);
            }
        }
        Ok(writer.finish())
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        let mut sum = result.floats(self.feedback.len())?;
        sum.iter_mut().for_each(|v| *v /= count as f32);
        Ok(sum)
    }

    fn feedback(&self) -> Option<&[f32]> {
        Some(&self.feedback)
    }
}

struct TwoBitServer {
    threshold: f32,
    dimension: usize,
}

impl ServerSide for TwoBitServer {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let mut sum = vec![0.0_f32; self.dimension];
        for message in messages {
            let mut reader = message.read(2 * sum.len() as u64)?;
            for v in &mut sum {
                match reader.take(2) {
                    PLUS => *v += self.threshold,
                    MINUS => *v -= self.threshold,
                    _ => {}
                }
            }
        }
        Ok(Message::from_floats(&sum))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::SchemeGroup;
    use super::*;

    #[test]
    fn what_has_accumulated_is_sent() {
        let scheme = TwoBit { threshold: 1.0 };
        assert_eq!(scheme.bits(3, 4).unwrap(), Bits { up: 6, down: 96 });
        let mut group = SchemeGroup::new(&scheme, 3, 1, 1).unwrap();
        let mut round = |x: [f32; 3]| group.allreduce(&[&x]).unwrap().mean;
        assert_eq!(round([0.6, -1.0, 2.5]), [0.0, -1.0, 1.0]);
        assert_eq!(round([0.6, 0.0, 0.0]), [1.0, 0.0, 1.0]);
        assert_eq!(round([0.6, 0.0, 0.0]), [0.0, 0.0, 0.0]);
        for threshold in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let wrong = TwoBit { threshold };
            assert!(wrong.bits(3, 1).is_err() && wrong.worker(Participant::worker(3, 1, 0, 1)).is_err());
        }
    }
}
