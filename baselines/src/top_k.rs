//! TopK: only the coordinates of largest magnitude are sent.

use super::sparse::Sparse;
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide, with_feedback};

/// TopK with error feedback (Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018).
///
/// Every worker sends the `ratio` of its coordinates that are largest in magnitude, error feedback
/// included, and keeps the rest. The server adds and again sends only the largest of the sum,
/// as the parameter server in the THC authors' code does; what it drops there is lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopK {
    /// Share of the coordinates that is sent, in each direction.
    pub ratio: f64,
}

impl Scheme for TopK {
    fn name(&self) -> String {
        format!("TopK {} %", 100.0 * self.ratio)
    }

    fn source(&self) -> &'static str {
        "Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018"
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: false, homomorphic: false, error_feedback: true, recompressed: true }
    }

    fn bits(&self, dimension: usize, _: u32) -> Result<Bits> {
        let bits = Sparse::new(self.ratio, dimension)?.bits();
        Ok(Bits { up: bits, down: bits })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        let sparse = Sparse::new(self.ratio, participant.dimension)?;
        Ok(Box::new(TopKWorker { sparse, feedback: vec![0.0; participant.dimension] }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        let sparse = Sparse::new(self.ratio, participant.dimension)?;
        Ok(Box::new(TopKServer { sparse, dimension: participant.dimension }))
    }
}

struct TopKWorker {
    sparse: Sparse,
    feedback: Vec<f32>,
}

impl WorkerSide for TopKWorker {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        self.feedback = with_feedback(gradient, &self.feedback)?;
        let positions = self.sparse.largest(&self.feedback);
        let message = self.sparse.encode(&self.feedback, &positions);
        positions.iter().for_each(|i| self.feedback[*i] = 0.0);
        Ok(message)
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        dense(self.sparse, self.feedback.len(), result, count)
    }

    fn feedback(&self) -> Option<&[f32]> {
        Some(&self.feedback)
    }
}

/// The mean that a sparse sum over `count` workers stands for.
pub(crate) fn dense(sparse: Sparse, dimension: usize, result: &Message, count: u32) -> Result<Vec<f32>> {
    let mut mean = vec![0.0; dimension];
    sparse.add(result, &mut mean)?;
    mean.iter_mut().for_each(|v| *v /= count as f32);
    Ok(mean)
}

struct TopKServer {
    sparse: Sparse,
    dimension: usize,
}

impl ServerSide for TopKServer {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let mut sum = vec![0.0; self.dimension];
        for message in messages {
            self.sparse.add(message, &mut sum)?;
        }
        Ok(self.sparse.encode(&sum, &self.sparse.largest(&sum)))
    }
}
