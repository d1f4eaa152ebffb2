//! How much of each block's gradient AQGB has time for, by the simulator of its section 5.

use crate::simulate::row::{RatioLimits, Scheme, Times, Training, blocks};

/// Seconds of a training, and what links carry, where the paper says nothing else.
const SECONDS: f64 = 200.0;
const RATE: f64 = 2.5e9;
/// Bits of a gradient's number.
const WORD: f64 = 32.0;

/// A training as the paper simulates it.
pub fn training(scheme: Scheme, workers: usize, seed: u64) -> Training {
    Training {
        scheme,
        workers,
        rates: vec![(0.0, RATE)],
        seconds: SECONDS,
        blocks: blocks(4).unwrap_or_default(),
        times: Times::Uniform,
        control: RatioLimits::default(),
        seed,
    }
}

/// By iteration and block the part that is sent, both stages together.
pub struct Delivered(Vec<Vec<f64>>);

impl Delivered {
    /// Lengths of blocks that cut a gradient as ResNet-50's are cut.
    pub fn blocks(coordinates: usize) -> Vec<usize> {
        let blocks = blocks(4).unwrap_or_default();
        let all: f64 = blocks.iter().map(|block| block.parameters).sum();
        let mut ends: Vec<usize> = blocks
            .iter()
            .scan(0.0, |sum, block| {
                *sum += block.parameters / all;
                Some((*sum * coordinates as f64) as usize)
            })
            .collect();
        if let Some(last) = ends.last_mut() {
            *last = coordinates;
        }
        let starts = std::iter::once(0).chain(ends.clone());
        ends.into_iter().zip(starts).map(|(end, start)| end - start).collect()
    }

    /// What AQGB sends in a training of so many workers.
    pub fn of_aqgb(workers: usize, seed: u64) -> Self {
        Self(training(Scheme::Aqgb, workers, seed).run().delivered)
    }

    /// Bits of a number of a block in a step.
    pub fn bits(&self, step: u32, block: usize) -> u32 {
        let ratio = self.0.get(step as usize % self.0.len().max(1)).map_or(1.0, |blocks| blocks[block]);
        ((ratio * WORD).round() as u32).clamp(2, WORD as u32)
    }
}
