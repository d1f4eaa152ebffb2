//! Interfaces for AF_XDP.

use super::check::Check;
use super::host::Host;
use thc_transport::XdpConfig;

const NAME: &str = "device";
/// How the kernel names interfaces that are Ethernet (linux/if_arp.h).
const ETHERNET: i64 = 1;

/// Whether the interface is there, and what of it is used. What it refuses is found when it is opened.
pub fn device(host: &Host, config: &XdpConfig) -> Check {
    let name = &config.device;
    let folder = format!("/sys/class/net/{name}");
    if !host.exists(&folder) {
        let there = host.names("/sys/class/net").join(", ");
        return Check::wrong(
            NAME,
            format!("{name} is not an interface here"),
            format!("use one of {there}; in a network namespace, run there: ip netns exec NAME …"),
        );
    }
    if host.number(&format!("{folder}/type")).is_some_and(|kind| kind != ETHERNET) {
        return Check::wrong(
            NAME,
            format!("{name} is not an Ethernet interface"),
            "use an interface with a hardware address, or --io udp",
        );
    }
    let driver = host.link(&format!("{folder}/device/driver")).unwrap_or("a virtual interface".to_owned());
    let queues =
        host.names(&format!("{folder}/queues")).iter().filter(|name| name.starts_with("rx-")).count();
    let used = config.queues.map_or(queues, usize::from);
    let memory = (used as u64 * config.memory()) >> 20;
    let found = format!("{name} ({driver}), {used} of {queues} queues, {memory} MiB");
    if used > queues && queues > 0 {
        return Check::wrong(
            NAME,
            format!("{name} ({driver}) has {queues} queues, {used} are asked for"),
            format!("ethtool -L {name} combined {used}, or --xdp-queues {queues}"),
        );
    }
    if used < queues {
        return Check::warning(
            NAME,
            found,
            format!("have packets for THC come to the first {used} (docs/xdp.md), or leave --xdp-queues out"),
        );
    }
    Check::ok(NAME, found)
}
