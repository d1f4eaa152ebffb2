//! What DPDK endpoints and their devices report.

use crate::MacAddr;

/// What became of frames that were not datagrams for this endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// ARP requests for this endpoint's address, answered.
    pub arp_answered: u64,
    /// ARP answers and other ARP packets taken note of.
    pub arp_seen: u64,
    /// ARP requests sent.
    pub arp_asked: u64,
    /// ICMP echo requests answered.
    pub echo_answered: u64,
    /// Frames for another MAC address.
    pub other_host: u64,
    /// Frames with a VLAN tag.
    pub vlan: u64,
    /// Frames that are neither IPv4 nor ARP.
    pub ethertype: u64,
    /// Frames shorter than their headers say, or than any header.
    pub truncated: u64,
    /// IPv4 headers that are malformed or whose checksum is wrong.
    pub ip_header: u64,
    /// IPv4 packets with options: they are not THC's.
    pub ip_options: u64,
    /// IPv4 fragments.
    pub fragments: u64,
    /// IPv4 packets for another address.
    pub other_address: u64,
    /// IPv4 packets that are no UDP.
    pub protocol: u64,
    /// Datagrams for another UDP port.
    pub other_port: u64,
    /// Datagrams whose UDP checksum or length is wrong.
    pub udp: u64,
    /// Frames in several segments that were put together by copying.
    pub joined: u64,
    /// Datagrams not sent because no address on the link was known for the receiver.
    pub unresolved: u64,
    /// Datagrams not sent because the device's send ring stayed full.
    pub ring_full: u64,
    /// Datagrams not sent because all packet buffers were in use.
    pub no_buffer: u64,
}

/// A device that an endpoint uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name: a virtual device's without arguments, or the PCI address.
    pub name: String,
    /// The driver.
    pub driver: String,
    /// Its MAC address.
    pub mac: MacAddr,
    /// Whether the link is up.
    pub link: bool,
    /// Mbit/s; 0 when the device does not know.
    pub speed: u32,
    /// Largest IPv4 packet.
    pub mtu: u16,
    /// Queue pairs in use.
    pub queues: u16,
    /// How datagrams find the queue of their UDP port.
    pub steering: Steering,
    /// Whether the device fills in UDP checksums.
    pub tx_checksum: bool,
    /// Whether the device checks UDP checksums.
    pub rx_checksum: bool,
    /// Whether one payload can go to several receivers without being copied.
    pub multi_segment: bool,
    /// NUMA node of the device, if known.
    pub numa: Option<u32>,
}

/// How datagrams find the queue of their UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// There is one queue.
    OneQueue,
    /// By rules for the destination port (rte_flow).
    Flow,
    /// By a hash whose key takes in the destination port alone (RSS).
    Rss,
}
