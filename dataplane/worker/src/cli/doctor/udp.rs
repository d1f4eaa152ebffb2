//! Kernel UDP: the socket and the path to the server.

use super::check::{Check, longest_packet};
use std::net::SocketAddr;
use thc_transport::{UdpConfig, UdpIo, path_mtu};
use thc_worker::GroupConfig;

/// Checks that the socket can be opened with the buffers that it requests.
pub fn socket(config: &GroupConfig) -> Check {
    const NAME: &str = "socket";
    let (recv_buffer, send_buffer) = (config.recv_buffer, config.send_buffer);
    let io = match UdpIo::bind(UdpConfig { recv_buffer, send_buffer, ..UdpConfig::new(config.bind) }) {
        Ok(io) => io,
        Err(error) => return Check::failure(NAME, &error),
    };
    let buffers = [
        ("receive", "net.core.rmem_max", recv_buffer, io.recv_buffer()),
        ("send", "net.core.wmem_max", send_buffer, io.send_buffer()),
    ];
    let small: Vec<_> = buffers.iter().filter(|(_, _, wanted, got)| got < wanted).collect();
    if small.is_empty() {
        return Check::ok(NAME, format!("buffers of {} and {} KiB", recv_buffer >> 10, send_buffer >> 10));
    }
    let join = |parts: Vec<String>, between| parts.join(between);
    let found = small.iter().map(|(which, _, wanted, got)| {
        format!("the {which} buffer has {} KiB, not {}", got >> 10, wanted >> 10)
    });
    // The kernel grants twice the limit, to cover what it adds to each packet.
    let limits = small.iter().map(|(_, limit, wanted, _)| format!("{limit}={}", wanted.div_ceil(2)));
    Check::warning(
        NAME,
        format!("{}: bursts may be dropped and sent again", join(found.collect(), ", ")),
        format!("sysctl -w {} (for good: /etc/sysctl.d)", join(limits.collect(), " ")),
    )
}

/// Checks that there is a route to the server which takes the longest packets.
pub fn path(ps: SocketAddr) -> Check {
    const NAME: &str = "path";
    let longest = longest_packet(ps.is_ipv6());
    match path_mtu(ps) {
        Err(error) => Check::wrong(
            NAME,
            format!("no route to {}: {error}", ps.ip()),
            "give this host an address in the server's network, or a route: ip route",
        ),
        Ok(mtu) if mtu < longest => Check::wrong(
            NAME,
            format!("the path to {} takes packets of {mtu} bytes, the longest here have {longest}", ps.ip()),
            "ip link set dev INTERFACE mtu 1500, on the whole way",
        ),
        Ok(mtu) => Check::ok(NAME, format!("a route to {}, MTU {mtu}", ps.ip())),
    }
}
