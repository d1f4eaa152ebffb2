//! Error feedback: what it is good for, and that it is that before a call or that after it.

use crate::world::{LEN, World, exact_mean, gradients, nmse, quiet, saved_feedback, static_job};
use thc_protocol::{Lane, Policy};
use thc_worker::{Call, RestoredFeedback, WorkerError};

#[test]
fn error_feedback_makes_up_for_what_was_lost() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let data = gradients(2, 4096, 8);
    let mean = exact_mean(&data);
    let options = Call { feedback: Some(1), ..Call::default() };
    let mut sum = vec![0f64; 4096];
    let rounds = 30;
    for _ in 0..rounds {
        let mut out = data.clone();
        for outcome in world.allreduce(&mut out, &[options; 2], |_, _| {}) {
            outcome.unwrap();
        }
        sum.iter_mut().zip(&out[0]).for_each(|(s, v)| *s += f64::from(*v));
    }
    let average: Vec<f32> = sum.iter().map(|s| (s / f64::from(rounds)) as f32).collect();
    let error = nmse(&mean, &average);
    assert!(error < 1e-4, "the error of the average of {rounds} rounds is {error}");
}

#[test]
fn a_session_that_ends_in_the_middle_leaves_the_feedback_of_all_partitions_alone() {
    // Partitions of 65536, 32768, 1024 and 672 coordinates, and 64 slots: some are fed back long before others end.
    let mut failed = 0;
    let mut succeeded = 0;
    for turn in (1..70).step_by(3) {
        let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
        let options = Call { feedback: Some(5), ..Call::default() };
        let mut data = gradients(2, LEN, 1);
        for outcome in world.allreduce(&mut data, &[options; 2], |_, _| {}) {
            outcome.unwrap();
        }
        let before: Vec<_> = world.engines.iter().map(saved_feedback).collect();
        let mut data = gradients(2, LEN, 2);
        let outcomes = world.allreduce(&mut data, &[options; 2], |now, ps| {
            if now == turn {
                ps.admits = Box::new(|_, _| false);
            }
        });
        for ((outcome, engine), before) in outcomes.iter().zip(&world.engines).zip(&before) {
            match outcome {
                Ok(()) => {
                    succeeded += 1;
                    assert!(saved_feedback(engine) != *before);
                }
                Err(error) => {
                    failed += 1;
                    assert!(matches!(error, WorkerError::Session(_) | WorkerError::Silent(_)), "{error}");
                    assert!(
                        saved_feedback(engine) == *before,
                        "turn {turn}: half of the feedback was replaced"
                    );
                }
            }
        }
    }
    assert!(failed > 10 && succeeded > 0, "{failed} failed, {succeeded} succeeded");
}

#[test]
fn error_feedback_saved_with_blocks_of_one_size_is_that_of_another() {
    let options = Call { feedback: Some(1), ..Call::default() };
    let world = |block| {
        let mut job = static_job(2, Lane::Bits8, 2, Policy::Reliable);
        job.welcome.block = block;
        World::new(job, quiet())
    };
    let mut small = world(11);
    let mut data = gradients(2, 10_000, 1);
    for outcome in small.allreduce(&mut data, &[options; 2], |_, _| {}) {
        outcome.unwrap();
    }
    let before: Vec<_> = small.engines.iter().map(saved_feedback).collect();
    let mut large = world(20);
    for (engine, saved) in large.engines.iter_mut().zip(&before) {
        engine.put_feedback(1, RestoredFeedback::read(10_000, &saved[0].1).unwrap()).unwrap();
    }
    assert!(large.engines.iter().map(saved_feedback).eq(before));
    // What is sent and what is kept make up the gradient and what was kept.
    let all = |world: &World| -> Vec<Vec<f32>> {
        let floats = |bytes: &[u8]| -> Vec<f32> {
            bytes[16..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        world.engines.iter().map(|engine| floats(&saved_feedback(engine)[0].1)).collect()
    };
    let (data, old) = (gradients(2, 10_000, 2), all(&large));
    let mut out = data.clone();
    for outcome in large.allreduce(&mut out, &[options; 2], |_, _| {}) {
        outcome.unwrap();
    }
    let new = all(&large);
    for i in 0..10_000 {
        let sent = (0..2).map(|w| data[w][i] + old[w][i] - new[w][i]).sum::<f32>() / 2.0;
        assert!((sent - out[0][i]).abs() < 1e-4, "coordinate {i}: {sent} was sent, {} came back", out[0][i]);
    }
}

#[test]
fn what_is_saved_is_what_was_kept_when_it_was_asked_for_whatever_calls_do_meanwhile() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let options = Call { feedback: Some(1), ..Call::default() };
    let call = |world: &mut World, seed| {
        for outcome in world.allreduce(&mut gradients(2, 5000, seed), &[options; 2], |_, _| {}) {
            outcome.unwrap();
        }
    };
    call(&mut world, 1);
    let before = saved_feedback(&world.engines[0]);
    let kept = world.engines[0].feedback().unwrap();
    for seed in 2..5 {
        call(&mut world, seed);
    }
    assert!(kept.to_bytes() == before && saved_feedback(&world.engines[0]) != before);
    world.engines[0].reset_feedback(1).unwrap();
    assert!(kept.to_bytes() == before);
}

#[test]
fn error_feedback_in_use_is_neither_saved_nor_restored_nor_reset() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let options = Call { feedback: Some(1), ..Call::default() };
    let mut data = gradients(2, 5000, 1);
    for outcome in world.allreduce(&mut data, &[options; 2], |_, _| {}) {
        outcome.unwrap();
    }
    let engine = &mut world.engines[0];
    let before = saved_feedback(engine);
    engine.start(vec![1.0; 5000], options).unwrap();
    let busy = |result: Result<(), WorkerError>| {
        let Err(error @ WorkerError::FeedbackBusy { key: 1 }) = result else { panic!("{result:?}") };
        assert!(error.to_string().contains("wait for its handle"));
    };
    let restored = || RestoredFeedback::read(5000, &before[0].1).unwrap();
    busy(engine.feedback().map(drop));
    busy(engine.put_feedback(1, restored()));
    busy(engine.reset_feedback(1));
    busy(engine.start(vec![1.0; 5000], options).map(drop));
    // Another tensor's is free.
    engine.put_feedback(2, restored()).unwrap();
    engine.reset_feedback(2).unwrap();
    engine.end(WorkerError::Closed);
    assert!(saved_feedback(engine) == before, "as before the call");
}
