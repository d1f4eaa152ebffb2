//! Ethernet frames around the control plane's datagrams, as a switch would hand them to its controller.

use std::net::{Ipv4Addr, SocketAddrV4};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 42;

/// The Ethernet address that stands for a host, which the kernel does not tell: 02:00 and its IPv4 address.
#[must_use]
pub fn mac_of(address: Ipv4Addr) -> Mac {
    let [a, b, c, d] = address.octets();
    [2, 0, a, b, c, d]
}

/// A frame with this datagram. Its UDP checksum is 0, that is none.
#[must_use]
pub fn wrap(from: (Mac, SocketAddrV4), to: (Mac, SocketAddrV4), payload: &[u8]) -> Vec<u8> {
    let udp = 8 + payload.len() as u16;
    let mut frame = Vec::with_capacity(HEADERS + payload.len());
    frame.extend_from_slice(&to.0);
    frame.extend_from_slice(&from.0);
    // IPv4; version 4 and five words of header.
    frame.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
    frame.extend_from_slice(&(20 + udp).to_be_bytes());
    // No fragment; 64 hops; UDP; the checksum comes below.
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&from.1.ip().octets());
    frame.extend_from_slice(&to.1.ip().octets());
    let checksum = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    for word in [from.1.port(), to.1.port(), udp, 0] {
        frame.extend_from_slice(&word.to_be_bytes());
    }
    frame.extend_from_slice(payload);
    frame
}

/// Where a frame's datagram is to go, and its payload.
///
/// # Errors
/// What the frame lacks.
pub fn unwrap(frame: &[u8]) -> Result<(SocketAddrV4, &[u8]), &'static str> {
    let Some(headers) = frame.get(..HEADERS) else {
        return Err("the frame is shorter than the headers of Ethernet, IPv4 and UDP");
    };
    let word = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
    if word(12) != 0x0800 || headers[14] != 0x45 || headers[23] != 17 || word(20) & 0x3FFF != 0 {
        return Err("the frame is no UDP over IPv4 without options and fragments");
    }
    if sum(&headers[14..34]) != 0xFFFF {
        return Err("the frame's IPv4 checksum is wrong");
    }
    let ip = Ipv4Addr::new(headers[30], headers[31], headers[32], headers[33]);
    let payload = usize::from(word(38)).checked_sub(8).and_then(|len| frame.get(HEADERS..HEADERS + len));
    match payload {
        Some(payload) => Ok((SocketAddrV4::new(ip, word(36)), payload)),
        None => Err("the frame's UDP length is not that of its payload"),
    }
}

/// The ones' complement sum of 16-bit words.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_datagram_comes_out_again() {
        let from = SocketAddrV4::new([10, 9, 0, 1].into(), 4711);
        let to = SocketAddrV4::new([10, 9, 0, 254].into(), 9000);
        let frame = wrap((mac_of(*from.ip()), from), ([2, 0xAA, 0, 0, 0, 1], to), b"hello");
        assert_eq!(frame.len(), HEADERS + 5);
        assert_eq!(frame[6..12], [2, 0, 10, 9, 0, 1]);
        assert_eq!(unwrap(&frame), Ok((to, &b"hello"[..])));
        // Padding behind it does not matter.
        let padded = [&frame[..], &[0; 13]].concat();
        assert_eq!(unwrap(&padded), Ok((to, &b"hello"[..])));
    }

    #[test]
    fn other_frames_are_refused() {
        let at = SocketAddrV4::new([10, 9, 0, 1].into(), 1);
        let frame = wrap(([0; 6], at), ([0; 6], at), b"hello");
        for len in 0..frame.len() {
            assert!(unwrap(&frame[..len]).is_err(), "{len}");
        }
        for (place, value) in [(12, 0x86), (14, 0x46), (20, 0x20), (21, 1), (23, 6), (24, 1), (39, 7)] {
            let mut other = frame.clone();
            other[place] = value;
            assert!(unwrap(&other).is_err(), "byte {place}");
        }
    }
}
