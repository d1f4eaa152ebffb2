//! 1-bit SGD, which sends one sign per coordinate and decodes it to the mean of its side.

use super::message::Writer;
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide, with_feedback};
use thc_codec::CodecError;

/// 1-bit SGD with error feedback (Seide, Fu, Droppo, Li, Yu, Interspeech 2014).
///
/// A worker sends only the signs of gradient plus error feedback, and two values per column to which the
/// signs are decoded: the means of the coordinates from 0 up, and of those below. The server decodes,
/// averages, and quantizes the mean in the same way, with error feedback of its own ("double quantization").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneBit {
    /// The number of coordinates of a column, which has its own two values. `None`: the tensor is one column.
    pub column: Option<usize>,
}

/// The quantizer of both directions.
#[derive(Debug, Clone, Copy)]
struct Code {
    column: usize,
    dimension: usize,
}

impl Code {
    fn bits(&self) -> u64 {
        self.dimension as u64 + 64 * self.dimension.div_ceil(self.column) as u64
    }

    /// Encodes `x` and replaces it by the error.
    fn encode(&self, x: &mut [f32]) -> Message {
        let mut writer = Writer::new(self.bits());
        for column in x.chunks_mut(self.column) {
            let (mut sums, mut counts) = ([0.0_f64; 2], [0_u32; 2]);
            for v in column.iter() {
                let side = usize::from(*v < 0.0);
                sums[side] += f64::from(*v);
                counts[side] += 1;
            }
            let values: [f32; 2] = [0, 1].map(|side| (sums[side] / f64::from(counts[side].max(1))) as f32);
            values.iter().for_each(|v| writer.put_f32(*v));
            for v in column.iter_mut() {
                let side = usize::from(*v < 0.0);
                writer.put(side as u32, 1);
                *v -= values[side];
            }
        }
        writer.finish()
    }

    /// Calls `visit` with every coordinate in order.
    fn decode(&self, message: &Message, mut visit: impl FnMut(usize, f32)) -> Result<()> {
        let mut reader = message.read(self.bits())?;
        let mut values = [0.0; 2];
        for i in 0..self.dimension {
            if i % self.column == 0 {
                values = [reader.take_f32(), reader.take_f32()];
            }
            visit(i, values[reader.take(1) as usize]);
        }
        Ok(())
    }
}

impl OneBit {
    fn code(&self, dimension: usize) -> Result<Code> {
        if self.column == Some(0) {
            let what = "the length of a column";
            return Err(CodecError::Parameter { what, value: 0.0, allowed: "at least 1" });
        }
        Ok(Code { column: self.column.unwrap_or(dimension).min(dimension), dimension })
    }
}

impl Scheme for OneBit {
    fn name(&self) -> String {
        match self.column {
            Some(column) => format!("1-bit SGD, columns of {column}"),
            None => "1-bit SGD".to_owned(),
        }
    }

    fn source(&self) -> &'static str {
        "Seide, Fu, Droppo, Li, Yu: 1-Bit Stochastic Gradient Descent, Interspeech 2014"
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: false, homomorphic: false, error_feedback: true, recompressed: true }
    }

    fn bits(&self, dimension: usize, _: u32) -> Result<Bits> {
        let bits = self.code(dimension)?.bits();
        Ok(Bits { up: bits, down: bits })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        let code = self.code(participant.dimension)?;
        Ok(Box::new(OneBitWorker { code, feedback: vec![0.0; participant.dimension] }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        let code = self.code(participant.dimension)?;
        Ok(Box::new(OneBitServer { code, feedback: vec![0.0; participant.dimension] }))
    }
}

struct OneBitWorker {
    code: Code,
    feedback: Vec<f32>,
}

impl WorkerSide for OneBitWorker {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        self.feedback = with_feedback(gradient, &self.feedback)?;
        Ok(self.code.encode(&mut self.feedback))
    }

    fn decompress(&self, result: &Message, _: u32) -> Result<Vec<f32>> {
        let mut mean = vec![0.0; self.code.dimension];
        self.code.decode(result, |i, v| mean[i] = v)?;
        Ok(mean)
    }

    fn feedback(&self) -> Option<&[f32]> {
        Some(&self.feedback)
    }
}

struct OneBitServer {
    code: Code,
    /// The errors of the means of earlier rounds.
    feedback: Vec<f32>,
}

impl ServerSide for OneBitServer {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let count = messages.len() as f32;
        for message in messages {
            self.code.decode(message, |i, v| self.feedback[i] += v / count)?;
        }
        Ok(self.code.encode(&mut self.feedback))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_decoded_to_their_means() {
        let code = OneBit { column: Some(3) }.code(5).unwrap();
        let mut x = [1.0, 3.0, -8.0, -1.0, -2.0];
        let message = code.encode(&mut x);
        // Two columns: four values and five signs.
        assert_eq!((message.bits(), code.bits()), (133, 133));
        let mut back = [0.0; 5];
        code.decode(&message, |i, v| back[i] = v).unwrap();
        assert_eq!(back, [2.0, 2.0, -8.0, -1.5, -1.5]);
        assert_eq!(x, [-1.0, 1.0, 0.0, 0.5, -0.5]);
        assert_eq!(OneBit { column: None }.bits(5, 1).unwrap(), Bits { up: 69, down: 69 });
        assert!(OneBit { column: Some(0) }.bits(5, 1).is_err());
    }
}
