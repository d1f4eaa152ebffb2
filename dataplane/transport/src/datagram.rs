//! Datagrams: where they come from, and how long they can be.

use std::net::{Ipv4Addr, SocketAddrV4};

/// An IPv4 endpoint: the address and UDP port of a worker or a parameter server.
pub type Peer = SocketAddrV4;

/// Bytes of IPv4 header (without options) and UDP header before a datagram's payload.
pub const IPV4_UDP_HEADER_LEN: usize = 28;

/// The largest UDP payload IPv4 can carry, in bytes.
pub const MAX_DATAGRAM: usize = 65_535 - IPV4_UDP_HEADER_LEN;

/// How a datagram came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its sender.
    pub from: Peer,
    /// The address of this host that it was sent to: `None` where there is only one, or where the backend was not told to look.
    pub at: Option<Ipv4Addr>,
    /// The low two bits of IPv4's TOS byte (ECN, RFC 3168); 0 where [`PacketIo::reads_ecn`](crate::PacketIo::reads_ecn) is false.
    pub ecn: u8,
}

impl From<Peer> for Origin {
    /// Of one of which only the sender is known.
    fn from(from: Peer) -> Origin {
        Origin { from, at: None, ecn: 0 }
    }
}
