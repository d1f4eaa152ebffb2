//! DPDK: memory and devices, before they are opened.

use super::check::{Check, longest_packet};
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use thc_transport::{DeviceInfo, DpdkConfig};

const HUGEPAGES: &str = "hugepages";
const DEVICE: &str = "device";
const LINK: &str = "link";
const IOMMU: &str =
    "turn the IOMMU on in firmware and, Intel's, with intel_iommu=on on the kernel's command line";
const MIB: u64 = 1 << 20;

/// One check for the memory and one for each device, and what is wrong with the address and the MTU.
pub fn check(root: &Path, config: &DpdkConfig) -> Vec<Check> {
    let mut checks = vec![hugepages(root, config)];
    checks.extend(config.devices.iter().map(|device| device_of(root, device)));
    let shared = config.devices.iter().any(|device| interface(device).is_some());
    let own = config.address;
    if shared && UdpSocket::bind((own, 0)).is_ok() {
        checks.push(Check::wrong(
            LINK,
            format!("the kernel has {own} as well, and refuses what comes for DPDK"),
            format!(
                "give --dpdk-address one that is free, or take this one from the kernel: ip addr del {own}"
            ),
        ));
    }
    let longest = longest_packet(false);
    if usize::from(config.mtu) < longest {
        let found = format!("--dpdk-mtu is {}, the longest packets have {longest} bytes", config.mtu);
        checks.push(Check::wrong(LINK, found, "leave it at 1500"));
    }
    checks
}

fn hugepages(root: &Path, config: &DpdkConfig) -> Check {
    if !config.hugepages {
        return Check::ok(HUGEPAGES, "not used, which only virtual devices can do without");
    }
    let needed = u64::from(config.memory(1)) * MIB;
    let number = |path: &Path| read(path).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let free: u64 = names(&root.join("sys/kernel/mm/hugepages"))
        .iter()
        .filter_map(|name| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            Some(kib * 1024 * number(&root.join("sys/kernel/mm/hugepages").join(name).join("free_hugepages")))
        })
        .sum();
    if free >= needed {
        return Check::ok(HUGEPAGES, format!("{} MiB free", free / MIB));
    }
    let pages = number(&root.join("proc/sys/vm/nr_hugepages")) + needed.div_ceil(2 * MIB);
    Check::wrong(
        HUGEPAGES,
        format!("{} MiB free, about {} MiB are needed", free / MIB, needed / MIB),
        format!(
            "echo {pages} > /proc/sys/vm/nr_hugepages (at boot: vm.nr_hugepages in sysctl.d); for virtual devices \
             --dpdk-hugepages=false"
        ),
    )
}

/// The kernel's interface that a virtual device sends through.
fn interface(device: &str) -> Option<&str> {
    device.split(',').find_map(|part| part.trim().strip_prefix("iface="))
}

/// A device as `--dpdk-device` names it.
fn device_of(root: &Path, device: &str) -> Check {
    let name = device.split(',').next().unwrap_or_default().trim();
    if name.contains(':') {
        let domain = if name.matches(':').count() == 1 { "0000:" } else { "" };
        return nic(root, &format!("{domain}{name}").to_ascii_lowercase());
    }
    match interface(device) {
        Some(interface) if !root.join("sys/class/net").join(interface).exists() => Check::wrong(
            DEVICE,
            format!("{name} on {interface}, which is not an interface here"),
            format!("use one of {}", names(&root.join("sys/class/net")).join(", ")),
        ),
        _ => Check::ok(DEVICE, device),
    }
}

fn nic(root: &Path, address: &str) -> Check {
    let devices = root.join("sys/bus/pci/devices");
    let folder = devices.join(address);
    if !folder.exists() {
        let is_nic = |name: &String| {
            read(&devices.join(name).join("class")).is_some_and(|class| class.starts_with("0x02"))
        };
        let nics: Vec<_> = names(&devices).into_iter().filter(is_nic).collect();
        let mend = match &nics[..] {
            [] => "this host has no NIC on PCI: use net_memif or net_af_packet (docs/dpdk.md)".to_owned(),
            nics => format!("use one of {}", nics.join(", ")),
        };
        return Check::wrong(DEVICE, format!("no device at {address}"), mend);
    }
    let bind = format!("modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci {address}");
    match link(&folder.join("driver")).as_deref() {
        // These leave a NIC to the kernel and give DPDK a part of it.
        Some(driver @ ("mlx5_core" | "mlx4_core" | "mana")) => {
            Check::ok(DEVICE, format!("{address}, {driver}, shared with the kernel"))
        }
        Some("vfio-pci") => vfio(root, &folder, address),
        driver => {
            let driver =
                driver.map_or("no driver".to_owned(), |driver| format!("the kernel's driver {driver}"));
            let end = "connections of the kernel through it end";
            Check::wrong(DEVICE, format!("{address} has {driver}"), format!("{bind}; {end}"))
        }
    }
}

fn vfio(root: &Path, folder: &Path, address: &str) -> Check {
    let Some(group) = link(&folder.join("iommu_group")) else {
        return Check::wrong(
            DEVICE,
            format!("{address} is bound to vfio-pci, but the host has no IOMMU"),
            IOMMU,
        );
    };
    let files = [group.clone(), format!("noiommu-{group}")];
    let file = files.iter().find(|file| root.join("dev/vfio").join(file).exists());
    let Some(file) = file else {
        let found = format!("{address} is bound to vfio-pci, but there is no /dev/vfio/{group}");
        return Check::wrong(DEVICE, found, "modprobe vfio-pci; in a container pass /dev/vfio in");
    };
    match fs::OpenOptions::new().read(true).write(true).open(root.join("dev/vfio").join(file)) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Check::wrong(
            DEVICE,
            format!("{address} is bound to vfio-pci, but this user may not use /dev/vfio/{file}"),
            format!("run as root, or: chown \"$USER\" /dev/vfio/{file}"),
        ),
        _ => Check::ok(DEVICE, format!("{address}, vfio-pci, IOMMU group {group}")),
    }
}

/// A device as DPDK has opened it.
pub fn opened(device: &DeviceInfo) -> Check {
    let DeviceInfo { name, driver, mac, mtu, .. } = device;
    if !device.link {
        return Check::wrong(
            LINK,
            format!("{name} ({driver}) has no link"),
            "look at the cable and the port at its other end, or give it more time (--patience 10s); for net_memif look \
             at the other process",
        );
    }
    Check::ok(LINK, format!("{name} ({driver}) up, {mac}, MTU {mtu}"))
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The last part of what a link points to, as sysfs names drivers and groups.
fn link(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// Names in a folder, sorted; none if there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
