//! The devices, the neighbours and the clock, which the queues of an endpoint share.

use std::time::Instant;

use thc_dpdk::Port;

use super::{DeviceInfo, DpdkConfig};
use crate::link::MacAddr;
use crate::link::neighbours::Neighbours;

/// Open devices, as all queues of an endpoint share them.
pub(super) struct OpenDpdk {
    pub config: DpdkConfig,
    pub ports: Vec<Port>,
    pub neighbours: Neighbours,
    pub start: Instant,
}

impl OpenDpdk {
    /// Milliseconds since the start.
    pub fn millis(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

/// Returns a port's properties, and the state of its link at this moment.
pub(super) fn device_info(port: &Port) -> DeviceInfo {
    let info = port.info();
    let (link, speed) = port.link();
    DeviceInfo {
        name: info.name.clone(),
        driver: info.driver.clone(),
        mac: MacAddr(info.mac),
        link,
        speed,
        mtu: info.mtu,
        tx_checksum: info.tx_checksum,
        rx_checksum: info.rx_checksum,
        numa: info.numa,
    }
}

/// Returns how many frames a device's receive ring holds. Virtual devices have it in their arguments, and ignore descriptors.
pub(super) fn ring_of(device: &str, descriptors: u16) -> usize {
    let argument = |name: &str| {
        device
            .split(',')
            .filter_map(|part| part.split_once('='))
            .find(|(key, _)| *key == name)?
            .1
            .parse()
            .ok()
    };
    if device.starts_with("net_af_packet") {
        argument("framecnt").unwrap_or(512)
    } else if device.starts_with("net_memif") {
        1 << argument("rsize").unwrap_or(10).min(14)
    } else {
        usize::from(descriptors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_devices_have_their_rings_in_their_arguments() {
        assert_eq!(ring_of("0000:3b:00.0", 700), 700);
        assert_eq!(ring_of("net_af_packet0,iface=veth0", 700), 512);
        assert_eq!(ring_of("net_af_packet0,iface=veth0,framecnt=4096", 700), 4096);
        assert_eq!(ring_of("net_memif0,id=0,rsize=12", 700), 4096);
        assert_eq!(ring_of("net_memif0,id=0", 700), 1024);
    }
}
