//! The ports that shards have, one behind the other (P21).

use std::net::SocketAddr;

use thc_protocol::wire::MAX_PACKET;
use thc_transport::{Backend, DpdkConfig, DpdkIo, PacketIo, Peer, TransportError, UdpConfig, UdpIo};

use crate::error::PsError;
use thc_config::server::{DEFAULT_RECV_BUFFER, DEFAULT_SEND_BUFFER, ServerConfig};

/// The port of [`crate::DEFAULT_LISTEN`].
const USUAL_PORT: u16 = 9000;
/// Tries to find consecutive free ports when the kernel chooses the first.
const PORT_TRIES: usize = 64;

/// A port that is opened before its server is fully configured, since shares must know where all the others
/// are.
pub struct Reserved(pub(crate) UdpIo);

impl Reserved {
    /// Opens a port, any free one for port 0, with buffers of these bytes or the default ones.
    ///
    /// # Errors
    /// [`PsError::Transport`].
    pub fn open(
        listen: SocketAddr,
        recv_buffer: Option<usize>,
        send_buffer: Option<usize>,
    ) -> Result<Reserved, PsError> {
        let recv_buffer = recv_buffer.unwrap_or(DEFAULT_RECV_BUFFER);
        let send_buffer = send_buffer.unwrap_or(DEFAULT_SEND_BUFFER);
        Ok(Reserved(open_port(listen, recv_buffer, send_buffer)?))
    }

    /// Its address.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.0.local()
    }
}

/// Fewer packets under way than that are worth a warning.
const FEW: u32 = 16;

/// A port per shard, one behind the other (P21).
pub enum Ports {
    /// Sockets of the kernel.
    Udp(Vec<UdpIo>),
    /// Queues of a DPDK device.
    Dpdk(Vec<DpdkIo>),
}

impl Ports {
    /// Opens them.
    ///
    /// # Errors
    /// [`PsError::Transport`], [`PsError::NoPorts`].
    pub fn open(config: &ServerConfig) -> Result<Ports, PsError> {
        match &config.io {
            Backend::Udp => open_udp(config).map(Ports::Udp),
            Backend::Dpdk(dpdk) => Ok(Ports::Dpdk(open_dpdk(config, dpdk)?)),
        }
    }

    /// The first one's address.
    #[must_use]
    pub fn local(&self) -> Peer {
        let first = match self {
            Ports::Udp(ports) => ports.first().map(PacketIo::local),
            Ports::Dpdk(ports) => ports.first().map(PacketIo::local),
        };
        first.expect("a server has at least one shard")
    }

    /// Data packets that the receive buffer of each port holds.
    #[must_use]
    pub fn room(&self) -> usize {
        let room = match self {
            Ports::Udp(ports) => ports.iter().map(|port| port.recv_capacity(MAX_PACKET)).min(),
            Ports::Dpdk(ports) => ports.iter().map(DpdkIo::recv_capacity).min(),
        };
        room.unwrap_or(0)
    }

    /// Returns whether all of them report the congestion marks of what they receive (P46).
    #[must_use]
    pub fn read_marks(&self) -> bool {
        match self {
            Ports::Udp(ports) => ports.iter().all(UdpIo::reads_ecn),
            // Devices hand over whole frames.
            Ports::Dpdk(_) => true,
        }
    }

    /// Few packets under way make all-reduces slow.
    pub fn warn_if_small(&self, config: &ServerConfig) {
        let room = self.room();
        let key =
            if matches!(self, Ports::Udp(_)) { "recv_buffer (net.core.rmem_max)" } else { "descriptors" };
        for job in &config.jobs {
            let credit = job.welcome.credit;
            if credit > 0 && credit < FEW.min(job.welcome.data_slots / 2) {
                tracing::warn!(
                    "job {}: a receive buffer holds {room} packets, so each worker may have {credit} under way, which is few: \
                     raise {key}, or give it more shards",
                    job.config.job
                );
            }
        }
    }
}

fn open_udp(config: &ServerConfig) -> Result<Vec<UdpIo>, PsError> {
    if config.listen.port() != 0 {
        return Ok(open_udp_from(config, config.listen)?);
    }
    for _ in 0..PORT_TRIES {
        match open_udp_from(config, config.listen) {
            Err(TransportError::AddressInUse { .. }) => {}
            other => return Ok(other?),
        }
    }
    Err(PsError::NoPorts { shards: config.shards, ip: config.listen.ip() })
}

fn open_udp_from(config: &ServerConfig, base: SocketAddr) -> Result<Vec<UdpIo>, TransportError> {
    let bind = |addr| open_port(addr, config.recv_buffer, config.send_buffer);
    let first = bind(base)?;
    let local = first.local();
    let mut ports = vec![first];
    for shard in 1..u16::from(config.shards) {
        // Past the last port there is none that is free.
        let addr = SocketAddr::from((base.ip(), local.port().saturating_add(shard)));
        ports.push(bind(addr)?);
    }
    Ok(ports)
}

fn open_port(at: SocketAddr, recv_buffer: usize, send_buffer: usize) -> Result<UdpIo, TransportError> {
    UdpIo::bind(UdpConfig {
        recv_buffer,
        send_buffer,
        answer_as_asked: true,
        report_refusals: true,
        ..UdpConfig::new(at)
    })
}

/// No other process shares the address, so every port is free and 0 becomes the default one.
fn open_dpdk(config: &ServerConfig, dpdk: &DpdkConfig) -> Result<Vec<DpdkIo>, TransportError> {
    if !config.listen.ip().is_unspecified() && config.listen.ip() != dpdk.address {
        return Err(TransportError::AddressNotAvailable { addr: config.listen });
    }
    let first = if config.listen.port() == 0 { USUAL_PORT } else { config.listen.port() };
    DpdkIo::open(dpdk, first, u16::from(config.shards))
}
