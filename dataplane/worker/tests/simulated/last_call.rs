//! The last all-reduce of a run, in which a server dies: who has finished is still needed (P25).

use crate::world::{Ps, World, gradients, host_of, hostile, quiet, seeds, share_addr, static_job};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use thc_protocol::session::StaticJob;
use thc_protocol::wire::{Kind, Shares};
use thc_protocol::{Lane, Policy};
use thc_support::SimConfig;
use thc_worker::{Borrowed, Call, WorkerError};

const WORKERS: u8 = 4;
/// All packets of a call are in the window, so that most workers may have finished it when one has not.
const LEN: usize = 100_000;
/// Where the second of two shares has slots.
const SECOND: std::ops::Range<u16> = 64..128;
/// The last slots of the call: those before them open the window (P41).
const LAST: std::ops::Range<u16> = 90..128;

fn job(shares: u8) -> StaticJob {
    let mut job = static_job(WORKERS, Lane::Bits8, WORKERS, Policy::Reliable);
    let at: Vec<_> = (0..shares).map(share_addr).collect();
    if at.len() > 1 {
        job.welcome.shares = Shares::new(&at, 1).unwrap();
    }
    job.welcome.data_slots = 256;
    job.welcome.norm_slots = 256;
    job.welcome.block = 12;
    job.config.data_slots = 256;
    job.config.norm_slots = 256;
    job
}

fn options() -> [Call<'static>; WORKERS as usize] {
    [Call { feedback: Some(5), ..Call::default() }; WORKERS as usize]
}

/// What an undisturbed run gives.
fn undisturbed_run() -> Vec<f32> {
    let mut data = gradients(usize::from(WORKERS), LEN, 1);
    let mut world = World::new(job(1), quiet());
    for outcome in world.allreduce(&mut data, &options(), |_, _| {}) {
        outcome.unwrap();
    }
    data.swap_remove(0)
}

/// What the last worker gets of a server: no results of these slots.
fn withhold(server: &mut Ps, slots: std::ops::Range<u16>) {
    server.tamper = Some(Box::new(move |to, packet| {
        let slot = u16::from_be_bytes([packet[16], packet[17]]);
        let withheld = packet[1] == Kind::Result as u8 && slots.contains(&slot);
        if host_of(to) == WORKERS && withheld {
            packet.truncate(1);
        }
    }));
}

/// One all-reduce, after which every worker leaves and is gone. `meddle` hears how many have finished, and for how long all but one
/// have. Returns the means, and how long it took from the first worker that had finished to the last that had left.
fn run(
    world: &mut World,
    mut meddle: impl FnMut(&mut World, usize, Duration),
) -> (Vec<Result<Vec<f32>, WorkerError>>, Duration) {
    let mut data = gradients(usize::from(WORKERS), LEN, 1);
    let submit = |(i, engine): (usize, &mut thc_worker::Engine<_>)| engine.submit(LEN, options()[i]).unwrap();
    let numbers: Vec<u64> = world.engines.iter_mut().enumerate().map(submit).collect();
    let mut outcomes: Vec<Option<Result<(), WorkerError>>> = vec![None; numbers.len()];
    let (mut first, mut most) = (None, None);
    let mut turns = 0;
    while !world.engines.iter().all(thc_worker::Engine::has_left) {
        turns += 1;
        assert!(turns < 3_000_000, "no end: {outcomes:?} at {:?}", world.net.now());
        let done = outcomes.iter().flatten().count();
        let now = world.net.now();
        if done > 0 {
            first.get_or_insert(now);
        }
        if done + 1 >= numbers.len() {
            most.get_or_insert(now);
        }
        meddle(world, done, most.map_or(Duration::ZERO, |at| now - at));
        world.turn(|i, engine| {
            if engine.has_left() {
                return false;
            }
            if outcomes[i].is_some() {
                engine.serve_others().unwrap();
                return false;
            }
            let busy = engine.step(&mut Borrowed::new(numbers[i], &mut data[i]));
            outcomes[i] = engine.take_outcome(numbers[i]);
            if outcomes[i].is_some() {
                engine.leave();
            }
            busy
        });
    }
    let took = world.net.now() - first.unwrap();
    let outcomes = outcomes.into_iter().map(Option::unwrap);
    (outcomes.zip(data).map(|(outcome, mean)| outcome.map(|()| mean)).collect(), took)
}

fn all_have(mean: &[f32], outcomes: Vec<Result<Vec<f32>, WorkerError>>, what: &str) {
    for (worker, outcome) in outcomes.into_iter().enumerate() {
        let outcome = outcome.unwrap_or_else(|error| panic!("{what}: worker {worker}: {error}"));
        assert!(outcome == mean, "{what}: worker {worker} has another mean");
    }
}

#[test]
fn a_server_that_is_started_again_in_the_last_call_costs_nobody_its_mean() {
    let mean = undisturbed_run();
    for (shares, away) in [(1, 0), (1, 1000), (1, 3000), (2, 0), (2, 1000)] {
        let mut world = World::new(job(shares), quiet());
        let pick = |world: &mut World, act: &mut dyn FnMut(&mut Ps)| match shares {
            1 => act(&mut world.ps),
            _ => act(&mut world.others[0]),
        };
        pick(&mut world, &mut |server| withhold(server, if shares == 1 { LAST } else { SECOND }));
        let mut restarted = false;
        let (outcomes, took) = run(&mut world, |world, done, since| {
            if done + 1 < usize::from(WORKERS) || restarted {
                return;
            }
            restarted = since >= Duration::from_millis(away);
            let back = restarted;
            pick(world, &mut |server| {
                server.admits = Box::new(move |_, _| back);
                if back {
                    server.restart();
                    server.tamper = None;
                }
            });
        });
        all_have(&mean, outcomes, &format!("{shares} shares, away for {away} ms"));
        assert!(took < Duration::from_secs(9), "{shares} shares, away for {away} ms: {took:?}");
    }
}

#[test]
fn whatever_is_lost_and_whenever_a_share_is_started_again_the_last_call_ends_alike() {
    let mean = undisturbed_run();
    for seed in seeds(12) {
        let faults = if seed % 4 == 0 { quiet() } else { hostile(seed) };
        let mut world = World::new(job(2 + (seed % 2) as u8), SimConfig { seed, ..faults });
        // Dies when so many packets of data have come, and is started again some time later.
        let came = Rc::new(Cell::new(0));
        let counted = Rc::clone(&came);
        let dies_at = 40 + (seed as i32 * 37) % 120;
        let dead = Rc::new(Cell::new(false));
        let is_dead = Rc::clone(&dead);
        world.others[0].admits = Box::new(move |_, packet| {
            counted.set(counted.get() + i32::from(packet[1] == Kind::Data as u8));
            if counted.get() >= dies_at {
                is_dead.set(true);
            }
            !is_dead.get()
        });
        let mut at = None;
        let (outcomes, took) = run(&mut world, |world, _, _| {
            let now = world.net.now();
            if dead.get() && now >= *at.get_or_insert(now) + Duration::from_millis(700) {
                came.set(i32::MIN);
                dead.set(false);
                world.others[0].restart();
            }
        });
        all_have(&mean, outcomes, &format!("seed {seed}"));
        assert!(took < Duration::from_secs(10), "seed {seed}: {took:?}");
    }
}

#[test]
fn where_nothing_dies_who_has_finished_is_gone_after_a_second() {
    let mean = undisturbed_run();
    let mut world = World::new(job(2), quiet());
    // The last one computes for a long time after its last call.
    let mut data = gradients(usize::from(WORKERS), LEN, 1);
    for outcome in world.allreduce(&mut data, &options(), |_, _| {}) {
        outcome.unwrap();
    }
    assert!(data.iter().all(|data| *data == mean));
    let began = world.net.now();
    world.engines[..3].iter_mut().for_each(thc_worker::Engine::leave);
    while !world.engines[..3].iter().all(thc_worker::Engine::has_left) {
        world.turn(|i, engine| {
            if i < 3 {
                engine.serve_others().unwrap();
                return false;
            }
            engine.step(&mut Borrowed::empty())
        });
    }
    let took = world.net.now() - began;
    assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1200), "{took:?}");
}
