//! Training through a server: what the algorithms do, and what theory says of their error.
#![allow(clippy::unwrap_used)]

mod setup;

use std::num::NonZeroU32;

use setup::{SECRET, client, server};
use thc_model::payload::Encoding;
use thc_model::step::Proximal;
use thc_model::{Client, ModelBits, ModelError, Prox, Pull, Push, ShardState, Spec};

/// A quadratic problem: f_i(x) = ½ Σ_j a_ij (x_j − c_ij)². Every f_i is L-smooth with L = max a.
struct Quadratic {
    a: Vec<Vec<f32>>,
    c: Vec<Vec<f32>>,
}

impl Quadratic {
    fn new(samples: usize, coordinates: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut vectors = |low: f32, high: f32| {
            let one = |random: &mut fastrand::Rng| low + (high - low) * random.f32();
            (0..samples)
                .map(|_| (0..coordinates).map(|_| one(&mut random)).collect())
                .collect::<Vec<Vec<f32>>>()
        };
        Self { a: vectors(0.1, 1.0), c: vectors(-1.0, 1.0) }
    }

    fn gradient(&self, i: usize, x: &[f32]) -> Vec<f32> {
        x.iter().zip(&self.a[i]).zip(&self.c[i]).map(|((x, a), c)| a * (x - c)).collect()
    }

    fn full(&self, x: &[f32]) -> Vec<f32> {
        let n = self.a.len() as f32;
        let mut sum = vec![0.0; x.len()];
        for i in 0..self.a.len() {
            sum.iter_mut().zip(self.gradient(i, x)).for_each(|(sum, g)| *sum += g / n);
        }
        sum
    }

    fn smoothness(&self) -> f64 {
        self.a.iter().flatten().fold(0.0_f64, |max, a| max.max(f64::from(*a)))
    }
}

fn minus(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn square(x: &[f32]) -> f64 {
    x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum()
}

/// One worker's AsyLPG: calls `see(x̃, x, Q(x), i)` before each push; returns the last x.
fn train(
    client: &mut Client,
    problem: &Quadratic,
    push: Push,
    epochs: u64,
    mut see: impl FnMut(&mut Client, &[f32], &[f32], usize),
) -> Vec<f32> {
    let d = client.coordinates();
    let mut x = vec![0.0; d];
    let mut snapshot = vec![0.0; d];
    let mut random = fastrand::Rng::with_seed(11);
    let mut state = client.pull(&mut x, Pull::default()).unwrap();
    loop {
        if let Some(epoch) = state.waiting() {
            assert_eq!(client.snapshot(&mut snapshot).unwrap(), Some(epoch));
            if epoch == epochs {
                return snapshot;
            }
            assert!(client.begin(epoch, &problem.full(&snapshot)).unwrap());
            assert!(client.pull(&mut x, Pull::default()).unwrap().running());
        }
        let i = random.usize(..problem.a.len());
        see(client, &snapshot, &x, i);
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
    // Several shards, and two servers, change nothing.
    for (shard, servers) in [(1 << 20, 1), (16, 1), (32, 2)] {
        let running: Vec<_> = (0..servers).map(|_| server(None)).collect();
        let spec = Spec {
            prox,
            shard,
            bits: ModelBits::Fixed(32),
            ..Spec::corrected(100, 0.5, NonZeroU32::new(m).unwrap())
        };
        let mut client = client(&running, 0, "m", spec);
        let start: Vec<f32> = (0..100).map(|i| (i as f32).cos()).collect();
        assert!(client.initialise(&start).unwrap());
        assert!(!client.initialise(&start).unwrap());
        let got = train(&mut client, &problem, Push::bits(32), 3, |_, _, _, _| {});

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
        assert_eq!(bits(&got), bits(&snapshot), "shards of {shard}, {servers} servers");
        // The first pull of every epoch is a flag: x is the snapshot.
        assert_eq!(
            client.stats().flags as usize,
            3 * got.len().div_ceil(shard as usize).max(if servers == 2 { 4 } else { 1 })
        );
    }
}

#[test]
fn the_variance_bound_of_lemma_1_and_condition_2_hold_on_quadratics() {
    let (d, samples) = (60, 30);
    let problem = Quadratic::new(samples, d, 2);
    let smoothness = problem.smoothness();
    for (mu, b) in [(0.05, 8), (0.5, 4), (5.0, 2)] {
        let running = [server(None)];
        let spec = Spec {
            bits: ModelBits::Condition(mu),
            seed: 3,
            ..Spec::corrected(d as u64, 0.1, NonZeroU32::new(40).unwrap())
        };
        let mut own = client(&running, 0, "m", spec.clone());
        own.initialise(&vec![0.5; d]).unwrap();
        // Another worker's pulls of the same version: E over the rounding of the model. It never pushes.
        let mut others: Vec<Client> =
            (1..9).map(|worker| client(&running, worker, "m", spec.clone())).collect();
        let (mut error, mut allowed) = (0.0, 0.0);
        let (mut variance, mut bound) = (0.0, 0.0);
        let delta = d as f64 / (4.0 * (f64::from((1_u32 << (b - 1)) - 1)).powi(2));
        let steps_of_server = std::cell::Cell::new(0);
        train(&mut own, &problem, Push::bits(b), 2, |_, snapshot, x, _| {
            steps_of_server.set(steps_of_server.get() + 1);
            if steps_of_server.get() % 4 != 0 {
                return;
            }
            // x_t itself is nowhere to be pulled in low precision; its mean over roundings is close to it.
            let mut pulls = vec![x.to_vec()];
            for other in &mut others {
                let mut pulled = vec![0.0; d];
                other.pull(&mut pulled, Pull::default()).unwrap();
                pulls.push(pulled);
            }
            let k = pulls.len() as f64;
            let mean: Vec<f32> =
                (0..d).map(|j| (pulls.iter().map(|p| f64::from(p[j])).sum::<f64>() / k) as f32).collect();
            let full_at_x = problem.full(&mean);
            let drift = square(&minus(&mean, snapshot));
            let full = problem.full(snapshot);
            for pulled in &pulls {
                // Bessel: the mean is not the truth.
                error += square(&minus(pulled, &mean)) / (k - 1.0);
                for i in 0..samples {
                    let alpha = minus(&problem.gradient(i, pulled), &problem.gradient(i, snapshot));
                    let lattice = thc_codec::lattice::Lattice::spanning(&alpha, b).unwrap();
                    // E‖ζ − α‖² is known; E‖α + g − ∇f(x)‖² is over i and the model's rounding.
                    let u: Vec<f32> = alpha.iter().zip(&full).map(|(a, g)| a + g).collect();
                    variance +=
                        (lattice.variance(&alpha) + square(&minus(&u, &full_at_x))) / (k * samples as f64);
                }
            }
            allowed += f64::from(mu) * drift;
            // Lemma 1; no delay: D(t) = t.
            bound += 2.0 * smoothness * smoothness * (f64::from(mu) + 1.0) * (delta + 2.0) * drift;
        });
        assert!(error <= 1.3 * allowed, "μ {mu}: {error} above {allowed}");
        assert!(variance <= bound, "μ {mu}, b {b}: {variance} above {bound}");
        // The condition binds: a bound that nothing comes near would show nothing.
        assert!(error > 0.02 * allowed, "μ {mu}: {error} far below {allowed}");
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
    for (push, accelerated) in [
        (Push::bits(8), false),
        (Push { encoding: Encoding::Shortest { bits: 4 }, scale: 1.0 }, false),
        (Push::sparse(8), false),
        (Push::bits(8), true),
    ] {
        let running = [server(None)];
        let rate = if accelerated { 0.1 } else { 0.2 };
        let spec = Spec { accelerated, ..Spec::corrected(200, rate, NonZeroU32::new(50).unwrap()) };
        let mut client = client(&running, 0, "m", spec);
        client.initialise(&vec![2.0; 200]).unwrap();
        let x = train(&mut client, &problem, push, 12, |_, _, _, _| {});
        let distance = square(&minus(&x, &best)) / square(&best);
        assert!(distance < 1e-3, "{push:?}: {distance}");
    }
}

#[test]
fn plain_sgd_needs_no_epochs_and_unchanged_models_cost_a_flag() {
    let running = [server(None)];
    let mut client = client(&running, 0, "m", Spec { bits: ModelBits::Fixed(16), ..Spec::sgd(64, 0.1) });
    let mut x = vec![9.0; 64];
    assert_eq!(client.pull(&mut x, Pull::default()).unwrap().shards, [ShardState::Empty]);
    assert_eq!(x, [0.0; 64]);
    assert!(matches!(client.snapshot(&mut x), Err(ModelError::Empty)));
    client.initialise(&[1.0; 64]).unwrap();
    for _ in 0..60 {
        client.pull(&mut x, Pull::default()).unwrap();
        let gradient = x.clone();
        assert_eq!(client.push(&gradient, Push::bits(16)).unwrap().taken, 1);
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
    let running = [server(None)];
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
    let message = open(config, "huge", Spec { coordinates: 1 << 30, ..spec });
    assert!(message.contains("max_coordinates"), "{message}");
    assert!(matches!(own.push(&[0.0; 3], Push::bits(8)), Err(ModelError::Length { .. })));
    own.initialise(&[1.0; 100]).unwrap();
    own.pull(&mut [0.0; 100], Pull::default()).unwrap();
    assert!(matches!(own.push(&[f32::NAN; 100], Push::bits(8)), Err(ModelError::Codec(_))));
    assert!(matches!(own.push(&[f32::NAN; 100], Push::bits(32)), Err(ModelError::Codec(_))));
    assert!(matches!(own.initialise(&[f32::INFINITY; 100]), Err(ModelError::Refused { .. })));
    // The server says which job's counters those are.
    let stats = own.server_stats(0).unwrap();
    assert_eq!(stats["refused"]["spec"], 1);
    assert_eq!(stats["refused"]["limit"], 1);
}
