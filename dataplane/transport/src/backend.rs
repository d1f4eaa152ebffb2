//! The choice between backends for real traffic.

use crate::DpdkConfig;

/// The backend that carries a group's or a server's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Kernel UDP sockets.
    #[default]
    Udp,
    /// DPDK devices.
    Dpdk(DpdkConfig),
}
