//! Frames as bytes: which are datagrams for this endpoint, and the headers of those that it sends.
//!
//! All bytes from a device are parsed here and nowhere else; none of them is trusted.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use super::MacAddr;
use crate::{
    IPV4_UDP_HEADER_LEN, Origin,
    checksum::{fold, sum_of_bytes, sum_of_ends, verify_header, verify_in_place},
};

/// Bytes of an Ethernet header.
pub const ETHERNET_LEN: usize = 14;
/// Bytes in front of a datagram's payload: Ethernet, IPv4 without options, UDP.
pub const HEADERS_LEN: usize = ETHERNET_LEN + IPV4_UDP_HEADER_LEN;
/// Bytes of an ARP frame, unpadded.
pub const ARP_LEN: usize = ETHERNET_LEN + 28;

const IPV4: [u8; 2] = [0x08, 0x00];
pub(super) const ARP: [u8; 2] = [0x08, 0x06];
const VLAN: [u8; 2] = [0x81, 0x00];
const SERVICE_VLAN: [u8; 2] = [0x88, 0xa8];
const ICMP: u8 = 1;
const UDP: u8 = 17;

/// The endpoint that frames must be for.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// The device's address.
    pub mac: MacAddr,
    /// Address and UDP port.
    pub peer: SocketAddrV4,
    /// True if UDP checksums are checked.
    pub checksums: bool,
}

/// A frame that is no datagram for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// An ARP packet.
    Arp,
    /// An ICMP echo request to us.
    Echo,
    /// See [`FrameCounts`](super::FrameCounts) for this and the following.
    OtherHost,
    Vlan,
    Ethertype,
    Truncated,
    IpHeader,
    IpOptions,
    Fragment,
    OtherAddress,
    Protocol,
    OtherPort,
    Udp,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn address_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

/// The origin and payload of a frame that is a datagram for `local`. `good` says which checksums the device
/// has verified: the IPv4 header's and UDP's.
///
/// # Errors
/// The kind of frame that it is otherwise.
#[inline(always)]
pub fn parse<'a>(frame: &'a [u8], local: &Local, good: (bool, bool)) -> Result<(Origin, &'a [u8]), Foreign> {
    let Some(headers) = frame.first_chunk::<HEADERS_LEN>() else { return Err(classify_short(frame, local)) };
    if headers[12..14] != IPV4 || headers[..6] != local.mac.0 {
        return Err(classify_unusual(headers, local));
    }
    let ip = &headers[ETHERNET_LEN..];
    // Version 4, five words of header; no fragment (but "don't fragment" may be set).
    if ip[0] != 0x45 || u16_at(ip, 6) & 0x3fff != 0 || ip[9] != UDP {
        return Err(unusual_ip(frame, local));
    }
    let total = usize::from(u16_at(ip, 2));
    let Some(datagram) = frame.get(ETHERNET_LEN + 20..ETHERNET_LEN + total) else {
        return Err(Foreign::Truncated);
    };
    if !good.0 && !ip.first_chunk().is_some_and(verify_header) {
        return Err(Foreign::IpHeader);
    }
    if address_at(ip, 16) != *local.peer.ip() {
        return Err(Foreign::OtherAddress);
    }
    let udp = &headers[ETHERNET_LEN + 20..];
    if u16_at(udp, 2) != local.peer.port() {
        return Err(Foreign::OtherPort);
    }
    let (length, checksum) = (usize::from(u16_at(udp, 4)), u16_at(udp, 6));
    let from = SocketAddr::from((address_at(ip, 12), u16_at(udp, 0)));
    let Some(payload) = datagram.get(8..).filter(|payload| payload.len() + 8 == length) else {
        return Err(Foreign::Udp);
    };
    // Zero is "no checksum".
    if local.checksums
        && !good.1
        && checksum != 0
        && !verify_in_place(&frame[ETHERNET_LEN + 12..][..total - 12])
    {
        return Err(Foreign::Udp);
    }
    Ok((Origin { ecn: ip[1] & 3, ..from.into() }, payload))
}

/// A frame shorter than the headers of a datagram.
#[cold]
fn classify_short(frame: &[u8], local: &Local) -> Foreign {
    match frame.first_chunk::<ETHERNET_LEN>() {
        None => Foreign::Truncated,
        Some(ethernet) => match classify_unusual(ethernet, local) {
            Foreign::Arp if frame.len() < ARP_LEN => Foreign::Truncated,
            Foreign::Protocol => Foreign::Truncated,
            other => other,
        },
    }
}

/// Neither IPv4 nor to our hardware address. `frame` has an Ethernet header at least.
#[cold]
fn classify_unusual(frame: &[u8], local: &Local) -> Foreign {
    let (to, kind) = (&frame[..6], [frame[12], frame[13]]);
    if to != local.mac.0.as_slice() && to[0] & 1 == 0 {
        return Foreign::OtherHost;
    }
    match kind {
        ARP => Foreign::Arp,
        VLAN | SERVICE_VLAN => Foreign::Vlan,
        // To a group: no datagram of THC's is.
        IPV4 if to != local.mac.0.as_slice() => Foreign::OtherHost,
        IPV4 => Foreign::Protocol,
        _ => Foreign::Ethertype,
    }
}

/// IPv4 to our hardware address, but no whole UDP datagram without options. `frame` has all headers.
#[cold]
fn unusual_ip(frame: &[u8], local: &Local) -> Foreign {
    let ip = &frame[ETHERNET_LEN..];
    let total = usize::from(u16_at(ip, 2));
    if ip[0] >> 4 != 4 || ip[0] & 15 < 5 {
        return Foreign::IpHeader;
    }
    if total < 20 || total > ip.len() {
        return Foreign::Truncated;
    }
    if ip[0] & 15 > 5 {
        return Foreign::IpOptions;
    }
    if !ip.first_chunk().is_some_and(verify_header) {
        return Foreign::IpHeader;
    }
    if u16_at(ip, 6) & 0x3fff != 0 {
        return Foreign::Fragment;
    }
    if address_at(ip, 16) != *local.peer.ip() {
        return Foreign::OtherAddress;
    }
    // Echo request, code 0.
    if ip[9] == ICMP && total >= 28 && ip[20..22] == [8, 0] { Foreign::Echo } else { Foreign::Protocol }
}

/// The headers of datagrams from one endpoint to another, all of one length and with the same ECN bits; other
/// lengths and bits are set when they occur.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// Complete but for UDP's checksum.
    bytes: [u8; HEADERS_LEN],
    /// Payload bytes, and ECN bits.
    len: usize,
    ecn: u8,
    checksums: Checksums,
    /// Sums of the IPv4 header and of UDP's pseudo header, without lengths.
    ip_sum: u64,
    ends_sum: u64,
    /// All that goes into UDP's checksum but the payload.
    udp_sum: u64,
}

/// The part that fills in checksums.
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "only devices of DPDK fill them in"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// We do.
    Software,
    /// The device does, and wants the pseudo header's sum.
    Device,
    /// UDP goes without.
    None,
}

impl Template {
    pub fn new(
        mac: (MacAddr, MacAddr),
        from: SocketAddrV4,
        to: SocketAddrV4,
        checksums: Checksums,
    ) -> Template {
        let mut bytes = [0; HEADERS_LEN];
        bytes[..6].copy_from_slice(&mac.1.0);
        bytes[6..12].copy_from_slice(&mac.0.0);
        bytes[12..14].copy_from_slice(&IPV4);
        let ip = &mut bytes[ETHERNET_LEN..];
        // Version 4, five words; don't fragment; 64 hops.
        ip[0] = 0x45;
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = UDP;
        ip[12..16].copy_from_slice(&from.ip().octets());
        ip[16..20].copy_from_slice(&to.ip().octets());
        ip[20..22].copy_from_slice(&from.port().to_be_bytes());
        ip[22..24].copy_from_slice(&to.port().to_be_bytes());
        let ip_sum = sum_of_bytes(&ip[..20]);
        let ends_sum = sum_of_ends(from.into(), to.into());
        let mut template = Template { bytes, len: 0, ecn: 0, checksums, ip_sum, ends_sum, udp_sum: 0 };
        template.set(0, 0);
        template
    }

    /// Returns whether the device fills in checksums.
    #[cfg(feature = "dpdk")]
    #[inline]
    pub fn offloads(&self) -> bool {
        self.checksums == Checksums::Device
    }

    #[cold]
    fn set(&mut self, len: usize, ecn: u8) {
        let (ip_len, udp_len) = ((len + IPV4_UDP_HEADER_LEN) as u16, (len + 8) as u16);
        (self.len, self.ecn) = (len, ecn);
        self.bytes[15] = ecn & 3;
        self.bytes[16..18].copy_from_slice(&ip_len.to_be_bytes());
        self.bytes[38..40].copy_from_slice(&udp_len.to_be_bytes());
        if self.checksums != Checksums::Device {
            let ip = !fold(self.ip_sum + u64::from(ip_len) + u64::from(ecn & 3));
            self.bytes[24..26].copy_from_slice(&ip.to_be_bytes());
        }
        self.udp_sum = match self.checksums {
            Checksums::None => 0,
            Checksums::Device => self.ends_sum + u64::from(udp_len),
            Checksums::Software => self.ends_sum + 2 * u64::from(udp_len),
        };
    }

    /// Writes the headers of a payload of `len` bytes whose [`sum_of_bytes`] is `sum` (only [`Checksums::Software`]
    /// looks at it), with these ECN bits. `len` is at most what IPv4 carries.
    #[inline]
    pub fn write(&mut self, out: &mut [u8; HEADERS_LEN], len: usize, sum: u64, ecn: u8) {
        if len != self.len || ecn != self.ecn {
            self.set(len, ecn);
        }
        *out = self.bytes;
        let udp = match self.checksums {
            Checksums::None => return,
            Checksums::Device => fold(self.udp_sum),
            Checksums::Software => match !fold(self.udp_sum + sum) {
                0 => 0xffff,
                written => written,
            },
        };
        out[40..42].copy_from_slice(&udp.to_be_bytes());
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
