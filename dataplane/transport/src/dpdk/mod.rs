//! The backend over DPDK: frames go between the process and a device without the kernel.
//!
//! Built in with the feature `dpdk`, which needs libdpdk; without it the types exist and opening
//! says what is missing.

mod absent;
mod config;
mod report;

pub use absent::{Dpdk, DpdkIo};
pub use config::{DpdkConfig, Idle, MacAddr, MacSyntax, Neighbour};
pub use report::{DeviceInfo, FrameCounts, Steering};

/// Which backend carries a group's or a server's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Kernel UDP sockets.
    #[default]
    Udp,
    /// DPDK devices.
    Dpdk(DpdkConfig),
}
