//! DPDK devices: what they are, and whether the host has them ready.

use super::check::Check;
use super::host::{Access, Host};

const NAME: &str = "device";
/// Drivers that leave a NIC to the kernel and give DPDK a part of it.
const BIFURCATED: [&str; 3] = ["mlx5_core", "mlx4_core", "mana"];
/// Drivers of the kernel that keep out of DMA, so that the other devices of an IOMMU group may be DPDK's.
const HARMLESS: [&str; 3] = ["vfio-pci", "pcieport", "pci-stub"];
/// What the kernel calls the group of a device that vfio has without an IOMMU.
const NO_IOMMU: &str = "vfio-noiommu";
/// How to get one.
const IOMMU: &str = "turn the IOMMU on in firmware and, Intel's, with intel_iommu=on on the kernel's command line; in a \
                     machine without: modprobe vfio && echo 1 > \
                     /sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
/// Bit of a listening socket in /proc/net/unix (`__SO_ACCEPTCON`).
const LISTENING: u32 = 1 << 16;

/// A device as it is given by `--dpdk-device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A NIC by its PCI address, with the domain.
    Pci(String),
    /// A virtual device: its driver and arguments.
    Virtual { driver: String, arguments: Vec<(String, String)> },
}

impl Device {
    pub fn parse(text: &str) -> Device {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default().trim();
        if let Some(address) = pci_address(name) {
            return Device::Pci(address);
        }
        let arguments = parts.filter_map(|part| part.split_once('='));
        let arguments = arguments.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
        let driver = name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        Device::Virtual { driver, arguments: arguments.collect() }
    }

    /// The value of an argument, if it is given.
    pub fn argument(&self, key: &str) -> Option<&str> {
        match self {
            Device::Pci(_) => None,
            Device::Virtual { arguments, .. } => {
                arguments.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
            }
        }
    }

    /// Kernel interfaces that belong to it: what it sends through, or what the kernel keeps of a NIC.
    pub fn interfaces(&self, host: &Host) -> Vec<String> {
        match self {
            Device::Pci(address) => host.names(&format!("/sys/bus/pci/devices/{address}/net")),
            Device::Virtual { driver, .. } if matches!(driver.as_str(), "net_af_packet" | "net_af_xdp") => {
                self.argument("iface").map(str::to_owned).into_iter().collect()
            }
            Device::Virtual { .. } => Vec::new(),
        }
    }
}

/// `3b:00.0` or `0000:3b:00.0`, with the domain.
fn pci_address(text: &str) -> Option<String> {
    let (front, function) = text.rsplit_once('.')?;
    let numbers: Vec<&str> = front.split(':').collect();
    let hex = |text: &str, len: usize| text.len() == len && text.chars().all(|c| c.is_ascii_hexdigit());
    let sound = match numbers.as_slice() {
        [bus, slot] => hex(bus, 2) && hex(slot, 2),
        // Some bridges have domains of five digits.
        [domain, bus, slot] => hex(domain, domain.len().clamp(4, 8)) && hex(bus, 2) && hex(slot, 2),
        _ => false,
    };
    let whole = if numbers.len() == 2 { format!("0000:{text}") } else { text.to_owned() };
    (sound && hex(function, 1)).then(|| whole.to_ascii_lowercase())
}

/// One check per device.
pub fn check(host: &Host, device: &Device) -> Check {
    match device {
        Device::Pci(address) => pci(host, address),
        Device::Virtual { driver, .. } => match driver.as_str() {
            "net_af_packet" | "net_af_xdp" => interface(host, device, driver),
            "net_memif" => memif(host, device),
            "net_null" => Check::warning(
                NAME,
                "net_null throws away what is sent",
                "use it for benchmarks only; net_memif or net_af_packet lead somewhere",
            ),
            driver => Check::ok(NAME, format!("{driver}, a virtual device")),
        },
    }
}

fn interface(host: &Host, device: &Device, driver: &str) -> Check {
    let interfaces = host.names("/sys/class/net").join(", ");
    match device.argument("iface") {
        None => Check::wrong(
            NAME,
            format!("{driver} without an interface"),
            format!("name one: {driver}0,iface=NAME; there are {interfaces}"),
        ),
        Some(name) if !host.exists(&format!("/sys/class/net/{name}")) => Check::wrong(
            NAME,
            format!("{driver} on {name}, which is not an interface here"),
            format!("use one of {interfaces}; in a network namespace, run there: ip netns exec NAME …"),
        ),
        Some(name) => Check::ok(NAME, format!("{driver} on {name}")),
    }
}

fn memif(host: &Host, device: &Device) -> Check {
    let socket = device.argument("socket").unwrap_or("/run/memif.sock");
    let server = matches!(device.argument("role"), Some("server" | "master"));
    let hidden = device.argument("socket-abstract") != Some("no");
    let id = device.argument("id").unwrap_or("0");
    let shown = format!("net_memif {id} at {}{socket}", if hidden { "@" } else { "" });
    if server {
        let folder = socket.rsplit_once('/').map_or("", |(folder, _)| folder);
        if !hidden && !folder.is_empty() && !host.exists(folder) {
            return Check::wrong(NAME, format!("{shown}: no folder {folder}"), format!("mkdir -p {folder}"));
        }
        return Check::ok(NAME, format!("{shown}, which waits for the other side"));
    }
    let name = if hidden { format!("@{socket}") } else { socket.to_owned() };
    let sockets = host.read("/proc/net/unix").unwrap_or_default();
    let listens = sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Num RefCount Protocol Flags Type St Inode Path; abstract names are cut at their end by DPDK, or padded.
        let flags = fields.get(3).and_then(|flags| u32::from_str_radix(flags, 16).ok()).unwrap_or(0);
        let path = fields.get(7).map_or("", |path| path.trim_end_matches('@'));
        flags & LISTENING != 0 && path == name
    });
    if listens {
        Check::ok(NAME, format!("{shown}, where the other side listens"))
    } else {
        Check::wrong(
            NAME,
            format!("{shown}: nobody listens there"),
            "start the other side first, thc-ps with role=server and the same socket and id; both need the same \
             network namespace",
        )
    }
}

fn pci(host: &Host, address: &str) -> Check {
    let folder = format!("/sys/bus/pci/devices/{address}");
    if !host.exists(&folder) {
        let nics = nics(host);
        let mend = if nics.is_empty() {
            "this host has no NIC on PCI: use net_memif or net_af_packet (docs/dpdk.md)".to_owned()
        } else {
            format!("use one of {}", nics.join(", "))
        };
        return Check::wrong(NAME, format!("no device at {address}"), mend);
    }
    let driver = host.link(&format!("{folder}/driver"));
    match driver.as_deref() {
        Some("vfio-pci") => vfio(host, address),
        Some(driver) if BIFURCATED.contains(&driver) => check_bifurcated(host, address, driver),
        Some(driver @ ("uio_pci_generic" | "igb_uio")) => Check::warning(
            NAME,
            format!("{address} is bound to {driver}, which isolates nothing and needs root"),
            format!("where there is an IOMMU: {}", bind(address)),
        ),
        Some(driver) => unbound(
            host,
            format!("{address} belongs to the kernel's driver {driver}"),
            format!("take it from the kernel, whose connections through it end: {}", bind(address)),
        ),
        None => unbound(host, format!("{address} has no driver"), bind(address)),
    }
}

/// A device that vfio-pci is to have, which refuses it where there is no IOMMU.
fn unbound(host: &Host, found: String, bind: String) -> Check {
    if host.names("/sys/kernel/iommu_groups").is_empty() && !unsafe_mode(host) {
        return Check::wrong(NAME, found + ", and this host has no IOMMU", format!("{IOMMU}; then {bind}"));
    }
    Check::wrong(NAME, found, bind)
}

/// Whether vfio may be used without an IOMMU.
fn unsafe_mode(host: &Host) -> bool {
    host.read("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
        .is_some_and(|mode| mode.eq_ignore_ascii_case("y") || mode == "1")
}

/// Whether vfio has a device without an IOMMU.
pub fn lacks_iommu(host: &Host, address: &str) -> bool {
    let group = host.link(&format!("/sys/bus/pci/devices/{address}/iommu_group"));
    group.is_some_and(|group| {
        host.read(&format!("/sys/kernel/iommu_groups/{group}/name")).as_deref() == Some(NO_IOMMU)
    })
}

/// Another device of the same IOMMU group that the kernel keeps, and its driver: then vfio gives out none of the group.
fn kept_by_the_kernel(host: &Host, group: &str, address: &str) -> Option<(String, String)> {
    let others = host.names(&format!("/sys/kernel/iommu_groups/{group}/devices"));
    others.into_iter().filter(|other| other != address).find_map(|other| {
        let driver = host.link(&format!("/sys/bus/pci/devices/{other}/driver"))?;
        (!HARMLESS.contains(&driver.as_str())).then_some((other, driver))
    })
}

fn bind(address: &str) -> String {
    format!("modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci {address}")
}

fn vfio(host: &Host, address: &str) -> Check {
    let group = host.link(&format!("/sys/bus/pci/devices/{address}/iommu_group"));
    let Some(group) = group else {
        let found = format!("{address} is bound to vfio-pci, but the host has no IOMMU");
        return Check::wrong(NAME, found, IOMMU);
    };
    let unprotected = lacks_iommu(host, address);
    let file = format!("/dev/vfio/{}{group}", if unprotected { "noiommu-" } else { "" });
    for file in ["/dev/vfio/vfio".to_owned(), file] {
        match host.access(&file) {
            Access::Granted => {}
            Access::Missing => {
                return Check::wrong(
                    NAME,
                    format!("{address} is bound to vfio-pci, but there is no {file}"),
                    "modprobe vfio-pci; in a container pass /dev/vfio in",
                );
            }
            Access::Denied => {
                return Check::wrong(
                    NAME,
                    format!("{address} is bound to vfio-pci, but this user may not use {file}"),
                    format!("run as root, or: chown \"$USER\" {file}"),
                );
            }
        }
    }
    if let Some((other, driver)) = kept_by_the_kernel(host, &group, address) {
        return Check::wrong(
            NAME,
            format!(
                "{address} shares IOMMU group {group} with {other}, which belongs to the kernel's driver {driver}"
            ),
            format!("take that one, too: {}; or use a slot with a group of its own", bind(&other)),
        );
    }
    if unprotected {
        return Check::warning(
            NAME,
            format!("{address}, vfio-pci, without an IOMMU: it can write to all memory"),
            "turn the IOMMU on in firmware and kernel, if there is one",
        );
    }
    Check::ok(NAME, format!("{address}, vfio-pci, IOMMU group {group}"))
}

fn check_bifurcated(host: &Host, address: &str, driver: &str) -> Check {
    let verbs = host.names(&format!("/sys/bus/pci/devices/{address}/infiniband_verbs"));
    let needs_verbs = driver.starts_with("mlx");
    let Some(verbs) = verbs.first() else {
        return if needs_verbs {
            Check::wrong(
                NAME,
                format!("{address} has the driver {driver}, but no verbs device"),
                "modprobe mlx5_ib ib_uverbs, and install rdma-core (Debian: ibverbs-providers)",
            )
        } else {
            Check::ok(NAME, format!("{address}, {driver}, shared with the kernel"))
        };
    };
    let file = format!("/dev/infiniband/{verbs}");
    if host.access(&file) == Access::Granted {
        Check::ok(NAME, format!("{address}, {driver}, shared with the kernel"))
    } else {
        Check::wrong(
            NAME,
            format!("{address} has the driver {driver}, but this user may not use {file}"),
            "run as root, or give the user the file; in a container pass /dev/infiniband in",
        )
    }
}

/// Addresses of network controllers on PCI.
fn nics(host: &Host) -> Vec<String> {
    let mut addresses = host.names("/sys/bus/pci/devices");
    addresses.retain(|address| {
        let class = host.read(&format!("/sys/bus/pci/devices/{address}/class"));
        class.is_some_and(|class| class.starts_with("0x02"))
    });
    addresses
}
