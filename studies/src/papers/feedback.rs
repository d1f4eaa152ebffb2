//! Error feedback around a scheme that has none.

use thc_baselines::{Bits, Message, Participant, Properties, Scheme, ServerSide, WorkerSide};
use thc_codec::CodecError;

type Result<T> = std::result::Result<T, CodecError>;

/// A homomorphic scheme whose workers add to a gradient what the last message left out. What a message says is found by
/// a server that gets it alone.
pub struct WithFeedback<S>(pub S);

impl<S: Scheme> Scheme for WithFeedback<S> {
    fn name(&self) -> String {
        format!("{}, error feedback", self.0.name())
    }

    fn source(&self) -> &'static str {
        self.0.source()
    }

    fn properties(&self) -> Properties {
        Properties { error_feedback: true, unbiased: false, ..self.0.properties() }
    }

    fn bits(&self, dimension: usize, workers: u32) -> Result<Bits> {
        self.0.bits(dimension, workers)
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        Ok(Box::new(Worker {
            side: self.0.worker(participant)?,
            alone: self.0.server(participant)?,
            left: vec![0.0; participant.dimension],
        }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        self.0.server(participant)
    }
}

struct Worker {
    side: Box<dyn WorkerSide>,
    alone: Box<dyn ServerSide>,
    left: Vec<f32>,
}

impl Worker {
    fn sum(&self, gradient: &[f32]) -> Vec<f32> {
        gradient.iter().zip(&self.left).map(|(g, e)| g + e).collect()
    }
}

impl WorkerSide for Worker {
    fn announce(&mut self, gradient: &[f32]) -> Result<Message> {
        let x = self.sum(gradient);
        self.side.announce(&x)
    }

    fn compress(&mut self, gradient: &[f32], agreed: &Message) -> Result<Message> {
        let x = self.sum(gradient);
        let message = self.side.compress(&x, agreed)?;
        let said = self.side.decompress(&self.alone.aggregate(std::slice::from_ref(&message))?, 1)?;
        self.left = x.iter().zip(said).map(|(x, said)| x - said).collect();
        Ok(message)
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        self.side.decompress(result, count)
    }

    fn learn(&mut self, result: &Message, count: u32) -> Result<()> {
        self.side.learn(result, count)
    }

    fn feedback(&self) -> Option<&[f32]> {
        Some(&self.left)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_baselines::{SchemeGroup, UniformThc};

    #[test]
    fn what_a_message_left_out_comes_with_later_ones() {
        let scheme = WithFeedback(UniformThc { bits: 2, rotated: true });
        let gradient: Vec<f32> = (0..1024).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut group = SchemeGroup::new(&scheme, gradient.len(), 1, 3).unwrap();
        let mut sum = vec![0.0_f32; gradient.len()];
        for _ in 0..50 {
            sum.iter_mut().zip(group.allreduce(&[&gradient]).unwrap().mean).for_each(|(sum, x)| *sum += x);
        }
        // All of it but the last remainder.
        let left = group.feedback().next().unwrap().unwrap().to_vec();
        let off = sum.iter().zip(&gradient).zip(&left).map(|((sum, g), left)| (50.0 * g - sum - left).abs());
        assert!(off.fold(0.0, f32::max) < 1e-3);
        assert!(left.iter().any(|x| x.abs() > 0.01));
    }
}
