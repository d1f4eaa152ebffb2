//! Workers that leave before the others are done (P25).

use crate::world::{World, gradients, host_of, quiet, static_job};
use std::time::Duration;
use thc_protocol::wire::Kind;
use thc_protocol::worker::SessionError;
use thc_protocol::{Lane, Policy};
use thc_worker::{Borrowed, Call, WorkerError};

const LEN: usize = 5000;

/// Three workers do `calls` all-reduces, then the last one leaves and the others begin another: what becomes of that one,
/// and how long it takes.
fn departure(quorum: u8, policy: Policy, calls: usize) -> Vec<(Result<(), WorkerError>, Duration)> {
    let mut world = World::new(static_job(3, Lane::Bits8, quorum, policy), quiet());
    for _ in 0..calls {
        let mut data = gradients(3, LEN, 1);
        for outcome in world.allreduce(&mut data, &[Call::default(); 3], |_, _| {}) {
            outcome.unwrap();
        }
    }
    world.engines[2].leave();
    let began = world.net.now();
    let mut data = gradients(2, LEN, 2);
    let numbers = [0, 1].map(|i| world.engines[i].submit(LEN, Call::default()).unwrap());
    let mut ends = [None, None];
    let net = world.net.clone();
    while ends.iter().any(Option::is_none) {
        let now = net.now();
        assert!(now - began < Duration::from_secs(60), "no end: {ends:?}");
        world.turn(|i, engine| match i {
            2 if engine.has_left() => false,
            2 => {
                engine.serve_others().unwrap();
                false
            }
            _ => {
                let busy = engine.step(&mut Borrowed::new(numbers[i], &mut data[i]));
                if let Some(end) = engine.take_outcome(numbers[i]) {
                    ends[i].get_or_insert((end, now - began));
                }
                busy
            }
        });
    }
    ends.into_iter().map(Option::unwrap).collect()
}

#[test]
fn a_worker_that_leaves_early_is_named_within_three_seconds() {
    for policy in [Policy::Reliable, Policy::BestEffort] {
        for calls in [0, 2] {
            for (end, took) in departure(3, policy, calls) {
                let left = SessionError::Left { members: 0b100, call: calls as u64, waited: Duration::ZERO };
                match end {
                    Err(WorkerError::Session(SessionError::Left { members, call, waited })) => {
                        assert_eq!(SessionError::Left { members, call, waited: Duration::ZERO }, left);
                        assert!(waited <= took);
                    }
                    end => panic!("{policy:?}, {calls} calls: {end:?}"),
                }
                assert!(took < Duration::from_secs(3), "{took:?}");
            }
        }
    }
}

#[test]
fn by_quorum_the_others_go_on_without_a_worker_that_leaves() {
    for (end, took) in departure(2, Policy::Reliable, 2) {
        end.unwrap();
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

/// What a worker sent before it left reaches the others, however late.
#[test]
fn a_worker_that_leaves_answers_for_its_last_call() {
    let mut world = World::new(static_job(3, Lane::Bits8, 3, Policy::Reliable), quiet());
    // No result of the last call reaches the first worker before the third has begun to leave.
    let net = world.net.clone();
    world.ps.tamper = Some(Box::new(move |to, packet| {
        let is_result = [Kind::Result, Kind::NormResult].iter().any(|&kind| packet[1] == kind as u8);
        if host_of(to) == 1 && is_result && net.now() < Duration::from_millis(700) {
            packet.truncate(1);
        }
    }));
    let mut data = gradients(3, LEN, 1);
    let numbers = [0, 1, 2].map(|i| world.engines[i].submit(LEN, Call::default()).unwrap());
    let mut ends = [None, None, None];
    while ends.iter().any(Option::is_none) {
        assert!(world.net.now() < Duration::from_secs(60), "no end: {ends:?}");
        world.turn(|i, engine| {
            if ends[i].is_some() {
                engine.serve_others().unwrap();
                return false;
            }
            let busy = engine.step(&mut Borrowed::new(numbers[i], &mut data[i]));
            ends[i] = engine.take_outcome(numbers[i]);
            if ends[i].is_some() && i == 2 {
                engine.leave();
            }
            busy
        });
    }
    ends.into_iter().for_each(|end| end.unwrap().unwrap());
    assert!(data[0] == data[1] && data[0] == data[2]);
}
