//! Hosts that are files in a folder: sound ones, and ones with something wrong that must be found.
#![allow(clippy::unwrap_used)]

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use thc_transport::{DpdkConfig, Idle};

const NIC: &str = "0000:3b:00.0";

/// A host that is all right for UDP and, with a NIC on vfio-pci, for DPDK.
struct Fake(tempfile::TempDir);

impl Fake {
    fn new() -> Fake {
        let fake = Fake(tempfile::tempdir().unwrap());
        fake.file("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n");
        fake.file(
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes\n",
        );
        fake.file("proc/cpuinfo", "flags\t\t: fpu tsc constant_tsc nonstop_tsc\n");
        fake.file("proc/net/unix", "Num       RefCount Protocol Flags    Type St Inode Path\n");
        let header = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
        let routes = "eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\neth1 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
        fake.file("proc/net/route", &format!("{header}{routes}"));
        fake.file("proc/net/fib_trie", "Local:\n     |-- 10.0.0.2\n        /32 host LOCAL\n");
        fake.file("proc/sys/net/core/rmem_max", "16777216\n");
        fake.file("proc/sys/net/core/wmem_max", "16777216\n");
        fake.file("proc/sys/vm/nr_hugepages", "256\n");
        fake.file("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
        fake.file("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n");
        fake.file("sys/devices/system/cpu/isolated", "2-3\n");
        for (node, cores) in [(0, "0-3"), (1, "4-7")] {
            let folder = format!("sys/devices/system/node/node{node}");
            fake.file(&format!("{folder}/cpulist"), cores);
            fake.pages(&format!("{folder}/hugepages"), 128, 128);
        }
        fake.pages("sys/kernel/mm/hugepages", 256, 256);
        for interface in ["eth0", "eth1", "lo"] {
            fake.interface(interface, "up", "1500");
        }
        fake.nic("vfio-pci");
        fake.link(&format!("sys/bus/pci/devices/{NIC}/iommu_group"), "../../../kernel/iommu_groups/17");
        fake.file(&format!("sys/kernel/iommu_groups/17/devices/{NIC}/x"), "");
        fake.file("dev/vfio/vfio", "");
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

    fn pages(&self, folder: &str, all: u32, free: u32) {
        self.file(&format!("{folder}/hugepages-2048kB/nr_hugepages"), &all.to_string());
        self.file(&format!("{folder}/hugepages-2048kB/free_hugepages"), &free.to_string());
    }

    fn interface(&self, name: &str, state: &str, mtu: &str) {
        for (file, text) in
            [("flags", "0x1003"), ("operstate", state), ("mtu", mtu), ("speed", "25000"), ("duplex", "full")]
        {
            self.file(&format!("sys/class/net/{name}/{file}"), text);
        }
    }

    fn nic(&self, driver: &str) {
        self.file(&format!("sys/bus/pci/devices/{NIC}/class"), "0x020000\n");
        self.file(&format!("sys/bus/pci/devices/{NIC}/numa_node"), "0\n");
        self.link(
            &format!("sys/bus/pci/devices/{NIC}/driver"),
            &format!("../../../bus/pci/drivers/{driver}"),
        );
    }

    fn report(&self, io: Backend) -> Report {
        examine(&Visit {
            config: GroupConfig { ps: "10.0.0.1:9000".parse().unwrap(), io, ..GroupConfig::default() },
            known: Known { cookie: true, worker: true },
            root: Some(self.0.path().to_owned()),
            patience: Duration::ZERO,
            json: false,
        })
    }

    /// Everything that is not ok over UDP.
    fn udp(&self) -> Vec<Check> {
        complaints(self.report(Backend::Udp))
    }

    /// The same over these devices.
    fn dpdk(&self, devices: &[&str]) -> Vec<Check> {
        self.dpdk_with(devices, |_| ())
    }

    fn dpdk_with(&self, devices: &[&str], change: impl FnOnce(&mut DpdkConfig)) -> Vec<Check> {
        let mut config = DpdkConfig::new("10.0.0.7".parse().unwrap());
        config.devices = devices.iter().map(|device| device.to_string()).collect();
        change(&mut config);
        let mut found = complaints(self.report(Backend::Dpdk(config)));
        // Whether DPDK is built in is not this host's doing.
        found.retain(|check| check.name != "program");
        found
    }
}

fn complaints(report: Report) -> Vec<Check> {
    report.checks.into_iter().filter(|check| check.verdict != Verdict::Ok).collect()
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

#[test]
fn a_sound_host_has_no_complaints() {
    let fake = Fake::new();
    assert_eq!(fake.udp(), []);
    assert_eq!(fake.dpdk(&[NIC]), []);
    assert_eq!(fake.dpdk_with(&["3b:00.0"], |config| config.idle = Idle::BusyPoll), []);
}

#[test]
fn every_check_is_there_once() {
    let names = |report: Report| report.checks.iter().map(|check| check.name).collect::<Vec<_>>();
    let fake = Fake::new();
    let udp = ["program", "permissions", "buffers", "link", "numa", "cores", "clock"];
    assert_eq!(names(fake.report(Backend::Udp)), udp);
    let mut config = DpdkConfig::new("10.0.0.7".parse().unwrap());
    config.devices = vec!["net_tap0".into(), "net_af_packet0,iface=eth1".into()];
    let dpdk = [
        "program",
        "hugepages",
        "device",
        "device",
        "permissions",
        "permissions",
        "link",
        "numa",
        "cores",
        "clock",
    ];
    assert_eq!(names(fake.report(Backend::Dpdk(config))), dpdk);
}

#[test]
fn hugepages() {
    let fake = Fake::new();
    fake.pages("sys/kernel/mm/hugepages", 256, 3);
    assert_only(&fake.dpdk(&[NIC]), Wrong, "hugepages", "3 of 256 free of 2 MiB; about 86 MiB", "echo 299 >");
    assert_only(&fake.dpdk(&["net_ring0"]), Wrong, "hugepages", "3 of 256", "--dpdk-hugepages=false");
    assert_eq!(fake.dpdk_with(&["net_ring0"], |config| config.hugepages = false), []);
    let found = fake.dpdk_with(&[NIC], |config| config.hugepages = false);
    assert_only(&found, Warning, "hugepages", "not used", "leave --dpdk-hugepages at true");
    fake.remove("sys/kernel/mm/hugepages");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "hugepages", "none; about", "nr_hugepages");
}

#[test]
fn hugepages_of_the_wrong_node() {
    let fake = Fake::new();
    fake.pages("sys/devices/system/node/node0/hugepages", 0, 0);
    assert_only(
        &fake.dpdk(&[NIC]),
        Warning,
        "hugepages",
        "node 0, where 0000:3b:00.0 is, has 0 MiB",
        "node0/hugepages",
    );
}

#[test]
fn a_nic_of_the_kernel_is_not_dpdk_s() {
    let fake = Fake::new();
    fake.nic("ice");
    assert_only(
        &fake.dpdk(&[NIC]),
        Wrong,
        "device",
        "the kernel's driver ice",
        "dpdk-devbind.py --bind=vfio-pci 0000:3b:00.0",
    );
    assert_only(&fake.dpdk(&["0000:00:09.0"]), Wrong, "device", "no device at 0000:00:09.0", NIC);
    // Without an IOMMU vfio refuses it, unless it is told not to.
    fake.remove("sys/kernel/iommu_groups");
    assert_only(
        &fake.dpdk(&[NIC]),
        Wrong,
        "device",
        "driver ice, and this host has no IOMMU",
        "intel_iommu=on",
    );
    fake.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "the kernel's driver ice", "take it from the kernel");
    fake.remove(&format!("sys/bus/pci/devices/{NIC}"));
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "no device", "net_memif or net_af_packet");
}

#[test]
fn vfio_needs_an_iommu_and_its_files() {
    let fake = Fake::new();
    fake.remove("dev/vfio/17");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "no /dev/vfio/17", "pass /dev/vfio in");
    fake.remove(&format!("sys/bus/pci/devices/{NIC}/iommu_group"));
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "no IOMMU", "intel_iommu=on");
}

#[test]
fn vfio_without_an_iommu() {
    let fake = Fake::new();
    fake.file("proc/self/status", "CapEff:\t0000000000020000\nCpus_allowed_list:\t0-3\n");
    fake.file("sys/kernel/iommu_groups/17/name", "vfio-noiommu\n");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "no /dev/vfio/noiommu-17", "modprobe vfio-pci");
    fake.file("dev/vfio/noiommu-17", "");
    assert_only(&fake.dpdk(&[NIC]), Warning, "device", "without an IOMMU", "turn the IOMMU on");
    fake.file("proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n");
    assert_only(&fake.dpdk(&[NIC])[1..], Wrong, "permissions", "needs root", "run as root");
}

#[test]
fn a_group_of_devices_goes_together() {
    const OTHER: &str = "0000:3b:00.1";
    let fake = Fake::new();
    fake.file(&format!("sys/kernel/iommu_groups/17/devices/{OTHER}/x"), "");
    assert_eq!(fake.dpdk(&[NIC]), []);
    let driver = |name: &str| {
        fake.link(
            &format!("sys/bus/pci/devices/{OTHER}/driver"),
            &format!("../../../bus/pci/drivers/{name}"),
        );
    };
    driver("ice");
    assert_only(
        &fake.dpdk(&[NIC]),
        Wrong,
        "device",
        "with 0000:3b:00.1, which belongs",
        "--bind=vfio-pci 0000:3b:00.1",
    );
    driver("pcieport");
    assert_eq!(fake.dpdk(&[NIC]), []);
}

#[test]
fn a_bifurcated_driver_needs_verbs_and_a_right() {
    let fake = Fake::new();
    fake.nic("mlx5_core");
    fake.file("proc/self/status", "CapEff:\t0000000000003000\nCpus_allowed_list:\t0-3\n");
    fake.file(&format!("sys/bus/pci/devices/{NIC}/net/eth1/x"), "");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "device", "no verbs device", "rdma-core");
    fake.file(&format!("sys/bus/pci/devices/{NIC}/infiniband_verbs/uverbs0/x"), "");
    assert_only(
        &fake.dpdk(&[NIC]),
        Wrong,
        "device",
        "may not use /dev/infiniband/uverbs0",
        "pass /dev/infiniband in",
    );
    fake.file("dev/infiniband/uverbs0", "");
    assert_eq!(fake.dpdk(&[NIC]), []);
    fake.interface("eth1", "down", "1500");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "link", "eth1 has no carrier", "cable");
    fake.interface("eth1", "up", "1500");
    fake.file("proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n");
    assert_only(
        &fake.dpdk(&[NIC]),
        Wrong,
        "permissions",
        "CAP_NET_RAW and CAP_NET_ADMIN",
        "setcap cap_net_raw,cap_net_admin+ep",
    );
    fake.file("proc/self/status", "CapEff:\t0000000000002000\nCpus_allowed_list:\t0-3\n");
    assert_only(&fake.dpdk(&[NIC]), Wrong, "permissions", "mlx5_core needs CAP_NET_ADMIN,", "run as root");
}

#[test]
fn locked_memory() {
    let fake = Fake::new();
    fake.file(
        "proc/self/limits",
        "Max locked memory         8388608              8388608              bytes\n",
    );
    assert_only(&fake.dpdk(&[NIC]), Wrong, "permissions", "8 MiB may be locked", "ulimit -l");
    fake.file("proc/self/status", "CapEff:\t0000000000004000\nCpus_allowed_list:\t0-3\n");
    assert_eq!(fake.dpdk(&[NIC]), []);
}

#[test]
fn virtual_devices() {
    let fake = Fake::new();
    fake.file("proc/self/status", "CapEff:\t0000000000002000\nCpus_allowed_list:\t0-3\n");
    assert_eq!(fake.dpdk(&["net_af_packet0,iface=eth1"]), []);
    assert_only(&fake.dpdk(&["net_af_packet0,iface=eth7"])[..1], Wrong, "device", "eth7", "lo");
    let xdp = ["net_af_xdp0,iface=eth1"];
    assert_only(
        &fake.dpdk(&xdp),
        Wrong,
        "permissions",
        "CAP_NET_ADMIN and CAP_BPF",
        "cap_net_raw,cap_net_admin,cap_bpf+ep",
    );
    assert_only(&fake.dpdk(&["net_af_packet0"]), Wrong, "device", "without an interface", "iface=NAME");
    assert_only(&fake.dpdk(&["net_null0"]), Warning, "device", "throws away", "benchmarks");
    let memif = "net_memif0,role=client,id=1,socket=/run/thc.sock";
    assert_only(&fake.dpdk(&[memif]), Wrong, "device", "nobody listens", "role=server");
    let listening = "ffff: 00000002 00000000 00010000 0001 01 4711 @/run/thc.sock";
    fake.file("proc/net/unix", &format!("Num RefCount Protocol Flags Type St Inode Path\n{listening}\n"));
    assert_eq!(fake.dpdk(&[memif]), []);
    let file = format!("{memif},socket-abstract=no");
    assert_only(&fake.dpdk(&[&file]), Wrong, "device", "nobody listens", "role=server");
    let server = "net_memif0,role=server,socket-abstract=no,socket=/nowhere/thc.sock";
    assert_only(&fake.dpdk(&[server]), Wrong, "device", "no folder /nowhere", "mkdir -p /nowhere");
}

#[test]
fn an_address_that_the_kernel_has_too() {
    let fake = Fake::new();
    fake.file("proc/self/status", "CapEff:\t0000000000002000\nCpus_allowed_list:\t0-3\n");
    let af_packet = ["net_af_packet0,iface=eth1"];
    fake.file("proc/net/fib_trie", "Local:\n     |-- 10.0.0.7\n        /32 host LOCAL\n");
    assert_only(
        &fake.dpdk(&af_packet),
        Wrong,
        "link",
        "the kernel has 10.0.0.7 as well",
        "ip addr del 10.0.0.7",
    );
}

#[test]
fn links() {
    let fake = Fake::new();
    fake.interface("eth1", "up", "1000");
    assert_only(&fake.udp(), Wrong, "link", "1000 bytes, the longest here have 1072", "mtu 1500");
    fake.interface("eth1", "lowerlayerdown", "1500");
    assert_only(&fake.udp(), Wrong, "link", "no carrier", "cable");
    fake.interface("eth1", "up", "1500");
    fake.file("sys/class/net/eth1/flags", "0x1002");
    assert_only(&fake.udp(), Wrong, "link", "eth1 is down", "ip link set dev eth1 up");
    fake.file("sys/class/net/eth1/flags", "0x1003");
    fake.file("sys/class/net/eth1/speed", "100");
    assert_only(&fake.udp(), Warning, "link", "100 Mbit/s", "cable");
    let found = fake.dpdk_with(&[NIC], |config| config.mtu = 1000);
    assert_only(&found, Wrong, "link", "--dpdk-mtu is 1000", "1500");
}

#[test]
fn the_route_decides_the_interface() {
    let fake = Fake::new();
    let host = Host::new(Some(fake.0.path()));
    let cases = [("10.0.0.9", "eth1"), ("10.0.1.9", "eth0"), ("10.0.0.2", "lo"), ("127.0.0.1", "lo")];
    for (to, interface) in cases {
        assert_eq!(link::outgoing_interface(&host, to.parse().unwrap()).unwrap(), interface, "{to}");
    }
    let none = "00000000000000000000000000000000";
    let network = "fd770000000000000000000000000000";
    let routes = [
        format!("{network} 40 {none} 00 {none} 00000100 00000001 00000000 00000001     eth1\n"),
        format!("{none} 00 {none} 00 {network} 00000400 00000001 00000000 00000003     eth0\n"),
        format!("{none} 00 {none} 00 {none} ffffffff 00000001 00000000 00200200       lo\n"),
    ];
    fake.file("proc/net/ipv6_route", &routes.concat());
    fake.file("proc/net/if_inet6", "fd770000000000000000000000000002 02 40 00 80     eth1\n");
    for (to, interface) in [("fd77::9", "eth1"), ("2001:db8::1", "eth0"), ("fd77::2", "lo"), ("::1", "lo")] {
        assert_eq!(link::outgoing_interface(&host, to.parse().unwrap()).unwrap(), interface, "{to}");
    }
    fake.file("proc/net/route", "Iface Destination\n");
    assert_only(&fake.udp(), Wrong, "link", "no route to 10.0.0.1", "ip route");
}

#[test]
fn nodes_and_cores() {
    let fake = Fake::new();
    fake.file(&format!("sys/bus/pci/devices/{NIC}/numa_node"), "1\n");
    assert_only(
        &fake.dpdk(&[NIC]),
        Warning,
        "numa",
        "on node 1, this process on cores 0-3",
        "--cpunodebind=1",
    );
    let fake = Fake::new();
    fake.file("sys/class/net/eth1/device/numa_node", "1\n");
    assert_only(&fake.udp(), Warning, "numa", "eth1 is on node 1", "cores 4-7");
    let fake = Fake::new();
    fake.file("sys/devices/system/cpu/isolated", "\n");
    let busy = |config: &mut DpdkConfig| config.idle = Idle::BusyPoll;
    assert_only(&fake.dpdk_with(&[NIC], busy), Warning, "cores", "none of them isolated", "isolcpus");
    fake.file("proc/self/status", "CapEff:\t0\nCpus_allowed_list:\t1\n");
    assert_only(&fake.dpdk_with(&[NIC], busy), Warning, "cores", "1 (1)", "--dpdk-idle");
    fake.file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
    assert_only(&fake.udp(), Warning, "cores", "powersave", "performance");
}

#[test]
fn buffers_and_ports() {
    let fake = Fake::new();
    fake.file("proc/sys/net/core/rmem_max", "212992\n");
    assert_only(
        &fake.udp(),
        Warning,
        "buffers",
        "net.core.rmem_max is 212992",
        "sysctl -w net.core.rmem_max=4194304",
    );
    fake.file("proc/self/status", "CapEff:\t0000000000001000\nCpus_allowed_list:\t0-3\n");
    assert_eq!(fake.udp(), []);
    let bind = "0.0.0.0:700".parse().unwrap();
    let host = Host::new(Some(fake.0.path()));
    assert_only(&[permissions::udp(&host, bind)], Wrong, "permissions", "port 700", "from 1024");
}

#[test]
fn clocks() {
    let fake = Fake::new();
    let source = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    fake.file(source, "hpet\n");
    assert_only(&fake.udp(), Warning, "clock", "hpet", "echo tsc");
    fake.file(source, "tsc\n");
    fake.file("proc/cpuinfo", "flags\t\t: fpu tsc\n");
    assert_only(&fake.dpdk(&[NIC]), Warning, "clock", "changes its rate", "performance");
}

#[test]
fn the_report_ends_with_a_verdict() {
    let fake = Fake::new();
    let text = fake.report(Backend::Udp).to_string();
    assert!(text.ends_with("All is well."), "{text}");
    fake.interface("eth1", "up", "1000");
    fake.file("proc/sys/net/core/wmem_max", "1\n");
    let report = fake.report(Backend::Udp);
    assert_eq!(report.verdict, Wrong);
    let text = report.to_string();
    assert!(text.contains("\n  wrong    link         eth1"), "{text}");
    assert!(text.contains("-> ip link set dev eth1 mtu 1500"), "{text}");
    assert!(text.ends_with("1 thing wrong, 1 warning."), "{text}");
}

#[test]
fn a_root_without_anything_is_no_panic() {
    let empty = tempfile::tempdir().unwrap();
    for io in [Backend::Udp, Backend::Dpdk(DpdkConfig::new("10.0.0.7".parse().unwrap()))] {
        let visit = Visit {
            config: GroupConfig { io, ..GroupConfig::default() },
            known: Known { cookie: false, worker: false },
            root: Some(Path::new(empty.path()).to_owned()),
            patience: Duration::ZERO,
            json: true,
        };
        assert!(examine(&visit).checks.len() > 4);
    }
}
