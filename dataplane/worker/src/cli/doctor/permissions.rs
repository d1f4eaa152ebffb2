//! What this process may do.

use super::check::Check;
use super::device::Device;
use super::host::{Access, Host};
use std::net::SocketAddrV4;

const NAME: &str = "permissions";

// linux/capability.h
pub const NET_BIND_SERVICE: u32 = 10;
pub const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;

/// For kernel sockets: the port.
pub fn udp(host: &Host, bind: SocketAddrV4) -> Check {
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
        checks.push(Check::wrong(
            NAME,
            format!("{} MiB may be locked, about {} MiB are needed", limit >> 20, needed >> 20),
            "ulimit -l unlimited (for good: memlock in /etc/security/limits.d, LimitMEMLOCK= in a unit)",
        ));
    }
    if checks.is_empty() {
        checks.push(Check::ok(NAME, "sufficient for these devices"));
    }
    checks
}

/// What a device needs and this process lacks.
fn capability(host: &Host, device: &Device) -> Option<Check> {
    let (number, name, who) = match device {
        Device::Pci(address) => {
            let driver = host.link(&format!("/sys/bus/pci/devices/{address}/driver"))?;
            match driver.as_str() {
                driver if driver.starts_with("mlx") => (NET_RAW, "CAP_NET_RAW", "mlx5"),
                "vfio-pci" => return None,
                _ => (SYS_ADMIN, "CAP_SYS_ADMIN", "a device without IOMMU"),
            }
        }
        Device::Virtual { driver, .. } => match driver.as_str() {
            "net_af_packet" => (NET_RAW, "CAP_NET_RAW", "net_af_packet"),
            "net_af_xdp" => (NET_ADMIN, "CAP_NET_ADMIN", "net_af_xdp"),
            "net_tap" if host.access("/dev/net/tun") != Access::Granted => {
                return Some(Check::wrong(
                    NAME,
                    "net_tap needs /dev/net/tun, which is not there for this user",
                    "modprobe tun; run as root",
                ));
            }
            "net_tap" => (NET_ADMIN, "CAP_NET_ADMIN", "net_tap"),
            _ => return None,
        },
    };
    if host.capable(number) {
        return None;
    }
    let mend =
        format!("run as root, or: setcap {}+ep \"$(command -v thc-worker)\"", name.to_ascii_lowercase());
    Some(Check::wrong(NAME, format!("{who} needs {name}, which this process does not have"), mend))
}

/// Bytes that may be locked; `None` without a limit.
fn memlock(host: &Host) -> Option<u64> {
    let limits = host.read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}
