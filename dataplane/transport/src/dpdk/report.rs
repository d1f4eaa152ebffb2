//! Reports of DPDK endpoints and their devices.

use crate::MacAddr;

/// A device that an endpoint uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name: a virtual device's without arguments, or the PCI address.
    pub name: String,
    /// The driver.
    pub driver: String,
    /// Its MAC address.
    pub mac: MacAddr,
    /// True if the link is up.
    pub link: bool,
    /// Mbit/s; 0 when the device does not know.
    pub speed: u32,
    /// Largest IPv4 packet.
    pub mtu: u16,
    /// True if the device fills in UDP checksums.
    pub tx_checksum: bool,
    /// True if the device checks UDP checksums.
    pub rx_checksum: bool,
    /// NUMA node of the device, if known.
    pub numa: Option<u32>,
}
