//! The backends a group can run on, chosen by configuration.

use crate::GroupConfig;
use crate::random::random;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use thc_transport::{
    Backend, DeviceInfo, DpdkIo, IoStats, LossyIo, PacketIo, Peer, RetainedTx, Run, TransportError,
    UdpConfig, UdpIo, Waker,
};

/// The ports that DPDK endpoints choose from when none is given.
const FREE_PORTS: std::ops::Range<u16> = 49152..65535;

#[allow(clippy::large_enum_variant, reason = "one per process")]
/// One of the backends; the choice is made once per burst, not per packet.
pub enum AnyIo {
    /// Kernel UDP sockets.
    Udp(UdpIo),
    /// DPDK devices.
    Dpdk(DpdkIo),
    /// Another, with injected faults.
    Lossy(Box<LossyIo<AnyIo>>),
}

macro_rules! each {
    ($self:ident, $io:ident => $body:expr) => {
        match $self {
            AnyIo::Udp($io) => $body,
            AnyIo::Dpdk($io) => $body,
            AnyIo::Lossy($io) => $body,
        }
    };
}

/// The address to bind a socket to that sends to `ps`: an unspecified address becomes one of the server's family.
fn end_towards(ps: SocketAddr, bind: SocketAddr) -> SocketAddr {
    match ps {
        SocketAddr::V6(_) if bind.ip() == Ipv4Addr::UNSPECIFIED => {
            (Ipv6Addr::UNSPECIFIED, bind.port()).into()
        }
        _ => bind,
    }
}

impl AnyIo {
    /// Opens what the configuration asks for.
    pub(crate) fn open(config: &GroupConfig) -> Result<AnyIo, TransportError> {
        let mut io = AnyIo::open_backend(config)?;
        if let Some(faults) = config.faults {
            io = AnyIo::Lossy(Box::new(LossyIo::new(io, faults)?));
        }
        Ok(io)
    }

    fn open_backend(config: &GroupConfig) -> Result<AnyIo, TransportError> {
        match &config.io {
            Backend::Udp => {
                let udp = UdpConfig {
                    recv_buffer: config.recv_buffer,
                    send_buffer: config.send_buffer,
                    report_refusals: true,
                    ..UdpConfig::new(end_towards(config.seat.ps, config.bind))
                };
                Ok(AnyIo::Udp(UdpIo::bind(udp)?))
            }
            Backend::Dpdk(dpdk) => {
                if !config.bind.ip().is_unspecified() && config.bind.ip() != dpdk.address {
                    return Err(TransportError::AddressNotAvailable { addr: config.bind });
                }
                let port = match config.bind.port() {
                    0 => free_port(),
                    port => port,
                };
                let endpoint = DpdkIo::open(dpdk, port, 1)?.pop();
                let endpoint = endpoint.ok_or(TransportError::NoDpdk)?;
                Ok(AnyIo::Dpdk(endpoint))
            }
        }
    }

    /// The number of datagrams of this length that the receive buffer holds.
    #[must_use]
    pub fn recv_capacity(&self, datagram_len: usize) -> usize {
        match self {
            AnyIo::Udp(io) => io.recv_capacity(datagram_len),
            AnyIo::Dpdk(io) => io.recv_capacity(),
            AnyIo::Lossy(io) => io.inner().recv_capacity(datagram_len),
        }
    }

    /// The DPDK devices that it uses.
    pub(crate) fn devices(&self) -> Vec<DeviceInfo> {
        match self {
            AnyIo::Udp(_) => Vec::new(),
            AnyIo::Dpdk(io) => io.devices(),
            AnyIo::Lossy(io) => io.inner().devices(),
        }
    }

    /// Returns whether datagrams could not be sent because no host on the link answered ARP for their receiver.
    pub(crate) fn has_unresolved(&self) -> bool {
        match self {
            AnyIo::Udp(_) => false,
            AnyIo::Dpdk(io) => io.frame_counts().unresolved > 0,
            AnyIo::Lossy(io) => io.inner().has_unresolved(),
        }
    }
}

impl PacketIo for AnyIo {
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        each!(self, io => io.recv_runs(f))
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        each!(self, io => io.send_run_with(to, contents, segment, ecn))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        each!(self, io => io.wait(timeout))
    }

    fn waker(&mut self) -> io::Result<Option<Waker>> {
        each!(self, io => io.waker())
    }

    fn refused(&self) -> Option<(Peer, Duration)> {
        each!(self, io => io.refused())
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

impl RetainedTx for AnyIo {
    #[inline]
    fn pack(&mut self, number: usize, len: usize) -> Option<&mut [u8]> {
        each!(self, io => io.pack(number, len))
    }

    fn packed_payload(&mut self, number: usize) -> Option<&mut [u8]> {
        each!(self, io => io.packed_payload(number))
    }

    #[inline]
    fn send_packed(&mut self, to: Peer, number: usize, ecn: u8) -> io::Result<()> {
        each!(self, io => io.send_packed(to, number, ecn))
    }

    fn flush(&mut self) -> io::Result<()> {
        each!(self, io => io.flush())
    }
}

/// A port for which late packets to an earlier endpoint at this address are unlikely.
fn free_port() -> u16 {
    let width = u64::from(FREE_PORTS.end - FREE_PORTS.start);
    FREE_PORTS.start + (random() % width) as u16
}
