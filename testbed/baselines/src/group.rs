//! All workers and the server of one scheme, in one participant.

use super::check_len;
use super::{Message, Participant, Result, Scheme, ServerSide, WorkerSide};
use thc_codec::CodecError;

/// n workers and a parameter server that all-reduce one tensor, round after round.
pub struct SchemeGroup {
    workers: Vec<Box<dyn WorkerSide>>,
    server: Box<dyn ServerSide>,
    dimension: usize,
}

/// The result of an all-reduce, and its traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanEstimate {
    /// The estimate of the mean gradient, the same for every worker.
    pub mean: Vec<f32>,
    /// Bits per coordinate from one worker to the server, both stages, averaged over workers.
    pub bits_up: f64,
    /// Bits per coordinate from the server to each worker, both stages.
    pub bits_down: f64,
}

impl SchemeGroup {
    /// Creates a group for a tensor of `dimension` coordinates. `seed` determines all random numbers.
    pub fn new(scheme: &dyn Scheme, dimension: usize, workers: u32, seed: u64) -> Result<Self> {
        let worker = |i| scheme.worker(Participant::worker(dimension, workers, i, seed));
        Ok(Self {
            server: scheme.server(Participant::server(dimension, workers, seed))?,
            workers: (0..workers).map(worker).collect::<Result<_>>()?,
            dimension,
        })
    }

    /// Runs one all-reduce of one gradient per worker. All gradients must be finite.
    pub fn allreduce(&mut self, gradients: &[&[f32]]) -> Result<MeanEstimate> {
        check_len("the list of gradients", self.workers.len(), gradients.len())?;
        for (worker, gradient) in gradients.iter().enumerate() {
            check_len("gradient", self.dimension, gradient.len())?;
            if let Some(coordinate) = gradient.iter().position(|v| !v.is_finite()) {
                return Err(CodecError::NotFinite { worker, coordinate, value: gradient[coordinate] });
            }
        }
        let mut announcements = Vec::new();
        for (worker, gradient) in self.workers.iter_mut().zip(gradients) {
            announcements.push(worker.announce(gradient)?);
        }
        let agreed = self.server.agree(&announcements)?;
        let mut messages = Vec::new();
        for (worker, gradient) in self.workers.iter_mut().zip(gradients) {
            messages.push(worker.compress(gradient, &agreed)?);
        }
        let result = self.server.aggregate(&messages)?;
        let count = messages.len() as u32;
        let mean = self.workers[0].decompress(&result, count)?;
        for worker in &mut self.workers {
            worker.learn(&result, count)?;
        }
        let up: u64 = announcements.iter().chain(&messages).map(Message::bits).sum();
        let coordinates = self.dimension as f64;
        Ok(MeanEstimate {
            mean,
            bits_up: up as f64 / (messages.len() as f64 * coordinates),
            bits_down: (agreed.bits() + result.bits()) as f64 / coordinates,
        })
    }

    /// The error feedback of each worker, for schemes that have it.
    pub fn feedback(&self) -> impl Iterator<Item = Option<&[f32]>> {
        self.workers.iter().map(|worker| worker.feedback())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Uncompressed;
    use super::*;

    #[test]
    fn bad_input_is_an_error() {
        let mut group = SchemeGroup::new(&Uncompressed, 2, 2, 1).unwrap();
        assert!(group.allreduce(&[&[1.0, 2.0]]).is_err());
        assert!(group.allreduce(&[&[1.0, 2.0], &[1.0]]).is_err());
        assert!(matches!(
            group.allreduce(&[&[1.0, 2.0], &[1.0, f32::NAN]]),
            Err(CodecError::NotFinite { worker: 1, coordinate: 1, .. })
        ));
        assert!(SchemeGroup::new(&Uncompressed, 0, 2, 1).is_err());
        assert!(SchemeGroup::new(&Uncompressed, 2, 0, 1).is_err());
        let mean = group.allreduce(&[&[1.0, 2.0], &[3.0, -2.0]]).unwrap();
        assert_eq!(mean, MeanEstimate { mean: vec![2.0, 0.0], bits_up: 32.0, bits_down: 32.0 });
    }
}
