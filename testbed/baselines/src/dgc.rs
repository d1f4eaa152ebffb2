//! DGC, which applies TopK to a gradient that is accumulated with momentum.

use super::check_len;
use super::sparse::Sparse;
use super::top_k::dense;
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide};
use thc_codec::CodecError;

/// The part of Deep Gradient Compression (Lin, Han, Mao, Wang, Dally, ICLR 2018) that concerns the
/// mean of gradients.
///
/// Each worker keeps a velocity u and an accumulation v, both zero at first: u ← m·u + gradient,
/// v ← v + u. The worker sends the largest coordinates of v, and both u and v become zero there
/// (momentum correction and factor masking). With m = 0 this is error feedback. With m > 0 workers
/// send the momentum update in the long run, so DGC's result replaces the optimizer's momentum and
/// is not a mean of gradients after the first round. Gradient clipping and the warm-up of the ratio
/// are left out, because they act on training and not on the mean of one round. Exact selection
/// replaces thresholds by sampling.
///
/// The paper's workers exchange sparse gradients among themselves. Here a server adds them, sends the
/// largest coordinates of the sum and keeps the rest for its next sum, as in the THC authors' code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dgc {
    /// The share of the coordinates that is sent in each direction.
    pub ratio: f64,
    /// The momentum m, from 0 to below 1; 0.9 is usual.
    pub momentum: f32,
}

impl Dgc {
    fn check(&self) -> Result<()> {
        if (0.0..1.0).contains(&self.momentum) {
            return Ok(());
        }
        let value = f64::from(self.momentum);
        Err(CodecError::Parameter { what: "the momentum", value, allowed: "0 to below 1" })
    }
}

impl Scheme for Dgc {
    fn name(&self) -> String {
        format!("DGC {} %", 100.0 * self.ratio)
    }

    fn source(&self) -> &'static str {
        "Lin, Han, Mao, Wang, Dally: Deep Gradient Compression, ICLR 2018"
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: false, homomorphic: false, error_feedback: true, recompressed: true }
    }

    fn bits(&self, dimension: usize, _: u32) -> Result<Bits> {
        self.check()?;
        let bits = Sparse::new(self.ratio, dimension)?.bits();
        Ok(Bits { up: bits, down: bits })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        self.check()?;
        Ok(Box::new(DgcWorker {
            sparse: Sparse::new(self.ratio, participant.dimension)?,
            momentum: self.momentum,
            velocity: vec![0.0; participant.dimension],
            accumulated: vec![0.0; participant.dimension],
        }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        let sparse = Sparse::new(self.ratio, participant.dimension)?;
        Ok(Box::new(DgcServer { sparse, kept: vec![0.0; participant.dimension] }))
    }
}

struct DgcWorker {
    sparse: Sparse,
    momentum: f32,
    velocity: Vec<f32>,
    accumulated: Vec<f32>,
}

impl WorkerSide for DgcWorker {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        check_len("gradient", self.velocity.len(), gradient.len())?;
        for ((u, v), g) in self.velocity.iter_mut().zip(&mut self.accumulated).zip(gradient) {
            *u = self.momentum * *u + g;
            *v += *u;
        }
        let positions = self.sparse.largest(&self.accumulated);
        let message = self.sparse.encode(&self.accumulated, &positions);
        for i in positions {
            self.velocity[i] = 0.0;
            self.accumulated[i] = 0.0;
        }
        Ok(message)
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        dense(self.sparse, self.velocity.len(), result, count)
    }

    fn feedback(&self) -> Option<&[f32]> {
        Some(&self.accumulated)
    }
}

struct DgcServer {
    sparse: Sparse,
    /// The rest of the sums of earlier rounds.
    kept: Vec<f32>,
}

impl ServerSide for DgcServer {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        for message in messages {
            self.sparse.add(message, &mut self.kept)?;
        }
        let positions = self.sparse.largest(&self.kept);
        let result = self.sparse.encode(&self.kept, &positions);
        positions.iter().for_each(|i| self.kept[*i] = 0.0);
        Ok(result)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn momentum_is_accumulated_until_sent_and_then_masked() {
        let scheme = Dgc { ratio: 0.5, momentum: 0.5 };
        let mut worker = scheme.worker(Participant::worker(2, 1, 0, 1)).unwrap();
        let mut server = scheme.server(Participant::server(2, 1, 1)).unwrap();
        let mut round = |gradient: &[f32]| {
            let message = worker.compress(gradient, &Message::default()).unwrap();
            let result = server.aggregate(&[message]).unwrap();
            worker.decompress(&result, 1).unwrap()
        };
        // u = (4, 2), v = (4, 2): 4 goes, u = (0, 2), v = (0, 2).
        assert_eq!(round(&[4.0, 2.0]), [4.0, 0.0]);
        // u = (1, 1), v = (1, 3): 3 goes and the second velocity is masked.
        assert_eq!(round(&[1.0, 0.0]), [0.0, 3.0]);
        // u = (0.5, 0), v = (1.5, 0).
        assert_eq!(round(&[0.0, 0.0]), [1.5, 0.0]);
    }

    #[test]
    fn the_server_keeps_what_it_does_not_send() {
        let scheme = Dgc { ratio: 0.5, momentum: 0.0 };
        let mut server = scheme.server(Participant::server(2, 2, 1)).unwrap();
        let mut workers: Vec<_> =
            (0..2).map(|i| scheme.worker(Participant::worker(2, 2, i, 1)).unwrap()).collect();
        let mut round = |gradients: [[f32; 2]; 2]| {
            let messages: Vec<Message> = workers
                .iter_mut()
                .zip(gradients)
                .map(|(worker, gradient)| worker.compress(&gradient, &Message::default()).unwrap())
                .collect();
            let result = server.aggregate(&messages).unwrap();
            workers[0].decompress(&result, 2).unwrap()
        };
        assert_eq!(round([[4.0, 0.0], [0.0, 2.0]]), [2.0, 0.0]);
        assert_eq!(round([[0.0, 0.5], [0.0, 0.5]]), [0.0, 1.5]);
    }

    #[test]
    fn wrong_momentum_is_an_error() {
        for momentum in [-0.1, 1.0, f32::NAN] {
            let scheme = Dgc { ratio: 0.1, momentum };
            assert!(matches!(scheme.bits(10, 1), Err(CodecError::Parameter { .. })));
            assert!(scheme.worker(Participant::worker(10, 1, 0, 1)).is_err());
        }
    }
}
