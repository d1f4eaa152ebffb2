//! What this process may do.

use super::check::Check;
use super::device::{self, Device};
use super::host::{Access, Host};
use std::net::SocketAddr;

const NAME: &str = "permissions";

// linux/capability.h
const NET_BIND_SERVICE: u32 = 10;
pub const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_RAWIO: u32 = 17;
const BPF: u32 = 39;

/// For kernel sockets: the port.
pub fn udp(host: &Host, bind: SocketAddr) -> Check {
    let first = host.number("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or(1024);
    let port = i64::from(bind.port());
    if port != 0 && port < first && !host.capable(NET_BIND_SERVICE) {
        return Check::wrong(
            NAME,
            format!("port {port} is reserved for CAP_NET_BIND_SERVICE"),
            format!("use a port from {first} up, or none: then the system chooses"),
        );
    }
    Check::ok(NAME, "none needed")
}

/// For DPDK: capabilities by device, and how much memory may be pinned.
pub fn dpdk(host: &Host, devices: &[Device], needed: u64) -> Vec<Check> {
    let mut checks: Vec<Check> = devices.iter().filter_map(|device| capability(host, device)).collect();
    let nics = devices.iter().any(|device| matches!(device, Device::Pci(_)));
    if nics
        && !host.capable(IPC_LOCK)
        && let Some(limit) = memlock(host).filter(|&limit| limit < needed)
    {
        checks.push(memlock_check(limit, needed));
    }
    if checks.is_empty() {
        checks.push(Check::ok(NAME, "sufficient for these devices"));
    }
    checks
}

/// A capability by its number in linux/capability.h, and its name.
type Capability = (u32, &'static str);
const RAW: Capability = (NET_RAW, "CAP_NET_RAW");
const ADMIN: Capability = (NET_ADMIN, "CAP_NET_ADMIN");
/// The capability to load the program that hands packets over (since Linux 5.8).
const PROGRAM: Capability = (BPF, "CAP_BPF");

/// What a device needs and this process lacks.
fn capability(host: &Host, device: &Device) -> Option<Check> {
    let (needed, who): (&[Capability], _) = match device {
        Device::Pci(address) => {
            let driver = host.link(&format!("/sys/bus/pci/devices/{address}/driver"))?;
            let bare = match driver.as_str() {
                "vfio-pci" => device::lacks_iommu(host, address),
                "uio_pci_generic" | "igb_uio" => true,
                _ => false,
            };
            // More than a capability: physical addresses and the device's files.
            if bare && !host.capable(SYS_RAWIO) {
                let found = format!("{address} without an IOMMU needs root");
                return Some(Check::wrong(NAME, found, "run as root, or turn the IOMMU on and use vfio-pci"));
            }
            // Of the other drivers of the kernel it is to be taken first.
            if !driver.starts_with("mlx") {
                return None;
            }
            (&[RAW, ADMIN], driver)
        }
        Device::Virtual { driver, .. } => match driver.as_str() {
            "net_af_packet" => (&[RAW], driver.clone()),
            "net_af_xdp" => (&[RAW, ADMIN, PROGRAM], driver.clone()),
            "net_tap" if host.access("/dev/net/tun") != Access::Granted => {
                return Some(Check::wrong(
                    NAME,
                    "net_tap needs /dev/net/tun, which is not there for this user",
                    "modprobe tun; run as root",
                ));
            }
            "net_tap" => (&[ADMIN], driver.clone()),
            _ => return None,
        },
    };
    check_capabilities(host, needed, &who)
}

fn memlock_check(limit: u64, needed: u64) -> Check {
    Check::wrong(
        NAME,
        format!("{} MiB may be locked, about {} MiB are needed", limit >> 20, needed >> 20),
        "ulimit -l unlimited (for good: memlock in /etc/security/limits.d, LimitMEMLOCK= in a unit)",
    )
}

/// A finding if this process lacks some of these capabilities.
fn check_capabilities(host: &Host, needed: &[Capability], who: &str) -> Option<Check> {
    let names = |all: &mut dyn Iterator<Item = &Capability>, between| {
        all.map(|(_, name)| *name).collect::<Vec<_>>().join(between)
    };
    let lacking = names(&mut needed.iter().filter(|(number, _)| !host.capable(*number)), " and ");
    if lacking.is_empty() {
        return None;
    }
    let all = names(&mut needed.iter(), ",").to_ascii_lowercase();
    let mend = format!("run as root, or: setcap {all}+ep \"$(command -v thc-worker)\", the same for thc-ps");
    Some(Check::wrong(NAME, format!("{who} needs {lacking}, which this process does not have"), mend))
}

/// Bytes that may be locked; `None` without a limit.
fn memlock(host: &Host) -> Option<u64> {
    let limits = host.read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}
