//! The Ethernet, IPv4 and UDP headers that a datagram of a kernel socket has lost, made anew.

use std::net::Ipv4Addr;

use crate::{IPV4_UDP_HEADER_LEN, Peer, checksum::checksum};

/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;
/// Bytes in front of a payload.
pub(super) const HEADERS_LEN: usize = ETHERNET_LEN + IPV4_UDP_HEADER_LEN;

/// The headers of a datagram: lengths and checksums are right, hardware addresses made up from the IPv4 addresses.
pub(super) fn headers(from: Peer, to: Peer, payload: &[u8]) -> [u8; HEADERS_LEN] {
    let mut frame = [0; HEADERS_LEN];
    frame[..6].copy_from_slice(&hardware_address(*to.ip()));
    frame[6..12].copy_from_slice(&hardware_address(*from.ip()));
    frame[12..14].copy_from_slice(&[0x08, 0x00]);

    let ip = &mut frame[ETHERNET_LEN..ETHERNET_LEN + 20];
    // Version 4, five words; don't fragment; 64 hops; UDP.
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((IPV4_UDP_HEADER_LEN + payload.len()) as u16).to_be_bytes());
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = 17;
    ip[12..16].copy_from_slice(&from.ip().octets());
    ip[16..20].copy_from_slice(&to.ip().octets());
    let sum = header_checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());

    let udp = &mut frame[ETHERNET_LEN + 20..];
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    udp[6..].copy_from_slice(&checksum(from, to, payload).to_be_bytes());
    frame
}

/// 02:00 says that nobody's factory gave it.
fn hardware_address(ip: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = ip.octets();
    [2, 0, a, b, c, d]
}

/// The checksum of an IPv4 header whose checksum field is zero (RFC 791).
fn header_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn known_frame() {
        let from = "192.168.0.1:1024".parse().unwrap();
        let to = "192.168.0.199:53".parse().unwrap();
        let frame = headers(from, to, b"hi!");
        assert_eq!(frame[..14], [2, 0, 192, 168, 0, 199, 2, 0, 192, 168, 0, 1, 8, 0]);
        // By hand: 4500+001f+0000+4000+4011+c0a8+0001+c0a8+00c7 = 0x24748; with its carry 0x474a; complement 0xb8b5.
        assert_eq!(frame[14..26], [0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0xb8, 0xb5]);
        assert_eq!(frame[34..42], [4, 0, 0, 53, 0, 11, 0xf0, 0x20]);
    }
}
