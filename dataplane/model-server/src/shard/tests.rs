#![allow(clippy::unwrap_used)]

use super::*;
use crate::spec::ModelBits;
use crate::step::Optimizer;
use crate::step::Prox;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

const LEASE: Duration = Duration::from_secs(10);

fn shard(spec: &Spec) -> ModelShard {
    let mut shard = ModelShard::new(Arc::new(spec.clone()), 0, LEASE);
    let x: Vec<f32> = (0..spec.coordinates).map(|i| (i as f32).sin()).collect();
    assert!(shard.initialise(&x));
    assert!(!shard.initialise(&x));
    shard
}

fn pull(shard: &mut ModelShard, worker: u16, now: Instant) -> Stamp {
    match shard.pull(worker, None, None, now, &mut Vec::new()).unwrap() {
        PullAnswer::Running(stamp) | PullAnswer::Snapshot(stamp) | PullAnswer::Unchanged(stamp) => stamp,
        other => panic!("{other:?}"),
    }
}

fn push(shard: &mut ModelShard, worker: u16, stamp: Stamp, now: Instant) -> Applied {
    let sequence = shard.sequence(worker) + 1;
    let zeta = vec![0.125; shard.state().x.len()];
    shard.push(worker, &PushHead { sequence, stamp, scale: 1.0 }, &zeta, now)
}

#[test]
fn an_epoch_needs_its_gradient_and_ends_after_m_pushes() {
    let now = Instant::now();
    let mut shard = shard(&Spec::asylpg(20, 0.5, NonZeroU32::new(2).unwrap()));
    let pulled = shard.pull(0, None, None, now, &mut Vec::new()).unwrap();
    assert_eq!(pulled, PullAnswer::Waiting { epoch: 0 });
    assert_eq!(push(&mut shard, 0, Stamp::default(), now), Applied::Refused(Reason::Epoch));
    assert!(!shard.begin(1, &[1.0; 20]));
    assert!(shard.begin(0, &[1.0; 20]));
    assert!(!shard.begin(0, &[1.0; 20]));
    // x = x̃: a flag, for those who have x̃.
    let mut out = Vec::new();
    let pulled = shard.pull(0, None, Some(0), now, &mut out).unwrap();
    assert!(matches!(pulled, PullAnswer::Snapshot(_)) && out.is_empty());
    let before = shard.state().x.clone();
    let stamp = pull(&mut shard, 0, now);
    assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { ended: false, delay: 0, .. }));
    assert_eq!(shard.state().x[3], before[3] - 0.5 * (0.125 + 1.0));
    let known = shard.stamp();
    let pulled = shard.pull(0, Some(known), Some(0), now, &mut out).unwrap();
    assert!(matches!(pulled, PullAnswer::Unchanged(_)) && out.is_empty());
    // The second push of worker 0 ends the epoch; that of worker 1 is too late for it.
    let late = pull(&mut shard, 1, now);
    let stamp = pull(&mut shard, 0, now);
    assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { ended: true, .. }));
    assert_eq!(push(&mut shard, 1, late, now), Applied::Refused(Reason::Epoch));
    assert_eq!(shard.state().phase, Phase::Waiting);
    assert_eq!(shard.state().snapshot, shard.state().x);
    assert_eq!(shard.stamp(), Stamp { epoch: 1, step: 0, version: 2 });
    assert!(shard.begin(1, &[0.0; 20]));
    assert_eq!(push(&mut shard, 1, late, now), Applied::Refused(Reason::Epoch));
}

#[test]
fn repeated_and_impossible_pushes_change_nothing() {
    let now = Instant::now();
    let mut shard = shard(&Spec::sgd(20, 0.5));
    let stamp = pull(&mut shard, 3, now);
    let head = PushHead { sequence: 1, stamp, scale: 1.0 };
    assert!(matches!(shard.push(3, &head, &[1.0; 20], now), Applied::Taken { .. }));
    let after = shard.state().clone();
    assert_eq!(shard.push(3, &head, &[1.0; 20], now), Applied::Repeated);
    let future = PushHead { sequence: 2, stamp: Stamp { version: 5, ..stamp }, scale: 1.0 };
    assert_eq!(shard.push(3, &future, &[1.0; 20], now), Applied::Refused(Reason::Future));
    assert_eq!(shard.state(), &after);
    let mut empty = ModelShard::new(Arc::new(Spec::sgd(20, 0.5)), 0, LEASE);
    assert_eq!(empty.push(3, &head, &[1.0; 20], now), Applied::Refused(Reason::Empty));
}

#[test]
fn a_step_out_of_range_changes_nothing() {
    let now = Instant::now();
    let epoch = NonZeroU32::new(3).unwrap();
    for spec in [
        Spec::sgd(20, 0.5),
        Spec::asylpg(20, 0.5, epoch),
        Spec { accelerated: true, ..Spec::asylpg(20, 0.5, epoch) },
    ] {
        let mut shard = shard(&spec);
        shard.begin(0, &[1.0; 20]);
        let stamp = pull(&mut shard, 0, now);
        let before = shard.state().clone();
        let mut zeta = vec![0.0; 20];
        zeta[7] = f32::MAX;
        for (scale, wanted) in [(1.0, Reason::Range), (f32::MAX, Reason::Range)] {
            let head = PushHead { sequence: 1, stamp, scale };
            assert_eq!(shard.push(0, &head, &zeta, now), Applied::Refused(wanted));
            assert_eq!(shard.state(), &before);
        }
        let head = PushHead { sequence: 1, stamp, scale: 1.0 };
        assert!(matches!(shard.push(0, &head, &[0.5; 20], now), Applied::Taken { .. }));
    }
    let mut empty = ModelShard::new(Arc::new(Spec::sgd(20, 0.5)), 0, LEASE);
    assert!(!empty.initialise(&[f32::MAX; 20]) && empty.state().phase == Phase::Empty);
}

#[test]
fn others_wait_for_a_worker_that_would_fall_behind() {
    let now = Instant::now();
    let mut shard = shard(&Spec { delay: Some(2), workers: 3, ..Spec::sgd(20, 0.5) });
    let slow = pull(&mut shard, 2, now);
    for _ in 0..2 {
        let stamp = pull(&mut shard, 0, now);
        assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { .. }));
    }
    // A third step would give the slow one a delay of 3.
    let stamp = pull(&mut shard, 0, now);
    assert_eq!(push(&mut shard, 0, stamp, now), Applied::Wait(now + LEASE));
    assert!(matches!(push(&mut shard, 2, slow, now), Applied::Taken { delay: 2, .. }));
    assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { delay: 1, .. }));
    // One that never pushes holds the others up once, for its lease.
    let silent = pull(&mut shard, 2, now);
    let mut waited = 0;
    let mut now = now;
    for _ in 0..20 {
        let stamp = pull(&mut shard, 0, now);
        while let Applied::Wait(until) = push(&mut shard, 0, stamp, now) {
            waited += 1;
            now = until;
            pull(&mut shard, 2, now);
        }
    }
    assert_eq!((waited, shard.expired_count()), (1, 1));
    assert_eq!(push(&mut shard, 2, silent, now), Applied::Refused(Reason::Late));
    // It is heard again when it is in time, and then has reservations again.
    let stamp = pull(&mut shard, 2, now);
    assert!(matches!(push(&mut shard, 2, stamp, now), Applied::Taken { .. }));
    pull(&mut shard, 2, now);
    assert!(shard.reservations.has(2));
    shard.release(2);
    assert!(!shard.reservations.has(2));
}

#[test]
fn bits_are_the_fewest_that_keep_the_condition() {
    let now = Instant::now();
    for mu in [0.001, 0.1, 2.0, 50.0] {
        let epoch = NonZeroU32::new(100).unwrap();
        let mut shard = shard(&Spec { bits: ModelBits::Condition(mu), ..Spec::asylpg(500, 0.05, epoch) });
        // At the snapshot itself nothing but the floats keeps it.
        shard.begin(0, &vec![0.1; 500]);
        pull(&mut shard, 0, now);
        assert_eq!(shard.bits(), 32);
        for _ in 0..30 {
            let stamp = pull(&mut shard, 0, now);
            assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { .. }));
            pull(&mut shard, 0, now);
            let bits = shard.bits();
            if bits <= 16 {
                assert!(shard.condition(bits).unwrap().0 <= f64::from(mu));
            }
            if bits > 2 {
                assert!(shard.condition(bits.min(17) - 1).unwrap().0 > f64::from(mu));
            }
        }
        assert!(shard.bits() <= 16);
    }
}

#[test]
fn momentum_is_algorithm_3() {
    let now = Instant::now();
    let (m, rate) = (3, 0.25);
    let prox = Prox { l1: 0.01, l2: 0.1, bounds: None };
    let mut spec = Spec::asylpg(20, rate, NonZeroU32::new(m).unwrap());
    spec = Spec { accelerated: true, prox, bits: ModelBits::Fixed(32), ..spec };
    let mut shard = shard(&spec);
    let mut tilde = shard.state().x.to_vec();
    let mut y = tilde.clone();
    for s in 1..=3_u64 {
        let gradient: Vec<f32> = (0..20).map(|i| (i as f32 + s as f32).cos()).collect();
        assert!(shard.begin(s - 1, &gradient));
        let theta = 2.0 / (s as f32 + 2.0);
        let mut mean = vec![0.0; 20];
        for t in 0..m {
            let stamp = pull(&mut shard, 0, now);
            assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { .. }));
            for i in 0..20 {
                let eta = rate / theta;
                let z = y[i] - eta * (0.125 + gradient[i]);
                let soft = z.signum() * (z.abs() - eta * 0.01).max(0.0);
                y[i] = soft / (1.0 + eta * 0.1);
                let x = tilde[i] + theta * (y[i] - tilde[i]);
                mean[i] += x / m as f32;
                if t + 1 < m {
                    assert!((shard.state().x[i] - x).abs() < 1e-5);
                }
            }
        }
        tilde.copy_from_slice(&mean);
        for i in 0..20 {
            assert!((shard.state().snapshot[i] - tilde[i]).abs() < 1e-5);
            assert!((shard.state().y[i] - y[i]).abs() < 1e-5);
            let next = 2.0 / (s as f32 + 3.0);
            assert!((shard.state().x[i] - (next * y[i] + (1.0 - next) * tilde[i])).abs() < 1e-5);
        }
    }
}

/// Pulls and files read what they have, and steps meanwhile give the same numbers elsewhere.
#[test]
fn a_step_beside_readers_changes_nothing_that_they_read() {
    let now = Instant::now();
    let sgd = Spec::sgd(100, 0.5);
    let corrected = Spec::asylpg(100, 0.5, NonZeroU32::new(4).unwrap());
    for spec in [
        Spec { optimizer: Optimizer::Momentum { beta: 0.5 }, ..sgd.clone() },
        Spec { optimizer: Optimizer::Adam { beta1: 0.5, beta2: 0.9, epsilon: 1e-3 }, ..sgd },
        Spec { accelerated: true, ..corrected.clone() },
        corrected,
    ] {
        let (mut alone, mut read) = (shard(&spec), shard(&spec));
        let zeta: Vec<f32> = (0..100).map(|i| (i as f32 * 0.3).cos()).collect();
        for sequence in 1..=40 {
            let epoch = read.stamp().epoch;
            if read.begin(epoch, &zeta) {
                alone.begin(epoch, &zeta);
            }
            let (held, stamp) = (read.state().clone(), read.stamp());
            let before: Vec<Vec<f32>> = held.vectors().iter().map(|vector| vector.to_vec()).collect();
            let head = PushHead { sequence, stamp, scale: 1.0 };
            for shard in [&mut alone, &mut read] {
                assert!(matches!(shard.push(0, &head, &zeta, now), Applied::Taken { .. }));
            }
            assert!(held.vectors().into_iter().zip(&before).all(|(vector, before)| **vector == *before));
            assert_eq!(alone.state(), read.state(), "step {sequence} of {spec:?}");
        }
    }
}

proptest! {
    /// Whatever workers do, no push is taken with a delay above τ, and somebody can always go on.
    #[test]
    fn delays_stay_within_the_bound(
        workers in 1_u16..6,
        extra in 0_u32..4,
        moves in prop::collection::vec((0_u16..6, any::<bool>()), 0..300),
    ) {
        let now = Instant::now();
        let limit = u32::from(workers) - 1 + extra;
        let mut shard = shard(&Spec { delay: Some(limit), workers, ..Spec::sgd(20, 0.01) });
        let mut held: BTreeMap<u16, Stamp> = BTreeMap::new();
        for (worker, eager) in moves {
            let worker = worker % workers;
            match held.get(&worker) {
                None => {
                    held.insert(worker, pull(&mut shard, worker, now));
                }
                Some(stamp) if eager => match push(&mut shard, worker, *stamp, now) {
                    Applied::Taken { delay, .. } => {
                        prop_assert!(delay <= u64::from(limit));
                        held.remove(&worker);
                    }
                    Applied::Wait(_) => {
                        let (oldest, stamp) =
                            held.iter().min_by_key(|(w, s)| (s.version, **w)).map(|(w, s)| (*w, *s)).unwrap();
                        let applied = push(&mut shard, oldest, stamp, now);
                        prop_assert!(matches!(applied, Applied::Taken { .. }), "{:?}", applied);
                        held.remove(&oldest);
                    }
                    other => prop_assert!(false, "{:?}", other),
                },
                Some(_) => {}
            }
        }
    }
}
