//! The interfaces that packets go through.

use super::check::Check;
use super::host::Host;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thc_protocol::wire::MAX_PACKET;
use thc_transport::{DeviceInfo, IPV4_UDP_HEADER_LEN, IPV6_UDP_HEADER_LEN};

const NAME: &str = "link";
/// The longest IPv4 packet of the protocol.
pub const LONGEST: i64 = (MAX_PACKET + IPV4_UDP_HEADER_LEN) as i64;
/// The longest IPv6 packet of the protocol.
const LONGEST_V6: i64 = (MAX_PACKET + IPV6_UDP_HEADER_LEN) as i64;
/// IFF_UP (linux/if.h)
const UP: i64 = 1;
/// Mbit/s; on slower ones a cable or a switch port is at fault more often than not.
const SLOW: i64 = 1000;

/// The interface that the kernel sends through towards an address.
pub fn outgoing_interface(host: &Host, to: IpAddr) -> Option<String> {
    if to.is_loopback() || is_own(host, to) {
        return Some("lo".to_owned());
    }
    match to {
        IpAddr::V4(to) => towards_v4(host, to),
        IpAddr::V6(to) => towards_v6(host, to),
    }
}

fn towards_v4(host: &Host, to: Ipv4Addr) -> Option<String> {
    let table = host.read("/proc/net/route")?;
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Numbers are in the byte order of the host, addresses in the network's within them.
        let address =
            |n: usize| -> Option<u32> { Some(u32::from_str_radix(fields.get(n)?, 16).ok()?.swap_bytes()) };
        let metric: u32 = fields.get(6)?.parse().ok()?;
        Some((fields.first()?.to_string(), address(1)?, address(7)?, metric))
    });
    let fitting = routes.filter(|(_, network, mask, _)| to.to_bits() & mask == *network);
    let best = fitting.max_by_key(|(_, _, mask, metric)| (mask.count_ones(), u32::MAX - metric));
    best.map(|(interface, ..)| interface)
}

fn towards_v6(host: &Host, to: Ipv6Addr) -> Option<String> {
    /// RTF_REJECT (linux/route.h)
    const REJECT: u32 = 0x200;
    let table = host.read("/proc/net/ipv6_route")?;
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |n: usize| u32::from_str_radix(fields.get(n)?, 16).ok();
        let network = u128::from_str_radix(fields.first()?, 16).ok()?;
        Some((fields.get(9)?.to_string(), network, number(1)?, number(5)?, number(8)?))
    });
    let same = |network: u128, prefix: u32| (to.to_bits() ^ network).leading_zeros() >= prefix;
    let fitting =
        routes.filter(|&(_, network, prefix, _, flags)| flags & REJECT == 0 && same(network, prefix));
    let best = fitting.max_by_key(|&(_, _, prefix, metric, _)| (prefix, u32::MAX - metric));
    best.map(|(interface, ..)| interface)
}

/// Whether an address is one of this host's.
pub fn is_own(host: &Host, address: IpAddr) -> bool {
    if let IpAddr::V6(address) = address {
        let mark = format!("{:032x}", address.to_bits());
        let table = host.read("/proc/net/if_inet6").unwrap_or_default();
        return table.lines().any(|line| line.starts_with(&mark));
    }
    let trie = host.read("/proc/net/fib_trie").unwrap_or_default();
    let mark = format!("|-- {address}");
    let mut lines = trie.lines();
    while let Some(line) = lines.next() {
        if line.trim() == mark && lines.next().is_some_and(|next| next.contains("host LOCAL")) {
            return true;
        }
    }
    false
}

/// A device as DPDK has opened it.
pub fn device(device: &DeviceInfo) -> Check {
    let DeviceInfo { name, driver, mac, mtu, speed, .. } = device;
    if !device.link {
        return Check::wrong(
            NAME,
            format!("{name} ({driver}) has no link"),
            "look at the cable and the port at its other end, or give it more time (--patience 10s); for net_memif look \
             at the other process",
        );
    }
    // Virtual devices make a speed up.
    let speed = if *speed > 0 && device.numa.is_some() {
        format!(", {} Gbit/s", f64::from(*speed) / 1000.0)
    } else {
        String::new()
    };
    let checksums = match (device.tx_checksum, device.rx_checksum) {
        (true, true) => "it does checksums",
        _ => "checksums in software",
    };
    // It says so whatever its interface is.
    let up = if driver == "net_af_packet" { "open" } else { "up" };
    Check::ok(NAME, format!("{name} ({driver}) {up}{speed}, {mac}, MTU {mtu}, {checksums}"))
}

/// Whether the kernel would answer in this end's name, on an interface that DPDK and it share.
pub fn address(host: &Host, own: Ipv4Addr, interfaces: &[String]) -> Option<Check> {
    let interface = interfaces.first().filter(|_| is_own(host, own.into()))?;
    Some(Check::wrong(
        NAME,
        format!("the kernel has {own} as well, and refuses what comes for DPDK"),
        format!(
            "give --dpdk-address one that is free, or take this one from the kernel: ip addr del {own} dev {interface}"
        ),
    ))
}

/// One check per interface.
pub fn check(host: &Host, interface: &str, to: IpAddr) -> Check {
    let file = |name: &str| format!("/sys/class/net/{interface}/{name}");
    let Some(flags) = host.read(&file("flags")) else {
        let there = host.names("/sys/class/net").join(", ");
        return Check::wrong(NAME, format!("no interface {interface}"), format!("there are {there}"));
    };
    let flags = i64::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(UP);
    if flags & UP == 0 {
        return Check::wrong(NAME, format!("{interface} is down"), format!("ip link set dev {interface} up"));
    }
    let state = host.read(&file("operstate")).unwrap_or_default();
    if state.ends_with("down") || state == "dormant" || host.number(&file("carrier")) == Some(0) {
        return Check::wrong(
            NAME,
            format!("{interface} has no carrier ({state})"),
            "look at the cable and the port at its other end (ethtool, ip -s link)",
        );
    }
    let mtu = host.number(&file("mtu")).unwrap_or(1500);
    let longest = if to.is_ipv4() { LONGEST } else { LONGEST_V6 };
    if mtu < longest {
        return Check::wrong(
            NAME,
            format!("{interface} takes packets of {mtu} bytes, the longest here have {longest}"),
            format!("ip link set dev {interface} mtu 1500, on the whole way"),
        );
    }
    // Virtual interfaces have no speed, or make one up.
    let speed = host.number(&file("speed")).filter(|&speed| speed > 0);
    let half = host.read(&file("duplex")).as_deref() == Some("half");
    if half || speed.is_some_and(|speed| speed < SLOW) {
        let found = format!(
            "{interface} runs at {} Mbit/s{}",
            speed.unwrap_or(0),
            if half { ", half duplex" } else { "" }
        );
        return Check::warning(
            NAME,
            found,
            "is this the right interface? If so, look at cable and switch port",
        );
    }
    let speed = speed.map_or(String::new(), |speed| format!(", {} Gbit/s", speed as f64 / 1000.0));
    Check::ok(NAME, format!("{interface} up{speed}, MTU {mtu}"))
}
