//! The settings of a kernel UDP socket.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

/// Settings of a [`UdpIo`](crate::UdpIo). Start from [`UdpConfig::new`] or `Default` and change
/// what differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Address and port to listen on; port 0 lets the kernel choose one. [`Ipv6Addr::UNSPECIFIED`](std::net::Ipv6Addr)
    /// is every address of the host, those of IPv4 included.
    pub addr: SocketAddr,
    /// Requested receive buffer, in bytes as the kernel accounts them (datagrams with their overhead). More
    /// than `net.core.rmem_max` × 2 needs CAP_NET_ADMIN; [`UdpIo::recv_buffer`](crate::UdpIo::recv_buffer)
    /// says what was obtained.
    pub recv_buffer: usize,
    /// Requested send buffer, counted likewise; the limit without CAP_NET_ADMIN is `net.core.wmem_max` × 2.
    pub send_buffer: usize,
    /// The time for which the kernel polls the NIC before it sleeps in a receive (SO_BUSY_POLL); `None`
    /// leaves the host's setting. More than the host's setting needs CAP_NET_ADMIN.
    pub busy_poll: Option<Duration>,
    /// Have the kernel report what hosts say by ICMP (IP_RECVERR), for
    /// [`PacketIo::refused`](crate::PacketIo::refused).
    pub report_refusals: bool,
    /// Hand runs of datagrams to the kernel in one piece (UDP_SEGMENT).
    pub gso: bool,
    /// Let the kernel hand over runs of received datagrams in one piece (UDP_GRO).
    pub gro: bool,
    /// On 0.0.0.0 or [::], look to which address of the host datagrams were sent (IP_PKTINFO), and send from
    /// the one that [`UdpIo::answer_from`](crate::UdpIo::answer_from) names. For a socket that is bound
    /// to one address it has no effect.
    pub answer_as_asked: bool,
}

impl UdpConfig {
    /// The defaults on `addr`: 8 MiB to receive, 4 MiB to send, offloads on, no busy polling, sources by route.
    pub const fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            recv_buffer: 8 << 20,
            send_buffer: 4 << 20,
            busy_poll: None,
            report_refusals: false,
            gso: true,
            gro: true,
            answer_as_asked: false,
        }
    }
}

impl Default for UdpConfig {
    /// [`UdpConfig::new`] on every address of the host and a port that the kernel chooses.
    fn default() -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }
}
