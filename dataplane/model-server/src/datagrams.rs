//! The datagrams under QUIC: how long they may be, and the sockets that they go through.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use quinn::{EndpointConfig, MtuDiscoveryConfig};
use socket2::{Domain, Protocol, Socket, Type};

/// The longest datagram that a path is searched for (RFC 8899), in bytes: it fits jumbo frames, and the ten of them that
/// quinn gives to one send call fit the 65,507 bytes that the kernel takes.
const LONGEST: u16 = 6500;
/// Bytes that may be on their way before anything is acknowledged: ten datagrams, as RFC 9002 (section 7.2) recommends, of the longest.
pub(crate) const INITIAL_WINDOW: u64 = 10 * LONGEST as u64;
/// Bytes that a peer may send on a connection before they are read, on all streams together.
pub(crate) const WINDOW: u32 = 8 << 20;
/// What the kernel is asked to keep of a socket each way, in bytes: it grants what `net.core.rmem_max` and `wmem_max` allow.
const BUFFER: usize = 4 << 20;

/// How connections look for the longest datagrams that their path carries.
pub(crate) fn mtu_discovery() -> MtuDiscoveryConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(LONGEST);
    discovery
}

/// Lets an endpoint receive such datagrams.
pub(crate) fn accept_longest(endpoint: &mut EndpointConfig) {
    // Only lengths below 1200 bytes are refused.
    let _ = endpoint.max_udp_payload_size(LONGEST);
}

/// A socket at `address` with buffers for what comes while its thread computes.
///
/// # Errors
/// Those of the system.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // A smaller buffer is slower, and nothing else.
    let _ = socket.set_recv_buffer_size(BUFFER);
    let _ = socket.set_send_buffer_size(BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}
