//! Endpoints joined by rings within one process, in ordinary pages.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddrV4};

use thc_dpdk::{Eal, EalConfig, Mbuf, Port, PortConfig, RingPair};

use super::*;
use crate::Neighbour;
use crate::TransportError;
use crate::dpdk::DpdkConfig;

fn eal() -> &'static Eal {
    let config = EalConfig { hugepages: false, memory: 512, pci: Vec::new(), arguments: Vec::new() };
    Eal::start(&config).unwrap()
}

fn pair() -> [String; 2] {
    RingPair::new(eal(), 1024).unwrap().names
}

fn config(host: u8, devices: &[String]) -> DpdkConfig {
    DpdkConfig {
        devices: devices.to_vec(),
        hugepages: false,
        packets: 4096,
        mac: Some(mac(host)),
        ..DpdkConfig::new(Ipv4Addr::new(10, 9, 8, host))
    }
}

fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, host, 0, 0])
}

fn endpoint(config: &DpdkConfig) -> DpdkIo {
    DpdkIo::open(config, 9000, 1).unwrap().pop().unwrap()
}

fn peer(host: u8) -> Peer {
    end(host, 9000).into()
}

fn end(host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 9, 8, host), port)
}

/// Everything that has come.
fn drain(io: &mut DpdkIo) -> Vec<(Peer, Vec<u8>)> {
    let mut got = Vec::new();
    while io.poll() {
        io.recv_burst(&mut |origin, payload| got.push((origin.from, payload.to_vec()))).unwrap();
    }
    got
}

/// Two endpoints that know each other.
fn introduced_pair() -> (DpdkIo, DpdkIo) {
    let [one, other] = pair();
    let (mut a, mut b) = (endpoint(&config(1, &[one])), endpoint(&config(2, &[other])));
    a.send_run(peer(2), b"lost", 4).unwrap();
    assert!(drain(&mut b).is_empty() && drain(&mut a).is_empty());
    (a, b)
}

#[test]
fn endpoints_find_each_other_by_arp() {
    let (mut a, mut b) = introduced_pair();
    assert_eq!((a.frame_counts().unresolved, a.stats().send_errors, a.stats().packets_out), (1, 1, 0));
    assert_eq!(a.frame_counts().arp_asked, 2, "for the other, and for itself to tell who it is");
    assert_eq!(b.frame_counts().arp_answered, 1);
    // Whoever was asked knows who asked.
    b.send_run(peer(1), b"first", 5).unwrap();
    assert_eq!(drain(&mut a), [(peer(2), b"first".to_vec())]);
    let run: Vec<u8> = (0..200).collect();
    a.send_run(peer(2), &run, 64).unwrap();
    let got = drain(&mut b);
    assert_eq!(got.iter().map(|(_, payload)| payload.len()).collect::<Vec<_>>(), [64, 64, 64, 8]);
    assert_eq!(got.into_iter().flat_map(|(_, payload)| payload).collect::<Vec<_>>(), run);
    assert_eq!(b.frame_counts().unresolved, 0);
    let (sent, received) = (a.stats(), b.stats());
    assert_eq!((sent.packets_out, sent.bytes_out), (4, 200 + 4 * 28));
    assert_eq!((received.packets_in, received.bytes_in), (4, 200 + 4 * 28));
}

#[test]
fn a_group_on_several_devices_gets_one_payload() {
    let ([one, first], [two, second]) = (pair(), pair());
    let mut server = endpoint(&config(1, &[one, two]));
    let mut workers = [endpoint(&config(2, &[first])), endpoint(&config(3, &[second]))];
    for worker in &mut workers {
        worker.send_run(peer(1), b"?", 1).unwrap();
    }
    assert!(drain(&mut server).is_empty());
    let payloads: Vec<u8> = (0..3000).map(|i| (i / 11) as u8).collect();
    server.send_run_to_all(&[peer(2), peer(3)], &payloads, 1000, 0).unwrap();
    for worker in &mut workers {
        let got = drain(worker);
        assert!(got.iter().all(|(from, _)| *from == peer(1)));
        assert_eq!(got.into_iter().map(|(_, payload)| payload).collect::<Vec<_>>().concat(), payloads);
        assert_eq!(worker.frame_counts().joined, 3, "headers of their own, the payload shared");
        assert_eq!(worker.frame_counts().udp, 0);
    }
    assert_eq!(server.stats().packets_out, 6);
    // Each device has its own address.
    assert_eq!(server.inputs[1].local.mac, MacAddr([2, 0, 0, 1, 0, 1]));
}

#[test]
fn answers_go_out_with_the_burst() {
    let (mut a, mut b) = introduced_pair();
    a.send_run(peer(2), b"abcdef", 2).unwrap();
    assert!(b.poll());
    let answered = b.answer_burst(&mut |Origin { from, .. }: Origin, payload: &[u8], tx: &mut DpdkTx| {
        tx.send(from, payload, 0).unwrap();
        let mut refused = Vec::new();
        let to = [from, Peer::from((from.ip(), 0)), from];
        tx.send_to_all(to.into_iter(), &[payload, b"!"].concat(), 2, &mut |peer, _| refused.push(peer));
        assert_eq!(refused, [to[1]]);
    });
    assert_eq!(answered, 3);
    let got: Vec<Vec<u8>> = drain(&mut a).into_iter().map(|(_, payload)| payload).collect();
    let expected: [&[u8]; 9] = [b"ab", b"ab!", b"ab!", b"cd", b"cd!", b"cd!", b"ef", b"ef!", b"ef!"];
    assert_eq!(got, expected);
}

#[test]
fn headers_of_answers_go_into_what_was_received() {
    let (mut a, mut b) = introduced_pair();
    let heads = b.tx.heads.pool().clone();
    for round in 0..5u8 {
        a.send_run(peer(2), &[round; 40], 1).unwrap();
        // Those of the burst before are at hand now.
        let before = heads.available();
        while b.poll() {
            b.answer_burst(&mut |Origin { from, .. }: Origin, payload: &[u8], tx: &mut DpdkTx| {
                tx.send_to_all([from, from].into_iter(), &[payload, b"!"].concat(), 0, &mut |_, error| {
                    panic!("{error}")
                });
            });
        }
        // Each packet is answered by two, before it may be used itself: the first burst has none to begin with.
        let taken = before - heads.available();
        assert!(if round == 0 { taken > 0 } else { taken <= thc_dpdk::BURST as u32 }, "{round}: {taken}");
        let got = drain(&mut a);
        assert_eq!(got.len(), 80);
        assert!(got.iter().all(|(from, payload)| *from == peer(2) && payload == &[round, b'!']));
    }
    // More than are ever needed are not kept.
    for _ in 0..3 {
        a.send_run(peer(2), &[7; 200], 1).unwrap();
        assert_eq!(drain(&mut b).len(), 200);
    }
    let held = b.tx.pool.packets() + a.tx.pool.packets() - b.tx.pool.available() - a.tx.pool.available();
    assert!(held <= 6 * thc_dpdk::BURST as u32 + 64, "{held}");
}

#[test]
fn a_neighbour_that_comes_back_with_another_address_is_found_again() {
    let [one, other] = pair();
    let mut a = endpoint(&config(1, &[one]));
    let mut b = endpoint(&config(2, std::slice::from_ref(&other)));
    a.send_run(peer(2), b"?", 1).unwrap();
    drain(&mut b);
    drain(&mut a);
    drop(b);
    // The pair's names open once, so the second life of the host is a frame that it would send.
    let news = Arp {
        asks: true,
        sender: (mac(77), *end(2, 9000).ip()),
        target: (MacAddr([0; 6]), *end(2, 9000).ip()),
    };
    handle(&a.endpoint, &mut a.tx, 0, &news.emit(), Foreign::Arp);
    a.send_run(peer(2), b"again", 5).unwrap();
    let place = a.endpoint.neighbours.enter(*end(2, 9000).ip()).unwrap();
    let word = a.endpoint.neighbours.word(place);
    assert_eq!(crate::link::neighbours::Neighbours::reach(word), Some(Reach { mac: mac(77), device: 0 }));
}

#[test]
fn fixed_neighbours_need_no_arp_and_gateways_carry_what_is_far() {
    let [one, other] = pair();
    let mut a = endpoint(&DpdkConfig {
        neighbours: vec![Neighbour { address: *end(2, 9000).ip(), mac: mac(2), device: 0 }],
        prefix: 30,
        gateway: Some(*end(2, 9000).ip()),
        ..config(1, &[one])
    });
    let mut b = endpoint(&config(2, &[other]));
    a.send_run(peer(2), b"near", 4).unwrap();
    a.send_run("192.0.2.1:5".parse().unwrap(), b"far", 3).unwrap();
    assert_eq!(drain(&mut b), [(peer(1), b"near".to_vec())]);
    // The gateway got it, but is none.
    assert_eq!((b.frame_counts().other_address, a.frame_counts().arp_asked), (1, 0));
    let error = b.send_run("192.0.2.1:5".parse().unwrap(), b"far", 3).unwrap_err();
    assert!(error.to_string().contains("no gateway"), "{error}");
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let (mut a, _b) = introduced_pair();
    let long = vec![0; 1473];
    let error = a.send_run(peer(2), &long, 1473).unwrap_err();
    assert!(error.to_string().contains("raise the interface's MTU to at least 1501"), "{error}");
    a.send_run(peer(2), &long[..1472], 1472).unwrap();
    assert!(a.send_run(peer(2), b"x", 0).is_err());
    assert!(a.send_run(Peer::from((peer(2).ip(), 0)), b"x", 1).is_err());
    assert!(a.send_run_to_all(&[peer(2), Peer::from((peer(2).ip(), 0))], b"x", 1, 0).is_err());
}

#[test]
fn a_ring_that_stays_full_loses_datagrams_and_says_so() {
    let (mut a, mut b) = introduced_pair();
    let run = vec![1; 2000 * 10];
    a.send_run(peer(2), &run, 10).unwrap();
    let lost = a.frame_counts().ring_full;
    assert!(lost > 900, "{lost}");
    assert_eq!((a.stats().send_errors, a.stats().packets_out), (lost + 1, 2000 - lost));
    assert_eq!(drain(&mut b).len() as u64, 2000 - lost);
    a.send_run(peer(2), b"goes on", 7).unwrap();
    assert_eq!(drain(&mut b), [(peer(1), b"goes on".to_vec())]);
}

/// Another kind of sender: frames as they are.
struct Raw {
    _port: Port,
    tx: TxQueue,
    rx: RxQueue,
    pool: Mempool,
}

impl Raw {
    fn open(device: &str) -> Raw {
        let pool = Mempool::new(eal(), 1024, 1514).unwrap();
        let config = PortConfig {
            device: device.to_owned(),
            descriptors: 256,
            mtu: 1500,
            mac: None,
            checksums: false,
            first_udp_port: 0,
        };
        let (port, queues) = Port::open(eal(), &config, std::slice::from_ref(&pool)).unwrap();
        let (rx, tx) = queues.into_iter().next().unwrap();
        Raw { _port: port, tx, rx, pool }
    }

    fn send(&mut self, frame: &[u8]) {
        let mut packet = self.pool.take().unwrap();
        packet.append(frame.len()).unwrap().copy_from_slice(frame);
        let mut batch = Batch::new();
        batch.push(packet).unwrap();
        assert_eq!(self.tx.burst(&mut batch), 1);
    }

    fn receive_all(&mut self) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        self.rx.burst(&mut batch);
        batch.packets().iter().map(Mbuf::data).map(<[u8]>::to_vec).collect()
    }
}

#[test]
fn foreign_frames_are_counted_and_nothing_more() {
    let [one, other] = pair();
    let mut io = endpoint(&config(1, &[one]));
    let mut raw = Raw::open(&other);
    let mut headers = [0; HEADERS_LEN];
    let mut template =
        frame::Template::new((mac(2), mac(1)), end(2, 9000), end(1, 9000), frame::Checksums::Software);
    template.write(&mut headers, 4, crate::checksum::sum_of_bytes(b"good"), 0);
    let good = [&headers[..], b"good"].concat();
    raw.send(&good);
    let mut vlan = good.clone();
    vlan.splice(12..12, [0x81, 0, 0, 5]);
    raw.send(&vlan);
    let mut fragment = good.clone();
    fragment[20] = 0x20;
    fragment[24..26].fill(0);
    let sealed = !crate::checksum::fold(crate::checksum::sum_of_bytes(&fragment[14..34]));
    fragment[24..26].copy_from_slice(&sealed.to_be_bytes());
    raw.send(&fragment);
    raw.send(&good[..30]);
    raw.send(&[0; 1]);
    let mut ipv6 = good.clone();
    ipv6[12..14].copy_from_slice(&[0x86, 0xdd]);
    raw.send(&ipv6);
    let mut broken = good.clone();
    *broken.last_mut().unwrap() ^= 1;
    raw.send(&broken);
    assert_eq!(drain(&mut io), [(peer(2), b"good".to_vec())]);
    let counts = io.frame_counts();
    assert_eq!(
        (counts.vlan, counts.fragments, counts.truncated, counts.ethertype, counts.udp),
        (1, 1, 2, 1, 1)
    );
    // Its announcement of itself, and nothing in answer.
    let sent = raw.receive_all();
    assert_eq!(sent.len(), 1);
    assert_eq!(Arp::parse(&sent[0]).unwrap().sender, (mac(1), *end(1, 9000).ip()));
}

/// A frame that a device brings to the wrong queue is dropped there: however it steers, a shard sees its own port's datagrams
/// only, and so its own slots.
#[test]
fn a_shard_takes_nothing_that_is_another_shards() {
    let [one, other] = pair();
    let mut io = endpoint(&config(1, &[one]));
    let mut raw = Raw::open(&other);
    for port in [9000, 9001, 8999, 9000] {
        let to = end(1, port);
        let mut headers = [0; HEADERS_LEN];
        let payload = port.to_be_bytes();
        let mut template =
            frame::Template::new((mac(2), mac(1)), end(2, 9000), to, frame::Checksums::Software);
        template.write(&mut headers, 2, crate::checksum::sum_of_bytes(&payload), 0);
        raw.send(&[&headers[..], &payload].concat());
    }
    let own = (peer(2), 9000u16.to_be_bytes().to_vec());
    assert_eq!(drain(&mut io), [own.clone(), own]);
    assert_eq!((io.frame_counts().other_port, io.frame_counts().udp), (2, 0));
}

/// Packets kept under numbers are sent again as they are; one that is on its way out is never written.
#[test]
fn kept_packets_are_sent_again_and_not_changed_under_way() {
    let (mut a, mut b) = introduced_pair();
    assert!(a.packed_payload(7).is_none());
    a.send_packed(peer(2), 7, 2).unwrap();
    assert_eq!((a.frame_counts().no_buffer, a.stats().packets_out), (1, 0), "nothing is kept there");
    let packets = a.tx.pool.available();
    for round in 0..3u8 {
        for number in 0..600 {
            a.pack(number, 500).unwrap().fill(round ^ number as u8);
            a.send_packed(peer(2), number, 2).unwrap();
        }
        a.flush().unwrap();
        // Still in the ring: what is written now goes into a copy.
        a.packed_payload(3).unwrap()[0] = 99;
        a.send_packed(peer(2), 3, 2).unwrap();
        a.send_packed(peer(2), 3, 2).unwrap();
        a.flush().unwrap();
        let got: Vec<Vec<u8>> = drain(&mut b).into_iter().map(|(_, payload)| payload).collect();
        let sent = |number: usize| vec![round ^ number as u8; 500];
        assert_eq!(got.len(), 602);
        assert!(got[..600].iter().enumerate().all(|(number, payload)| *payload == sent(number)));
        let mut changed = sent(3);
        changed[0] = 99;
        assert_eq!(got[600..], [changed.clone(), changed]);
    }
    assert_eq!((b.frame_counts().udp, a.stats().packets_out), (0, 3 * 602));
    // The packets themselves are used again and again.
    assert!(packets - a.tx.pool.available() <= 600 + 2 * thc_dpdk::BURST as u32);
    // Past the limit, or longer than the link carries, there is no such memory.
    let limit = a.endpoint.config.keeps();
    assert_eq!((0..limit + 5).filter(|&number| a.pack(number, 10).is_some()).count(), limit);
    assert!(a.pack(0, 1473).is_none() && a.pack(0, 1472).is_some());
    let pool = a.tx.pool.clone();
    a.tx.forget_free();
    // Some of them came to the other end, which keeps them for answers.
    b.tx.forget_free();
    assert_eq!(pool.packets(), pool.available(), "packets leaked");
}

/// Ten million datagrams there and back, single and to groups, and every packet buffer comes back.
#[test]
fn nothing_leaks_in_ten_million_datagrams() {
    let (mut a, mut b) = introduced_pair();
    let pools = [a.tx.pool.clone(), b.tx.pool.clone(), b.tx.heads.pool().clone()];
    let run = [7; 20 * 256];
    let (mut sent, mut got) = (0u64, 0u64);
    while sent < 10_000_000 {
        a.send_run(peer(2), &run, 20).unwrap();
        sent += 256;
        while b.poll() {
            b.answer_burst(&mut |Origin { from, .. }: Origin, payload: &[u8], tx: &mut DpdkTx| {
                got += 1;
                if got % 4 == 0 {
                    sent += 2;
                    tx.send_to_all([from, from].into_iter(), payload, 0, &mut |_, error| panic!("{error}"));
                }
            });
        }
        while a.poll() {
            got += a.recv_burst(&mut |_, _| {}).unwrap() as u64;
        }
    }
    assert_eq!(got, sent);
    assert_eq!((a.stats().send_errors, b.stats().send_errors), (1, 0));
    for io in [&mut a, &mut b] {
        io.tx.forget_free();
    }
    let left = pools.each_ref().map(|pool| pool.packets() - pool.available());
    assert_eq!(left, [0, 0, 0], "packets leaked");
}

#[test]
fn waiting_ends_with_a_packet_or_in_time() {
    let (mut a, mut b) = introduced_pair();
    drain(&mut b);
    let before = b.now();
    assert!(!b.wait(Duration::from_millis(3)).unwrap());
    assert!(b.now() - before >= Duration::from_millis(3));
    let sender = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        a.send_run(peer(2), b"wake", 4).unwrap();
        a
    });
    assert!(b.wait(Duration::from_secs(20)).unwrap());
    assert_eq!(drain(&mut b), [(peer(1), b"wake".to_vec())]);
    sender.join().unwrap();
}

#[test]
fn devices_that_do_not_open_say_why() {
    let open = |devices: &[&str], queues| {
        let devices: Vec<String> = devices.iter().map(|&device| device.to_owned()).collect();
        DpdkIo::open(&config(1, &devices), 9000, queues).err().unwrap()
    };
    let cases: [(&[&str], u16, &str); 3] = [
        (
            &["net_af_packet0,iface=no-such-if"],
            1,
            "dpdk: cannot open device net_af_packet0,iface=no-such-if: ",
        ),
        (&["net_nothing0"], 1, "dpdk: cannot open device net_nothing0: "),
        (&["net_null7", "net_null7"], 1, "dpdk: device net_null7 is in use in this process"),
    ];
    for (devices, queues, says) in cases {
        let error = open(devices, queues);
        assert!(matches!(error, TransportError::Dpdk { .. }), "{error:?}");
        assert!(error.to_string().starts_with(says), "{error}");
    }
    // Too few queues, and what to do.
    let [one, _] = pair();
    let error = open(&[one.as_str()], 4).to_string();
    assert!(error.contains("1 queue(s) and 4 are wanted: use at most 1 shards"), "{error}");
}
