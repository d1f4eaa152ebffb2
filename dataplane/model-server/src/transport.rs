//! The settings of QUIC, which a server and its workers share, and the sockets under it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use socket2::{Domain, Protocol, Socket, Type};

/// The longest datagram that a path is searched for (RFC 8899), in bytes: it fits jumbo frames, and the ten of them that
/// quinn gives to one send call fit the 65,507 bytes that the kernel takes.
const LONGEST: u16 = 6500;
/// Bytes that may be on their way before anything is acknowledged: ten datagrams, as RFC 9002 (section 7.2) recommends, of the longest.
const INITIAL_WINDOW: u64 = 10 * LONGEST as u64;
/// Bytes that a peer may send on a stream before they are read.
const STREAM_WINDOW: u32 = 1 << 20;
/// Bytes that a peer may send on a connection before they are read, on all streams together.
pub(crate) const WINDOW: u32 = 8 << 20;
/// A connection that is silent for so long is gone; workers are heard every two seconds.
const SILENCE: Duration = Duration::from_secs(10);
/// The buffer to ask the kernel for, each way, in bytes: it grants what `net.core.rmem_max` and `wmem_max` allow.
const BUFFER: usize = 4 << 20;

/// Bounds the memory that a peer may take up by windows, streams before it is known, and idle time.
pub(crate) fn transport() -> TransportConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(LONGEST);
    // With quinn's own, for datagrams of 1,200 bytes, two longer ones that look for the path's MTU fill the window, and quinn then sends no
    // CONNECTION_CLOSE: the peer gets no reason.
    let mut congestion = CubicConfig::default();
    congestion.initial_window(INITIAL_WINDOW);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        .max_idle_timeout(IdleTimeout::try_from(SILENCE).ok())
        .mtu_discovery_config(Some(discovery))
        .congestion_controller_factory(Arc::new(congestion));
    transport
}

/// Lets an endpoint receive the longest datagrams.
pub(crate) fn accept_longest(mut endpoint: EndpointConfig) -> EndpointConfig {
    // Only lengths below 1200 bytes are refused.
    let _ = endpoint.max_udp_payload_size(LONGEST);
    endpoint
}

/// A socket at `address` with buffers for what comes while its thread computes.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // A smaller buffer is slower, and nothing else.
    let _ = socket.set_recv_buffer_size(BUFFER);
    let _ = socket.set_send_buffer_size(BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}
