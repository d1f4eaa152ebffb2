//! Ethernet frames with the control plane's packets in them.

use crate::tables::Mac;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 42;

/// A UDP packet and between whom it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub from: (Mac, SocketAddrV4),
    /// To whom.
    pub to: (Mac, SocketAddrV4),
    /// What.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Of a frame; `None` if it is none of UDP over IPv4, or has options, or is a fragment or cut short.
    #[must_use]
    pub fn parse(frame: &'a [u8]) -> Option<Datagram<'a>> {
        let headers = frame.get(..HEADERS)?;
        let plain = headers[12..14] == [0x08, 0x00] && headers[14] == 0x45 && headers[23] == 17;
        let whole = u16::from_be_bytes([headers[20], headers[21]]) & 0x3FFF == 0;
        if !plain || !whole {
            return None;
        }
        let mac = |at: usize| <Mac>::try_from(&headers[at..at + 6]).ok();
        let address = |at: usize| {
            let octets: [u8; 4] = headers[at..at + 4].try_into().ok()?;
            Some(Ipv4Addr::from(octets))
        };
        let word = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
        let len = usize::from(word(38)).checked_sub(8)?;
        Some(Datagram {
            from: (mac(6)?, SocketAddrV4::new(address(26)?, word(34))),
            to: (mac(0)?, SocketAddrV4::new(address(30)?, word(36))),
            payload: frame.get(HEADERS..HEADERS + len)?,
        })
    }

    /// The frame. Its UDP checksum is 0, that is none; payloads are far below 64 KiB.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let udp = 8 + self.payload.len() as u16;
        let mut frame = Vec::with_capacity(HEADERS + self.payload.len());
        frame.extend(self.to.0);
        frame.extend(self.from.0);
        frame.extend([0x08, 0x00, 0x45, 0x00]);
        frame.extend((20 + udp).to_be_bytes());
        // Don't fragment; time to live 64; UDP; the checksum follows.
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend(self.from.1.ip().octets());
        frame.extend(self.to.1.ip().octets());
        let words =
            frame[14..34].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let sum = (sum & 0xFFFF) + (sum >> 16);
        let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend(self.from.1.port().to_be_bytes());
        frame.extend(self.to.1.port().to_be_bytes());
        frame.extend(udp.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(self.payload);
        frame
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn datagram(payload: &[u8]) -> Datagram<'_> {
        Datagram {
            from: ([2, 0, 0, 0, 0, 1], SocketAddrV4::new([10, 9, 0, 1].into(), 4711)),
            to: ([2, 0, 0, 0, 0, 2], SocketAddrV4::new([10, 9, 0, 254].into(), 9000)),
            payload,
        }
    }

    #[test]
    fn a_frame_says_what_it_was_made_of() {
        let datagram = datagram(b"join");
        let frame = datagram.frame();
        assert_eq!(frame.len(), 46);
        assert_eq!(Datagram::parse(&frame), Some(datagram));
        // The checksum over a header with its checksum is all ones.
        let sum: u32 =
            frame[14..34].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF);
    }

    #[test]
    fn other_frames_are_none() {
        let frame = datagram(b"join").frame();
        for len in 0..frame.len() {
            assert_eq!(Datagram::parse(&frame[..len]), None, "{len}");
        }
        for (place, value) in [(12, 0x86), (14, 0x46), (20, 0x20), (21, 1), (23, 6), (39, 7)] {
            let mut other = frame.clone();
            other[place] = value;
            assert_eq!(Datagram::parse(&other), None, "byte {place}");
        }
    }
}
