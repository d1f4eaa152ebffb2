//! Packet I/O for THC: how a worker or a parameter server sends and receives datagrams.
//!
//! [`PacketIo`] is what every backend does, and [`RetainedTx`] what DPDK does besides. They work in bursts, so that nothing is allocated, locked,
//! logged or asked of the operating system per packet, and they are used through generics, so that
//! no virtual call stands between a packet and its handler. Backends:
//!
//! * [`UdpIo`]: kernel UDP sockets with segmentation offload in both directions, on any machine;
//! * [`DpdkIo`]: DPDK devices, which bypass the kernel (feature `dpdk`);
//! * [`LossyIo`]: a wrapper that injects seeded loss, duplication and reordering into another
//!   backend, for tests of real processes;
//!
//! [`frame`] has datagrams as Ethernet frames.
//!
//! Kernel UDP takes IPv4 and IPv6 addresses, DPDK only IPv4 addresses.

mod backend;
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "frames come from DPDK's devices alone"))]
mod checksum;
mod datagram;
mod dpdk;
mod error;
mod faults;
pub mod frame;
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "frames come from DPDK's devices alone"))]
mod link;
mod lossy;
#[cfg(feature = "options")]
mod options;
mod packet_io;
mod run;
mod udp;
mod waker;

pub use backend::Backend;
pub use datagram::{
    IPV4_UDP_HEADER_LEN, IPV6_UDP_HEADER_LEN, MAX_DATAGRAM, Origin, Peer, header_len, is_link_local, resolve,
};
pub use dpdk::{Answers, DeviceInfo, DpdkConfig, DpdkIo, DpdkTx, Idle};
pub use error::TransportError;
pub use faults::FaultRates;
pub use link::{FrameCounts, MacAddr, MacSyntax, neighbours::Neighbour};
pub use lossy::{LossyConfig, LossyIo, LossyStats};
#[cfg(feature = "options")]
pub use options::{DpdkOptions, IoName, backend};
pub use packet_io::{IoStats, PacketIo, RetainedTx, check_segment};
pub use run::Run;
pub use udp::{UdpConfig, UdpIo, path_mtu};
pub use waker::Waker;
