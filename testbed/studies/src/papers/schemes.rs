//! THC and other schemes that compress gradients: one all-reduce of one tensor by n workers and a parameter server.
//!
//! Each scheme follows its paper. The server does what servers of real systems do: where sums of messages are not messages, it decodes
//! them, adds, and compresses the mean again for the way down, which adds an error a second time (THC paper, section 2.1). All code is
//! plain Rust, for experiments and not for speed.

use thc_codec::partition::{self, BLOCKS, Partition};
use thc_codec::quantizer::Quantizer;
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::{LookupTable, choose};
use thc_codec::{norm, rht};
use thc_demo::nmse::{average, private_seed, server_seed};

use crate::error::Result;

/// Coordinates that share a norm in QSGD, as in the paper's experiments.
const BUCKET: usize = 512;
/// The bit budget of uniform THC.
const UNIFORM_BITS: u8 = 4;

/// A scheme with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheme {
    /// Exact means of 32-bit floats.
    Exact,
    /// THC (Li et al., NSDI 2024, Algorithm 3) by bit budget, granularity and 1/p.
    Thc { bits: u8, granularity: u16, inverse: u16 },
    /// THC of 4 bits with the table that is chosen for the number of workers.
    ChosenThc,
    /// Uniform THC of 4 bits (Algorithm 1): all workers round to equidistant values between the least and the largest coordinate of all.
    Uniform { rotated: bool },
    /// TopK by the inverse of the share that is sent (Stich, Cordonnier, Jaggi, NeurIPS 2018). The server sends the largest coordinates
    /// of the sum, like that in the THC authors' code.
    TopK { inverse: u16 },
    /// TernGrad with scaler sharing and without clipping (Wen et al., NeurIPS 2017). A coordinate g becomes
    /// sign(g)·s with probability |g|/s, and s is the largest magnitude that any worker has.
    TernGrad,
    /// QSGD (Alistarh et al., NeurIPS 2017) by bits of a coordinate up and down. A coordinate takes a sign and a level of fixed width.
    Qsgd { up: u32, down: u32 },
}

impl Scheme {
    /// THC with the parameters of the paper's testbed (section 8): g = 30, p = 1/32.
    pub const THC: Self = Self::Thc { bits: 4, granularity: 30, inverse: 32 };

    fn table(self, workers: usize) -> Result<LookupTable> {
        Ok(match self {
            Self::Thc { bits, granularity, inverse } => {
                LookupTable::solve(bits, granularity, 1.0 / f64::from(inverse))?
            }
            Self::ChosenThc => {
                let workers = workers as u32;
                choose(4, 8, workers).or_else(|_| choose(4, 16, workers))?.table
            }
            _ => LookupTable::uniform(UNIFORM_BITS)?,
        })
    }

    /// The bits that a worker sends and receives for `dimension` coordinates, norms included. Schemes that are chosen for no tensor count as
    /// floats.
    pub fn bits(self, dimension: usize) -> u64 {
        let d = dimension as u64;
        match self {
            Self::TopK { inverse } => {
                let position = u64::from(u64::BITS - (d - 1).leading_zeros());
                2 * kept(dimension, inverse) as u64 * (position + 32)
            }
            Self::Qsgd { up, down } => u64::from(up + down) * d + 64 * d.div_ceil(BUCKET as u64),
            _ => 64 * d,
        }
    }

    /// The estimate of the mean of one gradient for each worker, all of the same length. `seed` determines all random numbers.
    pub fn mean(self, gradients: &[&[f32]], seed: u64) -> Result<Vec<f32>> {
        let (n, dimension) = (gradients.len(), gradients[0].len());
        let divide = |mut sum: Vec<f32>| {
            sum.iter_mut().for_each(|v| *v /= n as f32);
            sum
        };
        match self {
            Self::Exact => {
                let mut sum = vec![0.0; dimension];
                for gradient in gradients {
                    sum.iter_mut().zip(*gradient).for_each(|(s, v)| *s += v);
                }
                Ok(divide(sum))
            }
            Self::Thc { .. } | Self::ChosenThc => average(&self.table(n)?, gradients, seed),
            Self::Uniform { rotated } => uniform(gradients, rotated, seed),
            Self::TopK { inverse } => {
                let kept = kept(dimension, inverse);
                let mut sum = vec![0.0; dimension];
                for gradient in gradients {
                    largest(gradient, kept).into_iter().for_each(|i| sum[i] += gradient[i]);
                }
                let mut down = vec![0.0; dimension];
                largest(&sum, kept).into_iter().for_each(|i| down[i] = sum[i]);
                Ok(divide(down))
            }
            Self::TernGrad => Ok(tern_grad(gradients, seed)),
            Self::Qsgd { up, down } => {
                let mut mean = vec![0.0_f32; dimension];
                for (worker, gradient) in (0..).zip(gradients) {
                    let rounding = Rounding::new(private_seed(seed, worker), 0, 0);
                    let sent = qsgd(gradient, up, &rounding);
                    mean.iter_mut().zip(sent).for_each(|(sum, v)| *sum += (v / n as f64) as f32);
                }
                let rounding = Rounding::new(server_seed(seed), 0, 0);
                Ok(qsgd(&mean, down, &rounding).into_iter().map(|v| v as f32).collect())
            }
        }
    }
}

/// The partitions of a tensor. For the transform, zeros complete them to powers of two.
fn parts(dimension: usize, rotated: bool) -> Vec<Partition> {
    let mut parts: Vec<Partition> = partition::split(dimension, *BLOCKS.end()).collect();
    if !rotated {
        parts.iter_mut().for_each(|part| part.padded = part.len);
    }
    parts
}

fn uniform(gradients: &[&[f32]], rotated: bool, seed: u64) -> Result<Vec<f32>> {
    let quantizer = Quantizer::new(&LookupTable::uniform(UNIFORM_BITS)?);
    let units = f64::from(quantizer.granularity()) * gradients.len() as f64;
    let mut mean = Vec::with_capacity(gradients[0].len());
    for part in parts(gradients[0].len(), rotated) {
        let key = SignKey { job_seed: seed, call: 0, partition: part.index };
        let mut vectors = Vec::new();
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        for gradient in gradients {
            let mut x = gradient[part.offset..part.offset + part.len].to_vec();
            x.resize(part.padded, 0.0);
            if rotated {
                rht::forward(&mut x, key)?;
            }
            // The transform of finite gradients may overflow.
            let (least, largest) = norm::min_max(&x).unwrap_or((f32::NAN, f32::NAN));
            (low, high) = (low.min(least), high.max(largest));
            vectors.push(x);
        }
        let (mut sums, mut indices) = (vec![0_u32; part.padded], vec![0; part.padded]);
        for (worker, x) in (0..).zip(&mut vectors) {
            let rounding = Rounding::new(private_seed(seed, worker), 0, part.index);
            quantizer.quantize_between(x, low, high, &rounding, 0, &mut indices)?;
            sums.iter_mut().zip(&indices).for_each(|(sum, index)| *sum += u32::from(*index));
        }
        let step = (f64::from(high) - f64::from(low)) / units;
        let mut x: Vec<f32> =
            sums.iter().map(|sum| (f64::from(low) + f64::from(*sum) * step) as f32).collect();
        if rotated {
            rht::inverse(&mut x, key)?;
        }
        mean.extend_from_slice(&x[..part.len]);
    }
    Ok(mean)
}

/// ⌊d / `inverse`⌋ coordinates, at least one.
fn kept(dimension: usize, inverse: u16) -> usize {
    ((1.0 / f64::from(inverse) * dimension as f64) as usize).max(1)
}

/// The positions of the `kept` coordinates that are largest in magnitude. Of equal magnitudes the first are chosen.
fn largest(x: &[f32], kept: usize) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..x.len()).collect();
    if kept < x.len() {
        positions
            .select_nth_unstable_by(kept - 1, |&a, &b| x[b].abs().total_cmp(&x[a].abs()).then(a.cmp(&b)));
        positions.truncate(kept);
    }
    positions
}

fn largest_magnitude(x: &[f32]) -> f32 {
    x.iter().fold(0.0_f32, |m, v| m.max(v.abs()))
}

fn tern_grad(gradients: &[&[f32]], seed: u64) -> Vec<f32> {
    let scale = gradients.iter().map(|gradient| largest_magnitude(gradient)).fold(0.0, f32::max);
    let mut sums = vec![0_i32; gradients[0].len()];
    for (worker, gradient) in (0..).zip(gradients) {
        let rounding = Rounding::new(private_seed(seed, worker), 0, 0);
        for (i, (sum, g)) in sums.iter_mut().zip(*gradient).enumerate() {
            if rounding.uniform(i as u64) * scale < g.abs() {
                *sum += if *g > 0.0 { 1 } else { -1 };
            }
        }
    }
    let count = gradients.len() as f64;
    sums.into_iter().map(|sum| (f64::from(sum) / count * f64::from(scale)) as f32).collect()
}

/// x with each coordinate rounded at random to one of the two levels around it, 2^(`bits` − 1) − 1 levels above 0 for the norm of a bucket.
fn qsgd(x: &[f32], bits: u32, rounding: &Rounding) -> Vec<f64> {
    let levels = f64::from((1 << (bits - 1)) - 1);
    let mut sent = Vec::with_capacity(x.len());
    for bucket in x.chunks(BUCKET) {
        let norm = f64::from(norm::l2(bucket));
        let (scale, unit) = (if norm > 0.0 { levels / norm } else { 0.0 }, norm / levels);
        for v in bucket {
            let position = (f64::from(v.abs()) * scale).min(levels);
            let up = f64::from(rounding.uniform(sent.len() as u64)) < position.fract();
            let level = position.floor() + f64::from(u8::from(up));
            sent.push(if v.is_sign_negative() { -level * unit } else { level * unit });
        }
    }
    sent
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_codec::signs::mix;

    const ALL: [Scheme; 7] = [
        Scheme::THC,
        Scheme::Thc { bits: 2, granularity: 9, inverse: 5 },
        Scheme::Uniform { rotated: false },
        Scheme::Uniform { rotated: true },
        Scheme::TopK { inverse: 10 },
        Scheme::TernGrad,
        Scheme::Qsgd { up: 4, down: 8 },
    ];

    /// Coordinates of different sizes and both signs.
    fn gradient(len: usize, seed: u64) -> Vec<f32> {
        let value = |i| {
            let word = mix(seed.wrapping_mul(1_000_003).wrapping_add(i));
            let size = (word >> 40) as f32 / 16_777_216.0;
            let sign = if word & 3 == 0 { -1.0 } else { 1.0 };
            sign * (size.powi(8) * 20.0 + 0.05)
        };
        (0..len as u64).map(value).collect()
    }

    fn squares(x: impl IntoIterator<Item = f64>) -> f64 {
        x.into_iter().map(|v| v * v).sum()
    }

    #[test]
    fn sizes_by_hand() {
        // Two coordinates, 4 bits of position (0 to 9) and 32 bits of value each, both ways.
        assert_eq!(Scheme::TopK { inverse: 4 }.bits(10), 2 * 72);
        assert_eq!(Scheme::TopK { inverse: 10 }.bits(1), 2 * 32);
        // 1000 coordinates are two buckets: two norms.
        assert_eq!(Scheme::Qsgd { up: 4, down: 8 }.bits(1000), 4064 + 8064);
        assert_eq!(Scheme::Exact.bits(3), 2 * 96);
    }

    #[test]
    fn unbiased_is_what_the_papers_say() {
        // The error of the mean over many rounds is 1/rounds of that of one round for unbiased schemes, and does not vanish for
        // biased ones.
        let (d, rounds) = (512, 400_u64);
        let gradients: Vec<Vec<f32>> = (0..3).map(|i| gradient(d, i)).collect();
        let slices: Vec<&[f32]> = gradients.iter().map(Vec::as_slice).collect();
        let truth: Vec<f64> =
            (0..d).map(|i| slices.iter().map(|g| f64::from(g[i])).sum::<f64>() / 3.0).collect();
        for scheme in ALL {
            let mut sum = vec![0.0_f64; d];
            let mut single = 0.0;
            for seed in 0..rounds {
                let found = scheme.mean(&slices, seed).unwrap();
                for ((sum, found), truth) in sum.iter_mut().zip(found).zip(&truth) {
                    *sum += f64::from(found) / rounds as f64;
                    single += (f64::from(found) - truth).powi(2) / rounds as f64;
                }
            }
            let long = squares(sum.iter().zip(&truth).map(|(s, t)| s - t));
            let ratio = long * rounds as f64 / single;
            match scheme {
                Scheme::Uniform { .. } | Scheme::TernGrad | Scheme::Qsgd { .. } => {
                    // Chi-square with 512 degrees of freedom over 512: five standard deviations are 0.31.
                    assert!((ratio - 1.0).abs() < 0.32, "{scheme:?}: {ratio}");
                }
                _ => assert!(ratio > 2.0, "{scheme:?}: {ratio}"),
            }
        }
    }

    #[test]
    fn the_errors_of_copies_are_those_of_theory() {
        let x: Vec<f32> = (0..1 << 15).map(|i| (i as f32 * 0.37).sin() + 0.3).collect();
        let norm = squares(x.iter().map(|v| f64::from(*v)));
        let error = |scheme: Scheme| {
            let one = |seed| {
                let mean = scheme.mean(&[&x[..]; 4], seed).unwrap();
                squares(x.iter().zip(mean).map(|(x, m)| f64::from(x - m))) / norm
            };
            (0..10).map(one).sum::<f64>() / 10.0
        };
        let table = Scheme::THC.table(4).unwrap();
        let thc = table.quantization_error() / 4.0 + table.truncation_error();
        // One coordinate has variance |g|·s − g², so copies have NMSE (s·‖x‖₁/‖x‖² − 1) / n.
        let sum: f64 = x.iter().map(|v| f64::from(v.abs())).sum();
        let tern_grad = (f64::from(largest_magnitude(&x)) * sum / norm - 1.0) / 4.0;
        for (scheme, theory) in [(Scheme::THC, thc), (Scheme::TernGrad, tern_grad)] {
            let found = error(scheme);
            assert!((found / theory - 1.0).abs() < 0.03, "{scheme:?}: {found} {theory}");
        }
    }

    #[test]
    fn zeros_stay_zeros_and_exact_values_are_kept() {
        let zeros = [0.0; 5000];
        for scheme in ALL {
            assert_eq!(scheme.mean(&[&zeros[..]; 3], 1).unwrap(), zeros, "{scheme:?}");
        }
        let x: Vec<f32> = (0..16).map(|i| i as f32 - 4.0).collect();
        assert_eq!(Scheme::Uniform { rotated: false }.mean(&[&x[..]; 3], 1).unwrap(), x);
        let mean = Scheme::TernGrad.mean(&[&[1.0, -1.0, 0.0], &[-1.0, -1.0, 0.0]], 1);
        assert_eq!(mean.unwrap(), [0.0, -1.0, 0.0]);
        assert_eq!(Scheme::Exact.mean(&[&[1.0, 2.0], &[3.0, -2.0]], 1).unwrap(), [2.0, 0.0]);
        // The first of equal magnitudes is sent.
        assert_eq!(largest(&[1.0, -3.0, 3.0, 2.0], 1), [1]);
    }
}
