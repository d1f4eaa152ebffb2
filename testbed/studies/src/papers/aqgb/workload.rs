//! The training: ResNet-50 in blocks, and the times of computing.

use std::f64::consts::LN_2;

use rand::Rng;

/// A block of layers: parameters, and its parts of a forward and of a backward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    pub parameters: f64,
    pub forward: f64,
    pub backward: f64,
}

const fn block(millions: f64, forward: f64, backward: f64) -> Block {
    Block { parameters: millions * 1e6, forward: forward / 100.0, backward: backward / 100.0 }
}

/// The paper's Table 1: conv1 to conv4_1, to conv4_6, conv5_1, to fc1000.
pub const BLOCKS: [Block; 4] =
    [block(3.0, 41.9, 50.5), block(5.6, 15.5, 14.2), block(6.0, 16.5, 12.9), block(11.0, 26.1, 22.4)];
/// A forward pass's part of an iteration.
pub const FORWARD: f64 = 0.365;
/// Seconds of an iteration, in the mean.
pub const MEAN: f64 = 1.5;

/// The durations of iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// 1.5 s, each by up to a tenth more or less
    Uniform,
    /// 1.33 to 2.67 s, mostly near the least, in the mean 1.5 (after Fig. 8)
    Stragglers,
}

/// Ends of the paper's Fig. 8.
const LEAST: f64 = 1.33;
const MOST: f64 = 2.67;

impl Times {
    /// Seconds of one iteration of one worker.
    pub fn draw(self, rng: &mut impl Rng) -> f64 {
        match self {
            Self::Uniform => MEAN * rng.random_range(0.9..1.1),
            // The paper shows the distribution as a picture alone: an exponential tail of the same ends and mean stands for it.
            Self::Stragglers => loop {
                let tail = -(1.0 - rng.random::<f64>()).log2() * LN_2 * (MEAN - LEAST);
                if LEAST + tail < MOST {
                    break LEAST + tail;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn the_blocks_are_of_one_model() {
        let sum = |of: fn(&Block) -> f64| BLOCKS.iter().map(of).sum::<f64>();
        assert!((sum(|block| block.parameters) - 25.6e6).abs() < 1e3);
        assert!((sum(|block| block.forward) - 1.0).abs() < 0.01);
        assert!((sum(|block| block.backward) - 1.0).abs() < 0.01);
    }

    #[test]
    fn both_times_have_the_same_mean() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for (times, least, most) in [(Times::Uniform, 1.35, 1.65), (Times::Stragglers, 1.33, 2.67)] {
            let drawn: Vec<f64> = (0..20_000).map(|_| times.draw(&mut rng)).collect();
            assert!(drawn.iter().all(|time| (least..=most).contains(time)));
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            assert!((mean - MEAN).abs() < 0.01, "{times:?}: {mean}");
        }
    }
}
