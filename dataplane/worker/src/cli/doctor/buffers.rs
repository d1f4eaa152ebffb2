//! Socket buffers of kernel UDP.

use super::check::Check;
use super::host::Host;
use super::permissions::NET_ADMIN;
use thc_worker::GroupConfig;

/// Whether the sockets get the buffers that they ask for.
pub fn check(host: &Host, config: &GroupConfig) -> Check {
    const NAME: &str = "buffers";
    let mut small = Vec::new();
    let mut mend = Vec::new();
    for (key, wanted) in [("rmem_max", config.recv_buffer), ("wmem_max", config.send_buffer)] {
        // The kernel grants twice the limit, to cover what it adds to each packet.
        let wanted = wanted.div_ceil(2) as i64;
        if let Some(limit) = host.number(&format!("/proc/sys/net/core/{key}"))
            && limit < wanted
        {
            small.push(format!("net.core.{key} is {limit}"));
            mend.push(format!("net.core.{key}={wanted}"));
        }
    }
    if small.is_empty() {
        return Check::ok(NAME, "as large as wanted");
    }
    if host.capable(NET_ADMIN) {
        return Check::ok(NAME, format!("{}, but CAP_NET_ADMIN may exceed it", small.join(", ")));
    }
    let found = format!("{}: bursts may be dropped and sent again", small.join(", "));
    Check::warning(NAME, found, format!("sysctl -w {} (for good: /etc/sysctl.d)", mend.join(" ")))
}
