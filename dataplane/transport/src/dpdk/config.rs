//! The settings of a DPDK endpoint. The types exist without the feature `dpdk` too, so that a configuration
//! can be read and checked everywhere.

use std::{fmt, net::Ipv4Addr, time::Duration};

use crate::{MacAddr, Neighbour, TransportError};

/// Packets of each queue beyond those in the rings: for bursts that are being made and handled, and for
/// threads' caches.
const SPARE_PACKETS: u32 = 2048;
/// MiB for rings and devices.
const SPARE_MEMORY: u32 = 64;
/// Bytes of a short buffer, with its head and head room.
const HEAD: u64 = 512;
/// Bytes of an Ethernet header.
const ETHERNET_LEN: u64 = 14;

/// Settings of a [`DpdkIo`](crate::DpdkIo). Start from [`DpdkConfig::new`] and change what differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkConfig {
    /// Further arguments for DPDK's environment layer (EAL), as on a command line, such as
    /// `--log-level=8`. Those for memory and devices follow from the other settings.
    pub eal: Vec<String>,
    /// Devices, one port each: a virtual device with its arguments
    /// (`net_memif0,role=client,id=0,socket=/run/thc.sock`, `net_af_packet0,iface=veth0`) or a
    /// PCI address (`0000:3b:00.0`). At least one.
    pub devices: Vec<String>,
    /// Take memory from hugepages. Otherwise packets lie in ordinary pages, which virtual devices accept and
    /// most NICs do not.
    pub hugepages: bool,
    /// This endpoint's own IPv4 address, the same on all devices.
    pub address: Ipv4Addr,
    /// Bits of the network part of `address`: receivers in this network are found by ARP, others are reached
    /// through `gateway`.
    pub prefix: u8,
    /// Router towards everything outside the prefix.
    pub gateway: Option<Ipv4Addr>,
    /// Receivers that need no ARP.
    pub neighbours: Vec<Neighbour>,
    /// Own MAC address of the first device; the following devices count up from it. `None` keeps
    /// what the devices have.
    pub mac: Option<MacAddr>,
    /// Largest IPv4 packet in bytes, headers included.
    pub mtu: u16,
    /// Packet buffers of each queue, including those in the devices' rings.
    pub packets: u32,
    /// Length of the receive and send rings asked for; a device may round or ignore it.
    pub descriptors: u16,
    /// Fill in and check UDP checksums, by the device where it can and in software elsewhere. IPv4
    /// permits UDP without.
    pub checksums: bool,
    /// The behaviour of an endpoint while nothing comes.
    pub idle: Idle,
}

/// The behaviour of an endpoint while nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Poll without pause: the least latency, at the price of a core for each endpoint.
    BusyPoll,
    /// Poll for a while, then sleep in naps that grow up to this length.
    BackOff(Duration),
}

impl DpdkConfig {
    /// The defaults for an endpoint with this address: no devices yet, hugepages, /24, MTU 1500,
    /// 8192 packets, rings of 1024, checksums, naps up to 100 µs.
    pub const fn new(address: Ipv4Addr) -> Self {
        Self {
            eal: Vec::new(),
            devices: Vec::new(),
            hugepages: true,
            address,
            prefix: 24,
            gateway: None,
            neighbours: Vec::new(),
            mac: None,
            mtu: 1500,
            packets: 8192,
            descriptors: 1024,
            checksums: true,
            idle: Idle::BackOff(Duration::from_micros(100)),
        }
    }

    /// Refuses settings that cannot work on any device.
    ///
    /// # Errors
    /// [`TransportError::Setting`] for the first that is wrong.
    pub fn check(&self) -> Result<(), TransportError> {
        let wrong = |key, value: &dyn fmt::Display, mend| {
            Err(TransportError::Setting { backend: "dpdk", key, value: value.to_string(), mend })
        };
        if self.devices.is_empty() {
            return wrong("devices", &"empty", "name a device, such as net_af_packet0,iface=eth1");
        }
        let address = self.address;
        if address.is_unspecified() || address.is_broadcast() || address.is_multicast() {
            return wrong("address", &address, "give the endpoint an IPv4 address of its own");
        }
        if self.prefix > 32 {
            return wrong("prefix", &self.prefix, "use 0 to 32");
        }
        if let Some(gateway) = self.gateway.filter(|&gateway| !self.on_link(gateway)) {
            return wrong("gateway", &gateway, "use an address within the prefix");
        }
        if !(576..=9000).contains(&self.mtu) {
            return wrong("mtu", &self.mtu, "use 576 to 9000");
        }
        if !(1024..=1 << 20).contains(&self.packets) {
            return wrong("packets", &self.packets, "use 1024 to 1048576");
        }
        if !(64..=32768).contains(&self.descriptors) {
            return wrong("descriptors", &self.descriptors, "use 64 to 32768");
        }
        for neighbour in &self.neighbours {
            if neighbour.device >= self.devices.len() {
                return wrong("neighbours", &neighbour.device, "use the index of a device, from 0 up");
            }
            if neighbour.mac.is_multicast() {
                return wrong("neighbours", &neighbour.mac, "use the MAC address of one host");
            }
        }
        if let Some(mac) = self.mac.filter(|mac| mac.is_multicast() || *mac == MacAddr([0; 6])) {
            return wrong("mac", &mac, "use the MAC address of one host, such as 02:00:00:00:00:01");
        }
        Ok(())
    }

    /// Packet buffers of each queue: as many as requested, but enough to fill all its rings on all devices.
    pub fn pool(&self) -> u32 {
        let rings = 2 * u32::from(self.descriptors) * self.devices.len() as u32;
        self.packets.max(rings + SPARE_PACKETS)
    }

    /// Packets of each queue that may be kept for repetition: half of what is left when all rings are full.
    #[cfg(feature = "dpdk")]
    pub(super) fn keeps(&self) -> usize {
        let rings = 2 * u32::from(self.descriptors) * self.devices.len() as u32;
        (self.pool() - rings) as usize / 2
    }

    /// Short buffers of each queue, for the headers of packets to many receivers: as many as can be under way
    /// in the rings.
    pub(super) fn heads(&self) -> u32 {
        u32::from(self.descriptors) * self.devices.len() as u32 + SPARE_PACKETS
    }

    /// MiB that an endpoint with so many queues sets aside.
    pub fn memory(&self, queues: u16) -> u32 {
        // A packet's own bytes, its head and head room, and what the pool knows of it.
        let each = (u64::from(self.mtu) + ETHERNET_LEN).max(2048) + 512;
        let queue = each * u64::from(self.pool()) + HEAD * u64::from(self.heads());
        (queue * u64::from(queues)).div_ceil(1 << 20) as u32 + SPARE_MEMORY
    }

    /// Returns whether an address is reached without the gateway.
    pub fn on_link(&self, to: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
        (to.to_bits() ^ self.address.to_bits()) & mask == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn config() -> DpdkConfig {
        DpdkConfig { devices: vec!["net_null0".to_owned()], ..DpdkConfig::new(Ipv4Addr::new(10, 1, 2, 3)) }
    }

    #[test]
    fn the_prefix_says_what_is_on_the_link() {
        let mut config = config();
        assert!(config.on_link(Ipv4Addr::new(10, 1, 2, 200)));
        assert!(!config.on_link(Ipv4Addr::new(10, 1, 3, 3)));
        config.prefix = 0;
        assert!(config.on_link(Ipv4Addr::new(1, 1, 1, 1)));
        config.prefix = 32;
        assert!(!config.on_link(Ipv4Addr::new(10, 1, 2, 2)));
    }

    #[test]
    fn senseless_settings_are_refused_by_name() {
        config().check().unwrap();
        let key = |change: fn(&mut DpdkConfig)| {
            let mut config = config();
            change(&mut config);
            match config.check() {
                Err(TransportError::Setting { key, .. }) => key,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(key(|c| c.devices.clear()), "devices");
        assert_eq!(key(|c| c.address = Ipv4Addr::UNSPECIFIED), "address");
        assert_eq!(key(|c| c.prefix = 33), "prefix");
        assert_eq!(key(|c| c.gateway = Some(Ipv4Addr::new(10, 9, 9, 9))), "gateway");
        assert_eq!(key(|c| c.mtu = 100), "mtu");
        assert_eq!(key(|c| c.packets = 1), "packets");
        assert_eq!(key(|c| c.descriptors = 1), "descriptors");
        assert_eq!(key(|c| c.mac = Some(MacAddr::BROADCAST)), "mac");
        assert_eq!(
            key(|c| c.neighbours =
                vec![Neighbour { address: Ipv4Addr::new(10, 1, 2, 4), mac: MacAddr([2; 6]), device: 1 }]),
            "neighbours"
        );
    }
}
