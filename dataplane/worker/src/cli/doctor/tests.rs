//! This host's sockets, and hosts that are files in a folder, for DPDK's devices.
#![allow(clippy::unwrap_used)]

use super::*;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::symlink;
use thc_transport::DpdkConfig;

const NIC: &str = "0000:3b:00.0";

/// A host that is all right for DPDK, with a NIC on vfio-pci.
struct Fake(tempfile::TempDir);

impl Fake {
    fn new() -> Fake {
        let fake = Fake(tempfile::tempdir().unwrap());
        fake.file("proc/sys/vm/nr_hugepages", "256\n");
        fake.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "256\n");
        fake.file("sys/class/net/eth1/mtu", "1500\n");
        fake.nic("vfio-pci");
        fake.link(&format!("sys/bus/pci/devices/{NIC}/iommu_group"), "../../../kernel/iommu_groups/17");
        fake.file("dev/vfio/17", "");
        fake
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.0.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    fn nic(&self, driver: &str) {
        self.file(&format!("sys/bus/pci/devices/{NIC}/class"), "0x020000\n");
        self.link(
            &format!("sys/bus/pci/devices/{NIC}/driver"),
            &format!("../../../bus/pci/drivers/{driver}"),
        );
    }

    /// What is not ok over these devices.
    fn dpdk(&self, devices: &[&str]) -> Vec<Check> {
        self.dpdk_with(devices, |_| ())
    }

    fn dpdk_with(&self, devices: &[&str], change: impl FnOnce(&mut DpdkConfig)) -> Vec<Check> {
        let mut config = DpdkConfig::new("10.77.7.7".parse().unwrap());
        config.devices = devices.iter().map(|device| device.to_string()).collect();
        change(&mut config);
        complaints(dpdk::check(self.0.path(), &config))
    }
}

fn complaints(mut checks: Vec<Check>) -> Vec<Check> {
    checks.retain(|check| check.verdict != Verdict::Ok);
    checks
}

/// There is exactly this complaint, and its text and mend say these.
#[track_caller]
fn assert_only(found: &[Check], verdict: Verdict, name: &str, says: &str, mend: &str) {
    let [check] = found else { panic!("{found:#?}") };
    assert_eq!((check.verdict, check.name), (verdict, name), "{check:?}");
    assert!(check.found.contains(says), "{check:?}");
    assert!(check.mend.as_ref().unwrap().contains(mend), "{check:?}");
}

use Verdict::{Warning, Wrong};

/// Buffers that every host grants.
fn modest() -> GroupConfig {
    GroupConfig { recv_buffer: 64 << 10, send_buffer: 64 << 10, threads: 1, ..GroupConfig::default() }
}

fn visit(config: GroupConfig) -> Visit {
    Visit { config, patience: Duration::ZERO, json: false, watch: false }
}

#[test]
fn every_check_is_there_once() {
    let names = |config| {
        examine(&visit(config), Path::new("/nowhere"))
            .checks
            .iter()
            .map(|check| check.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(GroupConfig::default()), ["socket", "path"]);
    let mut dpdk = DpdkConfig::new("10.77.7.7".parse().unwrap());
    dpdk.devices = vec!["net_tap0".into(), NIC.into()];
    let config = GroupConfig { io: Backend::Dpdk(dpdk), ..GroupConfig::default() };
    assert_eq!(names(config), ["hugepages", "device", "device"]);
}

#[test]
fn a_sound_host_has_no_complaints() {
    let fake = Fake::new();
    assert_eq!(fake.dpdk(&[NIC]), []);
    assert_eq!(fake.dpdk(&["3b:00.0", "net_af_packet0,iface=eth1"]), []);
    fake.nic("mlx5_core");
    assert_eq!(fake.dpdk(&[NIC]), []);
}

#[test]
fn hugepages() {
    let fake = Fake::new();
    fake.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "hugepages", "6 MiB free, about 86 MiB", "echo 299 >");
    assert_eq!(fake.dpdk_with(&["net_ring0"], |config| config.hugepages = false), []);
    fake.remove("sys/kernel/mm/hugepages");
    assert_only(&fake.dpdk(&["net_ring0"]), Wrong, "hugepages", "0 MiB", "--dpdk-hugepages=false");
}

#[test]
fn devices() {
    let fake = Fake::new();
    assert_only(&fake.dpdk(&["0000:00:09.0"]), Wrong, "device", "no device at 0000:00:09.0", NIC);
    assert_only(&fake.dpdk(&["net_af_packet0,iface=eth7"]), Wrong, "device", "eth7", "eth1");
    fake.remove("dev/vfio/17");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "no /dev/vfio/17", "pass /dev/vfio in");
    fake.file("dev/vfio/noiommu-17", "");
    assert_eq!(fake.dpdk(&[NIC]), []);
    fake.remove(&format!("sys/bus/pci/devices/{NIC}/iommu_group"));
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "no IOMMU", "intel_iommu=on");
    fake.nic("ice");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "driver ice", "--bind=vfio-pci 0000:3b:00.0");
    fake.remove(&format!("sys/bus/pci/devices/{NIC}"));
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "no device", "net_memif or net_af_packet");
}

#[test]
fn addresses_and_mtus_of_dpdk() {
    let fake = Fake::new();
    let own = |config: &mut DpdkConfig| config.address = Ipv4Addr::LOCALHOST;
    let found = fake.dpdk_with(&["net_af_packet0,iface=eth1"], own);
    assert_only(&found, Wrong, "link", "the kernel has 127.0.0.1 as well", "ip addr del 127.0.0.1");
    assert_eq!(fake.dpdk_with(&[NIC], own), []);
    let found = fake.dpdk_with(&[NIC], |config| config.mtu = 1000);
    assert_only(&found, Wrong, "link", "--dpdk-mtu is 1000", "1500");
}

#[test]
fn sockets() {
    let found = |config| complaints(examine(&visit(config), Path::new("/")).checks);
    let greedy = GroupConfig { recv_buffer: 64 << 30, ..modest() };
    assert_only(&found(greedy), Warning, "socket", "the receive buffer has", "net.core.rmem_max=34359738368");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let bind = taken.local_addr().unwrap();
    assert_only(&found(GroupConfig { bind, ..modest() }), Wrong, "socket", "in use", "another port");
}

#[test]
fn the_report_ends_with_a_verdict() {
    let text = examine(&visit(modest()), Path::new("/")).to_string();
    assert!(text.ends_with("A run will work; 0 warnings."), "{text}");
    assert!(text.contains("\n  ok       path         a route to 127.0.0.1, MTU "), "{text}");
    let greedy = GroupConfig { recv_buffer: 64 << 30, ..modest() };
    let text = examine(&visit(greedy), Path::new("/")).to_string();
    assert!(text.ends_with("A run will work; 1 warning."), "{text}");
    assert!(text.contains("-> sysctl -w net.core.rmem_max="), "{text}");
    let mut dpdk = DpdkConfig::new("10.77.7.7".parse().unwrap());
    dpdk.devices = vec![NIC.into()];
    let io = Backend::Dpdk(dpdk);
    let report = examine(&visit(GroupConfig { io, ..modest() }), Path::new("/nowhere"));
    assert_eq!(report.verdict, Wrong);
}
