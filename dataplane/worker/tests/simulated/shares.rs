//! The slots of a job dealt to several servers (P21, P24).

use super::world::{
    Ps, World, exact_mean, gradients, host_of, hostile, nmse, quiet, seeds, share_addr, static_job,
};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thc_protocol::session::StaticJob;
use thc_protocol::wire::{Kind, Shares};
use thc_protocol::worker::SessionError;
use thc_protocol::{Lane, Policy};
use thc_support::SimConfig;
use thc_worker::{Call, Silence, WorkerError};

const WORKERS: u8 = 4;
/// Every share has several blocks of slots of a call.
const LEN: usize = 600_000;

/// A job whose slots so many shares have; 64 slots each.
fn job(shares: u8) -> StaticJob {
    let mut job = static_job(WORKERS, Lane::Bits8, WORKERS, Policy::Reliable);
    let at: Vec<_> = (0..shares).map(share_addr).collect();
    job.welcome.shares = if shares > 1 { Shares::new(&at, 1).unwrap() } else { Shares::NONE };
    job.welcome.data_slots = 64 * 4;
    job.welcome.norm_slots = 64 * 4;
    job.welcome.block = 12;
    job.config.data_slots = job.welcome.data_slots;
    job.config.norm_slots = job.welcome.norm_slots;
    job
}

fn world(shares: u8, faults: SimConfig) -> World {
    World::new(job(shares), faults)
}

/// Two all-reduces with error feedback; the means of the second.
fn means(mut world: World) -> Vec<Vec<f32>> {
    let options = [Call { feedback: Some(5), ..Call::default() }; WORKERS as usize];
    let mut data = Vec::new();
    for call in 0..2 {
        data = gradients(usize::from(WORKERS), LEN, call);
        for outcome in world.allreduce(&mut data, &options, |_, _| {}) {
            outcome.unwrap();
        }
    }
    data
}

#[test]
fn shares_give_the_bits_of_one_server_whatever_is_lost() {
    let one = means(world(1, quiet()));
    assert!(one.iter().all(|mean| *mean == one[0]));
    for shares in 2..=4 {
        assert!(means(world(shares, quiet())) == one, "{shares} shares");
    }
    for seed in seeds(6) {
        let shares = 2 + (seed % 3) as u8;
        assert!(means(world(shares, hostile(seed))) == one, "{shares} shares, seed {seed}");
    }
}

/// Counts the DATA packets that come to a share.
fn count_data(share: &mut Ps) -> Rc<Cell<u32>> {
    let count = Rc::new(Cell::new(0));
    let counted = Rc::clone(&count);
    share.admits = Box::new(move |_, packet| {
        counted.set(counted.get() + u32::from(packet[1] == Kind::Data as u8));
        true
    });
    count
}

#[test]
fn a_share_that_is_killed_and_started_again_changes_no_bit() {
    let one = means(world(1, quiet()));
    for (share, after) in [(0, 1), (1, 100), (2, 150)] {
        let mut world = world(4, quiet());
        let data = count_data(&mut world.others[share]);
        let killed = Rc::new(Cell::new(false));
        let was_killed = Rc::clone(&killed);
        world.meddle = Some(Box::new(move |_, others| {
            if data.get() >= after && !killed.replace(true) {
                others[share].restart();
            }
        }));
        assert!(means(world) == one, "share {share} after {after}");
        assert!(was_killed.get());
    }
}

#[test]
fn the_first_share_may_be_killed_and_started_again_too() {
    let one = means(world(1, quiet()));
    let mut world = world(3, quiet());
    let came = count_data(&mut world.ps);
    let options = [Call { feedback: Some(5), ..Call::default() }; WORKERS as usize];
    let (mut data, mut killed) = (Vec::new(), false);
    for call in 0..2 {
        data = gradients(usize::from(WORKERS), LEN, call);
        let outcomes = world.allreduce(&mut data, &options, |_, ps| {
            if came.get() >= 100 && !killed {
                killed = true;
                ps.restart();
            }
        });
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    }
    assert!(killed && data == one);
}

/// A share that is there until so many DATA packets have come.
fn dies_after(share: &mut Ps, mut left: i32) {
    share.admits = Box::new(move |_, packet| {
        left -= i32::from(packet[1] == Kind::Data as u8);
        left > 0
    });
}

#[test]
fn shares_that_all_stay_away_are_named() {
    let mut world = world(3, quiet());
    dies_after(&mut world.ps, 50);
    world.others.iter_mut().for_each(|share| dies_after(share, 50));
    let mut data = gradients(usize::from(WORKERS), LEN, 0);
    let outcomes = world.allreduce(&mut data, &[Call::default(); WORKERS as usize], |_, _| {});
    for outcome in outcomes {
        let Err(WorkerError::Silent(Silence { at, refused: false, waited, joining: false })) = outcome else {
            panic!("{outcome:?}");
        };
        assert!((0..3).any(|share| at == share_addr(share)), "{at}");
        assert!(waited >= Duration::from_secs(20) && waited < Duration::from_secs(22), "{waited:?}");
    }
}

/// What a step of training averages, and how long it computes.
const STEP_LEN: usize = 150_000;
const STEP: Duration = Duration::from_millis(100);

/// A `best-effort` job of so many shares, whose tensors are cut into blocks of 2^`block` coordinates.
fn best_effort(shares: u8, block: u8) -> StaticJob {
    let mut job = job(shares);
    job.welcome.policy = Policy::BestEffort;
    job.welcome.block = block;
    job.config.skip = true;
    job
}

/// All-reduces until so much virtual time has passed: when each began, its largest NMSE, and what all workers have given up by its end.
fn best_effort_calls(world: &mut World, until: Duration) -> Vec<(Duration, f64, u64)> {
    let mut calls = Vec::new();
    while world.net.now() < until {
        let began = world.net.now();
        let data = gradients(usize::from(WORKERS), STEP_LEN, calls.len() as u64);
        let mean = exact_mean(&data);
        let mut out = data.clone();
        let outcomes = world.allreduce(&mut out, &[Call::default(); WORKERS as usize], |_, _| {});
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
        let error = out.iter().map(|out| nmse(&mean, out)).fold(0.0, f64::max);
        let lost = world.engines.iter().map(|engine| engine.stats().lost_coordinates).sum();
        calls.push((began, error, lost));
        let now = world.net.now();
        world.net.advance_to(now + STEP);
    }
    calls
}

/// What ended each worker of a job in which all workers have begun to call, and when, in virtual time.
fn ends_of_calls(world: &mut World) -> (Vec<WorkerError>, Duration) {
    let mut call = 0;
    loop {
        let mut data = gradients(usize::from(WORKERS), STEP_LEN, call);
        let outcomes = world.allreduce(&mut data, &[Call::default(); WORKERS as usize], |_, _| {});
        let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert!(errors.is_empty() || errors.len() == usize::from(WORKERS), "{errors:?}");
        if !errors.is_empty() {
            return (errors, world.net.now());
        }
        let now = world.net.now();
        assert!(now < Duration::from_secs(60), "a share that is gone ends the session");
        world.net.advance_to(now + STEP);
        call += 1;
    }
}

#[test]
fn a_share_that_stays_away_ends_a_best_effort_session_with_its_name() {
    // With large blocks all norms are at the first share, and nothing but data shows that the other one is gone.
    for (dead, block) in [(1, 20), (1, 12), (0, 20)] {
        let mut world = World::new(best_effort(2, block), quiet());
        match dead {
            0 => dies_after(&mut world.ps, 1000),
            _ => dies_after(&mut world.others[0], 400),
        }
        let (errors, at) = ends_of_calls(&mut world);
        for error in errors {
            let WorkerError::Silent(Silence { at, waited, .. }) = error else {
                panic!("share {dead}, block {block}: {error:?}");
            };
            assert_eq!(at, share_addr(dead), "block {block}");
            assert!(waited >= Duration::from_secs(20) && waited < Duration::from_secs(22), "{waited:?}");
        }
        assert!(at < Duration::from_secs(40), "share {dead}, block {block}: {at:?}");
    }
}

#[test]
fn a_worker_that_cannot_reach_a_share_ends_a_best_effort_session_with_the_name_of_one_of_them() {
    let mut world = World::new(best_effort(3, 20), quiet());
    let is_second = |at: SocketAddr| host_of(at) == 2;
    let left = Rc::new(Cell::new(60));
    let cut = Rc::clone(&left);
    world.others[0].admits = Box::new(move |from, packet| {
        left.set(left.get() - i32::from(packet[1] == Kind::Data as u8));
        left.get() > 0 || !is_second(from)
    });
    world.others[0].tamper = Some(Box::new(move |to, packet| {
        if cut.get() <= 0 && is_second(to) {
            packet.truncate(1);
        }
    }));
    let (errors, at) = ends_of_calls(&mut world);
    for (worker, error) in errors.iter().enumerate() {
        let is_named = match error {
            WorkerError::Silent(Silence { at, .. }) => worker == 1 && *at == share_addr(1),
            WorkerError::Session(SessionError::Missing { missing, .. }) => worker != 1 && *missing == 1 << 1,
            _ => false,
        };
        assert!(is_named, "worker {worker}: {error:?}");
    }
    assert!(at < Duration::from_secs(45), "{at:?}");
}

#[test]
fn under_best_effort_a_slow_worker_moves_no_slots() {
    let mut world = World::new(best_effort(2, 20), quiet());
    // Data of the last worker do not come for a while, and both shares are there.
    let late = Rc::new(Cell::new(true));
    for share in std::iter::once(&mut world.ps).chain(&mut world.others) {
        let late = Rc::clone(&late);
        share.admits = Box::new(move |from, packet| {
            packet[1] != Kind::Data as u8 || host_of(from) != WORKERS || !late.get()
        });
    }
    let bad = best_effort_calls(&mut world, Duration::from_secs(3));
    assert!(bad.iter().all(|(_, error, _)| *error > 0.5), "{bad:?}");
    late.set(false);
    let came: Vec<_> = world.others.iter_mut().map(count_data).collect();
    let now = world.net.now();
    let calls = best_effort_calls(&mut world, now + STEP);
    assert!(calls[0].1 < 0.03, "{calls:?}");
    assert!(came[0].get() >= 4 * 64, "the second share has its part: {}", came[0].get());
}
