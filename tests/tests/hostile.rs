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
use thc_worker::{Group, GroupConfig, Seat};

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
        let seat = Seat { ps: ps.addr, worker, cookie: COOKIE_NUMBER, ..Seat::default() };
        let config = GroupConfig { seat, ..GroupConfig::default() };
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

/// 5,000 JOINs with wrong cookies a second, from 1,000 addresses.
fn flood(ps: SocketAddr, stop: &AtomicBool, most: Duration) -> u64 {
    let address = |i: u16| Ipv4Addr::new(127, 9, (i >> 8) as u8, i as u8 | 1);
    let sockets: Vec<UdpSocket> = (0..1000).map(|i| UdpSocket::bind((address(2 * i), 0)).unwrap()).collect();
    let mut buffer = [0; 256];
    let started = Instant::now();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) && started.elapsed() < most {
        while sent < started.elapsed().as_micros() as u64 / 200 {
            let socket = &sockets[sent as usize % sockets.len()];
            let (worker, cookie) = (WorkerId((sent % 3) as u8), Cookie(0x1000_0000 + sent as u32));
            let mut joiner = Joiner::new(JobId(1), worker, cookie, sent, 0, Duration::ZERO);
            let _ = socket.send_to(joiner.poll(Duration::ZERO, &mut buffer).unwrap(), ps);
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    sent
}

#[test]
fn a_flood_of_wrong_joins_keeps_nobody_out() {
    let mut ps = Ps::start(3, &[]);
    let addr = ps.addr;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(addr, &stop, Duration::from_secs(20)));
        // Longer than the allowances last.
        std::thread::sleep(Duration::from_secs(3));
        let join = |worker| {
            let seat = Seat { ps: addr, worker, cookie: COOKIE_NUMBER, ..Seat::default() };
            let config = GroupConfig { seat, ..GroupConfig::default() };
            scope.spawn(move || Group::join(config).unwrap())
        };
        let began = Instant::now();
        let joins = [0, 1, 2].map(join);
        let groups = joins.map(|joining| joining.join().unwrap());
        let joined = began.elapsed();
        let reduce = || {
            let means = std::thread::scope(|calls| {
                let calls = groups.each_ref().map(|group| calls.spawn(move || all_reduce(group)));
                calls.map(|call| call.join().unwrap())
            });
            assert!(means[0] == means[1] && means[0] == means[2]);
        };
        reduce();
        let restarted = Instant::now();
        ps.kill_and_restart();
        reduce();
        let resumed = restarted.elapsed();
        stop.store(true, Ordering::Relaxed);
        println!("{} wrong JOINs; joined in {joined:?}, resumed in {resumed:?}", flooding.join().unwrap());
        assert!(joined < Duration::from_secs(2), "{joined:?}");
        assert!(resumed < Duration::from_secs(5), "{resumed:?}");
    });
    assert!(!ps.log().contains("re-forming"), "{}", ps.log());
}
