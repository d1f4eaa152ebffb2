//! A probe that notices when no process listens at a server's port.
//!
//! QUIC knows a server that was killed only by its silence, and a silence must last long to be no false alarm. The server's kernel
//! knows at once: to a packet for a port that no socket has it answers "port unreachable" (ICMP), which a connected socket reports
//! as a refused connection. So a socket of its own sends a byte now and then, which QUIC ignores. Where the host is down or a firewall
//! drops such answers nothing is reported, and the silence counts.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::interval;

/// How often a worker sends a probe.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);

/// An address of this machine from which that of the server can be reached, with any port.
pub(super) fn unspecified_address(server: SocketAddr) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

async fn connect_udp(server: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(unspecified_address(server)).await?;
    socket.connect(server).await?;
    Ok(socket)
}

fn is_refusal(result: io::Result<usize>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Asks every `period`, and returns once the server's host has answered that nobody listens at the port; otherwise never.
pub(super) async fn wait_for_refusal(server: SocketAddr, period: Duration) {
    let Ok(socket) = connect_udp(server).await else { return std::future::pending().await };
    let mut turns = interval(period);
    let mut ignored = [0];
    loop {
        let refusal = tokio::select! {
            _ = turns.tick() => is_refusal(socket.send(&[0]).await),
            received = socket.recv(&mut ignored) => is_refusal(received),
        };
        if refusal {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_without_a_socket_is_refused_and_a_silent_one_is_not() {
        let period = Duration::from_millis(10);
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = std::net::UdpSocket::bind(any) else { continue };
            let address = socket.local_addr().unwrap();
            let silent = tokio::time::timeout(20 * period, wait_for_refusal(address, period)).await;
            assert!(silent.is_err(), "{address} has a socket");
            drop(socket);
            wait_for_refusal(address, period).await;
        }
    }
}
