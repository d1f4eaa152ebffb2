#![allow(clippy::unwrap_used)]

use std::{
    collections::{HashSet, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket as StdSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::*;
use crate::{IPV4_UDP_HEADER_LEN, Origin};

/// How long nothing may happen until a test counts as hung.
const HANG: Duration = Duration::from_secs(600);
const LOOPBACK: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

fn bind(gso: bool, gro: bool) -> UdpIo {
    UdpIo::bind(UdpConfig { gso, gro, ..UdpConfig::new(LOOPBACK) }).unwrap()
}

/// Receives until `expected` datagrams came or nothing came for half a second.
fn drain(io: &mut UdpIo, expected: usize, mut f: impl FnMut(Peer, &[u8])) -> usize {
    let mut received = 0;
    while received < expected && io.wait(Duration::from_millis(500)).unwrap() {
        received += io.recv_burst(&mut |origin, payload| f(origin.from, payload)).unwrap();
    }
    received
}

/// Random runs of random datagram lengths, each within the receive buffer; every datagram must
/// arrive, in order, with its bytes.
fn exchange(gso: bool, gro: bool, datagrams: usize) {
    let (mut a, mut b) = (bind(gso, false), bind(false, gro));
    let mut rng = Rng::with_seed(1 + u64::from(gso) * 2 + u64::from(gro));
    let noise: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(1 << 20).collect();
    let mut sent = 0;
    let mut bytes = 0;
    while sent < datagrams {
        let mut expected = VecDeque::new();
        let mut room = 1.0;
        while room > 0.0 && expected.len() < 1000 {
            let segment = *rng.choice(&[1, 2, 63, 536, 537, 1052, 1472, 4000, 9000, MAX_DATAGRAM]).unwrap();
            let fits = b.recv_capacity(segment) as f64;
            // Up to three kernel calls long, ending short, exact or with a single datagram.
            let most = (fits * room * 0.9).min(150.0) as usize * segment;
            if most == 0 {
                break;
            }
            let len = rng.usize(1..=most.min(noise.len() / 2));
            let len = if rng.bool() { len.next_multiple_of(segment).min(most) } else { len };
            let start = rng.usize(0..noise.len() / 2);
            let run = &noise[start..(start + len).min(noise.len())];
            a.send_run(b.local(), run, segment).unwrap();
            expected.extend(run.chunks(segment));
            room -= run.len().div_ceil(segment) as f64 / fits;
        }
        let count = expected.len();
        bytes += expected.iter().map(|d| d.len()).sum::<usize>();
        let from = a.local();
        let received = drain(&mut b, count, |peer, datagram| {
            assert_eq!(peer, from);
            let wanted = expected.pop_front().expect("more datagrams than sent");
            assert!(datagram == wanted, "{} != {} bytes", datagram.len(), wanted.len());
        });
        assert_eq!(received, count, "lost after {sent}, {:?}", b.recv_overflows());
        sent += count;
    }
    for (packets, counted) in
        [(a.stats().packets_out, a.stats().bytes_out), (b.stats().packets_in, b.stats().bytes_in)]
    {
        assert_eq!(packets, sent as u64);
        assert_eq!(counted, (bytes + sent * IPV4_UDP_HEADER_LEN) as u64);
    }
    assert_eq!(a.stats().send_errors, 0);
    if gso {
        assert!(a.segments_runs(), "loopback segments runs");
        assert!(a.stats().send_calls < a.stats().packets_out / 5);
    } else {
        assert_eq!(a.stats().send_calls, a.stats().packets_out);
    }
}

#[test]
fn exchange_with_both_offloads() {
    exchange(true, true, 100_000);
}

#[test]
fn exchange_with_gso_alone() {
    exchange(true, false, 100_000);
}

#[test]
fn exchange_with_gro_alone() {
    exchange(false, true, 100_000);
}

#[test]
fn exchange_without_offloads() {
    exchange(false, false, 100_000);
}

#[test]
fn merged_datagrams_come_out_one_by_one() {
    let (mut a, mut b) = (bind(true, true), bind(true, true));
    let run: Vec<u8> = (0..62 * 1052 + 7).map(|i| (i % 251) as u8).collect();
    a.send_run(b.local(), &run, 1052).unwrap();
    let mut seen = Vec::new();
    assert_eq!(drain(&mut b, 63, |_, datagram| seen.push(datagram.to_vec())), 63);
    assert!(seen.iter().map(Vec::as_slice).eq(run.chunks(1052)));
    // 62 datagrams in one piece, the odd one behind it: two at most, and one call if both were
    // there.
    assert!(b.stats().recv_bursts <= 2, "{:?}", b.stats());
}

/// Whoever keeps a run's memory has its bytes until it lets go of them; then the memory is used again.
#[test]
fn memory_that_is_kept_stays_as_it_is() {
    let (mut a, mut b) = (bind(true, true), bind(true, true));
    let mut keep = |bytes: std::ops::Range<u8>| -> Vec<(Arc<Vec<u8>>, u8)> {
        let mut kept = Vec::new();
        for byte in bytes {
            a.send_run(b.local(), &[byte; 20_000], 1000).unwrap();
            let mut got = 0;
            while got < 20 {
                assert!(b.wait(HANG).unwrap());
                let mut look = |run: Run<'_>| {
                    assert!(run.contents.iter().all(|&other| other == byte));
                    kept.extend(run.memory.map(|memory| (Arc::clone(memory), byte)));
                };
                got += b.recv_runs(&mut look).unwrap();
            }
        }
        kept
    };
    let kept = keep(0..10);
    assert_eq!(kept.len(), 10, "the loopback interface merges runs");
    assert!(kept.iter().all(|(memory, byte)| memory[..20_000].iter().all(|other| other == byte)));
    let places: HashSet<_> = kept.iter().map(|(memory, _)| memory.as_ptr()).collect();
    assert_eq!(places.len(), 10);
    drop(kept);
    let again = keep(10..20);
    assert!(again.iter().all(|(memory, byte)| memory[..20_000].iter().all(|other| other == byte)));
    assert!(again.iter().all(|(memory, _)| places.contains(&memory.as_ptr())));
}

/// P46: in one piece or one by one, to one or to many, and from an address that was chosen.
#[test]
fn the_bits_of_congestion_arrive() {
    for gso in [true, false] {
        let config = UdpConfig { gso, answer_as_asked: true, ..UdpConfig::default() };
        let mut server = UdpIo::bind(config).unwrap();
        let mut workers = [bind(true, true), bind(true, true)];
        let peers = workers.each_ref().map(|worker| worker.local());
        server.answer_from(peers[1], Some([127, 0, 0, 7].into()));
        let mut expected = Vec::new();
        for ecn in [0, 2, 1, 3, 0] {
            server.send_run_with(peers[0], &[ecn; 25], 10, ecn).unwrap();
            server.send_run_with(peers[1], &[ecn; 25], 10, ecn).unwrap();
            server.send_run_to_all(&peers, &[ecn; 25], 10, ecn).unwrap();
            expected.extend([ecn; 6]);
        }
        for worker in &mut workers {
            assert!(worker.reads_ecn());
            let mut got = Vec::new();
            while got.len() < expected.len() && worker.wait(Duration::from_millis(500)).unwrap() {
                let mut take = |origin: Origin, datagram: &[u8]| {
                    assert_eq!(origin.ecn, datagram[0]);
                    got.push(origin.ecn);
                };
                worker.recv_burst(&mut take).unwrap();
            }
            assert_eq!(got, expected);
        }
    }
}

#[test]
fn multicast_reaches_every_receiver() {
    let mut server = bind(true, true);
    let mut workers: Vec<_> = (0..3).map(|_| bind(true, true)).collect();
    let peers: Vec<Peer> = workers.iter().map(|worker| worker.local()).collect();
    server.send_run_to_all(&peers, &[7; 2500], 1000, 0).unwrap();
    for worker in &mut workers {
        let mut lens = Vec::new();
        drain(worker, 3, |_, datagram| lens.push(datagram.len()));
        assert_eq!(lens, [1000, 1000, 500]);
    }
}

/// More receivers than one system call takes, more datagrams than a piece has, with and without segmentation: all get all,
/// from the address that was chosen.
#[test]
fn multicast_of_long_runs_reaches_many() {
    for gso in [true, false] {
        let config = UdpConfig { gso, answer_as_asked: true, ..UdpConfig::default() };
        let mut server = UdpIo::bind(config).unwrap();
        let mut workers: Vec<_> = (0..19).map(|_| bind(true, true)).collect();
        let peers: Vec<Peer> = workers.iter().map(|worker| worker.local()).collect();
        let source = IpAddr::from([127, 0, 0, 7]);
        server.answer_from(peers[17], Some(source));
        let run: Vec<u8> = (0..150 * 1044 - 5).map(|i| (i % 251) as u8).collect();
        server.send_run_to_all(&peers, &run, 1044, 2).unwrap();
        for (number, worker) in workers.iter_mut().enumerate() {
            let (mut got, mut from) = (Vec::new(), None);
            let count = drain(worker, 150, |peer, datagram| {
                got.push(datagram.to_vec());
                from = Some(peer.ip());
            });
            assert_eq!(count, 150);
            assert!(got.iter().map(Vec::as_slice).eq(run.chunks(1044)), "worker {number}");
            assert_eq!(from, Some(if number == 17 { source } else { Ipv4Addr::LOCALHOST.into() }));
        }
        let stats = server.stats();
        assert_eq!((stats.packets_out, stats.send_errors), (19 * 150, 0));
        assert!(stats.send_calls <= if gso { 3 * 2 } else { 150 * 2 }, "{stats:?}");
    }
}

/// One that cannot be sent to is an error, whatever its place; one that is gone is not.
#[test]
fn multicast_deals_with_receivers_one_by_one() {
    let mut server = bind(true, true);
    let mut here = bind(true, true);
    let gone = bind(true, true).local();
    server.send_run_to_all(&[gone, here.local(), gone], &[1; 30], 10, 0).unwrap();
    assert_eq!(drain(&mut here, 3, |_, _| ()), 3);
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    for place in 0..3 {
        let mut to = vec![here.local(); 2];
        to.insert(place, nobody);
        let message = server.send_run_to_all(&to, &[1; 10], 5, 0).unwrap_err().to_string();
        assert!(message.contains("cannot send to 127.0.0.1:0"), "{message}");
    }
    // A checksum switched off is what makes Linux refuse to segment.
    let mut server = bind(true, true);
    server.socket.omit_checksums().unwrap();
    let mut other = bind(true, true);
    drain(&mut here, 100, |_, _| ());
    server.send_run_to_all(&[here.local(), other.local()], &[5; 100], 10, 0).unwrap();
    for io in [&mut here, &mut other] {
        assert_eq!(drain(io, 10, |_, datagram| assert_eq!(datagram, [5; 10])), 10);
    }
    assert!(!server.segments_runs());
}

#[test]
fn empty_runs_send_nothing_and_empty_datagrams_arrive() {
    let (mut a, mut b) = (bind(true, true), bind(true, true));
    a.send_run(b.local(), &[], 100).unwrap();
    assert!(!b.wait(Duration::from_millis(20)).unwrap());
    let plain = StdSocket::bind(LOOPBACK).unwrap();
    plain.send_to(&[], b.local()).unwrap();
    let mut lens = Vec::new();
    assert_eq!(drain(&mut b, 1, |_, datagram| lens.push(datagram.len())), 1);
    assert_eq!(lens, [0]);
    assert_eq!(a.stats(), IoStats::default());
}

#[test]
fn what_recv_capacity_promises_fits() {
    for recv_buffer in [64 << 10, 1 << 20, 8 << 20] {
        for len in [1, 536, 1052, 1472, 9000] {
            let mut a = bind(false, false);
            let mut b =
                UdpIo::bind(UdpConfig { recv_buffer, gro: false, ..UdpConfig::new(LOOPBACK) }).unwrap();
            let capacity = b.recv_capacity(len);
            assert!(capacity > 0, "{recv_buffer} {len}");
            // Twice, the second time with a buffer that was read out just before.
            for _ in 0..2 {
                a.send_run(b.local(), &vec![1; len * capacity], len).unwrap();
                assert_eq!(drain(&mut b, capacity, |_, _| ()), capacity, "{recv_buffer} {len}");
            }
            assert_eq!(b.recv_overflows().unwrap(), 0);
        }
    }
}

#[test]
fn a_burst_beyond_the_receive_buffer_is_lost_without_hanging() {
    for gso in [false, true] {
        let mut a = bind(gso, false);
        let mut b = UdpIo::bind(UdpConfig { recv_buffer: 64 << 10, ..UdpConfig::new(LOOPBACK) }).unwrap();
        let start = Instant::now();
        let sent = 10_000;
        a.send_run(b.local(), &vec![3; 1052 * sent], 1052).unwrap();
        let received = drain(&mut b, sent, |_, datagram| assert_eq!(datagram, [3; 1052]));
        assert!(received >= b.recv_capacity(1052), "{received}");
        assert!(received < sent / 2, "{received}");
        assert!(b.recv_overflows().unwrap() > 0);
        assert!(start.elapsed() < HANG);
        // And goes on as if nothing had been.
        a.send_run(b.local(), &[4; 100], 10).unwrap();
        assert_eq!(drain(&mut b, 10, |_, datagram| assert_eq!(datagram, [4; 10])), 10);
    }
}

#[test]
fn wait_ends_on_time_or_on_a_datagram() {
    let (mut a, mut b) = (bind(true, true), bind(true, true));
    let start = Instant::now();
    assert!(!b.wait(Duration::from_millis(30)).unwrap());
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert!(!b.wait(Duration::ZERO).unwrap());
    assert_eq!(b.recv_burst(&mut |_, _| ()).unwrap(), 0);
    a.send_run(b.local(), &[1], 1).unwrap();
    let start = Instant::now();
    assert!(b.wait(Duration::MAX).unwrap());
    assert!(start.elapsed() < HANG);
    assert!(b.now() > Duration::ZERO);
}

#[test]
fn refused_peers_are_counted_and_do_not_stop_anything() {
    let config = UdpConfig { report_refusals: true, ..UdpConfig::new(LOOPBACK) };
    let mut a = UdpIo::bind(config).unwrap();
    let gone = bind(true, true).local();
    for _ in 0..20 {
        a.send_run(gone, &[1; 3000], 1000).unwrap();
        a.wait(Duration::from_millis(1)).unwrap();
        a.recv_burst(&mut |_, _| ()).unwrap();
    }
    assert!(a.stats().send_errors >= 10, "{:?}", a.stats());
    assert_eq!(a.stats().packets_out, 60);
    let (_, cause) = a.last_send_error().unwrap();
    assert_eq!(cause.raw_os_error(), Some(libc::ECONNREFUSED));
    let (refused, since) = a.refused().unwrap();
    assert!(refused == gone && since < a.now(), "{refused} since {since:?}");
    // No error is left that would make it ready.
    let started = Instant::now();
    while a.wait(Duration::from_millis(5)).unwrap() {
        a.recv_burst(&mut |_, _| ()).unwrap();
        assert!(started.elapsed() < HANG);
    }
    let mut again = UdpIo::bind(UdpConfig::new(gone)).unwrap();
    again.send_run(a.local(), &[3], 1).unwrap();
    assert_eq!(drain(&mut a, 1, |_, datagram| assert_eq!(datagram, [3])), 1);
    assert_eq!(a.refused(), None);

    let mut b = bind(true, true);
    a.send_run(gone, &[1; 10], 10).unwrap();
    a.send_run(b.local(), &[2; 3000], 1000).unwrap();
    assert_eq!(drain(&mut b, 3, |_, datagram| assert_eq!(datagram, [2; 1000])), 3);
}

#[test]
fn refused_segmentation_falls_back_to_single_datagrams() {
    // A checksum switched off is what makes Linux refuse to segment.
    let (mut a, mut b) = (bind(true, true), bind(true, true));
    a.socket.omit_checksums().unwrap();
    let run: Vec<u8> = (0..50_000).map(|i| (i % 253) as u8).collect();
    a.send_run(b.local(), &run, 1052).unwrap();
    let mut seen = Vec::new();
    let count = run.len().div_ceil(1052);
    assert_eq!(drain(&mut b, count, |_, datagram| seen.extend_from_slice(datagram)), count);
    assert_eq!(seen, run);
    assert!(!a.segments_runs());
    assert_eq!(a.stats().send_calls, count as u64);
    assert_eq!(a.stats().send_errors, 0);
}

#[test]
fn impossible_sends_are_errors() {
    let mut a = bind(true, true);
    let to = bind(true, true).local();
    for segment in [0, MAX_DATAGRAM + 1, usize::MAX] {
        let message = a.send_run(to, &[1; 10], segment).unwrap_err().to_string();
        assert!(message.contains("must be 1 to 65507"), "{message}");
    }
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let message = a.send_run(nobody, &[1; 10], 5).unwrap_err().to_string();
    assert!(message.contains("cannot send to 127.0.0.1:0"), "{message}");
    // A mistaken receiver must not cost the others their offload.
    assert!(a.segments_runs());
    assert_eq!(a.stats().packets_out, 0);
}

#[test]
fn errors_of_bind_name_the_address_and_the_mend() {
    let taken = bind(true, true).socket.local;
    let holder = UdpIo::bind(UdpConfig::new(taken)).unwrap();
    let error = UdpIo::bind(UdpConfig::new(taken)).err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("address {taken} is in use: stop the other process or choose another port")
    );
    drop(holder);

    let foreign = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 77), 9000));
    let error = UdpIo::bind(UdpConfig::new(foreign)).err().unwrap();
    assert!(matches!(error, TransportError::AddressNotAvailable { addr } if addr == foreign));
    let error = io::Error::from(error);
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    assert!(error.to_string().starts_with("203.0.113.77 is not an address of this host"));
}

#[test]
fn buffers_say_what_was_obtained() {
    for wanted in [100_000, 100_001, 300_000] {
        let io =
            UdpIo::bind(UdpConfig { recv_buffer: wanted, send_buffer: wanted, ..UdpConfig::new(LOOPBACK) })
                .unwrap();
        for got in [io.recv_buffer(), io.send_buffer()] {
            assert!((wanted..=wanted + 1).contains(&got), "{wanted} {got}");
        }
    }
    // Far beyond every limit: no error, and no lie about it either.
    let io = UdpIo::bind(UdpConfig { recv_buffer: usize::MAX, ..UdpConfig::new(LOOPBACK) }).unwrap();
    assert_eq!(io.recv_buffer(), io.socket.recv_buffer_now());
    assert!(io.recv_buffer() > 100_000);
}

#[test]
fn a_socket_can_move_to_another_thread() {
    let (mut a, mut b) = (bind(true, true), bind(true, true));
    let to = b.local();
    let receiver = std::thread::spawn(move || drain(&mut b, 5, |_, _| ()));
    a.send_run(to, &[0; 50], 10).unwrap();
    assert_eq!(receiver.join().unwrap(), 5);
}

/// A socket on every address of both kinds, and its peers on one of either.
#[test]
fn a_socket_of_ipv6_has_peers_of_both_kinds() {
    let open = |addr: &str, gso| {
        UdpIo::bind(UdpConfig { gso, answer_as_asked: true, ..UdpConfig::new(addr.parse().unwrap()) })
    };
    if let Err(error) = open("[::1]:0", true) {
        println!("not run: {error}");
        return;
    }
    for gso in [true, false] {
        let mut server = open("[::]:0", gso).unwrap();
        let port = server.local().port();
        let mut workers =
            [open("[::1]:0", gso).unwrap(), open("127.0.0.1:0", gso).unwrap(), open("[::]:0", gso).unwrap()];
        let asked = [format!("[::1]:{port}"), format!("127.0.0.7:{port}"), format!("127.0.0.7:{port}")];
        for (worker, asked) in workers.iter_mut().zip(&asked) {
            worker.send_run_with(asked.parse().unwrap(), &[7; 30], 10, 2).unwrap();
        }
        let mut origins: Vec<Origin> = Vec::new();
        while origins.len() < 9 {
            assert!(server.wait(Duration::from_secs(5)).unwrap());
            server.recv_burst(&mut |origin, _| origins.push(origin)).unwrap();
        }
        let peers: Vec<Peer> = origins.chunks(3).map(|of_one| of_one[0].from).collect();
        for ((origin, worker), asked) in origins.chunks(3).map(|of_one| of_one[0]).zip(&workers).zip(&asked) {
            // One of IPv4 is known as such, whatever the sockets are.
            assert_eq!(origin.from.port(), worker.local().port());
            assert_eq!(origin.from.is_ipv4(), asked.starts_with("127"));
            assert_eq!((origin.at, origin.ecn), (Some(asked.parse::<Peer>().unwrap().ip()), 2));
        }
        for origin in &origins {
            server.answer_from(origin.from, origin.at);
        }
        server.send_run_to_all(&peers, &[9; 50], 10, 2).unwrap();
        for &peer in &peers {
            server.send_run_with(peer, &[9; 20], 10, 0).unwrap();
        }
        for (worker, asked) in workers.iter_mut().zip(&asked) {
            let mut seen = Vec::new();
            while seen.len() < 7 {
                assert!(worker.wait(Duration::from_secs(5)).unwrap());
                worker.recv_burst(&mut |origin, _| seen.push((origin.from, origin.ecn))).unwrap();
            }
            assert!(seen.iter().all(|(from, _)| *from == asked.parse().unwrap()), "{seen:?}");
            assert_eq!(seen.iter().filter(|(_, ecn)| *ecn == 2).count(), 5);
        }
        let stats = server.stats();
        // 28 bytes of headers before a datagram of IPv4, 48 before one of IPv6.
        assert_eq!((stats.packets_in, stats.bytes_in), (9, 9 * 10 + 6 * 28 + 3 * 48));
        assert_eq!((stats.packets_out, stats.bytes_out), (21, 21 * 10 + 14 * 28 + 7 * 48));
        let error = workers[1].send_run(peers[0], b"x", 1).unwrap_err().to_string();
        assert!(error.contains("bind it to [::]"), "{error}");
    }
}

#[test]
fn another_thread_ends_a_wait() {
    let mut a = bind(true, true);
    let waker = a.waker().unwrap().unwrap();
    let woken = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        waker.wake();
    });
    assert!(a.wait(Duration::MAX).unwrap());
    woken.join().unwrap();
    assert_eq!(a.recv_burst(&mut |_, _| ()).unwrap(), 0);
    // The wake is over, and one before a wait ends the next one.
    assert!(!a.wait(Duration::from_millis(5)).unwrap());
    a.waker().unwrap().unwrap().wake();
    assert!(a.wait(Duration::MAX).unwrap());
}
