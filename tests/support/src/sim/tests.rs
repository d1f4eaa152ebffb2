#![allow(clippy::unwrap_used)]

use std::{collections::HashMap, time::Duration};

use fastrand::Rng;
use proptest::prelude::*;

use thc_transport::{PacketIo, Peer, TransportError};

use super::{LinkConfig, SimConfig, SimIo, SimNet, SimStats};

fn peer(number: u8) -> Peer {
    Peer::from(([10, 0, 0, number], 4000 + u16::from(number)))
}

/// One delivery: when, to whom, from whom, what.
type Delivery = (Duration, Peer, Peer, Vec<u8>);

fn collect(net: &SimNet, endpoints: &mut [SimIo]) -> Vec<Delivery> {
    let mut trace = Vec::new();
    loop {
        for endpoint in &mut *endpoints {
            let local = endpoint.local();
            while endpoint
                .recv_burst(&mut |origin, payload| {
                    trace.push((net.now(), local, origin.from, payload.to_vec()));
                })
                .unwrap()
                > 0
            {}
        }
        if net.advance_to_next().is_none() {
            return trace;
        }
    }
}

/// A datagram that names itself.
fn make_datagram(number: u32, len: usize) -> Vec<u8> {
    let mut payload = number.to_be_bytes().repeat(len.div_ceil(4).max(1));
    payload.truncate(len.max(4));
    payload
}

fn number_of(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().unwrap())
}

fn count_outcomes(stats: &SimStats) -> u64 {
    stats.delivered
        + stats.lost
        + stats.partitioned
        + stats.unreachable
        + stats.overflowed
        + stats.checksum_failed
}

/// Random traffic between four endpoints; time passes between the sends.
fn random_traffic(config: SimConfig, traffic_seed: u64) -> (Vec<Delivery>, Vec<Delivery>, SimNet) {
    let net = SimNet::new(config);
    let mut endpoints: Vec<SimIo> = (1..=4).map(|number| net.endpoint(peer(number))).collect();
    let mut rng = Rng::with_seed(traffic_seed);
    let mut trace = Vec::new();
    let mut sent = Vec::new();
    for number in 0..400 {
        let from = rng.usize(0..4);
        // The fifth address is nobody's.
        let to = peer(rng.u8(1..=5));
        let payload = make_datagram(number, rng.usize(4..300));
        endpoints[from].send_run(to, &payload, payload.len()).unwrap();
        sent.push((net.now(), to, peer(from as u8 + 1), payload));
        if rng.u8(..) < 40 {
            net.advance_to(net.now() + Duration::from_micros(rng.u64(0..50)));
        }
        if number % 100 == 99 {
            trace.extend(collect(&net, &mut endpoints));
        }
    }
    trace.extend(collect(&net, &mut endpoints));
    (trace, sent, net)
}

fn any_config() -> impl Strategy<Value = SimConfig> {
    let rate = || prop_oneof![Just(0.0), 0.0..=0.5f64];
    (
        any::<u64>(),
        (0u64..200, 0u64..100),
        (rate(), rate(), rate(), rate(), rate()),
        prop_oneof![Just(None), (1_000_000u64..10_000_000_000).prop_map(Some)],
        prop_oneof![Just(1usize), 1..50usize, Just(1 << 16)],
        any::<bool>(),
    )
        .prop_map(
            |(
                seed,
                (latency, jitter),
                (loss, duplicate, late, reorder, corrupt),
                bandwidth,
                queue_packets,
                checksums,
            )| {
                SimConfig {
                    seed,
                    latency: Duration::from_micros(latency),
                    jitter: Duration::from_micros(jitter),
                    loss,
                    duplicate,
                    late,
                    late_by: Duration::from_micros(latency * 100),
                    reorder,
                    corrupt,
                    bandwidth,
                    framing: 0,
                    queue_packets,
                    leaving_packets: None,
                    mark_packets: None,
                    checksums,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn same_seed_same_trace(config in any_config(), traffic in any::<u64>()) {
        let (first, _, net) = random_traffic(config, traffic);
        let (second, _, again) = random_traffic(config, traffic);
        prop_assert!(first == second);
        prop_assert_eq!(net.stats(), again.stats());
    }

    /// Whatever the faults: what arrives was sent, from there, to there, earlier; at most as
    /// often as sent plus copied; and every datagram is accounted for.
    #[test]
    fn nothing_is_invented(config in any_config(), traffic in any::<u64>()) {
        let (trace, sent, net) = random_traffic(config, traffic);
        let stats = net.stats();
        prop_assert_eq!(stats.sent, sent.len() as u64);
        prop_assert_eq!(net.in_flight(), 0);
        prop_assert_eq!(stats.sent + stats.duplicated, count_outcomes(&stats));
        prop_assert_eq!(stats.delivered, trace.len() as u64);
        let mut times = HashMap::new();
        for (at, to, from, payload) in &trace {
            if config.checksums || config.corrupt == 0.0 {
                let original = sent.get(number_of(payload) as usize);
                prop_assert!(original.is_some_and(|(_, t, f, p)| t == to && f == from && p == payload));
                let (sent_at, ..) = original.unwrap();
                prop_assert!(*at >= *sent_at + config.latency);
                *times.entry(number_of(payload)).or_insert(0) += 1;
            } else {
                // A corrupted one still has its length, its addresses, and few changed bits.
                prop_assert!(sent.iter().any(|(_, t, f, p)| t == to
                    && f == from
                    && p.len() == payload.len()
                    && p.iter().zip(payload).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>() <= 15));
            }
        }
        prop_assert!(times.values().all(|&count| count <= 3));
        let copies = times.values().filter(|&&count| count == 2).count();
        prop_assert!(copies as u64 <= stats.duplicated);
        if config.checksums {
            prop_assert!(stats.checksum_failed <= stats.corrupted);
        } else {
            prop_assert_eq!(stats.checksum_failed, 0);
        }
    }
}

/// Sends `count` numbered datagrams 1 → 2 in bursts of 10 and returns what arrived, in order.
fn stream(net: &SimNet, count: u32, len: usize) -> Vec<Vec<u8>> {
    let mut sender = net.endpoint(peer(1));
    let mut receivers = [net.endpoint(peer(2))];
    let mut arrived = Vec::new();
    for number in 0..count {
        let payload = make_datagram(number, len);
        sender.send_run(peer(2), &payload, payload.len()).unwrap();
        if number % 10 == 9 {
            net.advance_to(net.now() + Duration::from_micros(1));
        }
    }
    arrived.extend(collect(net, &mut receivers).into_iter().map(|(_, _, _, payload)| payload));
    arrived
}

/// Whether `hits` of `trials` fits `rate`: within five standard deviations.
fn fits(hits: u64, trials: u64, rate: f64) -> bool {
    let mean = trials as f64 * rate;
    let deviation = (mean * (1.0 - rate)).sqrt();
    (hits as f64 - mean).abs() <= 5.0 * deviation + 1.0
}

#[test]
fn rates_are_those_configured() {
    let count = 50_000;
    for rate in [0.001, 0.01, 0.1, 0.5] {
        let config = SimConfig { seed: 11, ..SimConfig::default() };
        let total = u64::from(count);

        let net = SimNet::new(SimConfig { loss: rate, ..config });
        let arrived = stream(&net, count, 8).len() as u64;
        assert!(fits(total - arrived, total, rate), "loss {rate}: {arrived}");

        let net = SimNet::new(SimConfig { duplicate: rate, queue_packets: 1 << 20, ..config });
        let arrived = stream(&net, count, 8).len() as u64;
        assert!(fits(arrived - total, total, rate), "duplicate {rate}: {arrived}");

        let net = SimNet::new(SimConfig { corrupt: rate, ..config });
        let arrived = stream(&net, count, 8).len() as u64;
        assert!(fits(total - arrived, total, rate), "corrupt {rate}: {arrived}");
        assert_eq!(net.stats().checksum_failed, net.stats().corrupted);

        let net = SimNet::new(SimConfig { corrupt: rate, checksums: false, ..config });
        let arrived = stream(&net, count, 8);
        let damaged = arrived
            .iter()
            .enumerate()
            .filter(|(number, payload)| **payload != make_datagram(*number as u32, 8))
            .count();
        assert_eq!(arrived.len() as u64, total);
        assert!(fits(damaged as u64, total, rate), "damaged {rate}: {damaged}");
    }
}

#[test]
fn reordering_happens_at_its_rate_and_never_without_it() {
    let order = |reorder: f64, jitter: u64| {
        let net = SimNet::new(SimConfig {
            seed: 3,
            reorder,
            jitter: Duration::from_micros(jitter),
            ..SimConfig::default()
        });
        let arrived = stream(&net, 20_000, 8);
        assert_eq!(arrived.len(), 20_000);
        let numbers: Vec<u32> = arrived.iter().map(|payload| number_of(payload)).collect();
        let mut highest = 0;
        let overtaken = numbers
            .iter()
            .filter(|&&number| {
                highest = highest.max(number);
                number < highest
            })
            .count();
        (overtaken as u64, net.stats().reordered)
    };
    assert_eq!(order(0.0, 0), (0, 0));
    assert_eq!(order(0.0, 100), (0, 0));
    for rate in [0.01, 0.1] {
        let (overtaken, held) = order(rate, 5);
        assert!(fits(held, 20_000, rate), "{held}");
        // All but those at the end of the stream are really overtaken.
        assert!(overtaken <= held && overtaken + 30 >= held, "{overtaken} {held}");
    }
}

#[test]
fn copies_come_long_after() {
    let late_by = Duration::from_secs(3);
    let net = SimNet::new(SimConfig { seed: 4, late: 0.1, late_by, ..SimConfig::default() });
    let (mut a, b) = (net.endpoint(peer(1)), net.endpoint(peer(2)));
    a.send_run(peer(2), &[0; 10_000], 1).unwrap();
    let trace = collect(&net, &mut [b]);
    let late = trace.iter().filter(|(at, ..)| *at > Duration::from_millis(1)).count() as u64;
    assert!(fits(late, 10_000, 0.1), "{late}");
    assert_eq!(net.stats().duplicated, trace.len() as u64 - 10_000);
    let last = trace.iter().map(|(at, ..)| *at).max().unwrap();
    assert!(last > late_by * 9 / 10 && last < late_by * 11 / 10, "{last:?}");
}

#[test]
fn one_direction_alone_can_be_lossy() {
    let net = SimNet::new(SimConfig::default());
    let (mut a, mut b) = (net.endpoint(peer(1)), net.endpoint(peer(2)));
    net.set_loss(peer(1), peer(2), 1.0);
    a.send_run(peer(2), &[1; 100], 10).unwrap();
    b.send_run(peer(1), &[2; 100], 10).unwrap();
    assert!(a.wait(Duration::from_secs(1)).unwrap());
    assert_eq!(a.recv_burst(&mut |_, _| ()).unwrap(), 10);
    assert!(!b.wait(Duration::from_secs(1)).unwrap());
    assert_eq!(net.stats().lost, 10);
    net.reset_link(peer(1), peer(2));
    assert_eq!(net.link(peer(1), peer(2)), SimConfig::default().link());
    a.send_run(peer(2), &[1; 100], 10).unwrap();
    assert!(b.wait(Duration::from_secs(1)).unwrap());
}

#[test]
fn a_partitioned_peer_is_cut_off_until_healed() {
    let net = SimNet::new(SimConfig::default());
    let mut ends: Vec<SimIo> = (1..=3).map(|number| net.endpoint(peer(number))).collect();
    // One is under way when the cable is pulled.
    ends[0].send_run(peer(2), &[1], 1).unwrap();
    net.partition(peer(2));
    ends[0].send_run(peer(2), &[2], 1).unwrap();
    ends[1].send_run(peer(3), &[3], 1).unwrap();
    ends[0].send_run(peer(3), &[4], 1).unwrap();
    let trace = collect(&net, &mut ends);
    assert_eq!(trace.len(), 1);
    assert_eq!(trace[0].3, [4]);
    assert_eq!(net.stats().partitioned, 3);
    net.heal(peer(2));
    ends[0].send_run(peer(2), &[5], 1).unwrap();
    assert_eq!(collect(&net, &mut ends).len(), 1);
}

#[test]
fn a_restarted_endpoint_starts_empty_and_its_old_handle_is_dead() {
    let net = SimNet::new(SimConfig::default());
    let mut sender = net.endpoint(peer(1));
    let mut old = net.endpoint(peer(2));
    sender.send_run(peer(2), &[1; 4], 1).unwrap();
    net.advance_to_next();
    let mut new = net.endpoint(peer(2));
    assert!(!new.wait(Duration::from_millis(1)).unwrap());
    assert_eq!(old.recv_burst(&mut |_, _| ()).unwrap(), 0);
    old.send_run(peer(1), &[9], 1).unwrap();
    assert!(!sender.wait(Duration::from_millis(1)).unwrap());
    drop(old);
    sender.send_run(peer(2), &[2], 1).unwrap();
    assert!(new.wait(Duration::from_millis(1)).unwrap());
    drop(new);
    sender.send_run(peer(2), &[3], 1).unwrap();
    net.advance_to_next();
    assert_eq!(net.stats().unreachable, 1);
}

#[test]
fn bandwidth_takes_its_time() {
    // 972 + 28 bytes at 8 Mbit/s: one millisecond out, one in; in the middle both overlap.
    let net = SimNet::new(SimConfig {
        bandwidth: Some(8_000_000),
        latency: Duration::from_millis(5),
        ..SimConfig::default()
    });
    let (mut a, b) = (net.endpoint(peer(1)), net.endpoint(peer(2)));
    a.send_run(peer(2), &[0; 9720], 972).unwrap();
    let trace = collect(&net, &mut [b]);
    let times: Vec<u128> = trace.iter().map(|(at, ..)| at.as_millis()).collect();
    assert_eq!(times, (7..17).collect::<Vec<_>>());
    net.set_bandwidth(peer(1), None);
    let start = net.now();
    let b = net.endpoint(peer(2));
    a.send_run(peer(2), &[0; 972], 972).unwrap();
    collect(&net, &mut [b]);
    assert_eq!(net.now() - start, Duration::from_millis(6));
}

#[test]
fn incast_overflows_the_receivers_queue() {
    let net =
        SimNet::new(SimConfig { bandwidth: Some(1_000_000_000), queue_packets: 20, ..SimConfig::default() });
    let mut workers: Vec<SimIo> = (1..=8).map(|number| net.endpoint(peer(number))).collect();
    let server = net.endpoint(peer(9));
    for worker in &mut workers {
        worker.send_run(peer(9), &[0; 10_000], 1000).unwrap();
    }
    let trace = collect(&net, &mut [server]);
    let stats = net.stats();
    // Eight senders at the receiver's rate: an eighth drains while they arrive, twenty wait.
    assert_eq!(stats.overflowed + stats.delivered, 80);
    assert!((25..=35).contains(&trace.len()), "{}", trace.len());
}

/// P46: what waits behind others is marked if it may be, and bits are otherwise as they were sent.
#[test]
fn a_long_queue_marks_what_it_may() {
    let net = SimNet::new(SimConfig {
        bandwidth: Some(1_000_000_000),
        mark_packets: Some(4),
        ..SimConfig::default()
    });
    let mut a = net.endpoint(peer(1));
    let mut server = net.endpoint(peer(9));
    for (ecn, marked) in [(0, 0), (2, 1), (1, 1), (3, 0)] {
        // All arrive at once, and leave one by one.
        net.set_bandwidth(peer(1), None);
        let before = net.stats().marked;
        a.send_run_with(peer(9), &[7; 60], 10, ecn).unwrap();
        while net.advance_to_next().is_some() {}
        let mut got = Vec::new();
        server.recv_burst(&mut |origin, _| got.push(origin.ecn)).unwrap();
        let last = if marked == 1 { 3 } else { ecn };
        assert_eq!(got, [ecn, ecn, ecn, ecn, last, last]);
        assert_eq!(net.stats().marked - before, if ecn == 0 { 0 } else { 2 });
    }
}

#[test]
fn an_unread_queue_overflows_and_reading_makes_room() {
    let net = SimNet::new(SimConfig { queue_packets: 5, ..SimConfig::default() });
    let (mut a, mut b) = (net.endpoint(peer(1)), net.endpoint(peer(2)));
    for _ in 0..2 {
        a.send_run(peer(2), &[0; 8], 1).unwrap();
        net.advance_to_next();
        assert_eq!(b.recv_burst(&mut |_, _| ()).unwrap(), 5);
    }
    assert_eq!(net.stats().overflowed, 6);
}

#[test]
fn wait_moves_time_no_further_than_needed() {
    let net = SimNet::new(SimConfig { latency: Duration::from_millis(3), ..SimConfig::default() });
    let (mut a, mut b) = (net.endpoint(peer(1)), net.endpoint(peer(2)));
    a.send_run(peer(2), &[1], 1).unwrap();
    assert!(!b.wait(Duration::from_millis(2)).unwrap());
    assert_eq!(net.now(), Duration::from_millis(2));
    assert!(b.wait(Duration::from_secs(60)).unwrap());
    assert_eq!(b.now(), Duration::from_millis(3));
    let mut lens = Vec::new();
    b.recv_burst(&mut |origin, payload| lens.push((origin.from, payload.len()))).unwrap();
    assert_eq!(lens, [(peer(1), 1)]);
    assert!(!b.wait(Duration::from_millis(1)).unwrap());
    assert_eq!(net.now(), Duration::from_millis(4));
}

#[test]
fn a_handler_may_use_other_endpoints() {
    let net = SimNet::new(SimConfig::default());
    let (mut a, mut b, mut c) = (net.endpoint(peer(1)), net.endpoint(peer(2)), net.endpoint(peer(3)));
    a.send_run(peer(2), &[1, 2, 3], 1).unwrap();
    net.advance_to_next();
    b.recv_burst(&mut |_, payload| c.send_run(peer(1), payload, 1).unwrap()).unwrap();
    net.advance_to_next();
    assert_eq!(a.recv_burst(&mut |_, _| ()).unwrap(), 3);
    let stats = a.stats();
    assert_eq!((stats.packets_out, stats.bytes_out, stats.send_calls), (3, 87, 1));
    assert_eq!((stats.packets_in, stats.bytes_in, stats.recv_bursts), (3, 87, 1));
}

#[test]
fn wrong_rates_are_named() {
    let link = LinkConfig { corrupt: 2.0, ..SimConfig::default().link() };
    assert!(matches!(link.validate(), Err(TransportError::Probability { name: "corrupt", .. })));
    assert!(SimConfig::default().link().validate().is_ok());
}

/// Two endpoints of a host take turns on its wire, and reach each other without it; a frame is longer than its datagram.
#[test]
fn endpoints_of_a_host_share_its_wires() {
    // 1000 bits of a datagram with all that is around it take a microsecond.
    let net = SimNet::new(SimConfig { latency: Duration::ZERO, framing: 38, ..SimConfig::default() });
    let at = |host: u8, port: u16| Peer::from(([10, 0, 0, host], port));
    for host in 1..=3 {
        net.set_host([10, 0, 0, host], Some(1_000_000_000));
    }
    let mut found = Vec::new();
    net.take_arrivals(&mut found);
    let mut one = net.endpoint(at(1, 1));
    let mut other = net.endpoint(at(1, 2));
    let mut receivers = [net.endpoint(at(2, 1)), net.endpoint(at(3, 1))];
    let payload = [7; 125 - 28 - 38];
    one.send_run(at(2, 1), &payload.repeat(2), payload.len()).unwrap();
    other.send_run(at(3, 1), &payload, payload.len()).unwrap();
    one.send_run(at(1, 2), &payload, payload.len()).unwrap();
    let trace: Vec<_> =
        collect(&net, &mut receivers).into_iter().map(|(at, to, ..)| (at.as_micros(), to)).collect();
    // Out one after the other; into two hosts at the same time.
    assert_eq!(trace, [(2, at(2, 1)), (3, at(2, 1)), (4, at(3, 1))]);
    assert_eq!(other.recv_burst(&mut |origin, _| assert_eq!(origin.from, at(1, 1))).unwrap(), 1);
    net.take_arrivals(&mut found);
    assert_eq!(found, [at(1, 2), at(2, 1), at(2, 1), at(3, 1)]);
    assert_eq!(count_outcomes(&net.stats()), net.stats().sent);
    drop(other);
    one.send_run(at(1, 2), &payload, payload.len()).unwrap();
    assert_eq!(net.stats().unreachable, 1);
}
