//! P46: jobs on one link whose queue marks.

use crate::world::{World, gradients, ps_addr, static_job};
use std::time::Duration;
use thc_protocol::wire::{FLAG_MARK, Header, Kind};
use thc_protocol::{Lane, Policy};
use thc_support::{SimConfig, SimNet, SimStats};
use thc_worker::{Borrowed, Call, Stats};

/// What the link carries in bits a second, and how many packets its queue holds.
const RATE: u64 = 1_000_000_000;
const QUEUE: usize = 64;
const LEN: usize = 200_000;
/// How long jobs have to find their parts, and how long these are measured.
const WARM: Duration = Duration::from_millis(60);
const MEASURED: Duration = Duration::from_millis(60);

struct Shared {
    /// Of what each job's workers received, Jain's index.
    jain: f64,
    /// What the link carried of its rate.
    utilization: f64,
    /// Of all datagrams, and those lost before that was measured.
    loss: f64,
    at_first: u64,
    net: SimStats,
    stats: Vec<Stats>,
}

/// Several jobs of two workers; each has a server, all servers are on one host, whose link has shallow queues.
fn share(jobs: u8, seed: u64, mark: Option<usize>) -> Shared {
    let net = SimNet::new(SimConfig {
        seed,
        latency: Duration::from_micros(100),
        jitter: Duration::from_micros(10),
        queue_packets: QUEUE,
        leaving_packets: Some(QUEUE),
        mark_packets: mark,
        framing: 38,
        ..SimConfig::default()
    });
    net.set_host(ps_addr().ip(), Some(RATE));
    let mut job = static_job(2, Lane::Bits8, 2, Policy::Reliable);
    (job.config.data_slots, job.welcome.data_slots) = (512, 512);
    (job.config.norm_slots, job.welcome.norm_slots) = (64, 64);
    let mut worlds: Vec<World> =
        (0..jobs).map(|number| World::one_of_several(&net, job.clone(), number, 1)).collect();
    let mut data: Vec<Vec<Vec<f32>>> =
        (0..jobs).map(|job| gradients(2, LEN, u64::from(job) + seed)).collect();
    let mut calls = vec![[None; 2]; usize::from(jobs)];
    let begun = net.now();
    let stats_of = |worlds: &[World]| -> Vec<Stats> {
        worlds.iter().flat_map(|world| &world.engines).map(|engine| engine.stats()).collect()
    };
    let mut warm = None;
    while net.now() < begun + WARM + MEASURED {
        if warm.is_none() && net.now() >= begun + WARM {
            warm = Some((net.now(), net.stats(), stats_of(&worlds)));
        }
        let mut busy = false;
        for (j, world) in worlds.iter_mut().enumerate() {
            busy |= world.ps.serve() > 0;
            for (w, engine) in world.engines.iter_mut().enumerate() {
                let call = *calls[j][w].get_or_insert_with(|| engine.submit(LEN, Call::default()).unwrap());
                busy |= engine.step(&mut Borrowed::new(call, &mut data[j][w]));
                if let Some(outcome) = engine.take_outcome(call) {
                    outcome.unwrap();
                    calls[j][w] = None;
                }
            }
            if calls[j] == [None; 2] {
                assert_eq!(data[j][0], data[j][1], "both have the same bits");
            }
        }
        if !busy {
            let due = worlds.iter().flat_map(|world| &world.engines).filter_map(thc_worker::Engine::deadline);
            let next = net.next_event().into_iter().chain(due).min();
            let now = net.now();
            net.advance_to(next.unwrap_or(now).max(now + Duration::from_micros(1)));
        }
    }
    let (from, before, earlier) = warm.unwrap();
    let seconds = (net.now() - from).as_secs_f64();
    let (now, stats) = (net.stats(), stats_of(&worlds));
    // What the server's link carried down: the results that workers got.
    let came = |of: fn(&Stats) -> u64| {
        stats.iter().zip(&earlier).map(move |(now, then)| (of(now) - of(then)) as f64)
    };
    let bytes: Vec<f64> = came(|stats| stats.bytes_down).collect();
    let parts: Vec<f64> = bytes.chunks(2).map(|of| of.iter().sum()).collect();
    let carried = bytes.iter().sum::<f64>() + came(|stats| stats.packets_down).sum::<f64>() * 38.0;
    let (sum, squares) = (parts.iter().sum::<f64>(), parts.iter().map(|part| part * part).sum::<f64>());
    let (sent, lost) = (now.sent - before.sent, now.overflowed - before.overflowed);
    Shared {
        jain: sum * sum / (parts.len() as f64 * squares),
        utilization: carried * 8.0 / RATE as f64 / seconds,
        loss: lost as f64 / sent as f64,
        at_first: before.overflowed,
        net: now,
        stats,
    }
}

/// Marks from 16 packets on, of 64: nearly nothing is lost, all have the same part, and the link is full.
#[test]
fn jobs_share_a_link_that_marks() {
    for (jobs, seed) in [(2, 1), (2, 2), (4, 3)] {
        let Shared { jain, utilization, loss, at_first, net, stats } = share(jobs, seed, Some(16));
        let says = format!(
            "{jobs} jobs: Jain {jain:.4}, {utilization:.3} of the rate, {loss:.5} lost, {at_first} at first, {net:?}"
        );
        println!("{says}");
        assert!(jain >= 0.95, "{says}");
        assert!(utilization >= 0.9, "{says}");
        assert!(loss <= 0.0005, "{says}");
        assert!(stats.iter().all(|stats| stats.marks > 0 && stats.decreases > 0), "{stats:?}");
    }
}

/// The same without marks, to compare: the queue overflows.
#[test]
fn without_marks_the_queue_overflows() {
    let Shared { net, stats, .. } = share(2, 1, None);
    assert!(net.overflowed > 100 && net.marked == 0, "{net:?}");
    assert!(stats.iter().all(|stats| stats.marks == 0), "{stats:?}");
}

/// A worker that is late for every call: nothing waits in a queue, so nothing is marked.
#[test]
fn a_straggler_makes_no_marks() {
    let net = SimNet::new(SimConfig {
        latency: Duration::from_micros(100),
        leaving_packets: Some(QUEUE),
        mark_packets: Some(48),
        ..SimConfig::default()
    });
    net.set_host(ps_addr().ip(), Some(100 * RATE));
    let mut world = World::one_of_several(&net, static_job(2, Lane::Bits8, 2, Policy::Reliable), 0, 1);
    for call in 0..5 {
        let mut data = gradients(2, 20_000, call);
        let numbers: Vec<u64> =
            world.engines.iter_mut().map(|engine| engine.submit(20_000, Call::default()).unwrap()).collect();
        let late = net.now() + Duration::from_millis(5);
        let mut done = [false; 2];
        while done != [true; 2] {
            let now = net.now();
            world.turn(|w, engine| {
                if w == 1 && now < late {
                    return false;
                }
                let busy = engine.step(&mut Borrowed::new(numbers[w], &mut data[w]));
                done[w] |= engine.take_outcome(numbers[w]).is_some();
                busy
            });
        }
        assert_eq!(data[0], data[1]);
    }
    for engine in &world.engines {
        let stats = engine.stats();
        assert_eq!((stats.marks, stats.decreases), (0, 0), "{stats:?}");
    }
    assert_eq!(net.stats().marked, 0);
}

/// Marks that are forged or stripped on the way change windows, and no bit of a sum.
#[test]
fn forged_marks_change_no_sum() {
    let run = |tamper: Option<fn(u64, &mut Vec<u8>)>| {
        let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), crate::world::quiet());
        let mut count = 0;
        if let Some(tamper) = tamper {
            world.ps.tamper = Some(Box::new(move |_, packet| {
                count += 1;
                tamper(count, packet);
            }));
        }
        let mut data = gradients(2, 60_000, 5);
        let outcomes = world.allreduce(&mut data, &[Call::default(); 2], |_, _| {});
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        let stats: Vec<Stats> = world.engines.iter().map(|engine| engine.stats()).collect();
        (data, stats)
    };
    let (plain, stats) = run(None);
    assert!(stats.iter().all(|stats| stats.marks == 0));
    let (forged, stats) = run(Some(|count, packet| {
        if count % 3 == 0 && Header::parse(packet).unwrap().0.kind == Kind::Result {
            Header::set_flags(packet, FLAG_MARK);
        }
    }));
    assert!(stats.iter().any(|stats| stats.marks > 0 && stats.decreases > 0), "{stats:?}");
    assert!(plain == forged && plain[0] == plain[1]);
}
