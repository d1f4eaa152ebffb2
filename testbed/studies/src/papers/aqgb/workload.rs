//! What is trained: ResNet-50 in blocks, and how long workers compute.

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
const FOUR: [Block; 4] =
    [block(3.0, 41.9, 50.5), block(5.6, 15.5, 14.2), block(6.0, 16.5, 12.9), block(11.0, 26.1, 22.4)];
/// The last one in two (section 5.2.6): conv5_2, and conv5_3 to fc1000. The paper does not say what each has: times by halves.
const LAST: [Block; 2] = [block(4.5, 13.05, 11.2), block(6.5, 13.05, 11.2)];
/// The first two in three: conv1 to conv3_4, conv4_1 to conv4_3, conv4_4 to conv4_6; times by multiply-adds.
const FIRST: [Block; 3] = [block(1.5, 34.9, 42.0), block(3.75, 13.2, 14.2), block(3.35, 9.3, 8.5)];

/// A forward pass's part of an iteration.
pub const FORWARD: f64 = 0.365;
/// Seconds of an iteration, in the mean.
pub const MEAN: f64 = 1.5;

/// The model in 1 (not split), 3, 4, 5 or 6 blocks.
pub fn blocks(count: u8) -> Option<Vec<Block>> {
    let merged = |blocks: &[Block]| {
        blocks.iter().fold(block(0.0, 0.0, 0.0), |all, one| Block {
            parameters: all.parameters + one.parameters,
            forward: all.forward + one.forward,
            backward: all.backward + one.backward,
        })
    };
    Some(match count {
        1 => vec![merged(&FOUR)],
        3 => vec![FOUR[0], FOUR[1], merged(&FOUR[2..])],
        4 => FOUR.to_vec(),
        5 => [&FOUR[..3], &LAST].concat(),
        6 => [&FIRST[..], &FOUR[2..3], &LAST].concat(),
        _ => return None,
    })
}

/// How long iterations take.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn all_splits_are_of_one_model() {
        for count in [1, 3, 4, 5, 6] {
            let blocks = blocks(count).unwrap();
            assert_eq!(blocks.len(), usize::from(count));
            let sum = |of: fn(&Block) -> f64| blocks.iter().map(of).sum::<f64>();
            assert!((sum(|block| block.parameters) - 25.6e6).abs() < 1e3, "{count}");
            assert!((sum(|block| block.forward) - 1.0).abs() < 0.01, "{count}");
            assert!((sum(|block| block.backward) - 1.0).abs() < 0.01, "{count}");
        }
        assert_eq!(blocks(2), None);
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
