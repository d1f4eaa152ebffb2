//! Datagrams as Ethernet frames, where there is no device that makes them: in captures, and between an aggregator and its
//! controller. Frames of devices are looked at by the DPDK backend.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::checksum::{checksum, fold, sum_of_bytes};
use crate::{IPV4_UDP_HEADER_LEN, Peer};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;
/// Bytes in front of a payload: Ethernet, IPv4 without options, UDP.
pub(crate) const HEADERS_LEN: usize = ETHERNET_LEN + IPV4_UDP_HEADER_LEN;

/// The Ethernet address that stands for a host, which a kernel's socket does not tell: 02:00, which says that nobody's
/// factory gave it, and its IPv4 address.
#[must_use]
pub fn mac_of(address: Ipv4Addr) -> Mac {
    let [a, b, c, d] = address.octets();
    [2, 0, a, b, c, d]
}

/// A datagram and between whom it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub from: (Mac, Peer),
    /// To whom.
    pub to: (Mac, Peer),
    /// The low two bits of IPv4's TOS byte.
    pub ecn: u8,
    /// What; at most [`crate::MAX_DATAGRAM`] bytes.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Of a frame. What is behind the datagram, as padding, does not matter.
    ///
    /// # Errors
    /// What is wrong with it. The UDP checksum is not looked at.
    pub fn parse(frame: &'a [u8]) -> Result<Datagram<'a>, &'static str> {
        let Some(headers) = frame.first_chunk::<HEADERS_LEN>() else {
            return Err("the frame is shorter than the headers of Ethernet, IPv4 and UDP");
        };
        let word = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
        if word(12) != 0x0800 || headers[14] != 0x45 || headers[23] != 17 || word(20) & 0x3fff != 0 {
            return Err("the frame is no UDP over IPv4 without options and fragments");
        }
        if fold(sum_of_bytes(&headers[ETHERNET_LEN..ETHERNET_LEN + 20])) != 0xffff {
            return Err("the frame's IPv4 checksum is wrong");
        }
        let mac = |at: usize| {
            let b = &headers[at..at + 6];
            [b[0], b[1], b[2], b[3], b[4], b[5]]
        };
        let peer = |at: usize, port: usize| {
            let b = &headers[at..at + 4];
            SocketAddrV4::new(Ipv4Addr::new(b[0], b[1], b[2], b[3]), word(port))
        };
        let payload =
            usize::from(word(38)).checked_sub(8).and_then(|len| frame.get(HEADERS_LEN..HEADERS_LEN + len));
        let payload = payload.ok_or("the frame's UDP length is not that of its payload")?;
        let ecn = headers[15] & 3;
        Ok(Datagram { from: (mac(6), peer(26, 34)), to: (mac(0), peer(30, 36)), ecn, payload })
    }

    /// The headers: lengths and checksums are right.
    pub(crate) fn headers(&self) -> [u8; HEADERS_LEN] {
        let ((from_mac, from), (to_mac, to)) = (self.from, self.to);
        let mut frame = [0; HEADERS_LEN];
        frame[..6].copy_from_slice(&to_mac);
        frame[6..12].copy_from_slice(&from_mac);
        frame[12..14].copy_from_slice(&[0x08, 0x00]);

        let ip = &mut frame[ETHERNET_LEN..ETHERNET_LEN + 20];
        // Version 4, five words; don't fragment; 64 hops; UDP.
        ip[0] = 0x45;
        ip[1] = self.ecn & 3;
        ip[2..4].copy_from_slice(&((IPV4_UDP_HEADER_LEN + self.payload.len()) as u16).to_be_bytes());
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = 17;
        ip[12..16].copy_from_slice(&from.ip().octets());
        ip[16..20].copy_from_slice(&to.ip().octets());
        let sum = !fold(sum_of_bytes(ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());

        let udp = &mut frame[ETHERNET_LEN + 20..];
        udp[..2].copy_from_slice(&from.port().to_be_bytes());
        udp[2..4].copy_from_slice(&to.port().to_be_bytes());
        udp[4..6].copy_from_slice(&((8 + self.payload.len()) as u16).to_be_bytes());
        udp[6..].copy_from_slice(&checksum(from, to, self.payload).to_be_bytes());
        frame
    }

    /// The frame.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        [&self.headers()[..], self.payload].concat()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn datagram(payload: &[u8]) -> Datagram<'_> {
        let place = |text: &str| {
            let peer: Peer = text.parse().unwrap();
            (mac_of(*peer.ip()), peer)
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
