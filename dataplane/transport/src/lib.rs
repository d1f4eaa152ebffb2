//! Packet I/O for THC: how a worker or a parameter server puts datagrams on a network and takes
//! them off it.
//!
//! [`PacketIo`] is the whole interface. It works in bursts, so that nothing is allocated, locked,
//! logged or asked of the operating system per packet, and it is used through generics, so that
//! no virtual call stands between a packet and its handler. Backends:
//!
//! * [`UdpIo`]: kernel UDP sockets with segmentation offload in both directions, on any machine;
//! * [`DpdkIo`]: DPDK devices, past the kernel (feature `dpdk`);
//! * [`sim`]: a network in memory with virtual time and seeded faults, for tests;
//! * [`LossyIo`]: a wrapper that injects seeded loss, duplication and reordering into another
//!   backend, for tests of real processes;
//! * [`CapturedIo`]: a wrapper that writes what another backend receives and sends to a pcap file.
//!
//! [`frame`] has datagrams as Ethernet frames.
//!
//! Addresses are IPv4 throughout: THC's packets are UDP over IPv4 (protocol header layout).

mod capture;
mod captured;
mod checksum;
mod datagram;
mod dpdk;
mod error;
mod faults;
pub mod frame;
mod lossy;
#[cfg(feature = "options")]
mod options;
mod packet_io;
mod run;
pub mod sim;
mod udp;

pub use capture::{Capture, CaptureConfig, CaptureStats};
pub use captured::CapturedIo;
pub use datagram::{
    IPV4_UDP_HEADER_LEN, IPV6_UDP_HEADER_LEN, MAX_DATAGRAM, Origin, Peer, header_len, is_link_local, resolve,
};
pub use dpdk::{
    Answers, Backend, DeviceInfo, Dpdk, DpdkConfig, DpdkIo, DpdkTx, FrameCounts, Idle, MacAddr, MacSyntax,
    Neighbour, Steering,
};
pub use error::TransportError;
pub use faults::FaultRates;
pub use lossy::{LossyConfig, LossyIo, LossyStats};
#[cfg(feature = "options")]
pub use options::{DpdkOptions, IoName};
pub use packet_io::{IoStats, PacketIo};
pub use run::Run;
pub use sim::{LinkConfig, SimConfig, SimIo, SimNet, SimStats};
pub use udp::{UdpConfig, UdpIo};
