#![allow(clippy::unwrap_used)]

use super::*;
use crate::spec::ModelBits;
use crate::step::Optimizer;
use crate::step::Prox;
use std::num::NonZeroU32;

fn shard(spec: &Spec) -> ModelShard {
    let mut shard = ModelShard::new(Arc::new(spec.clone()), 0);
    let x: Vec<f32> = (0..spec.coordinates).map(|i| (i as f32).sin()).collect();
    assert!(shard.initialise(&x));
    assert!(!shard.initialise(&x));
    shard
}

fn pull(shard: &ModelShard, worker: u16) -> Stamp {
    match shard.pull(worker, None, None, &mut Vec::new()).unwrap() {
        PullAnswer::Running(stamp) | PullAnswer::Snapshot(stamp) | PullAnswer::Unchanged(stamp) => stamp,
        other => panic!("{other:?}"),
    }
}

fn push(shard: &mut ModelShard, worker: u16, stamp: Stamp) -> Applied {
    let sequence = shard.sequence(worker) + 1;
    let zeta = vec![0.125; shard.state().x.len()];
    shard.push(worker, &PushHead { sequence, stamp, scale: 1.0 }, &zeta)
}

#[test]
fn an_epoch_needs_its_gradient_and_ends_after_m_pushes() {
    let mut shard = shard(&Spec::asylpg(20, 0.5, NonZeroU32::new(2).unwrap()));
    let pulled = shard.pull(0, None, None, &mut Vec::new()).unwrap();
    assert_eq!(pulled, PullAnswer::Waiting { epoch: 0 });
    assert_eq!(push(&mut shard, 0, Stamp::default()), Applied::Refused(Reason::Epoch));
    assert!(!shard.begin(1, &[1.0; 20]));
    assert!(shard.begin(0, &[1.0; 20]));
    assert!(!shard.begin(0, &[1.0; 20]));
    // x = x̃: a flag, for those who have x̃.
    let mut out = Vec::new();
    let pulled = shard.pull(0, None, Some(0), &mut out).unwrap();
    assert!(matches!(pulled, PullAnswer::Snapshot(_)) && out.is_empty());
    let before = shard.state().x.clone();
    let stamp = pull(&shard, 0);
    assert!(matches!(push(&mut shard, 0, stamp), Applied::Taken { ended: false, delay: 0, .. }));
    assert_eq!(shard.state().x[3], before[3] - 0.5 * (0.125 + 1.0));
    let known = shard.stamp();
    let pulled = shard.pull(0, Some(known), Some(0), &mut out).unwrap();
    assert!(matches!(pulled, PullAnswer::Unchanged(_)) && out.is_empty());
    // The second push of worker 0 ends the epoch; that of worker 1 is too late for it.
    let late = pull(&shard, 1);
    let stamp = pull(&shard, 0);
    assert!(matches!(push(&mut shard, 0, stamp), Applied::Taken { ended: true, .. }));
    assert_eq!(push(&mut shard, 1, late), Applied::Refused(Reason::Epoch));
    assert_eq!(shard.state().phase, Phase::Waiting);
    assert_eq!(shard.state().snapshot, shard.state().x);
    assert_eq!(shard.stamp(), Stamp { epoch: 1, step: 0, version: 2 });
    assert!(shard.begin(1, &[0.0; 20]));
    assert_eq!(push(&mut shard, 1, late), Applied::Refused(Reason::Epoch));
}

#[test]
fn repeated_and_impossible_pushes_change_nothing() {
    let mut shard = shard(&Spec::sgd(20, 0.5));
    let stamp = pull(&shard, 3);
    let head = PushHead { sequence: 1, stamp, scale: 1.0 };
    assert!(matches!(shard.push(3, &head, &[1.0; 20]), Applied::Taken { .. }));
    let after = shard.state().clone();
    assert_eq!(shard.push(3, &head, &[1.0; 20]), Applied::Repeated);
    let future = PushHead { sequence: 2, stamp: Stamp { version: 5, ..stamp }, scale: 1.0 };
    assert_eq!(shard.push(3, &future, &[1.0; 20]), Applied::Refused(Reason::Future));
    assert_eq!(shard.state(), &after);
    let mut empty = ModelShard::new(Arc::new(Spec::sgd(20, 0.5)), 0);
    assert_eq!(empty.push(3, &head, &[1.0; 20]), Applied::Refused(Reason::Empty));
}

#[test]
fn a_step_out_of_range_changes_nothing() {
    let epoch = NonZeroU32::new(3).unwrap();
    for spec in [
        Spec::sgd(20, 0.5),
        Spec::asylpg(20, 0.5, epoch),
        Spec { accelerated: true, ..Spec::asylpg(20, 0.5, epoch) },
    ] {
        let mut shard = shard(&spec);
        shard.begin(0, &[1.0; 20]);
        let stamp = pull(&shard, 0);
        let before = shard.state().clone();
        let mut zeta = vec![0.0; 20];
        zeta[7] = f32::MAX;
        for (scale, wanted) in [(1.0, Reason::Range), (f32::MAX, Reason::Range)] {
            let head = PushHead { sequence: 1, stamp, scale };
            assert_eq!(shard.push(0, &head, &zeta), Applied::Refused(wanted));
            assert_eq!(shard.state(), &before);
        }
        let head = PushHead { sequence: 1, stamp, scale: 1.0 };
        assert!(matches!(shard.push(0, &head, &[0.5; 20]), Applied::Taken { .. }));
    }
    let mut empty = ModelShard::new(Arc::new(Spec::sgd(20, 0.5)), 0);
    assert!(!empty.initialise(&[f32::MAX; 20]) && empty.state().phase == Phase::Empty);
}

#[test]
fn a_push_beyond_the_bound_is_refused() {
    let mut shard = shard(&Spec { delay: Some(2), workers: 3, ..Spec::sgd(20, 0.5) });
    let slow = pull(&shard, 2);
    for _ in 0..2 {
        let stamp = pull(&shard, 0);
        assert!(matches!(push(&mut shard, 0, stamp), Applied::Taken { delay: 0, .. }));
    }
    assert!(matches!(push(&mut shard, 2, slow), Applied::Taken { delay: 2, .. }));
    let before = shard.state().clone();
    assert_eq!(push(&mut shard, 1, slow), Applied::Refused(Reason::Late));
    assert_eq!(*shard.state(), before);
    // The worker pulls again, and is in time.
    let stamp = pull(&shard, 1);
    assert!(matches!(push(&mut shard, 1, stamp), Applied::Taken { delay: 0, .. }));
}

#[test]
fn bits_are_the_fewest_that_keep_the_condition() {
    for mu in [0.001, 0.1, 2.0, 50.0] {
        let epoch = NonZeroU32::new(100).unwrap();
        let mut shard = shard(&Spec { bits: ModelBits::Condition(mu), ..Spec::asylpg(500, 0.05, epoch) });
        // At the snapshot itself nothing but the floats keeps it.
        shard.begin(0, &vec![0.1; 500]);
        pull(&shard, 0);
        assert_eq!(shard.bits(), 32);
        for _ in 0..30 {
            let stamp = pull(&shard, 0);
            assert!(matches!(push(&mut shard, 0, stamp), Applied::Taken { .. }));
            pull(&shard, 0);
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
            let stamp = pull(&shard, 0);
            assert!(matches!(push(&mut shard, 0, stamp), Applied::Taken { .. }));
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
                assert!(matches!(shard.push(0, &head, &zeta), Applied::Taken { .. }));
            }
            assert!(held.vectors().into_iter().zip(&before).all(|(vector, before)| **vector == *before));
            assert_eq!(alone.state(), read.state(), "step {sequence} of {spec:?}");
        }
    }
}
