//! The scheme without compression: 32-bit floats in both directions.

use super::check_len;
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide};

/// The mean, which is exact up to the rounding of the sum in `f32`.
#[derive(Debug, Clone, Copy)]
pub struct Uncompressed;

impl Scheme for Uncompressed {
    fn name(&self) -> String {
        "no compression".to_owned()
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: true, homomorphic: true, error_feedback: false, recompressed: false }
    }

    fn bits(&self, dimension: usize, _: u32) -> Result<Bits> {
        let bits = 32 * dimension as u64;
        Ok(Bits { up: bits, down: bits })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        Ok(Box::new(Floats { dimension: participant.dimension }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        Ok(Box::new(FloatSum { dimension: participant.dimension }))
    }
}

struct Floats {
    dimension: usize,
}

impl WorkerSide for Floats {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        check_len("gradient", self.dimension, gradient.len())?;
        Ok(Message::from_floats(gradient))
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        let mut sum = result.floats(self.dimension)?;
        sum.iter_mut().for_each(|v| *v /= count as f32);
        Ok(sum)
    }
}

/// Adds up messages of `f32`s in the order of the workers.
struct FloatSum {
    dimension: usize,
}

impl ServerSide for FloatSum {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let mut sum = vec![0.0_f32; self.dimension];
        for message in messages {
            let values = message.floats(self.dimension)?;
            sum.iter_mut().zip(values).for_each(|(s, v)| *s += v);
        }
        Ok(Message::from_floats(&sum))
    }
}
