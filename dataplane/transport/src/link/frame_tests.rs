#![allow(clippy::unwrap_used)]

use super::*;
use crate::link::arp::{Arp, answer_echo};
use crate::{FrameCounts, Peer};
use proptest::{collection::vec, prelude::*};

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn own_address() -> SocketAddrV4 {
    "10.0.0.1:9000".parse().unwrap()
}

fn peer_address() -> SocketAddrV4 {
    "10.0.0.2:50000".parse().unwrap()
}

fn local() -> Local {
    Local { mac: OURS, peer: own_address(), checksums: true }
}

fn datagram(payload: &[u8], checksums: Checksums) -> Vec<u8> {
    let mut headers = [0xee; HEADERS_LEN];
    let mut template = Template::new((THEIRS, OURS), peer_address(), own_address(), checksums);
    // Of another length before.
    template.write(&mut headers, 5, 77, 0);
    template.write(&mut headers, payload.len(), sum_of_bytes(payload), 0);
    [headers.as_slice(), payload].concat()
}

fn parse_local(frame: &[u8]) -> Result<(Peer, &[u8]), Foreign> {
    addresses(parse(frame, &local(), (false, false)))
}

fn addresses(parsed: Result<(Origin, &[u8]), Foreign>) -> Result<(Peer, &[u8]), Foreign> {
    parsed.map(|(origin, payload)| (origin.from, payload))
}

/// Sets the checksum of the IPv4 header anew.
fn seal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = !fold(sum_of_bytes(&frame[14..34]));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn a_frame_known_byte_by_byte() {
    let from = "192.168.0.1:1024".parse().unwrap();
    let to = "192.168.0.199:53".parse().unwrap();
    let mut headers = [0; HEADERS_LEN];
    let mut template = Template::new((THEIRS, OURS), from, to, Checksums::Software);
    template.write(&mut headers, 3, sum_of_bytes(b"hi!"), 0);
    assert_eq!(headers[..14], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    // By hand: 4500+001f+0000+4000+4011+c0a8+0001+c0a8+00c7 = 0x24748; with its carry 0x474a; complement 0xb8b5.
    assert_eq!(headers[14..26], [0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0xb8, 0xb5]);
    assert_eq!(headers[34..42], [4, 0, 0, 53, 0, 11, 0xf0, 0x20]);
}

#[test]
fn what_is_written_is_read() {
    for len in [0, 1, 2, 20, 1044, 1472] {
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        for checksums in [Checksums::Software, Checksums::None] {
            let mut frame = datagram(&payload, checksums);
            assert_eq!(parse_local(&frame), Ok((peer_address().into(), payload.as_slice())));
            // Ethernet pads short frames.
            frame.extend([0xaa; 46]);
            assert_eq!(parse_local(&frame), Ok((peer_address().into(), payload.as_slice())));
        }
        // What the device is to finish is not right yet, unless it says so.
        let frame = datagram(&payload, Checksums::Device);
        assert_eq!(parse_local(&frame), Err(Foreign::IpHeader));
        assert_eq!(
            addresses(parse(&frame, &local(), (true, true))),
            Ok((peer_address().into(), payload.as_slice()))
        );
        assert_eq!(parse(&frame, &local(), (true, false)), Err(Foreign::Udp));
        let careless = Local { checksums: false, ..local() };
        assert_eq!(
            addresses(parse(&frame, &careless, (true, false))),
            Ok((peer_address().into(), payload.as_slice()))
        );
    }
}

/// P46: whatever the length before and the bits before, header checksums are right with the new ones.
#[test]
fn the_bits_of_congestion_go_out_and_come_in() {
    let mut template = Template::new((THEIRS, OURS), peer_address(), own_address(), Checksums::Software);
    for ecn in [0, 2, 2, 3, 1, 0, 3] {
        for payload in [&b"a"[..], b"bcd"] {
            let mut headers = [0xee; HEADERS_LEN];
            template.write(&mut headers, payload.len(), sum_of_bytes(payload), ecn);
            let frame = [&headers[..], payload].concat();
            let expected = Origin { ecn, ..Peer::from(peer_address()).into() };
            assert_eq!(parse(&frame, &local(), (false, false)), Ok((expected, payload)));
        }
    }
}

#[test]
fn every_other_frame_has_its_name() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(Change, Foreign); 22] = [
        (|f| f.clear(), Foreign::Truncated),
        (|f| f.truncate(13), Foreign::Truncated),
        (|f| f.truncate(41), Foreign::Truncated),
        (|f| f.truncate(60), Foreign::Truncated),
        (|f| f[5] = 9, Foreign::OtherHost),
        (|f| f[..6].fill(0xff), Foreign::OtherHost),
        (|f| f[12..14].copy_from_slice(&[0x81, 0]), Foreign::Vlan),
        (|f| f[12..14].copy_from_slice(&[0x88, 0xa8]), Foreign::Vlan),
        (|f| f[12..14].copy_from_slice(&[0x86, 0xdd]), Foreign::Ethertype),
        (|f| f[12..14].copy_from_slice(&[0x08, 0x06]), Foreign::Arp),
        (|f| f[14] = 0x65, Foreign::IpHeader),
        (|f| f[14] = 0x44, Foreign::IpHeader),
        (|f| f[14] = 0x46, Foreign::IpOptions),
        (|f| f[25] ^= 1, Foreign::IpHeader),
        (
            |f| {
                f[20] = 0x20;
                seal(f);
            },
            Foreign::Fragment,
        ),
        (
            |f| {
                f[21] = 7;
                seal(f);
            },
            Foreign::Fragment,
        ),
        (
            |f| {
                f[33] = 77;
                seal(f);
            },
            Foreign::OtherAddress,
        ),
        (
            |f| {
                f[23] = 6;
                seal(f);
            },
            Foreign::Protocol,
        ),
        (|f| f[37] ^= 1, Foreign::OtherPort),
        (|f| f[39] ^= 1, Foreign::Udp),
        (|f| f[50] ^= 1, Foreign::Udp),
        (
            |f| {
                f[17] = 21;
                seal(f);
            },
            Foreign::Udp,
        ),
    ];
    let mut counts = FrameCounts::default();
    for (number, (change, expected)) in cases.into_iter().enumerate() {
        let mut frame = datagram(&[7; 32], Checksums::Software);
        change(&mut frame);
        assert_eq!(parse_local(&frame), Err(expected), "case {number}");
        counts.count(expected);
    }
    let FrameCounts { truncated, other_host, vlan, ethertype, ip_header, ip_options, fragments, .. } = counts;
    assert_eq!(
        [truncated, other_host, vlan, ethertype, ip_header, ip_options, fragments],
        [4, 2, 2, 1, 3, 1, 2]
    );
    let FrameCounts { other_address, protocol, other_port, udp, .. } = counts;
    assert_eq!([other_address, protocol, other_port, udp], [1, 1, 1, 3]);
}

#[test]
fn an_echo_is_answered_to_its_sender() {
    let mut frame = datagram(&[1, 2, 3, 4], Checksums::None);
    frame[23] = 1;
    // Request 5, sequence 6.
    frame[34..42].copy_from_slice(&[8, 0, 0, 0, 0, 5, 0, 6]);
    let sum = !fold(sum_of_bytes(&frame[34..]));
    frame[36..38].copy_from_slice(&sum.to_be_bytes());
    seal(&mut frame);
    assert_eq!(parse_local(&frame), Err(Foreign::Echo));
    let asked = frame.clone();
    answer_echo(&mut frame);
    assert_eq!((&frame[..6], &frame[6..12]), (&asked[6..12], &asked[..6]));
    assert_eq!((&frame[26..30], &frame[30..34]), (&asked[30..34], &asked[26..30]));
    assert_eq!((frame[34], &frame[38..]), (0, &asked[38..]));
    assert_eq!(fold(sum_of_bytes(&frame[14..34])), 0xffff);
    assert_eq!(fold(sum_of_bytes(&frame[34..])), 0xffff);
}

#[test]
fn arp_is_read_as_it_is_written() {
    let asks = Arp {
        asks: true,
        sender: (THEIRS, *peer_address().ip()),
        target: (MacAddr([0; 6]), *own_address().ip()),
    };
    let frame = asks.emit();
    assert_eq!(parse_local(&frame), Err(Foreign::Arp));
    assert_eq!((Arp::parse(&frame), &frame[..6]), (Some(asks), &[0xff; 6][..]));
    let answers =
        Arp { asks: false, sender: (OURS, *own_address().ip()), target: (THEIRS, *peer_address().ip()) };
    let mut frame = answers.emit();
    assert_eq!((Arp::parse(&frame), &frame[..6]), (Some(answers), &THEIRS.0[..]));
    frame[21] = 3;
    assert_eq!(Arp::parse(&frame), None);
    frame[15] = 6;
    assert_eq!(Arp::parse(&frame[..41]), None);
    assert_eq!(parse_local(&asks.emit()[..41]), Err(Foreign::Truncated));
}

proptest! {
    /// Whatever comes, nothing panics, and a payload lies within the frame.
    #[test]
    fn any_bytes_are_parsed(frame in vec(any::<u8>(), 0..200), good: (bool, bool)) {
        if let Ok((_, payload)) = parse(&frame, &local(), good) {
            prop_assert!(payload.len() + HEADERS_LEN <= frame.len());
        }
        let _ = Arp::parse(&frame);
    }

    /// A datagram with bytes changed and cut off or added, its IPv4 header sealed again: the deeper checks.
    #[test]
    fn malformed_datagrams_are_parsed(
        payload in vec(any::<u8>(), 0..100),
        changes in vec((0usize..142, any::<u8>()), 0..6),
        len in 0usize..200,
        good: (bool, bool),
    ) {
        let mut frame = datagram(&payload, Checksums::Software);
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        if frame.len() >= 34 {
            seal(&mut frame);
        }
        frame.resize(len.max(frame.len() / 2), 0);
        match parse(&frame, &local(), good) {
            Ok((_, payload)) => prop_assert!(payload.len() + HEADERS_LEN <= frame.len()),
            Err(Foreign::Echo) => answer_echo(&mut frame),
            Err(Foreign::Arp) => { let _ = Arp::parse(&frame); }
            Err(other) => FrameCounts::default().count(other),
        }
    }

    /// With checksums, no change of one byte of a datagram passes unnoticed, but for the sender's addresses in the
    /// Ethernet header, what IPv4 leaves free, and a checksum of zero.
    #[test]
    fn one_changed_byte_is_found(payload in vec(any::<u8>(), 0..600), at in 0usize..642, flip in 1u8..) {
        let mut frame = datagram(&payload, Checksums::Software);
        let at = at % frame.len();
        prop_assume!(!(6..12).contains(&at));
        frame[at] ^= flip;
        prop_assume!(frame[40..42] != [0, 0]);
        prop_assert!(parse_local(&frame).is_err(), "byte {}", at);
    }
}
