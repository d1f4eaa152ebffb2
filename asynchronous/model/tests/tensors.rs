//! Tensors with scales and bits of their own, over a server: outliers, frozen tensors, and what a push may change.
#![allow(clippy::unwrap_used)]

mod setup;

use setup::{client, server};
use thc_model::{
    Decay, EXACT, FROZEN, ModelBits, Optimizer, Pull, Push, Schedule, ShardState, Spec, Tensor, freshness,
};

/// A matrix of small numbers, a norm near 1, a frozen tensor, and a matrix with one outlier.
fn tensors() -> Vec<Tensor> {
    [(3000, 8), (50, EXACT), (500, FROZEN), (20_000, 8)].map(Tensor::from).to_vec()
}

fn first() -> Vec<f32> {
    let mut x: Vec<f32> = (0..23_550)
        .map(|i| match i {
            3000..3050 => 1.0 + (i as f32).sin(),
            3050..3550 => i as f32,
            _ => 0.02 * (i as f32).sin(),
        })
        .collect();
    x[10_000] = 50.0;
    x
}

#[test]
fn scales_are_of_tensors_and_what_is_frozen_is_sent_once() {
    let servers = [server(None), server(None)];
    let spec = Spec { tensors: tensors(), shard: 4096, ..Spec::sgd(23_550, 0.1) };
    let mut one = client(&servers, 0, "m", spec.clone());
    let x = first();
    one.initialise(&x).unwrap();
    let mut pulled = vec![0.0; x.len()];
    one.pull(&mut pulled, Pull::default()).unwrap();
    assert_eq!(pulled[3000..3550], x[3000..3550]);
    // An outlier costs only its own block, of at most 2^13 coordinates.
    let coarse = x.iter().zip(&pulled).filter(|(x, p)| (*x - *p).abs() > 0.001).count();
    assert!(coarse <= 8192, "{coarse}");
    let whole = one.stats().whole.bits;
    let mut gradient = vec![0.01; x.len()];
    gradient[20] = f32::MIN_POSITIVE;
    let pushed = one.push(&gradient, Push::bits(4)).unwrap();
    assert_eq!(pushed.refused, []);
    let before = one.stats().pulled.bits;
    one.pull(&mut pulled, Pull::default()).unwrap();
    assert_eq!(pulled[3050..3550], x[3050..3550], "what is frozen stays");
    assert!(pulled[3000..3050].iter().zip(&x[3000..3050]).all(|(p, x)| *p == x - 0.1 * 0.01));
    // 23,000 coordinates of 8 bits, 50 floats, and heads: the frozen ones are not sent, not even their first values again.
    let bits = one.stats().pulled.bits - before;
    assert!(bits < 8 * 23_000 + 32 * 50 + 8 * 600, "{bits}");
    assert_eq!(one.stats().whole.bits, whole);
    let mut exact = vec![0.0; x.len()];
    one.exact(&mut exact).unwrap();
    assert!(exact.iter().zip(&pulled).all(|(e, p)| (e - p).abs() < 0.5));
    // Bits by tensor of one worker: floats for the last, which then is exact.
    let bits = [0, 0, 0, 32];
    one.push(&gradient, Push { tensors: Some(&bits), ..Push::bits(2) }).unwrap();
    let mut next = vec![0.0; x.len()];
    one.exact(&mut next).unwrap();
    assert!(next[3550..].iter().zip(&exact[3550..]).all(|(n, e)| *n == e - 0.1 * 0.01));
    assert!(one.push(&gradient, Push { tensors: Some(&[8]), ..Push::bits(2) }).is_err());
    let mut late = client(&servers, 1, "m", spec);
    late.pull(&mut pulled, Pull::default()).unwrap();
    assert_eq!(pulled[3050..3550], x[3050..3550]);
}

/// The server's Adam, with a schedule and delays, is a plain loop.
#[test]
fn adam_at_the_server_is_adam() {
    let servers = [server(None)];
    let optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 };
    let schedule = Schedule { warmup: 3, decay: Decay::Cosine, steps: 20, floor: 0.1 };
    let bits = ModelBits::Fixed(32);
    let usual = Spec { optimizer, schedule, bits, shard: 16, ..Spec::sgd(40, 0.1) };
    for spec in [usual.clone(), Spec { delay_aware: true, overlap: true, ..usual }] {
        let name = if spec.overlap { "overlapping" } else { "plain" };
        let mut worker = client(&servers, 0, name, spec.clone());
        let target: Vec<f32> = (0..40).map(|i| (i as f32).sin()).collect();
        worker.initialise(&[0.0; 40]).unwrap();
        let (mut x, mut m, mut s) = (vec![0.0_f32; 40], vec![0.0_f32; 40], vec![0.0_f32; 40]);
        let mut pulled = vec![0.0; 40];
        worker.pull(&mut pulled, Pull::default()).unwrap();
        // With overlap a gradient is of the pull before: one step old, from the second on.
        let mut before = pulled.clone();
        for t in 0..25 {
            let behind = spec.overlap && t > 0;
            let at = if behind { before.clone() } else { pulled.clone() };
            let gradient: Vec<f32> = at.iter().zip(&target).map(|(x, y)| x - y).collect();
            before.copy_from_slice(&pulled);
            let push = Push { behind, ..Push::bits(32) };
            let (pushed, found) = worker.push_pull(&gradient, push, &mut pulled, Pull::default()).unwrap();
            assert_eq!((pushed.accepted_shards, pushed.delay), (3, u64::from(behind)));
            assert!(found.shards.iter().all(|shard| matches!(shard, ShardState::Running(_))));
            let fresh = if spec.delay_aware { freshness(pushed.delay) } else { 1.0 };
            let rate = 0.1 * fresh * schedule.factor(t);
            for i in 0..40 {
                m[i] = 0.9 * m[i] + 0.1 * gradient[i];
                s[i] = 0.99 * s[i] + 0.01 * gradient[i] * gradient[i];
                let corrected = |v: f32, beta: f64| v / (1.0 - beta.powi(t as i32 + 1)) as f32;
                x[i] -= rate * corrected(m[i], f64::from(0.9_f32))
                    / (corrected(s[i], f64::from(0.99_f32)).sqrt() + 1e-8);
                assert!((x[i] - pulled[i]).abs() < 1e-4, "step {t}: {} for {}", pulled[i], x[i]);
            }
        }
    }
}

/// A push is of all shards or of none, though the first of them are sent while others are encoded.
#[test]
fn a_push_that_fails_in_its_last_shard_changes_none() {
    let servers = [server(None), server(None)];
    let spec = Spec { shard: 100, bits: ModelBits::Fixed(32), ..Spec::sgd(1000, 1.0) };
    let mut worker = client(&servers, 0, "m", spec);
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
    // What is not pushed may be anything.
    let mut gradient = vec![1.0; 1000];
    gradient[999] = f32::NAN;
    let span = 0..900;
    let push = Push { spans: Some(std::slice::from_ref(&span)), ..Push::bits(32) };
    let (pushed, pulled) = worker.push_pull(&gradient, push, &mut x, Pull::default()).unwrap();
    assert_eq!((pushed.accepted_shards, pulled.shards.len()), (10, 10));
    assert!(x[..900].iter().all(|x| *x == -1.0) && x[900..].iter().all(|x| *x == 0.0));
}
