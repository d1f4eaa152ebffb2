//! Memory for packets.

use super::check::Check;
use super::device::Device;
use super::host::Host;
use thc_transport::DpdkConfig;

const NAME: &str = "hugepages";
const MIB: u64 = 1 << 20;

/// Bytes that a worker takes.
pub fn required_bytes(config: &DpdkConfig) -> u64 {
    u64::from(config.memory(1)) * MIB
}

/// Free bytes below a folder of page sizes, and how they come about.
fn free_memory(host: &Host, folder: &str) -> (u64, Vec<String>) {
    let mut bytes = 0;
    let mut parts = Vec::new();
    for name in host.names(folder) {
        let kib =
            name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB")?.parse::<u64>().ok());
        let Some(kib) = kib else { continue };
        let count = |file: &str| host.number(&format!("{folder}/{name}/{file}")).unwrap_or(0).max(0) as u64;
        let (free, all) = (count("free_hugepages"), count("nr_hugepages"));
        let size = if kib >= 1 << 20 { format!("{} GiB", kib >> 20) } else { format!("{} MiB", kib >> 10) };
        if all > 0 {
            parts.push(format!("{free} of {all} free of {size}"));
        }
        bytes += free * kib * 1024;
    }
    (bytes, parts)
}

pub fn check(host: &Host, config: &DpdkConfig, devices: &[Device]) -> Vec<Check> {
    let nics = devices.iter().any(|device| matches!(device, Device::Pci(_)));
    if !config.hugepages {
        return vec![if nics {
            Check::warning(
                NAME,
                "not used, though a NIC is: most drivers refuse ordinary memory",
                "leave --dpdk-hugepages at true and provide some",
            )
        } else {
            Check::ok(NAME, "not used: virtual devices do without")
        }];
    }
    let needed = required_bytes(config);
    let wanted = needed.div_ceil(2 * MIB);
    let (bytes, parts) = free_memory(host, "/sys/kernel/mm/hugepages");
    let without = if nics { "" } else { ", or do without: --dpdk-hugepages=false" };
    let found = if parts.is_empty() { "none".to_owned() } else { parts.join(", ") };
    let reserve = |more: u64| {
        format!("echo {more} > /proc/sys/vm/nr_hugepages (at boot: vm.nr_hugepages in sysctl.d){without}")
    };
    if bytes < needed {
        let all = host.number("/proc/sys/vm/nr_hugepages").unwrap_or(0).max(0) as u64;
        let found = format!("{found}; about {} MiB are needed", needed / MIB);
        return vec![Check::wrong(NAME, found, reserve(all + wanted))];
    }
    let mut checks = vec![Check::ok(NAME, found)];
    // A NIC wants its memory on its own node.
    if host.nodes().len() > 1 {
        for device in devices {
            let Device::Pci(address) = device else { continue };
            let Some(node) = host.node(&format!("/sys/bus/pci/devices/{address}/numa_node")) else {
                continue;
            };
            let folder = format!("/sys/devices/system/node/node{node}/hugepages");
            let (bytes, _) = free_memory(host, &folder);
            if bytes < needed {
                checks.push(Check::warning(
                    NAME,
                    format!("node {node}, where {address} is, has {} MiB free", bytes / MIB),
                    format!("echo {wanted} > {folder}/hugepages-2048kB/nr_hugepages"),
                ));
            }
        }
    }
    checks
}
