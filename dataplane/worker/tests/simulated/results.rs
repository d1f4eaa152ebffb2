//! Means are those of a network without faults, bit for bit.

use crate::world::{JOB, LEN, World, exact_mean, gradients, hostile, nmse, quiet, seeds, static_job};
use thc_protocol::wire::Mode;
use thc_protocol::worker::SessionError;
use thc_protocol::{Lane, Policy};
use thc_support::SimConfig;
use thc_worker::{Call, Plan, WorkerError};

#[test]
fn all_workers_get_the_same_mean() {
    for lane in [Lane::Bits8, Lane::Bits16] {
        let mut world = World::new(static_job(4, lane, 4, Policy::Reliable), quiet());
        let data = gradients(4, LEN, 3);
        let mean = exact_mean(&data);
        let mut out = data.clone();
        for outcome in world.allreduce(&mut out, &[Call::default(); 4], |_, _| {}) {
            outcome.unwrap();
        }
        assert!(out.iter().all(|o| o == &out[0]), "bit-identical on all workers");
        let error = nmse(&mean, &out[0]);
        assert!(error < 0.03, "NMSE {error}");
    }
}

#[test]
fn blocks_of_every_size_give_as_good_a_mean() {
    for block in [10, 12, 13, 16, 20] {
        for mode in [Mode::Compressed, Mode::Raw] {
            let mut job = static_job(3, Lane::Bits8, 3, Policy::Reliable);
            job.welcome.block = block;
            let mut world = World::new(job, hostile(block.into()));
            let data = gradients(3, LEN, 3);
            let mean = exact_mean(&data);
            let mut out = data.clone();
            let feedback = (mode == Mode::Compressed).then_some(1);
            for outcome in
                world.allreduce(&mut out, &[Call { plan: Plan::Whole(mode), feedback }; 3], |_, _| {})
            {
                outcome.unwrap();
            }
            assert!(out.iter().all(|o| o == &out[0]), "bit-identical on all workers");
            let error = nmse(&mean, &out[0]);
            assert!(error < if mode == Mode::Raw { 1e-12 } else { 0.03 }, "2^{block}: NMSE {error}");
            // A norm for every full block, and 20 packets of the rest are partitions of their own.
            let results = world.ps.aggregator.job_counters(JOB).unwrap().results as usize;
            let norms = LEN.div_ceil(1 << block);
            assert!(results >= norms + if mode == Mode::Raw { LEN / 256 } else { LEN / 1024 });
        }
    }
}

#[test]
fn raw_is_exact_to_f32() {
    let mut world = World::new(static_job(3, Lane::Bits8, 3, Policy::Reliable), quiet());
    let data = gradients(3, 5000, 3);
    let mean = exact_mean(&data);
    let mut out = data.clone();
    let options = Call { plan: Plan::Whole(Mode::Raw), feedback: None };
    for outcome in world.allreduce(&mut out, &[options; 3], |_, _| {}) {
        outcome.unwrap();
    }
    let scale = mean.iter().fold(0f32, |m, v| m.max(v.abs()));
    for (a, b) in mean.iter().zip(&out[0]) {
        assert!((a - b).abs() <= scale * 2f32.powi(-22), "{a} {b}");
    }
}

fn run_three(block: u8, config: SimConfig, restarts: &[u64]) -> Vec<Vec<f32>> {
    let mut job = static_job(4, Lane::Bits8, 4, Policy::Reliable);
    job.welcome.block = block;
    let mut world = World::new(job, config);
    let mut results = Vec::new();
    for call in 0..3 {
        let mut out = gradients(4, LEN, call);
        let options = Call { feedback: Some(5), ..Call::default() };
        let outcomes = world.allreduce(&mut out, &[options; 4], |turn, ps| {
            if restarts.contains(&turn) {
                ps.restart();
            }
        });
        for outcome in outcomes {
            outcome.unwrap();
        }
        assert!(out.iter().all(|o| o == &out[0]));
        results.push(out.swap_remove(0));
    }
    results
}

#[test]
fn loss_changes_no_bit() {
    for block in [12, 20] {
        let clean = run_three(block, quiet(), &[]);
        for seed in seeds(4) {
            assert!(run_three(block, hostile(seed), &[]) == clean, "THC_SEED={seed}, blocks of 2^{block}");
        }
    }
}

#[test]
fn threads_change_no_bit() {
    let run = |block, threads| {
        let mut job = static_job(2, Lane::Bits8, 2, Policy::Reliable);
        job.welcome.block = block;
        job.config.data_slots = 4096;
        job.welcome.data_slots = 4096;
        let mut world = World::with_threads(job, quiet(), threads);
        let options = Call { feedback: Some(5), ..Call::default() };
        let mut results = Vec::new();
        for call in 0..2 {
            let mut out = gradients(2, 3_000_000, call);
            for outcome in world.allreduce(&mut out, &[options; 2], |_, _| {}) {
                outcome.unwrap();
            }
            results.append(&mut out);
        }
        results
    };
    for block in [13, 20] {
        assert!(run(block, 1) == run(block, 3), "blocks of 2^{block}");
    }
}

#[test]
fn a_restarted_parameter_server_changes_no_bit() {
    let clean = run_three(13, quiet(), &[]);
    assert!(run_three(13, quiet(), &[3, 20, 37]) == clean);
    for seed in seeds(4) {
        // Three restarts in each call, at any time of it: without loss one takes some 60 turns.
        let at = [3, 7, 11].map(|factor| 1 + (seed + 1) * factor * 7919 % 300);
        assert!(run_three(13, hostile(seed + 9), &at) == clean, "THC_SEED={seed}: restarts at {at:?}");
    }
}

#[test]
fn different_lengths_are_an_error_that_shows_both() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let mut data = vec![vec![1.0; 5000], vec![1.0; 6000]];
    for outcome in world.allreduce(&mut data, &[Call::default(); 2], |_, _| {}) {
        let Err(error @ WorkerError::Session(SessionError::Mismatch { .. })) = outcome else {
            panic!("{outcome:?}")
        };
        let text = error.to_string();
        assert!(text.contains("5000") && text.contains("6000"), "{text}");
    }
}

#[test]
fn zero_gradients_need_no_data() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let mut data = vec![vec![0.0; 3000]; 2];
    let options = Call { feedback: Some(1), ..Call::default() };
    for outcome in world.allreduce(&mut data, &[options; 2], |_, _| {}) {
        outcome.unwrap();
    }
    assert!(data.iter().flatten().all(|v| *v == 0.0));
    let counters = world.ps.aggregator.job_counters(JOB).unwrap();
    assert_eq!(counters.results, 2, "two norms and nothing else");
}
