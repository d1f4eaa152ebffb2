//! Datagrams as Ethernet frames where no device makes them: between an aggregator and its controller. The DPDK
//! backend parses frames of devices itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::checksum::{checksum, fold, sum_of_bytes};
use crate::{IPV4_UDP_HEADER_LEN, IPV6_UDP_HEADER_LEN, Peer};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;
/// Bytes in front of a payload: Ethernet, IPv4 without options, UDP.
const HEADERS_LEN: usize = ETHERNET_LEN + IPV4_UDP_HEADER_LEN;
/// Bytes in front of a payload: Ethernet, IPv6 without extensions, UDP.
const HEADERS_LEN_V6: usize = ETHERNET_LEN + IPV6_UDP_HEADER_LEN;
const IPV6: [u8; 2] = [0x86, 0xdd];
const UDP: u8 = 17;

/// An Ethernet address in place of a host's real one, which a kernel's socket does not reveal: 02:00, which
/// marks it as locally assigned, and the host's IPv4 address, or the end of its IPv6 address.
pub fn mac_of(address: IpAddr) -> Mac {
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => (address.to_bits() as u32).to_be_bytes(),
    };
    [2, 0, a, b, c, d]
}

/// A datagram and between whom it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender.
    pub from: (Mac, Peer),
    /// To whom.
    pub to: (Mac, Peer),
    /// The low two bits of IPv4's TOS byte or IPv6's traffic class.
    pub ecn: u8,
    /// The datagram; at most [`crate::MAX_DATAGRAM`] bytes.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// The datagram in a frame. What follows the datagram, such as padding, does not matter.
    ///
    /// # Errors
    /// A text that says what is wrong with it. The UDP checksum is not looked at.
    pub fn parse(frame: &'a [u8]) -> Result<Datagram<'a>, &'static str> {
        let Some(headers) = frame.first_chunk::<HEADERS_LEN>() else {
            return Err("the frame is shorter than the headers of Ethernet, IP and UDP");
        };
        if headers[12..14] == IPV6 {
            return Datagram::parse_v6(frame);
        }
        let word = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
        if word(12) != 0x0800 || headers[14] != 0x45 || headers[23] != UDP || word(20) & 0x3fff != 0 {
            return Err("the frame is not UDP over IPv4 or IPv6 without options and fragments");
        }
        if fold(sum_of_bytes(&headers[ETHERNET_LEN..ETHERNET_LEN + 20])) != 0xffff {
            return Err("the frame's IPv4 checksum is wrong");
        }
        let peer = |at: usize, port: usize| {
            let b = &headers[at..at + 4];
            SocketAddr::from((Ipv4Addr::new(b[0], b[1], b[2], b[3]), word(port)))
        };
        let payload =
            usize::from(word(38)).checked_sub(8).and_then(|len| frame.get(HEADERS_LEN..HEADERS_LEN + len));
        let payload = payload.ok_or("the frame's UDP length is not that of its payload")?;
        let ecn = headers[15] & 3;
        Ok(Datagram {
            from: (mac_at(frame, 6), peer(26, 34)),
            to: (mac_at(frame, 0), peer(30, 36)),
            ecn,
            payload,
        })
    }

    /// The datagram in a frame with the type of IPv6.
    fn parse_v6(frame: &'a [u8]) -> Result<Datagram<'a>, &'static str> {
        let Some(headers) = frame.first_chunk::<HEADERS_LEN_V6>() else {
            return Err("the frame is shorter than the headers of Ethernet, IPv6 and UDP");
        };
        let word = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
        if headers[14] >> 4 != 6 || headers[20] != UDP {
            return Err("the frame is not UDP over IPv6 without extensions");
        }
        let peer = |at: usize, port: usize| {
            let address: [u8; 16] = std::array::from_fn(|i| headers[at + i]);
            SocketAddr::from((address, word(port)))
        };
        let payload = usize::from(word(58))
            .checked_sub(8)
            .filter(|len| len + 8 == usize::from(word(18)))
            .and_then(|len| frame.get(HEADERS_LEN_V6..HEADERS_LEN_V6 + len));
        let payload = payload.ok_or("the frame's UDP length is not that of its payload")?;
        // The traffic class lies across two bytes.
        let ecn = headers[15] >> 4 & 3;
        Ok(Datagram {
            from: (mac_at(frame, 6), peer(22, 54)),
            to: (mac_at(frame, 0), peer(38, 56)),
            ecn,
            payload,
        })
    }

    /// Appends the headers with correct lengths and checksums. Both ends must have addresses of the same
    /// kind.
    pub(crate) fn append_headers(&self, frame: &mut Vec<u8>) {
        let ((from_mac, from), (to_mac, to)) = (self.from, self.to);
        frame.extend_from_slice(&to_mac);
        frame.extend_from_slice(&from_mac);
        match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => self.append_v4(from, to, frame),
            (from, to) => self.append_v6(as_ipv6(from), as_ipv6(to), frame),
        }
        frame.extend_from_slice(&from.port().to_be_bytes());
        frame.extend_from_slice(&to.port().to_be_bytes());
        frame.extend_from_slice(&((8 + self.payload.len()) as u16).to_be_bytes());
        frame.extend_from_slice(&checksum(from, to, self.payload).to_be_bytes());
    }

    fn append_v4(&self, from: Ipv4Addr, to: Ipv4Addr, frame: &mut Vec<u8>) {
        let mut ip = [0; 20];
        // Version 4, five words; don't fragment; 64 hops; UDP.
        ip[0] = 0x45;
        ip[1] = self.ecn & 3;
        ip[2..4].copy_from_slice(&((IPV4_UDP_HEADER_LEN + self.payload.len()) as u16).to_be_bytes());
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = UDP;
        ip[12..16].copy_from_slice(&from.octets());
        ip[16..20].copy_from_slice(&to.octets());
        let sum = !fold(sum_of_bytes(&ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend_from_slice(&[0x08, 0x00]);
        frame.extend_from_slice(&ip);
    }

    fn append_v6(&self, from: Ipv6Addr, to: Ipv6Addr, frame: &mut Vec<u8>) {
        // Version 6, traffic class, no flow; UDP behind it; 64 hops.
        frame.extend_from_slice(&IPV6);
        frame.extend_from_slice(&[0x60, (self.ecn & 3) << 4, 0, 0]);
        frame.extend_from_slice(&((8 + self.payload.len()) as u16).to_be_bytes());
        frame.extend_from_slice(&[UDP, 64]);
        frame.extend_from_slice(&from.octets());
        frame.extend_from_slice(&to.octets());
    }

    /// The frame.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(HEADERS_LEN_V6 + self.payload.len());
        self.append_headers(&mut frame);
        frame.extend_from_slice(self.payload);
        frame
    }
}

fn mac_at(frame: &[u8], at: usize) -> Mac {
    std::array::from_fn(|i| frame[at + i])
}

/// As an IPv6 address.
fn as_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn datagram(payload: &[u8]) -> Datagram<'_> {
        let place = |text: &str| {
            let peer: Peer = text.parse().unwrap();
            (mac_of(peer.ip()), peer)
        };
        Datagram { from: place("192.168.0.1:1024"), to: place("192.168.0.199:53"), ecn: 0, payload }
    }

    #[test]
    fn known_frame() {
        let frame = datagram(b"hi!").frame();
        assert_eq!(frame[..14], [2, 0, 192, 168, 0, 199, 2, 0, 192, 168, 0, 1, 8, 0]);
        // By hand: 4500+001f+0000+4000+4011+c0a8+0001+c0a8+00c7 = 0x24748; with its carry 0x474a; complement 0xb8b5.
        assert_eq!(frame[14..26], [0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0xb8, 0xb5]);
        assert_eq!(frame[34..42], [4, 0, 0, 53, 0, 11, 0xf0, 0x20]);
        assert_eq!(frame[42..], *b"hi!");
    }

    #[test]
    fn a_frame_says_what_it_was_made_of() {
        let place = |text: &str| {
            let peer: Peer = text.parse().unwrap();
            (mac_of(peer.ip()), peer)
        };
        let v6 =
            Datagram { from: place("[fd00::1]:9000"), to: place("[fd00::7]:5"), ecn: 2, payload: b"hi!" };
        let frame = v6.frame();
        assert_eq!(frame.len(), 14 + 40 + 8 + 3);
        assert_eq!(frame[12..22], [0x86, 0xdd, 0x60, 0x20, 0, 0, 0, 11, 17, 64]);
        assert_eq!(Datagram::parse(&frame), Ok(v6));
        assert!((0..frame.len()).all(|len| Datagram::parse(&frame[..len]).is_err()));
        let datagram = datagram(b"join");
        let frame = datagram.frame();
        assert_eq!(Datagram::parse(&frame), Ok(datagram));
        let padded = [&frame[..], &[0; 13]].concat();
        assert_eq!(Datagram::parse(&padded), Ok(datagram));
    }

    #[test]
    fn a_frame_has_the_bits_of_congestion() {
        for ecn in 0..4 {
            let datagram = Datagram { ecn, ..datagram(b"data") };
            assert_eq!(Datagram::parse(&datagram.frame()), Ok(datagram));
        }
    }

    #[test]
    fn other_frames_are_refused() {
        let frame = datagram(b"join").frame();
        for len in 0..frame.len() {
            assert!(Datagram::parse(&frame[..len]).is_err(), "{len}");
        }
        for (place, value) in [(12, 0x86), (14, 0x46), (20, 0x20), (21, 1), (23, 6), (24, 1), (39, 7)] {
            let mut other = frame.clone();
            other[place] = value;
            assert!(Datagram::parse(&other).is_err(), "byte {place}");
        }
    }
}
