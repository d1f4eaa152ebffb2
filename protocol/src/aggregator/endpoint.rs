//! Where members are.

use std::net::SocketAddrV4;

/// Where packets of a member come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Port of the switch; 0 is any (in a member entry) or none (software).
    pub ingress: u16,
    /// IPv4 address and UDP port.
    pub addr: SocketAddrV4,
}

impl Endpoint {
    /// An endpoint of a software PS, which has no ingress ports.
    #[must_use]
    pub const fn udp(addr: SocketAddrV4) -> Endpoint {
        Endpoint { ingress: 0, addr }
    }

    /// All of it as a number.
    #[inline(always)]
    pub(super) const fn bits(&self) -> u64 {
        (self.ingress as u64) << 48 | (self.addr.ip().to_bits() as u64) << 16 | self.addr.port() as u64
    }

    /// Whether a packet from `from` comes from this member (P7.7).
    #[must_use]
    pub fn admits(&self, from: &Endpoint) -> bool {
        self.addr == from.addr && (self.ingress == 0 || self.ingress == from.ingress)
    }
}
