//! What [`CapturedIo`] writes to a file.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use thc_support::{SimConfig, SimNet};
use thc_transport::{
    Capture, CaptureConfig, CaptureStats, CapturedIo, PacketIo, Peer, TransportError, UdpConfig, UdpIo,
};

/// A record of a capture file: time, addresses, payload.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    time: Duration,
    from: Peer,
    to: Peer,
    payload: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// RFC 768: the words of addresses, protocol, length and datagram add up to ones, in ones' complement.
fn has_its_checksum(frame: &[u8]) -> bool {
    let words =
        frame[26..].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>() + 17 + (frame.len() - 34) as u32;
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

fn read(path: &Path) -> Vec<Seen> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0], "nanosecond pcap, version 2.4");
    assert_eq!(word(&bytes, 20), 1, "Ethernet");
    let mut seen = Vec::new();
    let mut rest = &bytes[24..];
    while !rest.is_empty() {
        let (secs, nanos, len) = (word(rest, 0), word(rest, 4), word(rest, 8) as usize);
        assert_eq!(word(rest, 12) as usize, len);
        let frame = &rest[16..16 + len];
        let short = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        assert_eq!((short(12), frame[14], frame[23]), (0x0800, 0x45, 17), "Ethernet, IPv4, UDP");
        assert_eq!((usize::from(short(16)), usize::from(short(38))), (len - 14, len - 34), "lengths");
        let peer = |ip: usize, port: usize| {
            let ip: [u8; 4] = frame[ip..ip + 4].try_into().unwrap();
            Peer::from((ip, short(port)))
        };
        let seen_now = Seen {
            time: Duration::new(u64::from(secs), nanos),
            from: peer(26, 34),
            to: peer(30, 36),
            payload: frame[42..].to_vec(),
        };
        assert!(has_its_checksum(frame));
        seen.push(seen_now);
        rest = &rest[16 + len..];
    }
    seen
}

fn wait_for(io: &mut impl PacketIo, packets: usize) {
    let mut got = 0;
    while got < packets {
        assert!(io.wait(Duration::from_secs(5)).unwrap(), "{got} of {packets} packets came");
        got += io.recv_burst(&mut |_, _| {}).unwrap();
    }
}

#[test]
fn what_goes_in_and_out_is_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pcap");
    let capture = Capture::create(&CaptureConfig::new(&path)).unwrap();
    // On every address: the one that packets really leave from must be found out.
    let mut a = CapturedIo::new(UdpIo::bind(UdpConfig::default()).unwrap(), capture.clone());
    let mut b = UdpIo::bind(UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let a_addr = Peer::from((Ipv4Addr::LOCALHOST, a.local().port()));
    let b_addr = b.local();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    a.send_run(b_addr, &[1, 2, 3, 4, 5], 2).unwrap();
    wait_for(&mut b, 3);
    b.send_run(a_addr, &[9; 1000], 500).unwrap();
    wait_for(&mut a, 2);
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seen = read(&path);
    let payloads: Vec<&[u8]> = seen.iter().map(|s| &s.payload[..]).collect();
    assert_eq!(payloads, [&[1, 2][..], &[3, 4], &[5], &[9; 500], &[9; 500]]);
    for (place, s) in seen.iter().enumerate() {
        let (from, to) = if place < 3 { (a_addr, b_addr) } else { (b_addr, a_addr) };
        assert_eq!((s.from, s.to), (from, to));
        // Wall clocks are adjusted now and then.
        let slack = Duration::from_secs(1);
        assert!(s.time + slack > before && s.time < after + slack, "{:?}", s.time);
    }
    assert!(seen.is_sorted_by_key(|s| s.time));
    let stats = capture.stats();
    assert_eq!((stats.written, stats.omitted), (5, 0));
    assert_eq!(stats.bytes, fs::metadata(&path).unwrap().len());
}

#[test]
fn the_limit_cuts_between_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pcap");
    // Three records of 16 + 42 + 100 bytes and a piece of a fourth.
    let limit = 24 + 3 * 158 + 157;
    let capture = Capture::create(&CaptureConfig { path: path.clone(), limit }).unwrap();
    let net = SimNet::new(SimConfig::default());
    let (a, b) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
    let mut io = CapturedIo::new(net.endpoint(a), capture.clone());
    let _other = net.endpoint(b);
    io.send_run(b, &[7; 500], 100).unwrap();
    io.send_run(b, &[7; 10], 1).unwrap();
    assert_eq!(read(&path).len(), 3);
    assert_eq!(capture.stats(), CaptureStats { written: 3, bytes: 24 + 3 * 158, omitted: 12 });
}

#[test]
fn threads_do_not_tear_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pcap");
    let capture = Capture::create(&CaptureConfig::new(&path)).unwrap();
    thread::scope(|scope| {
        for port in 1..5 {
            let capture = capture.clone();
            scope.spawn(move || {
                let net = SimNet::new(SimConfig::default());
                let mut io = CapturedIo::new(net.endpoint(Peer::from(([10, 0, 0, 1], port))), capture);
                for run in 0..200 {
                    let to = Peer::from(([10, 0, 0, 2], 9));
                    io.send_run(to, &vec![port as u8; 40 + run], 40).unwrap();
                }
            });
        }
    });
    let seen = read(&path);
    for port in 1..5u16 {
        let bytes: usize = seen.iter().filter(|s| s.from.port() == port).map(|s| s.payload.len()).sum();
        assert_eq!(bytes, (0..200).map(|run| 40 + run).sum::<usize>());
        assert!(
            seen.iter().filter(|s| s.from.port() == port).all(|s| s.payload.iter().all(|&b| b == port as u8))
        );
    }
}

#[test]
fn after_close_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pcap");
    let capture = Capture::create(&CaptureConfig::new(&path)).unwrap();
    let net = SimNet::new(SimConfig::default());
    let mut io = CapturedIo::new(net.endpoint("10.0.0.1:1".parse().unwrap()), capture.clone());
    io.send_run("10.0.0.2:2".parse().unwrap(), &[1], 1).unwrap();
    capture.close();
    io.send_run("10.0.0.2:2".parse().unwrap(), &[2], 1).unwrap();
    assert_eq!(read(&path).len(), 1);
    assert_eq!(capture.stats().omitted, 1);
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let config = CaptureConfig::new("/nowhere/at/all.pcap");
    match Capture::create(&config) {
        Err(error @ TransportError::Capture { .. }) => {
            assert!(
                error.to_string().starts_with("cannot write packets to /nowhere/at/all.pcap: "),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// Only its owner may read a file with cookies in it.
#[test]
fn others_cannot_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pcap");
    Capture::create(&CaptureConfig::new(&path)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
}
