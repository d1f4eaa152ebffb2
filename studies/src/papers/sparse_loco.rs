//! SparseLoCo's messages: of every chunk the largest coordinates, in two bits each.

use thc_baselines::{Bits, Message, Participant, Properties, Scheme, ServerSide, WorkerSide};
use thc_codec::CodecError;

type Result<T> = std::result::Result<T, CodecError>;

/// SparseLoCo (Sarfi, Thérien, Lidin, Belilovsky 2025): a worker adds how far it has gone to 0.95 of what it has kept back, and sends of each
/// chunk of 4096 coordinates the largest; all workers get all messages. Two bits of a value are its sign and which of two magnitudes of its chunk
/// it has, which are the means of the smaller and of the larger ones; the paper leaves open how it quantizes.
pub struct SparseLoCo {
    /// One of so many coordinates is sent.
    pub inverse: usize,
}

/// What is kept of what was not sent.
const KEPT: f32 = 0.95;
/// Coordinates of a chunk.
const CHUNK: usize = 4096;
/// Bits of a position in it.
const POSITION: u32 = 12;
/// Bits of a value.
const VALUE: u32 = 2;

impl SparseLoCo {
    /// How many coordinates of each chunk are sent.
    fn counts(&self, dimension: usize) -> impl Iterator<Item = usize> {
        let inverse = self.inverse.max(1);
        (0..dimension).step_by(CHUNK).map(move |start| CHUNK.min(dimension - start).div_ceil(inverse))
    }

    /// Length of a message, in whole bytes.
    fn bits(&self, dimension: usize) -> u64 {
        let chunk = |count: usize| (count as u64 * u64::from(POSITION + VALUE)).div_ceil(8) * 8 + 64;
        self.counts(dimension).map(chunk).sum()
    }

    fn check(&self, participant: Participant) -> Result<()> {
        if participant.dimension == 0 || participant.workers == 0 {
            return Err(CodecError::EmptySum);
        }
        Ok(())
    }
}

impl Scheme for SparseLoCo {
    fn name(&self) -> String {
        format!("SparseLoCo 1/{}", self.inverse)
    }

    fn source(&self) -> &'static str {
        "Sarfi, Thérien, Lidin, Belilovsky: Communication Efficient LLM Pre-training with SparseLoCo, 2025"
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: false, homomorphic: false, error_feedback: true, recompressed: false }
    }

    fn bits(&self, dimension: usize, workers: u32) -> Result<Bits> {
        let up = self.bits(dimension);
        Ok(Bits { up, down: up * u64::from(workers) })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        self.check(participant)?;
        let counts = self.counts(participant.dimension).collect();
        Ok(Box::new(Worker {
            counts,
            bits: self.bits(participant.dimension),
            kept: vec![0.0; participant.dimension],
        }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        self.check(participant)?;
        Ok(Box::new(Gathered))
    }
}

struct Worker {
    counts: Vec<usize>,
    bits: u64,
    kept: Vec<f32>,
}

/// Fields of a few bits, one after the other.
#[derive(Default)]
struct Fields {
    buffer: u32,
    filled: u32,
}

impl Fields {
    fn put(&mut self, value: u32, width: u32, bytes: &mut Vec<u8>) {
        self.buffer = self.buffer << width | value;
        self.filled += width;
        while self.filled >= 8 {
            self.filled -= 8;
            bytes.push((self.buffer >> self.filled) as u8);
        }
    }

    /// Completes the last byte.
    fn end(&mut self, bytes: &mut Vec<u8>) {
        if self.filled > 0 {
            bytes.push((self.buffer << (8 - self.filled)) as u8);
        }
        *self = Self::default();
    }

    fn take(&mut self, width: u32, bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
        while self.filled < width {
            self.buffer = self.buffer << 8 | u32::from(bytes.next()?);
            self.filled += 8;
        }
        self.filled -= width;
        Some(self.buffer >> self.filled & ((1 << width) - 1))
    }
}

/// The smaller and the larger magnitude of some values.
fn levels(values: impl Iterator<Item = f32> + Clone) -> [f32; 2] {
    let count = values.clone().count().max(1) as f32;
    let middle = values.clone().map(f32::abs).sum::<f32>() / count;
    [false, true].map(|large| {
        let own = values.clone().map(f32::abs).filter(|size| (*size > middle) == large);
        let (sum, count) = own.fold((0.0, 0.0), |(sum, count), size| (sum + size, count + 1.0));
        if count > 0.0 { sum / count } else { middle }
    })
}

impl Worker {
    /// Adds what a message says, divided by `count`, to a mean.
    fn add(&self, message: &[u8], count: f32, mean: &mut [f32]) -> Option<()> {
        let mut bytes = message.iter().copied();
        for (chunk, sent) in mean.chunks_mut(CHUNK).zip(&self.counts) {
            let mut level = || -> Option<f32> {
                Some(f32::from_le_bytes([bytes.next()?, bytes.next()?, bytes.next()?, bytes.next()?]))
            };
            let levels = [level()?, level()?];
            let mut fields = Fields::default();
            for _ in 0..*sent {
                let position = fields.take(POSITION, &mut bytes)? as usize;
                let value = fields.take(VALUE, &mut bytes)?;
                let size = levels[(value & 1) as usize];
                *chunk.get_mut(position)? += if value & 2 == 0 { size } else { -size } / count;
            }
        }
        Some(())
    }
}

impl WorkerSide for Worker {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        if gradient.len() != self.kept.len() {
            let (expected, actual) = (self.kept.len(), gradient.len());
            return Err(CodecError::Length { what: "gradient", expected, actual });
        }
        self.kept.iter_mut().zip(gradient).for_each(|(kept, moved)| *kept = KEPT * *kept + moved);
        let mut bytes = Vec::with_capacity((self.bits / 8) as usize);
        for (chunk, sent) in self.kept.chunks_mut(CHUNK).zip(&self.counts) {
            let mut order: Vec<usize> = (0..chunk.len()).collect();
            order.sort_by(|a, b| chunk[*b].abs().total_cmp(&chunk[*a].abs()).then(a.cmp(b)));
            order.truncate(*sent);
            order.sort_unstable();
            let levels = levels(order.iter().map(|at| chunk[*at]));
            levels.iter().for_each(|level| bytes.extend_from_slice(&level.to_le_bytes()));
            let mut fields = Fields::default();
            let middle = 0.5 * (levels[0] + levels[1]);
            for at in order {
                let value = chunk[at];
                let large = value.abs() > middle;
                let negative = value < 0.0;
                fields.put(at as u32, POSITION, &mut bytes);
                fields.put(u32::from(negative) << 1 | u32::from(large), VALUE, &mut bytes);
                let size = levels[usize::from(large)];
                chunk[at] = value - if negative { -size } else { size };
            }
            fields.end(&mut bytes);
        }
        Message::from_bytes(bytes, self.bits)
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        let mut mean = vec![0.0; self.kept.len()];
        let each = (self.bits / 8) as usize;
        let messages = result.bytes().chunks(each);
        let read =
            messages.map(|message| self.add(message, count as f32, &mut mean)).collect::<Option<Vec<()>>>();
        if read.is_none_or(|read| read.len() != count as usize) {
            return Err(CodecError::Message { reason: format!("it does not hold {count} workers' chunks") });
        }
        Ok(mean)
    }

    fn feedback(&self) -> Option<&[f32]> {
        Some(&self.kept)
    }
}

/// Hands all messages on.
struct Gathered;

impl ServerSide for Gathered {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let bytes = messages.iter().flat_map(|message| message.bytes().iter().copied()).collect();
        Message::from_bytes(bytes, messages.iter().map(Message::bits).sum())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_baselines::SchemeGroup;

    #[test]
    fn the_largest_are_sent_and_the_rest_is_kept() {
        let scheme = SparseLoCo { inverse: 32 };
        let length = 5000;
        let gradient: Vec<f32> = (0..length)
            .map(|i| if i % 50 == 0 { 2.0 } else { 0.01 } * (1.0 - 2.0 * (i % 2) as f32))
            .collect();
        let mut group = SchemeGroup::new(&scheme, length, 2, 1).unwrap();
        let found = group.allreduce(&[&gradient, &gradient]).unwrap();
        let bits = Scheme::bits(&scheme, length, 2).unwrap();
        assert_eq!((found.bits_up * length as f64).round() as u64, bits.up);
        assert_eq!((found.bits_down * length as f64).round() as u64, 2 * bits.up);
        // Half a bit a coordinate.
        assert!((0.40..0.55).contains(&found.bits_up), "{found:?}");
        for (at, (mean, gradient)) in found.mean.iter().zip(&gradient).enumerate() {
            if at % 50 == 0 {
                assert!((mean - gradient).abs() < 1e-5, "{at}: {mean} {gradient}");
            }
        }
        // What is kept fades where it is not sent.
        let kept = group.feedback().next().unwrap().unwrap();
        let left = gradient[4999];
        assert!((kept[4999] - left).abs() < 1e-6);
        let zeros = vec![0.0; length];
        group.allreduce(&[&zeros, &zeros]).unwrap();
        let kept = group.feedback().next().unwrap().unwrap();
        assert!(kept[4999] == 0.0 || (kept[4999] - KEPT * left).abs() < 1e-6, "{}", kept[4999]);
    }

    #[test]
    fn a_message_of_another_length_is_refused() {
        let scheme = SparseLoCo { inverse: 100 };
        let participant = Participant::worker(300, 1, 0, 1);
        let mut worker = scheme.worker(participant).unwrap();
        let message = worker.compress(&[1.0; 300], &Message::default()).unwrap();
        assert!(worker.decompress(&message, 1).is_ok());
        assert!(worker.decompress(&message, 2).is_err());
        assert!(worker.compress(&[1.0; 299], &Message::default()).is_err());
    }
}
