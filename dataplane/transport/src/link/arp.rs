//! ARP and echo requests, which an endpoint without a kernel must answer itself.

use std::net::Ipv4Addr;

use super::MacAddr;
use super::frame::{ARP, ARP_LEN, ETHERNET_LEN, address_at, u16_at};
use crate::checksum::fold;

/// Makes the answer of an echo request that [`parse`] has recognised.
pub fn answer_echo(frame: &mut [u8]) {
    let (to, rest) = frame.split_at_mut(6);
    to.swap_with_slice(&mut rest[..6]);
    let ip = &mut frame[ETHERNET_LEN..];
    let (from, rest) = ip[12..].split_at_mut(4);
    from.swap_with_slice(&mut rest[..4]);
    // From type 8 to type 0: the sum is less by 0x0800, its complement more.
    ip[20] = 0;
    let sum = fold(u64::from(u16_at(ip, 22)) + 0x0800);
    ip[22..24].copy_from_slice(&sum.to_be_bytes());
}

/// An ARP packet for IPv4 on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// True if it asks; otherwise it answers.
    pub asks: bool,
    /// The sender.
    pub sender: (MacAddr, Ipv4Addr),
    /// The endpoint about which it asks, or to which it answers. The hardware address of a request has no
    /// meaning.
    pub target: (MacAddr, Ipv4Addr),
}

impl Arp {
    /// Reads a frame that [`parse`] has found to be ARP; `None` if it is about other kinds of addresses.
    pub fn parse(frame: &[u8]) -> Option<Arp> {
        let arp = frame.get(ETHERNET_LEN..ARP_LEN)?;
        if arp[..6] != [0, 1, 8, 0, 6, 4] {
            return None;
        }
        let mac =
            |at: usize| MacAddr([arp[at], arp[at + 1], arp[at + 2], arp[at + 3], arp[at + 4], arp[at + 5]]);
        let asks = match u16_at(arp, 6) {
            1 => true,
            2 => false,
            _ => return None,
        };
        Some(Arp { asks, sender: (mac(8), address_at(arp, 14)), target: (mac(18), address_at(arp, 24)) })
    }

    /// The frame: to all if it asks, to the target if it answers.
    pub fn emit(&self) -> [u8; ARP_LEN] {
        let mut frame = [0; ARP_LEN];
        let to = if self.asks { MacAddr::BROADCAST } else { self.target.0 };
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&self.sender.0.0);
        frame[12..14].copy_from_slice(&ARP);
        frame[14..20].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        frame[21] = if self.asks { 1 } else { 2 };
        frame[22..28].copy_from_slice(&self.sender.0.0);
        frame[28..32].copy_from_slice(&self.sender.1.octets());
        if !self.asks {
            frame[32..38].copy_from_slice(&self.target.0.0);
        }
        frame[38..].copy_from_slice(&self.target.1.octets());
        frame
    }
}
