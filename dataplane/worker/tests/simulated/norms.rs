//! P19: gradients that are not finite, and maxima that cannot be.

use crate::world::{JOB, Tamper, World, gradients, host_of, quiet, saved_feedback, static_job};
use thc_protocol::wire::{HEADER_LEN, Kind, Mode};
use thc_protocol::worker::CallError;
use thc_protocol::{Lane, Policy, WorkerId};
use thc_worker::{Call, Plan, WorkerError};

#[test]
fn nan_fails_everywhere_and_the_next_call_succeeds() {
    let mut world = World::new(static_job(3, Lane::Bits8, 3, Policy::Reliable), quiet());
    let mut data = gradients(3, 10_000, 1);
    data[1][9_000] = f32::NAN;
    let before = data.clone();
    for outcome in world.allreduce(&mut data, &[Call::default(); 3], |_, _| {}) {
        let Err(WorkerError::Call(CallError::NonFinite { worker })) = outcome else { panic!("{outcome:?}") };
        assert_eq!(worker, WorkerId(1).into());
    }
    assert_eq!(data[0], before[0], "a failed call leaves the data alone");
    let mut data = gradients(3, 10_000, 2);
    for outcome in world.allreduce(&mut data, &[Call::default(); 3], |_, _| {}) {
        outcome.unwrap();
    }
}

/// The value of a NORM_RESULT.
fn norm_result(packet: &mut [u8]) -> Option<&mut [u8]> {
    (packet[1] == Kind::NormResult as u8).then(|| &mut packet[HEADER_LEN + 4..HEADER_LEN + 8])
}

#[test]
fn a_norm_that_no_worker_may_send_fails_its_call_everywhere_and_the_next_succeeds() {
    for mode in [Mode::Compressed, Mode::Raw] {
        for value in [
            0x7F80_0000_u32,    // +Inf
            f32::MAX.to_bits(), // M overflows
            0x7C80_0001,        // just above 2^122
            1,                  // denormals
            0x0D7F_FFFF,        // just below 2^-100
            0x8000_0000,        // negative
            0xBF80_0000,
            0x7FC0_0000 | 3, // of a worker that there is not
            0x7FC0_0100 | 1,
            0x7F80_0001,
            u32::MAX,
        ] {
            let mut world = World::new(static_job(3, Lane::Bits8, 3, Policy::Reliable), quiet());
            let options = Call { plan: Plan::Whole(mode), feedback: (mode == Mode::Compressed).then_some(1) };
            let mut data = gradients(3, 10_000, 1);
            for outcome in world.allreduce(&mut data, &[options; 3], |_, _| {}) {
                outcome.unwrap();
            }
            let feedback: Vec<_> = world.engines.iter().map(saved_feedback).collect();
            // Frozen in the slot: every copy says so, also one asked for again.
            world.ps.tamper = Some(Box::new(move |_, packet| {
                if let Some(bytes) = norm_result(packet) {
                    bytes.copy_from_slice(&value.to_be_bytes());
                }
            }));
            let mut data = gradients(3, 10_000, 2);
            let before = data.clone();
            let results = world.ps.aggregator.job_counters(JOB).unwrap().results;
            for outcome in world.allreduce(&mut data, &[options; 3], |_, _| {}) {
                let text = outcome.expect_err(&format!("{value:#010x} in {mode:?}")).to_string();
                assert!(text.contains(&format!("{value:#010x}")), "{text}");
            }
            assert_eq!(data, before, "a failed call leaves the data alone");
            assert!(feedback.iter().eq(&world.engines.iter().map(saved_feedback).collect::<Vec<_>>()));
            let parts = 4; // 8192, 1024, 784 coordinates, and one call's worth of norms
            assert!(
                world.ps.aggregator.job_counters(JOB).unwrap().results < results + parts,
                "DATA was sent"
            );
            world.ps.tamper = None;
            let mut data = gradients(3, 10_000, 3);
            for outcome in world.allreduce(&mut data, &[options; 3], |_, _| {}) {
                outcome.unwrap();
            }
        }
    }
}

#[test]
fn a_norm_damaged_on_its_way_to_one_worker_is_asked_for_again() {
    let run = |damage: Option<fn(&mut [u8])>| {
        let mut world = World::new(static_job(3, Lane::Bits8, 3, Policy::Reliable), quiet());
        let mut left = 1;
        world.ps.tamper = damage.map(|damage| -> Tamper {
            Box::new(move |to, packet| {
                if host_of(to) == 2
                    && let Some(bytes) = norm_result(packet)
                    && std::mem::take(&mut left) == 1
                {
                    damage(bytes);
                }
            })
        });
        let mut data = gradients(3, 10_000, 1);
        for outcome in world.allreduce(&mut data, &[Call::default(); 3], |_, _| {}) {
            outcome.unwrap();
        }
        data
    };
    let clean = run(None);
    assert!(clean == run(Some(|bytes| bytes[0] ^= 0x80)), "a negative norm");
    assert!(clean == run(Some(|bytes| bytes[0] ^= 0x40)), "one beyond the limit");
    assert!(clean == run(Some(|bytes| bytes[0] = 0x20)), "one below the worker's own");
    assert!(clean == run(Some(|bytes| bytes.copy_from_slice(&[0x7F, 0x80, 0, 0]))), "an infinite one");
}

#[test]
fn a_maximum_below_a_workers_own_norm_ends_the_session() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let mut data = gradients(2, 4096, 1);
    data[1].iter_mut().for_each(|x| *x *= 1000.0);
    world.ps.tamper = Some(Box::new(|_, packet| {
        if let Some(bytes) = norm_result(packet) {
            bytes.copy_from_slice(&50f32.to_bits().to_be_bytes());
        }
    }));
    let outcomes = world.allreduce(&mut data, &[Call::default(); 2], |_, _| {});
    let text = outcomes[1].as_ref().expect_err("it sent a larger norm").to_string();
    assert!(text.contains("own"), "{text}");
    assert!(matches!(outcomes[1], Err(WorkerError::Session(_))));
    assert!(outcomes[0].is_err());
}
