//! Ethernet, ARP, IPv4 and UDP around the protocol's packets.

use std::net::{Ipv4Addr, SocketAddr};
use thc_protocol::Ecn;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes in front of the protocol's packet.
pub const CARRIER: usize = 14 + 20 + 8;

/// A UDP datagram on its way: everything a test may want to falsify.
#[derive(Clone)]
pub struct Datagram {
    /// The sender.
    pub from: (Mac, SocketAddr),
    /// The receiver.
    pub to: (Mac, SocketAddr),
    /// What queues on its way may do, and have done.
    pub ecn: Ecn,
    /// Behind UDP's header.
    pub payload: Vec<u8>,
}

impl Datagram {
    /// As the switch sends it: DF, no identification, 64 hops, no UDP checksum.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = ethernet(self.to.0, self.from.0, 0x0800);
        let udp_len = (8 + self.payload.len()) as u16;
        frame.extend([0x45, self.ecn.bits()]);
        frame.extend((20 + udp_len).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend(bytes_of(self.from.1));
        frame.extend(bytes_of(self.to.1));
        frame.extend(self.from.1.port().to_be_bytes());
        frame.extend(self.to.1.port().to_be_bytes());
        frame.extend(udp_len.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(&self.payload);
        seal(&mut frame);
        frame
    }
}

/// Writes the IPv4 checksum of a frame.
pub fn seal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// An Ethernet header.
#[must_use]
pub fn ethernet(to: Mac, from: Mac, kind: u16) -> Vec<u8> {
    [&to[..], &from[..], &kind.to_be_bytes()[..]].concat()
}

/// An ARP packet: operation 1 asks who has `target`, 2 tells `target` about `sender`.
#[must_use]
pub fn arp(to: Mac, operation: u8, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut frame = ethernet(to, sender.0, 0x0806);
    frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(sender.0);
    frame.extend(sender.1.octets());
    frame.extend(target.0);
    frame.extend(target.1.octets());
    frame
}

/// The bytes of an IPv4 address.
///
/// # Panics
/// If it is another.
pub fn bytes_of(at: SocketAddr) -> [u8; 4] {
    let std::net::IpAddr::V4(ip) = at.ip() else { panic!("{at} is no IPv4 address") };
    ip.octets()
}
