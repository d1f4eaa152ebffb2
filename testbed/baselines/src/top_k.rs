//! TopK, which sends only the coordinates of largest magnitude.

use super::sparse::Sparse;
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide, with_feedback};

/// TopK with error feedback (Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018).
///
/// Every worker adds its error feedback, sends the share `ratio` of its coordinates that are largest in
/// magnitude, and keeps the rest. The server adds up and again sends only the largest coordinates of the
/// sum, like the parameter server in the THC authors' code. The other coordinates of the sum are lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopK {
    /// The share of the coordinates that a worker sends.
    pub ratio: f64,
    /// The share of the coordinates that the server sends.
    pub down: f64,
}

impl TopK {
    /// Creates the scheme with the same share in each direction.
    #[must_use]
    pub const fn symmetric(ratio: f64) -> Self {
        Self { ratio, down: ratio }
    }
}

impl Scheme for TopK {
    fn name(&self) -> String {
        if self.ratio == self.down {
            return format!("TopK {} %", 100.0 * self.ratio);
        }
        format!("TopK {} % up, {} % down", 100.0 * self.ratio, 100.0 * self.down)
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: false, homomorphic: false, error_feedback: true, recompressed: true }
    }

    fn bits(&self, dimension: usize, _: u32) -> Result<Bits> {
        let bits = |ratio| Sparse::new(ratio, dimension).map(|sparse| sparse.bits());
        Ok(Bits { up: bits(self.ratio)?, down: bits(self.down)? })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        let dimension = participant.dimension;
        Ok(Box::new(TopKWorker {
            up: Sparse::new(self.ratio, dimension)?,
            down: Sparse::new(self.down, dimension)?,
            feedback: vec![0.0; dimension],
        }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        let dimension = participant.dimension;
        Ok(Box::new(TopKServer {
            up: Sparse::new(self.ratio, dimension)?,
            down: Sparse::new(self.down, dimension)?,
            dimension,
        }))
    }
}

struct TopKWorker {
    up: Sparse,
    down: Sparse,
    feedback: Vec<f32>,
}

impl WorkerSide for TopKWorker {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        self.feedback = with_feedback(gradient, &self.feedback)?;
        let positions = self.up.largest(&self.feedback);
        let message = self.up.encode(&self.feedback, &positions);
        positions.iter().for_each(|i| self.feedback[*i] = 0.0);
        Ok(message)
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        dense(self.down, self.feedback.len(), result, count)
    }

    fn feedback(&self) -> Option<&[f32]> {
        Some(&self.feedback)
    }
}

/// The mean that a sparse sum over `count` workers represents.
pub(crate) fn dense(sparse: Sparse, dimension: usize, result: &Message, count: u32) -> Result<Vec<f32>> {
    let mut mean = vec![0.0; dimension];
    sparse.add(result, &mut mean)?;
    mean.iter_mut().for_each(|v| *v /= count as f32);
    Ok(mean)
}

struct TopKServer {
    up: Sparse,
    down: Sparse,
    dimension: usize,
}

impl ServerSide for TopKServer {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let mut sum = vec![0.0; self.dimension];
        for message in messages {
            self.up.add(message, &mut sum)?;
        }
        Ok(self.down.encode(&sum, &self.down.largest(&sum)))
    }
}
