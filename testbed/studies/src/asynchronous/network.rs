//! A network of three layers (input, 100 hidden units with ReLU, softmax), as in section 5.2 of the paper.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::data::Digits;

/// Pixels of an image.
const INPUT: usize = 64;
/// Hidden units.
const HIDDEN: usize = 100;
/// Digits.
const CLASSES: usize = 10;

/// Where each part of the vector begins: weights and biases of the hidden layer, then of the last.
const B1: usize = INPUT * HIDDEN;
const W2: usize = B1 + HIDDEN;
const B2: usize = W2 + HIDDEN * CLASSES;
/// d.
pub const COORDINATES: usize = B2 + CLASSES;

/// Where training begins.
pub fn start(seed: u64) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut x = vec![0.0; COORDINATES];
    let mut fill = |part: &mut [f32], inputs: usize| {
        let scale = (2.0 / inputs as f32).sqrt();
        for v in part {
            *v = scale * random.sample::<f32, _>(StandardNormal);
        }
    };
    fill(&mut x[..B1], INPUT);
    fill(&mut x[W2..B2], HIDDEN);
    x
}

/// Adds the gradient of image `i`'s loss to `out`, and returns the loss.
pub fn accumulate(digits: &Digits, i: usize, x: &[f32], out: &mut [f32]) -> f64 {
    let image = &digits.pixels[INPUT * i..][..INPUT];
    let label = usize::from(digits.labels[i]);
    let mut hidden = [0.0_f32; HIDDEN];
    hidden.copy_from_slice(&x[B1..W2]);
    for (pixel, weights) in image.iter().zip(x.chunks_exact(HIDDEN)) {
        if *pixel != 0.0 {
            hidden.iter_mut().zip(weights).for_each(|(h, w)| *h += pixel * w);
        }
    }
    hidden.iter_mut().for_each(|h| *h = h.max(0.0));
    let mut scores = [0.0_f32; CLASSES];
    scores.copy_from_slice(&x[B2..]);
    for (h, weights) in hidden.iter().zip(x[W2..B2].chunks_exact(CLASSES)) {
        scores.iter_mut().zip(weights).for_each(|(s, w)| *s += h * w);
    }
    let top = scores.iter().fold(f32::MIN, |a, b| a.max(*b));
    let sum: f32 = scores.iter().map(|s| (s - top).exp()).sum();
    let loss = f64::from(sum.ln() + top - scores[label]);
    // What flows back: probabilities less the truth.
    let mut back = scores.map(|s| (s - top).exp() / sum);
    back[label] -= 1.0;
    out[B2..].iter_mut().zip(&back).for_each(|(o, b)| *o += b);
    let mut back_hidden = [0.0_f32; HIDDEN];
    for (j, h) in hidden.iter().enumerate() {
        if *h > 0.0 {
            let row = W2 + j * CLASSES;
            back_hidden[j] = x[row..row + CLASSES].iter().zip(&back).map(|(w, b)| w * b).sum();
            out[row..row + CLASSES].iter_mut().zip(&back).for_each(|(o, b)| *o += h * b);
        }
    }
    out[B1..W2].iter_mut().zip(&back_hidden).for_each(|(o, b)| *o += b);
    for (pixel, out) in image.iter().zip(out.chunks_exact_mut(HIDDEN)) {
        if *pixel != 0.0 {
            out.iter_mut().zip(&back_hidden).for_each(|(o, b)| *o += pixel * b);
        }
    }
    loss
}
