//! What every scheme claims, checked in the same way for all.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use thc_codec::signs::mix;

fn schemes() -> Vec<Box<dyn Scheme>> {
    vec![
        Box::new(Uncompressed),
        Box::new(TopK::symmetric(0.1)),
        Box::new(TernGrad { layer: None, clip: None }),
        Box::new(TernGrad { layer: Some(100), clip: None }),
        Box::new(TernGrad { layer: Some(100), clip: Some(1.0) }),
        Box::new(Qsgd { levels: 7, down_levels: 127, bucket: Some(64) }),
        Box::new(Qsgd { levels: 1, down_levels: 3, bucket: None }),
        Box::new(UniformThc { bits: 4, rotated: false }),
        Box::new(UniformThc { bits: 2, rotated: true }),
        Box::new(Thc::new(4, 30, 1.0 / 32.0).unwrap()),
        Box::new(Thc::new(2, 9, 0.2).unwrap()),
    ]
}

/// Coordinates of different sizes and both signs.
fn gradient(len: usize, seed: u64) -> Vec<f32> {
    (0..len as u64)
        .map(|i| {
            let word = mix(seed.wrapping_mul(1_000_003).wrapping_add(i));
            let size = (word >> 40) as f32 / 16_777_216.0;
            let sign = if word & 3 == 0 { -1.0 } else { 1.0 };
            sign * (size * size * 2.0 + 0.05)
        })
        .collect()
}

fn squares(x: &[f32]) -> f64 {
    x.iter().map(|v| f64::from(*v).powi(2)).sum()
}

fn mean(gradients: &[Vec<f32>]) -> Vec<f64> {
    let n = gradients.len() as f64;
    (0..gradients[0].len()).map(|i| gradients.iter().map(|g| f64::from(g[i])).sum::<f64>() / n).collect()
}

#[test]
fn names_are_told_apart() {
    let mut names: Vec<String> = schemes().iter().map(|s| s.name()).collect();
    names.sort();
    let all = names.len();
    names.dedup();
    // Two TernGrad differ only in their layers.
    assert_eq!(names.len(), all - 1);
}

#[test]
fn bits_are_those_of_the_messages() {
    for scheme in schemes() {
        for (d, n) in [(1, 1), (7, 3), (1000, 4), (1500, 40)] {
            let bits = scheme.bits(d, n).unwrap();
            let gradients: Vec<Vec<f32>> = (0..u64::from(n)).map(|i| gradient(d, i)).collect();
            let slices: Vec<&[f32]> = gradients.iter().map(Vec::as_slice).collect();
            let found = SchemeGroup::new(scheme.as_ref(), d, n, 1).unwrap().allreduce(&slices).unwrap();
            let name = scheme.name();
            assert_eq!(found.mean.len(), d, "{name}");
            assert_eq!((found.bits_up * d as f64).round() as u64, bits.up, "{name} {d} {n}");
            assert_eq!((found.bits_down * d as f64).round() as u64, bits.down, "{name} {d} {n}");
        }
    }
}

#[test]
fn unbiased_is_what_says_so() {
    // The error of the mean over many rounds, each by a new group, is 1/rounds of that of one round for
    // unbiased schemes, and does not vanish for biased ones.
    let (d, n, rounds) = (512, 3_u32, 400);
    let gradients: Vec<Vec<f32>> = (0..u64::from(n)).map(|i| gradient(d, i)).collect();
    let slices: Vec<&[f32]> = gradients.iter().map(Vec::as_slice).collect();
    let truth = mean(&gradients);
    for scheme in schemes() {
        let mut sum = vec![0.0_f64; d];
        let mut single = 0.0;
        for seed in 0..rounds {
            let found =
                SchemeGroup::new(scheme.as_ref(), d, n, seed).unwrap().allreduce(&slices).unwrap().mean;
            for ((sum, found), truth) in sum.iter_mut().zip(found).zip(&truth) {
                *sum += f64::from(found) / rounds as f64;
                single += (f64::from(found) - truth).powi(2) / rounds as f64;
            }
        }
        let long: f64 = sum.iter().zip(&truth).map(|(s, t)| (s - t).powi(2)).sum();
        let (name, norm) = (scheme.name(), truth.iter().map(|t| t * t).sum::<f64>());
        if scheme.properties().unbiased {
            // Chi-square with 512 degrees of freedom over 512: five standard deviations are 0.31.
            let ratio = long * rounds as f64 / single.max(1e-300);
            assert!(single < 1e-12 * norm || (ratio - 1.0).abs() < 0.32, "{name}: {ratio}");
        } else {
            let ratio = long * rounds as f64 / single;
            assert!(ratio > 2.0, "{name}: {ratio}");
        }
    }
}

#[test]
fn copies_average_out_independent_rounding_only() {
    // The error with 16 copies over that with one: 1/16 for unbiased schemes that are not compressed
    // again, about 1 for those without independent coins.
    let x = gradient(4096, 9);
    let error = |scheme: &dyn Scheme, n: u32| {
        let slices = vec![x.as_slice(); n as usize];
        let one = |seed| {
            let found = SchemeGroup::new(scheme, x.len(), n, seed).unwrap().allreduce(&slices).unwrap().mean;
            x.iter().zip(found).map(|(x, f)| f64::from(x - f).powi(2)).sum::<f64>()
        };
        (0..8).map(one).sum::<f64>() / 8.0 / squares(&x)
    };
    for scheme in schemes().iter().skip(1) {
        let ratio = error(scheme.as_ref(), 16) / error(scheme.as_ref(), 1);
        let properties = scheme.properties();
        let name = scheme.name();
        if properties.unbiased && !properties.recompressed {
            assert!((ratio * 16.0 - 1.0).abs() < 0.1, "{name}: {ratio}");
        } else if name.starts_with("TopK") {
            assert!((ratio - 1.0).abs() < 1e-3, "{name}: {ratio}");
        } else {
            // THC, whose truncation stays; QSGD and clipped TernGrad.
            assert!(ratio < 0.95, "{name}: {ratio}");
        }
    }
}

/// By how much decompress(aggregate(all)) differs from the mean of decompress(aggregate(each alone)), at
/// most, over the root mean square or 1.
fn homomorphic_deviation(scheme: &dyn Scheme, d: usize, n: u32, seed: u64) -> f64 {
    let gradients: Vec<Vec<f32>> = (0..u64::from(n)).map(|i| gradient(d, seed ^ i)).collect();
    let mut workers: Vec<_> =
        (0..n).map(|i| scheme.worker(Participant::worker(d, n, i, seed)).unwrap()).collect();
    let server = || scheme.server(Participant::server(d, n, seed)).unwrap();
    let announced: Vec<Message> =
        workers.iter_mut().zip(&gradients).map(|(w, g)| w.announce(g).unwrap()).collect();
    let agreed = server().agree(&announced).unwrap();
    let messages: Vec<Message> =
        workers.iter_mut().zip(&gradients).map(|(w, g)| w.compress(g, &agreed).unwrap()).collect();
    let together = workers[0].decompress(&server().aggregate(&messages).unwrap(), n).unwrap();
    let alone = |message: &Message| {
        let result = server().aggregate(std::slice::from_ref(message)).unwrap();
        workers[0].decompress(&result, 1).unwrap()
    };
    let alone = mean(&messages.iter().map(alone).collect::<Vec<_>>());
    let scale = (squares(&together) / d as f64).sqrt().max(1.0);
    together.iter().zip(alone).map(|(a, b)| (f64::from(*a) - b).abs() / scale).fold(0.0, f64::max)
}

#[test]
fn schemes_that_are_not_homomorphic_do_not_add_up() {
    for scheme in schemes().iter().filter(|s| !s.properties().homomorphic) {
        let found = homomorphic_deviation(scheme.as_ref(), 1000, 5, 3);
        assert!(found > 1e-3, "{}: {found}", scheme.name());
    }
}

#[test]
fn messages_of_other_lengths_are_errors() {
    let x = gradient(300, 1);
    for scheme in schemes() {
        let mut worker = scheme.worker(Participant::worker(300, 2, 0, 1)).unwrap();
        let mut server = scheme.server(Participant::server(300, 2, 1)).unwrap();
        let announced = worker.announce(&x).unwrap();
        let agreed = server.agree(&[announced.clone(), announced]).unwrap();
        let message = worker.compress(&x, &agreed).unwrap();
        let result = server.aggregate(std::slice::from_ref(&message)).unwrap();
        assert!(worker.decompress(&result, 1).is_ok());
        let wrong = Message::from_floats(&[1.0; 5]);
        let name = scheme.name();
        assert!(server.aggregate(&[message, wrong.clone()]).is_err(), "{name}");
        assert!(worker.decompress(&wrong, 1).is_err(), "{name}");
        assert!(worker.compress(&x[1..], &agreed).is_err(), "{name}");
        assert!(agreed.bits() == 0 || worker.compress(&x, &wrong).is_err(), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn homomorphic_schemes_add_up(d in 1usize..1400, n in 1u32..24, seed: u64) {
        for scheme in schemes() {
            if scheme.properties().homomorphic {
                let found = homomorphic_deviation(scheme.as_ref(), d, n, seed);
                prop_assert!(found < 4e-6, "{}: {found}", scheme.name());
            }
        }
    }

    /// What was sent over all rounds plus what is left is what came in.
    #[test]
    fn error_feedback_telescopes(d in 1usize..1400, rounds in 1u64..12, seed: u64) {
        for scheme in schemes() {
            if !scheme.properties().error_feedback {
                continue;
            }
            let mut worker = scheme.worker(Participant::worker(d, 1, 0, seed)).unwrap();
            prop_assert_eq!(worker.feedback().map(<[f32]>::len), Some(d));
            let mut balance = vec![0.0_f64; d];
            for round in 0..rounds {
                let x = gradient(d, seed.wrapping_add(round));
                // A new server each round: its own error feedback starts from zero and, with a single
                // message, stays there.
                let mut server = scheme.server(Participant::server(d, 1, seed)).unwrap();
                let announced = worker.announce(&x).unwrap();
                let agreed = server.agree(&[announced]).unwrap();
                let message = worker.compress(&x, &agreed).unwrap();
                let result = server.aggregate(&[message]).unwrap();
                let sent = worker.decompress(&result, 1).unwrap();
                worker.learn(&result, 1).unwrap();
                for ((balance, x), sent) in balance.iter_mut().zip(&x).zip(&sent) {
                    *balance += f64::from(*x) - f64::from(*sent);
                }
            }
            let kept = worker.feedback().unwrap();
            for (balance, kept) in balance.iter().zip(kept) {
                prop_assert!((balance - f64::from(*kept)).abs() < 1e-4, "{}: {balance} {kept}", scheme.name());
            }
        }
    }

    /// TopK sends the largest coordinates of what it holds, to the bit.
    #[test]
    fn top_k_keeps_the_largest(d in 1usize..800, seed: u64, ratio in 0.01f64..1.0) {
        let x = gradient(d, seed);
        let mut group = SchemeGroup::new(&TopK::symmetric(ratio), d, 2, seed).unwrap();
        let mean = group.allreduce(&[&x, &x]).unwrap().mean;
        let kept = ((ratio * d as f64) as usize).max(1);
        let mut magnitudes: Vec<f32> = x.iter().map(|v| v.abs()).collect();
        magnitudes.sort_by(|a, b| b.total_cmp(a));
        prop_assert_eq!(mean.iter().filter(|v| **v != 0.0).count(), kept);
        for (x, mean) in x.iter().zip(&mean) {
            prop_assert!(*mean == 0.0 || mean == x);
            prop_assert!(*mean == 0.0 || x.abs() >= magnitudes[kept - 1]);
        }
    }
}
