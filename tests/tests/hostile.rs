//! A short form of `make hostile`, and what must not end a session whose workers have nothing to send.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thc_protocol::session::Joiner;
use thc_protocol::{Cookie, JobId, WorkerId};
use thc_tests::hostile::{Plan, run};
use thc_tests::wiretap::Wiretap;
use thc_tests::{COOKIE_NUMBER, Ps};
use thc_worker::{Group, GroupConfig};

#[test]
fn hostile_packets_change_no_bit_and_end_nothing() {
    if let Err(reason) = Wiretap::open(0..=0).map(Wiretap::finish) {
        println!("not run: {reason}");
        return;
    }
    let plan = Plan { packets: 100_000, rate: 40_000, slices: 2, coordinates: 200_000, seed: 3 };
    let outcome = run(&plan).unwrap_or_else(|error| panic!("{error}"));
    println!("{}", outcome.figure().detail);
    // A refusal of the host's is about an earlier packet; most went out.
    assert!(outcome.sent.iter().all(|&sent| sent > 90_000), "{outcome:?}");
    assert!(outcome.compared > 0);
    assert!(outcome.log < 100_000, "{} bytes", outcome.log);
}

#[test]
fn strays_do_not_end_the_session_of_idle_workers() {
    let ps = Ps::start(2, &[]);
    let join = |worker| {
        let config = GroupConfig { ps: ps.addr, worker, cookie: COOKIE_NUMBER, ..GroupConfig::default() };
        std::thread::spawn(move || Group::join(config).unwrap())
    };
    let groups: Vec<Group> = [join(0), join(1)].into_iter().map(|joining| joining.join().unwrap()).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| strays(ps.addr, &stop));
        // Longer than anything that counts as alive.
        std::thread::sleep(Duration::from_secs(4));
        let means: Vec<Vec<f32>> = std::thread::scope(|calls| {
            let call = |group| calls.spawn(move || all_reduce(group));
            let calls: Vec<_> = groups.iter().map(call).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(means[0], means[1]);
    });
    assert!(!ps.log().contains("re-forming"), "{}", ps.log());
}

fn all_reduce(group: &Group) -> Vec<f32> {
    let mut data = thc_tests::gradient(50_000, group.worker().into());
    group.allreduce(&mut data).unwrap();
    data
}

/// JOINs with the job's cookie and the workers' numbers, and LEAVEs, from many ports.
fn strays(ps: SocketAddr, stop: &AtomicBool) {
    let sockets: Vec<UdpSocket> =
        (0..16).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    let started = Instant::now();
    for nonce in 1u64.. {
        if stop.load(Ordering::Relaxed) || started.elapsed() > thc_tests::HANG {
            return;
        }
        let socket = &sockets[nonce as usize % sockets.len()];
        let (worker, cookie) = (WorkerId((nonce % 2) as u8), Cookie(COOKIE_NUMBER));
        // From some, the same nonce again and again, as a worker would.
        let nonce = if nonce % 3 == 0 { nonce } else { 1000 + nonce % 16 };
        let mut joiner = Joiner::new(JobId(1), worker, cookie, nonce, 0, Duration::ZERO);
        let mut buffer = [0; 256];
        let _ = socket.send_to(joiner.poll(Duration::ZERO, &mut buffer).unwrap(), ps);
        joiner.leave(Duration::ZERO);
        let _ = socket.send_to(joiner.poll(Duration::ZERO, &mut buffer).unwrap(), ps);
        std::thread::sleep(Duration::from_millis(1));
    }
}
