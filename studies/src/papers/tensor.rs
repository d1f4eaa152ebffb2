//! A piece of the gradient on its way through a scheme.

use std::ops::Range;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use thc_baselines::{Message, Participant, Scheme, ServerSide, WorkerSide};

use super::schemes::Named;
use crate::error::Result;

/// A piece of the gradient with the sides of its scheme.
pub struct Tensor {
    pub range: Range<usize>,
    /// How it travels.
    pub scheme: Named,
    seed: u64,
    /// How often its scheme has changed, so that random numbers do not come again.
    changes: u64,
    workers: Vec<Box<dyn WorkerSide>>,
    server: Box<dyn ServerSide>,
}

/// What an all-reduce meets.
pub struct Weather<'a> {
    /// Which workers are late.
    pub late: &'a [bool],
    /// The share of packets that is lost.
    pub lost: f64,
}

/// Bits of all workers together to the server, and from it to one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub up: u64,
    pub down: u64,
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.up += other.up;
        self.down += other.down;
    }
}

/// A worker's or the server's side.
type Sides = (Vec<Box<dyn WorkerSide>>, Box<dyn ServerSide>);

fn sides(scheme: &dyn Scheme, length: usize, count: usize, seed: u64) -> Result<Sides> {
    let all = count as u32;
    let worker = |number| scheme.worker(Participant::worker(length, all, number, seed));
    let workers = (0..all).map(worker).collect::<std::result::Result<_, _>>()?;
    Ok((workers, scheme.server(Participant::server(length, all, seed))?))
}

impl Tensor {
    /// The tensor of so many workers.
    pub fn new(range: Range<usize>, scheme: Named, workers: u8, seed: u64) -> Result<Self> {
        let (workers, server) = sides(scheme.scheme()?.as_ref(), range.len(), workers.into(), seed)?;
        Ok(Self { range, scheme, seed, changes: 0, workers, server })
    }

    /// Lets it travel in another way from now on. What error feedback holds is forgotten.
    pub fn change(&mut self, scheme: Named) -> Result<()> {
        if scheme != self.scheme {
            self.changes += 1;
            let seed = thc_codec::signs::mix(self.seed ^ self.changes);
            let sides = sides(scheme.scheme()?.as_ref(), self.range.len(), self.workers.len(), seed)?;
            (self.workers, self.server) = sides;
            self.scheme = scheme;
        }
        Ok(())
    }

    /// Adds the mean of those who are in time to each replica's, unless its packet gets lost. What agrees on norms and
    /// ranges is not lost: it is repeated until it comes.
    pub fn average(
        &mut self,
        gradients: &[&[f32]],
        weather: &Weather<'_>,
        chance: &mut ChaCha8Rng,
        means: &mut [Vec<f32>],
    ) -> Result<Sent> {
        let gradients: Vec<&[f32]> = gradients.iter().map(|gradient| &gradient[self.range.clone()]).collect();
        let mut announced = Vec::new();
        for (worker, gradient) in self.workers.iter_mut().zip(&gradients) {
            announced.push(worker.announce(gradient)?);
        }
        let agreed = self.server.agree(&announced)?;
        let up = announced.iter().map(Message::bits).sum::<u64>();
        let mut sent = Sent { up, down: agreed.bits() };
        let mut arrived = Vec::new();
        for ((worker, gradient), late) in self.workers.iter_mut().zip(&gradients).zip(weather.late) {
            let message = worker.compress(gradient, &agreed)?;
            sent.up += message.bits();
            let arrives = weather.lost <= 0.0 || chance.random::<f64>() >= weather.lost;
            if arrives && !late {
                arrived.push(message);
            }
        }
        if !arrived.is_empty() {
            let result = self.server.aggregate(&arrived)?;
            let count = arrived.len() as u32;
            let mean = self.workers[0].decompress(&result, count)?;
            for worker in &mut self.workers {
                worker.learn(&result, count)?;
            }
            sent.down += result.bits();
            for replica in means {
                if weather.lost <= 0.0 || chance.random::<f64>() >= weather.lost {
                    replica[self.range.clone()].iter_mut().zip(&mean).for_each(|(sum, x)| *sum += x);
                }
            }
        }
        let ring = self.scheme.on_a_ring(self.range.len());
        Ok(ring.map_or(sent, |bits| Sent { up: bits.up, down: bits.down }))
    }
}
