//! Opening devices.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thc_dpdk::{DpdkError, Eal, EalConfig, Mempool, Port, PortConfig, PortInfo, RxQueue, TxQueue};

use super::DpdkConfig;
use super::endpoint::OpenDpdk;
use super::io::{DpdkIo, QueueParts};
use crate::TransportError;
use crate::link::MacAddr;
use crate::link::frame::{ETHERNET_LEN, HEADERS_LEN};
use crate::link::neighbours::Neighbours;

/// Least MiB without hugepages: it is only allocated when used, and further endpoints of the process share
/// it.
const ORDINARY_MEMORY: u32 = 512;

/// The time by which a memif's server may be later than its client.
const SERVER_PATIENCE: Duration = Duration::from_secs(20);
/// The time between two attempts to reach a memif's server.
const SERVER_PAUSE: Duration = Duration::from_millis(300);

impl From<DpdkError> for TransportError {
    fn from(error: DpdkError) -> Self {
        TransportError::Dpdk { cause: error.to_string() }
    }
}

impl DpdkIo {
    /// Starts DPDK, if it does not run yet in this process, and opens the devices with `queues` queues each. Returns one
    /// endpoint per queue; that of queue q has the first UDP port plus q.
    ///
    /// # Errors
    /// [`TransportError::Setting`] for settings that make no sense, [`TransportError::Dpdk`] for what DPDK or a
    /// device refuses: the message says what to do.
    pub fn open(config: &DpdkConfig, first_port: u16, queues: u16) -> Result<Vec<Self>, TransportError> {
        config.check()?;
        let packets = config.pool();
        let frame = config.mtu + ETHERNET_LEN as u16;
        let eal = Eal::start(&environment(config, queues))?;
        let pools: Vec<Mempool> =
            (0..queues).map(|_| Mempool::new(eal, packets, frame)).collect::<Result<_, _>>()?;
        let heads: Vec<Mempool> = (0..queues)
            .map(|_| Mempool::for_heads(eal, config.heads(), HEADERS_LEN as u16))
            .collect::<Result<_, _>>()?;
        let mut ports = Vec::new();
        let mut by_queue: Vec<Vec<(RxQueue, TxQueue)>> = pools.iter().map(|_| Vec::new()).collect();
        for (number, device) in (0u8..).zip(&config.devices) {
            let port_config = PortConfig {
                device: device.clone(),
                descriptors: config.descriptors,
                mtu: config.mtu,
                mac: config.mac.map(|mac| count_up(mac, number).0),
                checksums: config.checksums,
                first_udp_port: first_port,
            };
            let (port, queues) = open_port(eal, &port_config, &pools)?;
            tracing::debug!(device = port.info().name, info = ?port.info(), "opened");
            log_steering(port.info());
            ports.push(port);
            for (mine, queue) in by_queue.iter_mut().zip(queues) {
                mine.push(queue);
            }
        }
        let endpoint = Arc::new(OpenDpdk {
            neighbours: Neighbours::new(&config.neighbours),
            config: config.clone(),
            ports,
            start: Instant::now(),
        });
        let all = (0u16..).zip(pools.into_iter().zip(heads).zip(by_queue));
        let endpoints = all.map(|(queue, (pools, queues))| {
            // Past the last port there is none; a server has checked its range.
            let local = SocketAddrV4::new(config.address, first_port.saturating_add(queue));
            DpdkIo::new(QueueParts { endpoint: Arc::clone(&endpoint), local, queue, pools, queues })
        });
        Ok(endpoints.collect())
    }
}

/// The server at the other end of a memif may start a moment later than its clients.
fn open_port(
    eal: &Eal,
    config: &PortConfig,
    pools: &[Mempool],
) -> Result<(Port, Vec<(RxQueue, TxQueue)>), DpdkError> {
    let since = Instant::now();
    let mut warned = false;
    loop {
        match Port::open(eal, config, pools) {
            Err(error @ DpdkError::NoServer { .. }) if since.elapsed() < SERVER_PATIENCE => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!("{error}; waiting for it");
                }
                std::thread::sleep(SERVER_PAUSE);
            }
            other => return other,
        }
    }
}

/// Logs how packets find the queues, if there are several.
fn log_steering(info: &PortInfo) {
    let by = match info.steering {
        thc_dpdk::Steering::OneQueue => return,
        thc_dpdk::Steering::Flow => "by rules for the UDP port (rte_flow)",
        thc_dpdk::Steering::Rss => "by a hash of the UDP port (RSS)",
    };
    tracing::info!("{} has {} queues, which packets find {by}", info.name, info.queues);
}

fn environment(config: &DpdkConfig, queues: u16) -> EalConfig {
    let mib = config.memory(queues);
    EalConfig {
        hugepages: config.hugepages,
        memory: if config.hugepages { mib } else { mib.max(ORDINARY_MEMORY) },
        pci: config.devices.iter().filter(|device| is_pci(device)).cloned().collect(),
        arguments: config.eal.clone(),
    }
}

/// Returns whether a device is an address on the PCI bus, as `0000:3b:00.0` or `3b:00.0`, perhaps with arguments.
fn is_pci(device: &str) -> bool {
    let address = device.split(',').next().unwrap_or_default();
    let Some((bus, function)) = address.rsplit_once('.') else { return false };
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    matches!(bus.split(':').count(), 2 | 3) && bus.split(':').all(hex) && hex(function)
}

/// The address `number` behind `mac`, within the part that a maker numbers.
fn count_up(mac: MacAddr, number: u8) -> MacAddr {
    let [a, b, c, d, e, f] = mac.0;
    let low = u32::from_be_bytes([0, d, e, f]).wrapping_add(u32::from(number));
    let [_, d, e, f] = low.to_be_bytes();
    MacAddr([a, b, c, d, e, f])
}

const _: () = assert!(HEADERS_LEN == ETHERNET_LEN + crate::IPV4_UDP_HEADER_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_told_from_virtual_devices() {
        for pci in ["0000:3b:00.0", "3b:00.1", "0000:3b:00.0,mprq_en=1", "10000:01:1f.7"] {
            assert!(is_pci(pci), "{pci}");
        }
        for other in
            ["net_null0", "net_pcap0,iface=eth0.5", "", "net_memif0,socket=/run/a:b.c", "3b.0", "::.0"]
        {
            assert!(!is_pci(other), "{other}");
        }
    }

    #[test]
    fn addresses_count_up_within_the_makers_part() {
        let mac = MacAddr([2, 0, 9, 0, 0xff, 0xff]);
        assert_eq!(count_up(mac, 0), mac);
        assert_eq!(count_up(mac, 1), MacAddr([2, 0, 9, 1, 0, 0]));
        assert_eq!(count_up(MacAddr([2, 0, 9, 0xff, 0xff, 0xff]), 2), MacAddr([2, 0, 9, 0, 0, 1]));
    }
}
