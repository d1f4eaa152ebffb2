//! Training through a server: what the algorithms do.
#![allow(clippy::unwrap_used)]

mod quadratic;
mod setup;

use std::num::NonZeroU32;

use quadratic::{Quadratic, minus, square};
use setup::{SECRET, client, server};
use thc_model::step::Proximal;
use thc_model::{Client, ModelBits, ModelError, Prox, Pull, Push, ShardState, Spec};

/// One worker's AsyLPG: returns the last x.
fn train(client: &mut Client, problem: &Quadratic, push: Push, epochs: u64) -> Vec<f32> {
    let d = client.coordinates();
    let mut x = vec![0.0; d];
    let mut snapshot = vec![0.0; d];
    let mut random = fastrand::Rng::with_seed(11);
    let mut state = client.pull(&mut x, Pull::default()).unwrap();
    loop {
        if let Some(epoch) = state.waiting_epoch() {
            assert_eq!(client.snapshot(&mut snapshot).unwrap(), Some(epoch));
            if epoch == epochs {
                return snapshot;
            }
            assert!(client.begin(epoch, &problem.full(&snapshot)).unwrap());
            assert!(client.pull(&mut x, Pull::default()).unwrap().is_running());
        }
        let i = random.usize(..problem.a.len());
        let alpha = minus(&problem.gradient(i, &x), &problem.gradient(i, &snapshot));
        let (pushed, pulled) = client.push_pull(&alpha, push, &mut x, Pull::default()).unwrap();
        // Of a model in several shards, all end together here: there is one worker.
        assert_eq!(pushed.refused, []);
        state = pulled;
    }
}

#[test]
fn with_32_bits_a_run_is_the_full_precision_one_bit_for_bit() {
    let problem = Quadratic::new(40, 100, 1);
    let prox = Prox { l1: 1e-3, l2: 1e-2, bounds: Some((-0.6, 0.6)) };
    let m = 30;
    // Several shards change nothing.
    for shard in [1 << 20, 16] {
        let running = server(None);
        let spec = Spec {
            prox,
            shard,
            bits: ModelBits::Fixed(32),
            ..Spec::asylpg(100, 0.5, NonZeroU32::new(m).unwrap())
        };
        let mut client = client(&running, 0, "m", spec);
        let start: Vec<f32> = (0..100).map(|i| (i as f32).cos()).collect();
        assert!(client.initialise(&start).unwrap());
        assert!(!client.initialise(&start).unwrap());
        let got = train(&mut client, &problem, Push::bits(32), 3);

        // Algorithm 1, without anything that quantizes, in a plain loop.
        let mut random = fastrand::Rng::with_seed(11);
        let step = Proximal::new(&prox, 0.5);
        let mut snapshot = start;
        for _ in 0..3 {
            let full = problem.full(&snapshot);
            let mut x = snapshot.clone();
            for _ in 0..m {
                let i = random.usize(..40);
                let alpha = minus(&problem.gradient(i, &x), &problem.gradient(i, &snapshot));
                for j in 0..100 {
                    x[j] = step.step(x[j], alpha[j] + full[j]);
                }
            }
            snapshot = x;
        }
        let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got), bits(&snapshot), "shards of {shard}");
        // The first pull of every epoch is a flag: x is the snapshot.
        assert_eq!(client.stats().flags as usize, 3 * got.len().div_ceil(shard as usize));
    }
}

#[test]
fn low_precision_and_sparse_runs_converge() {
    let problem = Quadratic::new(50, 200, 5);
    let best: Vec<f32> = (0..200)
        .map(|j| {
            let (a, ac) = (0..50)
                .fold((0.0, 0.0), |(a, ac), i| (a + problem.a[i][j], ac + problem.a[i][j] * problem.c[i][j]));
            ac / a
        })
        .collect();
    for (push, accelerated) in [(Push::bits(8), false), (Push::sparse(8), false), (Push::bits(8), true)] {
        let running = server(None);
        let rate = if accelerated { 0.1 } else { 0.2 };
        let spec = Spec { accelerated, ..Spec::asylpg(200, rate, NonZeroU32::new(50).unwrap()) };
        let mut client = client(&running, 0, "m", spec);
        client.initialise(&vec![2.0; 200]).unwrap();
        let x = train(&mut client, &problem, push, 12);
        let distance = square(&minus(&x, &best)) / square(&best);
        assert!(distance < 1e-3, "{push:?}: {distance}");
    }
}

#[test]
fn plain_sgd_needs_no_epochs_and_unchanged_models_cost_a_flag() {
    let running = server(None);
    let mut client = client(&running, 0, "m", Spec { bits: ModelBits::Fixed(16), ..Spec::sgd(64, 0.1) });
    let mut x = vec![9.0; 64];
    assert_eq!(client.pull(&mut x, Pull::default()).unwrap().shards, [ShardState::Empty]);
    // There is nothing to overwrite it by.
    assert_eq!(x, [9.0; 64]);
    assert!(matches!(client.snapshot(&mut x), Err(ModelError::Empty)));
    client.initialise(&[1.0; 64]).unwrap();
    for _ in 0..60 {
        client.pull(&mut x, Pull::default()).unwrap();
        let gradient = x.clone();
        assert_eq!(client.push(&gradient, Push::bits(16)).unwrap().accepted_shards, 1);
    }
    client.pull(&mut x, Pull::default()).unwrap();
    let before = client.stats().clone();
    let kept = x.clone();
    client.pull(&mut x, Pull::default()).unwrap();
    assert_eq!(x, kept);
    assert_eq!(client.stats().pulled.bits - before.pulled.bits, 1);
    // 0.9^60
    assert!(x.iter().all(|v| (v - 0.0018).abs() < 0.0002), "{}", x[0]);
}

#[test]
fn what_does_not_fit_is_one_clear_error() {
    let running = server(None);
    let spec = Spec { workers: 4, ..Spec::sgd(100, 0.1) };
    let mut own = client(&running, 0, "m", spec.clone());
    let config = setup::config(&running, 1);
    let open = |config: thc_model::ClientConfig, name: &str, spec: Spec| {
        Client::open(config, name, spec).err().unwrap().to_string()
    };
    let message = open(config.clone(), "m", Spec { rate: 0.2, ..spec.clone() });
    assert!(message.contains("rate is 0.1, and 0.2 for this worker"), "{message}");
    let message = open(thc_model::ClientConfig { worker: 4, ..config.clone() }, "m", spec.clone());
    assert!(message.contains("worker 4 is not one of the model's 4"), "{message}");
    let other = thc_model::ClientConfig { secret: "another secret, long".into(), ..config.clone() };
    let message = open(other, "m", spec.clone());
    assert!(message.contains("do not have the same secret for job train"), "{message}");
    assert!(!message.contains(SECRET));
    let message =
        open(thc_model::ClientConfig { secret: "short".into(), ..config.clone() }, "m", spec.clone());
    assert!(message.contains("16 characters"), "{message}");
    let message =
        open(thc_model::ClientConfig { job: "other".to_owned(), ..config.clone() }, "m", spec.clone());
    assert!(message.contains("no job of this name"), "{message}");
    let message = open(config.clone(), "a/b", spec.clone());
    assert!(message.contains("letters"), "{message}");
    let message = open(config, "huge", Spec { coordinates: 1 << 30, shard: 1 << 20, ..spec });
    assert!(message.contains("max_coordinates"), "{message}");
    let message = own.push(&[0.0; 3], Push::bits(8)).unwrap_err().to_string();
    assert_eq!(message, "the gradient has 3 coordinates, the model has 100");
    own.initialise(&[1.0; 100]).unwrap();
    own.pull(&mut [0.0; 100], Pull::default()).unwrap();
    assert!(matches!(own.push(&[f32::NAN; 100], Push::bits(8)), Err(ModelError::Codec(_))));
    assert!(matches!(own.push(&[f32::NAN; 100], Push::bits(32)), Err(ModelError::Codec(_))));
    assert!(matches!(own.initialise(&[f32::INFINITY; 100]), Err(ModelError::Refused { .. })));
    // The server says which job's counters those are.
    let stats = own.server_stats().unwrap();
    assert_eq!(stats["refused"]["spec"], 1);
    assert_eq!(stats["refused"]["limit"], 1);
}

#[test]
fn a_server_has_as_many_shards_as_a_connection_has_streams() {
    let running = server(None);
    let spec = |shards: u64| Spec { shard: 16, bits: ModelBits::Fixed(32), ..Spec::sgd(16 * shards, 1.0) };
    let error = Client::open(setup::config(&running, 0), "more", spec(4096)).err().unwrap().to_string();
    assert!(error.contains("shard") && error.contains("at least 17 coordinates"), "{error}");
    let mut client = client(&running, 0, "most", spec(4095));
    let mut x = vec![0.0; client.coordinates()];
    client.initialise(&x).unwrap();
    client.pull(&mut x, Pull::default()).unwrap();
    assert_eq!(client.push(&x, Push::bits(32)).unwrap().accepted_shards, 4095);
}
