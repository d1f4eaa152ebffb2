//! Addresses of members, and the way to them.

use crate::{Ecn, JobId};
use std::net::SocketAddr;

/// The address of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Port of the switch; 0 is any (in a member entry) or none (software).
    pub ingress: u16,
    /// IP address and UDP port.
    pub addr: SocketAddr,
}

impl Endpoint {
    /// An endpoint of a software PS, which has no ingress ports.
    pub const fn udp(addr: SocketAddr) -> Endpoint {
        Endpoint { ingress: 0, addr }
    }

    /// Returns whether a packet from `from` comes from this member (P7.7).
    pub fn admits(&self, from: &Endpoint) -> bool {
        self.addr == from.addr && (self.ingress == 0 || self.ingress == from.ingress)
    }
}

/// The receiver of an aggregator's packets.
pub trait Sink {
    /// One packet to one member, to leave with these bits (P46 marks).
    fn unicast(&mut self, to: Endpoint, ecn: Ecn, packet: &[u8]);
    /// One packet to each member of a job that gets copies. `members` is never empty and stays the same for a
    /// job until its membership is changed.
    fn multicast(&mut self, job: JobId, members: &[Endpoint], ecn: Ecn, packet: &[u8]);
}
