//! QSGD, which rounds stochastically to a few levels between 0 and the Euclidean norm.

use super::check_len;
use super::message::{Reader, Writer};
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide, width};
use thc_codec::CodecError;
use thc_codec::rounding::Rounding;

/// QSGD (Alistarh, Grubic, Li, Tomioka, Vojnović, NeurIPS 2017).
///
/// In buckets of consecutive coordinates, v becomes ‖bucket‖₂·sign(v)·k/s, where k is one of the two
/// levels around s·|v|/‖bucket‖₂, chosen at random so that the mean is v. A coordinate takes a sign and a
/// level of fixed width, and a bucket an `f32` for its norm (the paper also has an Elias code, which is
/// shorter if most levels are 0). Each worker has its own norms, so the server must decode. It quantizes
/// the mean again, with more levels and a random stream of its own, like a parameter server with a wider
/// way down (THC paper, section 8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qsgd {
    /// The number s of levels above 0 on the way up: 7 makes 4 bits.
    pub levels: u32,
    /// The number of levels on the way down: 127 makes 8 bits.
    pub down_levels: u32,
    /// The number of coordinates that share a norm, 512 in the paper's experiments. `None`: all of them.
    pub bucket: Option<usize>,
}

/// The quantizer of one direction.
#[derive(Debug, Clone, Copy)]
struct Code {
    levels: u32,
    bucket: usize,
    dimension: usize,
}

impl Code {
    fn new(levels: u32, bucket: Option<usize>, dimension: usize) -> Result<Self> {
        let refuse = |what, value, allowed| Err(CodecError::Parameter { what, value, allowed });
        match (levels, bucket) {
            (0, _) | (0x100_0000.., _) => refuse("the number of levels", f64::from(levels), "1 to 2^24 - 1"),
            (_, Some(0)) => refuse("the length of a bucket", 0.0, "at least 1"),
            _ => Ok(Self { levels, bucket: bucket.unwrap_or(dimension).min(dimension), dimension }),
        }
    }

    fn width(&self) -> u32 {
        1 + width(u64::from(self.levels))
    }

    fn bits(&self) -> u64 {
        let d = self.dimension as u64;
        u64::from(self.width()) * d + 32 * self.dimension.div_ceil(self.bucket) as u64
    }

    fn encode(&self, x: &[f32], rounding: Rounding) -> Message {
        let mut writer = Writer::new(self.bits());
        let bits = self.width();
        let mut i = 0;
        for bucket in x.chunks(self.bucket) {
            let norm = thc_codec::norm::l2(bucket);
            writer.put_f32(norm);
            let scale = if norm > 0.0 { f64::from(self.levels) / f64::from(norm) } else { 0.0 };
            for v in bucket {
                let position = (f64::from(v.abs()) * scale).min(f64::from(self.levels));
                let up = f64::from(rounding.uniform(i)) < position.fract();
                let sign = u32::from(v.is_sign_negative()) << (bits - 1);
                writer.put(sign | (position as u32 + u32::from(up)), bits);
                i += 1;
            }
        }
        writer.finish()
    }

    /// Calls `visit` with every coordinate in order.
    fn decode(&self, message: &Message, mut visit: impl FnMut(usize, f64)) -> Result<()> {
        let mut reader: Reader<'_> = message.read(self.bits())?;
        let bits = self.width();
        let mut unit = 0.0;
        for i in 0..self.dimension {
            if i % self.bucket == 0 {
                unit = f64::from(reader.take_f32()) / f64::from(self.levels);
            }
            let code = reader.take(bits);
            let level = f64::from(code & ((1 << (bits - 1)) - 1));
            visit(i, if code >> (bits - 1) == 1 { -level * unit } else { level * unit });
        }
        Ok(())
    }
}

impl Qsgd {
    fn code_up(&self, dimension: usize) -> Result<Code> {
        Code::new(self.levels, self.bucket, dimension)
    }

    fn code_down(&self, dimension: usize) -> Result<Code> {
        Code::new(self.down_levels, self.bucket, dimension)
    }
}

impl Scheme for Qsgd {
    fn name(&self) -> String {
        let bits = 1 + width(u64::from(self.levels));
        match self.bucket {
            Some(bucket) => format!("QSGD {bits} bit, buckets of {bucket}"),
            None => format!("QSGD {bits} bit, one norm"),
        }
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: true, homomorphic: false, error_feedback: false, recompressed: true }
    }

    fn bits(&self, dimension: usize, _: u32) -> Result<Bits> {
        Ok(Bits { up: self.code_up(dimension)?.bits(), down: self.code_down(dimension)?.bits() })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        let (up, down) = (self.code_up(participant.dimension)?, self.code_down(participant.dimension)?);
        Ok(Box::new(QsgdWorker { up, down, seed: participant.private_seed, round: 0 }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        let (up, down) = (self.code_up(participant.dimension)?, self.code_down(participant.dimension)?);
        Ok(Box::new(QsgdServer { up, down, seed: participant.private_seed, round: 0 }))
    }
}

struct QsgdWorker {
    up: Code,
    down: Code,
    seed: u64,
    round: u64,
}

impl WorkerSide for QsgdWorker {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        check_len("gradient", self.up.dimension, gradient.len())?;
        let rounding = Rounding::new(self.seed, self.round, 0);
        self.round += 1;
        Ok(self.up.encode(gradient, rounding))
    }

    fn decompress(&self, result: &Message, _: u32) -> Result<Vec<f32>> {
        let mut mean = vec![0.0; self.down.dimension];
        self.down.decode(result, |i, v| mean[i] = v as f32)?;
        Ok(mean)
    }
}

struct QsgdServer {
    up: Code,
    down: Code,
    seed: u64,
    round: u64,
}

impl ServerSide for QsgdServer {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let mut sum = vec![0.0_f32; self.up.dimension];
        let count = messages.len() as f64;
        for message in messages {
            self.up.decode(message, |i, v| sum[i] += (v / count) as f32)?;
        }
        let rounding = Rounding::new(self.seed, self.round, 0);
        self.round += 1;
        Ok(self.down.encode(&sum, rounding))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sizes_by_hand() {
        let scheme = Qsgd { levels: 7, down_levels: 127, bucket: Some(512) };
        // 1000 coordinates are two buckets: two norms.
        assert_eq!(scheme.bits(1000, 4).unwrap(), Bits { up: 4064, down: 8064 });
        let ternary = Qsgd { levels: 1, down_levels: 1, bucket: None };
        assert_eq!(ternary.bits(10, 4).unwrap(), Bits { up: 52, down: 52 });
        for wrong in [
            Qsgd { levels: 0, ..scheme },
            Qsgd { down_levels: 1 << 24, ..scheme },
            Qsgd { bucket: Some(0), ..scheme },
        ] {
            assert!(matches!(wrong.bits(10, 1), Err(CodecError::Parameter { .. })));
            assert!(wrong.server(Participant::server(10, 1, 1)).is_err());
        }
    }

    #[test]
    fn levels_are_kept_exactly_and_zero_stays() {
        let code = Code::new(5, Some(2), 5).unwrap();
        let x = [3.0, -4.0, 0.0, 0.0, -7.0];
        let message = code.encode(&x, Rounding::new(1, 2, 3));
        assert_eq!(message.bits(), code.bits());
        let mut back = [9.0; 5];
        code.decode(&message, |i, v| back[i] = v as f32).unwrap();
        assert_eq!(back, x);
    }
}
