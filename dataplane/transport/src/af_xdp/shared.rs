//! What the endpoints of an interface have in common.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::XdpConfig;
use super::bpf::{Attachment, SocketMap};
use super::netlink::{Interface, Netlink};
use crate::link::MacAddr;
use crate::link::neighbours::Neighbours;

/// An interface as all endpoints of an [`Xdp`](super::Xdp) share it.
pub(super) struct Shared {
    pub config: XdpConfig,
    pub interface: Interface,
    /// All of its queues, whether they are used or not.
    pub queues: u32,
    pub neighbours: Neighbours,
    pub netlink: Mutex<Netlink>,
    pub start: Instant,
    /// Largest IPv4 packet.
    pub mtu: usize,
    /// Both end with the last endpoint; then the kernel gets all frames again.
    pub _attachment: Attachment,
    pub _sockets: SocketMap,
}

impl Shared {
    /// Milliseconds since the start.
    pub fn millis(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// The connection to the kernel.
    pub fn kernel(&self) -> std::sync::MutexGuard<'_, Netlink> {
        self.netlink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its hardware address.
    pub fn mac(&self) -> MacAddr {
        self.interface.mac
    }
}
