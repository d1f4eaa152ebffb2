//! Where members are.

use std::net::SocketAddr;

/// Where packets of a member come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Port of the switch; 0 is any (in a member entry) or none (software).
    pub ingress: u16,
    /// IP address and UDP port.
    pub addr: SocketAddr,
}

impl Endpoint {
    /// An endpoint of a software PS, which has no ingress ports.
    #[must_use]
    pub const fn udp(addr: SocketAddr) -> Endpoint {
        Endpoint { ingress: 0, addr }
    }

    /// Whether a packet from `from` comes from this member (P7.7).
    #[must_use]
    pub fn admits(&self, from: &Endpoint) -> bool {
        self.addr == from.addr && (self.ingress == 0 || self.ingress == from.ingress)
    }
}
