//! Tensors with scales and bits of their own, over a server.
#![allow(clippy::unwrap_used)]

mod setup;

use setup::{client, server};
use thc_model::{EXACT, ModelBits, Optimizer, Pull, Push, Spec, Tensor};

#[test]
fn scales_are_of_tensors() {
    // A matrix of small numbers, a norm near 1, and a matrix with one outlier.
    let tensors = [(3000, 8), (50, EXACT), (20_000, 8)].map(Tensor::from).to_vec();
    let number = |i: i32| if (3000..3050).contains(&i) { 1.0 } else { 0.02 } * (i as f32).sin();
    let mut x: Vec<f32> = (0..23_050).map(number).collect();
    x[10_000] = 50.0;
    let running = server(None);
    let spec = Spec { tensors, shard: 4096, ..Spec::sgd(23_050, 0.1) };
    let mut worker = client(&running, 0, "m", spec);
    worker.initialise(&x).unwrap();
    let mut pulled = vec![0.0; x.len()];
    worker.pull(&mut pulled, Pull::default()).unwrap();
    assert_eq!(pulled[3000..3050], x[3000..3050]);
    // An outlier costs only its own block, of at most 2^13 coordinates.
    let coarse = x.iter().zip(&pulled).filter(|(x, p)| (*x - *p).abs() > 0.001).count();
    assert!((1..=8192).contains(&coarse), "{coarse}");
    // What is pulled as floats is pushed as floats.
    let mut gradient = vec![0.01; x.len()];
    gradient[20] = f32::MIN_POSITIVE;
    assert_eq!(worker.push(&gradient, Push::bits(4)).unwrap().refused, []);
    worker.pull(&mut pulled, Pull::default()).unwrap();
    assert!(pulled[3000..3050].iter().zip(&x[3000..3050]).all(|(p, x)| *p == x - 0.1 * 0.01));
}

/// The server's Adam is a plain loop.
#[test]
fn adam_at_the_server_is_adam() {
    let running = server(None);
    let optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 };
    let spec = Spec { optimizer, bits: ModelBits::Fixed(32), shard: 16, ..Spec::sgd(40, 0.1) };
    let mut worker = client(&running, 0, "m", spec);
    let target: Vec<f32> = (0..40).map(|i| (i as f32).sin()).collect();
    let (mut x, mut m, mut s) = (vec![0.0_f32; 40], vec![0.0_f32; 40], vec![0.0_f32; 40]);
    worker.initialise(&x).unwrap();
    let mut pulled = vec![0.0; 40];
    worker.pull(&mut pulled, Pull::default()).unwrap();
    for t in 0..25 {
        let gradient: Vec<f32> = pulled.iter().zip(&target).map(|(x, y)| x - y).collect();
        let _ = worker.push_pull(&gradient, Push::bits(32), &mut pulled, Pull::default()).unwrap();
        for i in 0..40 {
            m[i] = 0.9 * m[i] + 0.1 * gradient[i];
            s[i] = 0.99 * s[i] + 0.01 * gradient[i] * gradient[i];
            let corrected = |v: f32, beta: f64| v / (1.0 - beta.powi(t + 1)) as f32;
            x[i] -= 0.1 * corrected(m[i], f64::from(0.9_f32))
                / (corrected(s[i], f64::from(0.99_f32)).sqrt() + 1e-8);
            assert!((x[i] - pulled[i]).abs() < 1e-4, "step {t}: {} for {}", pulled[i], x[i]);
        }
    }
}

/// A push is of all shards or of none, though the first of them are sent while others are encoded.
#[test]
fn a_push_that_fails_in_its_last_shard_changes_none() {
    let running = server(None);
    let spec = Spec { shard: 100, bits: ModelBits::Fixed(32), ..Spec::sgd(1000, 1.0) };
    let mut worker = client(&running, 0, "m", spec);
    let mut x = vec![0.0; 1000];
    worker.initialise(&x).unwrap();
    worker.pull(&mut x, Pull::default()).unwrap();
    for (value, push) in [
        (f32::NAN, Push::bits(32)),
        (f32::INFINITY, Push::bits(8)),
        (1.0, Push::bits(17)),
        (1.0, Push { scale: f32::NAN, ..Push::bits(8) }),
    ] {
        let mut gradient = vec![1.0; 1000];
        gradient[999] = value;
        worker.push_pull(&gradient, push, &mut x, Pull::default()).unwrap_err();
        worker.push(&gradient, push).unwrap_err();
        worker.exact(&mut x).unwrap();
        assert_eq!(x, [0.0; 1000]);
    }
}
