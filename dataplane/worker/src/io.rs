//! The backends a group can run on, chosen by configuration.

use std::io;
use std::time::Duration;
use thc_transport::{IoStats, LossyIo, PacketIo, Peer, UdpIo};

#[allow(clippy::large_enum_variant, reason = "one per process")]
/// One of the backends; the choice is made once per burst, not per packet.
pub enum AnyIo {
    /// Kernel UDP sockets.
    Udp(UdpIo),
    /// The same with injected faults.
    LossyUdp(LossyIo<UdpIo>),
}

macro_rules! each {
    ($self:ident, $io:ident => $body:expr) => {
        match $self {
            AnyIo::Udp($io) => $body,
            AnyIo::LossyUdp($io) => $body,
        }
    };
}

impl AnyIo {
    /// How many datagrams of this length the receive buffer holds.
    #[must_use]
    pub fn recv_capacity(&self, datagram_len: usize) -> usize {
        match self {
            AnyIo::Udp(io) => io.recv_capacity(datagram_len),
            AnyIo::LossyUdp(io) => io.inner().recv_capacity(datagram_len),
        }
    }
}

impl PacketIo for AnyIo {
    fn recv_burst(&mut self, f: &mut impl FnMut(Peer, &[u8])) -> io::Result<usize> {
        each!(self, io => io.recv_burst(f))
    }

    fn send_run(&mut self, to: Peer, contents: &[u8], segment: usize) -> io::Result<()> {
        each!(self, io => io.send_run(to, contents, segment))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        each!(self, io => io.wait(timeout))
    }

    fn now(&self) -> Duration {
        each!(self, io => io.now())
    }

    fn local(&self) -> Peer {
        each!(self, io => io.local())
    }

    fn stats(&self) -> IoStats {
        each!(self, io => io.stats())
    }
}
