//! Faults that [`LossyIo`] injects, over the simulated network and over real sockets.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use thc_support::{SimConfig, SimIo, SimNet};
use thc_transport::{FaultRates, LossyConfig, LossyIo, LossyStats, PacketIo, Peer, UdpConfig, UdpIo};

/// Most datagrams that are held back at a time.
const MAX_HELD: usize = 256;

fn peer(number: u8) -> Peer {
    Peer::from(([10, 0, 0, number], 4000))
}

fn rates(loss: f64, duplicate: f64, reorder: f64) -> FaultRates {
    FaultRates { loss, duplicate, reorder }
}

/// Sends numbered datagrams in runs of 50 from `a` to `b` and returns the numbers that arrive.
fn stream<A: PacketIo, B: PacketIo>(a: &mut A, b: &mut B, count: u32) -> Vec<u32> {
    let mut numbers = Vec::new();
    for first in (0..count).step_by(50) {
        let run: Vec<u8> = (first..first + 50).flat_map(u32::to_be_bytes).collect();
        a.send_run(b.local(), &run, 4).unwrap();
        receive(b, Duration::ZERO, &mut numbers);
    }
    // What is held back comes with time alone, if both sides get to run.
    for _ in 0..3 {
        a.wait(Duration::from_millis(2)).unwrap();
        receive(b, Duration::from_millis(2), &mut numbers);
    }
    numbers
}

fn receive<B: PacketIo>(b: &mut B, patience: Duration, numbers: &mut Vec<u32>) {
    while b.wait(patience).unwrap() {
        b.recv_burst(&mut |_, payload| {
            numbers.push(u32::from_be_bytes(payload.try_into().unwrap()));
        })
        .unwrap();
    }
}

fn sim_pair() -> (SimIo, SimIo) {
    let net = SimNet::new(SimConfig::default());
    (net.endpoint(peer(1)), net.endpoint(peer(2)))
}

/// Numbers that arrived after a higher one.
fn count_overtaken(numbers: &[u32]) -> usize {
    let mut highest = 0;
    let late = numbers.iter().filter(|&&number| {
        highest = highest.max(number);
        number < highest
    });
    late.count()
}

fn times(numbers: &[u32]) -> HashMap<u32, usize> {
    let mut times = HashMap::new();
    for &number in numbers {
        *times.entry(number).or_insert(0) += 1;
    }
    times
}

/// The injected counts must explain exactly what arrived.
fn check(numbers: &[u32], injected: LossyStats, sent: u32, wanted: FaultRates) {
    let times = times(numbers);
    assert!(times.keys().all(|&number| number < sent));
    assert!(times.values().all(|&count| count <= 2));
    let missing = u64::from(sent) - times.len() as u64;
    let doubled = times.values().filter(|&&count| count == 2).count() as u64;
    assert_eq!((missing, doubled), (injected.lost, injected.duplicated));
    let survive = 1.0 - wanted.loss;
    for (name, count, rate) in [
        ("loss", injected.lost, wanted.loss),
        ("duplicate", injected.duplicated, wanted.duplicate * survive),
        ("reorder", injected.reordered, wanted.reorder * survive),
    ] {
        let mean = f64::from(sent) * rate;
        let deviation = (mean * (1.0 - rate)).sqrt();
        let off = (count as f64 - mean).abs();
        assert!(off <= 5.0 * deviation, "{name}: {count}, expected {mean}");
    }
}

#[test]
fn without_rates_nothing_changes() {
    let (a, mut b) = sim_pair();
    let mut a = LossyIo::new(a, LossyConfig::default()).unwrap();
    let numbers = stream(&mut a, &mut b, 1000);
    assert!(numbers.iter().copied().eq(0..1000));
    assert_eq!(a.injected_faults(), LossyStats::default());
    assert_eq!(a.stats().send_calls, 20);
    assert_eq!((a.local(), a.inner().local()), (peer(1), peer(1)));
}

#[test]
fn outgoing_faults_have_their_rates() {
    for wanted in
        [rates(0.05, 0.0, 0.0), rates(0.0, 0.05, 0.0), rates(0.0, 0.0, 0.05), rates(0.1, 0.02, 0.03)]
    {
        let (a, mut b) = sim_pair();
        let mut a =
            LossyIo::new(a, LossyConfig { seed: 5, outgoing: wanted, ..LossyConfig::default() }).unwrap();
        let numbers = stream(&mut a, &mut b, 20_000);
        check(&numbers, a.injected_faults(), 20_000, wanted);
        assert_eq!(count_overtaken(&numbers) > 0, wanted.reorder > 0.0);
    }
}

#[test]
fn incoming_faults_have_their_rates() {
    for wanted in
        [rates(0.05, 0.0, 0.0), rates(0.0, 0.05, 0.0), rates(0.0, 0.0, 0.05), rates(0.1, 0.02, 0.03)]
    {
        let (mut a, b) = sim_pair();
        let mut b =
            LossyIo::new(b, LossyConfig { seed: 6, incoming: wanted, ..LossyConfig::default() }).unwrap();
        let numbers = stream(&mut a, &mut b, 20_000);
        check(&numbers, b.injected_faults(), 20_000, wanted);
        assert_eq!(count_overtaken(&numbers) > 0, wanted.reorder > 0.0);
    }
}

/// P46: whatever happens to a datagram, its bits stay.
#[test]
fn the_bits_of_congestion_survive() {
    let (a, b) = sim_pair();
    let config = LossyConfig {
        outgoing: rates(0.1, 0.2, 0.2),
        incoming: rates(0.1, 0.2, 0.2),
        ..LossyConfig::default()
    };
    let mut a = LossyIo::new(a, config).unwrap();
    let mut b = LossyIo::new(b, config).unwrap();
    let mut got = [0; 4];
    for round in 0..200 {
        let ecn = round % 4;
        a.send_run_with(peer(2), &[ecn; 40], 10, ecn).unwrap();
        b.wait(Duration::from_millis(1)).unwrap();
        b.recv_burst(&mut |origin, payload| {
            assert_eq!(origin.ecn, payload[0]);
            got[usize::from(origin.ecn)] += 1;
        })
        .unwrap();
    }
    assert!(got.iter().all(|&got| got > 100), "{got:?}");
}

#[test]
fn same_seed_same_faults() {
    let run = |seed| {
        let (a, b) = sim_pair();
        let config = LossyConfig {
            seed,
            outgoing: rates(0.1, 0.1, 0.1),
            incoming: rates(0.1, 0.1, 0.1),
            ..LossyConfig::default()
        };
        let mut a = LossyIo::new(a, config).unwrap();
        let mut b = LossyIo::new(b, config).unwrap();
        stream(&mut a, &mut b, 2000)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn what_is_held_back_is_bounded() {
    let (a, mut b) = sim_pair();
    let mut a = LossyIo::new(
        a,
        LossyConfig {
            outgoing: rates(0.0, 0.0, 1.0),
            hold: Duration::from_secs(3600),
            ..LossyConfig::default()
        },
    )
    .unwrap();
    // All in one run, so that nothing is released in between.
    a.send_run(b.local(), &[0; 4000], 4).unwrap();
    assert_eq!(a.injected_faults().reordered, MAX_HELD as u64);
    let mut numbers = Vec::new();
    receive(&mut b, Duration::from_millis(1), &mut numbers);
    // Those behind the last one held have overtaken it, so that nothing is left.
    assert_eq!(numbers.len(), 1000);
}

#[test]
fn a_lone_datagram_held_back_goes_on_after_the_hold() {
    let config = |outgoing, incoming| LossyConfig {
        outgoing,
        incoming,
        hold: Duration::from_millis(3),
        ..LossyConfig::default()
    };
    let always = rates(0.0, 0.0, 1.0);
    let (a, b) = sim_pair();
    let net = a.net().clone();
    let mut a = LossyIo::new(a, config(always, FaultRates::NONE)).unwrap();
    let mut b = LossyIo::new(b, config(FaultRates::NONE, always)).unwrap();
    a.send_run(b.local(), &[0; 4], 4).unwrap();
    assert_eq!(net.in_flight(), 0);
    assert!(!a.wait(Duration::from_millis(2)).unwrap());
    assert_eq!(net.in_flight(), 0);
    assert!(!a.wait(Duration::from_millis(1)).unwrap());
    assert_eq!(net.in_flight(), 1);
    // At the receiver it is held another 3 ms, during which wait must not claim it.
    let mut received = 0;
    let mut calls = 0;
    while b.wait(Duration::from_secs(1)).unwrap() {
        received += b.recv_burst(&mut |origin, _| assert_eq!(origin.from, peer(1))).unwrap();
        calls += 1;
    }
    assert_eq!((received, calls), (1, 2));
}

#[test]
fn real_sockets_with_faults() {
    let bind = || UdpIo::bind(UdpConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).unwrap();
    let faults = rates(0.02, 0.02, 0.05);
    let config = |outgoing, incoming| LossyConfig { seed: 9, outgoing, incoming, ..LossyConfig::default() };
    let mut a = LossyIo::new(bind(), config(faults, FaultRates::NONE)).unwrap();
    let mut b = LossyIo::new(bind(), config(FaultRates::NONE, FaultRates::NONE)).unwrap();
    let numbers = stream(&mut a, &mut b, 20_000);
    check(&numbers, a.injected_faults(), 20_000, faults);
    assert!(count_overtaken(&numbers) > 0);

    let mut a = LossyIo::new(bind(), config(FaultRates::NONE, FaultRates::NONE)).unwrap();
    let mut b = LossyIo::new(bind(), config(FaultRates::NONE, faults)).unwrap();
    let numbers = stream(&mut a, &mut b, 20_000);
    check(&numbers, b.injected_faults(), 20_000, faults);
    assert!(count_overtaken(&numbers) > 0);
}

#[test]
fn wrong_settings_are_refused() {
    let (a, _b) = sim_pair();
    let result = LossyIo::new(a, LossyConfig { incoming: rates(0.0, -0.1, 0.0), ..LossyConfig::default() });
    let message = result.err().unwrap().to_string();
    assert!(message.starts_with("duplicate is -0.1"), "{message}");
}
