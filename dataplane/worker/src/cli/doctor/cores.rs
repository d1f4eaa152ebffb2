//! Cores: how many, how near to the devices, how undisturbed.

use super::check::Check;
use super::device::Device;
use super::host::{Host, format_list, list};
use thc_options::Interval;
use thc_transport::{DpdkConfig, Idle};

/// Whether the cores of this process are on the nodes of what it sends through.
pub fn numa(host: &Host, devices: &[Device], interfaces: &[String]) -> Check {
    const NAME: &str = "numa";
    let nodes = host.nodes();
    if nodes.len() < 2 {
        return Check::ok(NAME, "one node");
    }
    let own = host.own_cores();
    let nics = devices.iter().filter_map(|device| match device {
        Device::Pci(address) => Some((address.clone(), format!("/sys/bus/pci/devices/{address}/numa_node"))),
        Device::Virtual { .. } => None,
    });
    let links =
        interfaces.iter().map(|name| (name.clone(), format!("/sys/class/net/{name}/device/numa_node")));
    let mut near = Vec::new();
    for (name, path) in nics.chain(links) {
        let Some(node) = host.node(&path) else { continue };
        let cores =
            list(&host.read(&format!("/sys/devices/system/node/node{node}/cpulist")).unwrap_or_default());
        if own.is_disjoint(&cores) {
            return Check::warning(
                NAME,
                format!("{name} is on node {node}, this process on cores {} of others", format_list(&own)),
                format!(
                    "run it on cores {}: numactl --cpunodebind={node} --membind={node} …",
                    format_list(&cores)
                ),
            );
        }
        near.push(format!("{name} on node {node}, with cores {}", format_list(&cores)));
    }
    let found = if near.is_empty() { "no device belongs to one".to_owned() } else { near.join("; ") };
    Check::ok(NAME, format!("{} nodes; {found}", nodes.len()))
}

/// Whether polling has a core to itself.
pub fn check_isolation(host: &Host, config: Option<&DpdkConfig>) -> Check {
    const NAME: &str = "cores";
    let own = host.own_cores();
    let isolated = list(&host.read("/sys/devices/system/cpu/isolated").unwrap_or_default());
    let slow = own.iter().find(|core| {
        let governor = host.read(&format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"));
        governor.as_deref() == Some("powersave")
            && host.read("/sys/devices/system/cpu/intel_pstate/status").as_deref() != Some("active")
    });
    if let Some(core) = slow {
        return Check::warning(
            NAME,
            format!("core {core} is held at its lowest clock (powersave)"),
            "cpupower frequency-set --governor performance",
        );
    }
    let count = format!("{} ({})", own.len(), format_list(&own));
    let Some(config) = config else { return Check::ok(NAME, count) };
    match config.idle {
        Idle::BusyPoll if own.len() < 2 => Check::warning(
            NAME,
            format!("{count}, and polling without pause takes it whole"),
            "give this process a second core, or let it pause: --dpdk-idle 100us",
        ),
        Idle::BusyPoll if isolated.is_disjoint(&own) => Check::warning(
            NAME,
            format!("{count}, none of them isolated: whatever else runs there interrupts polling"),
            "isolcpus=2-3 nohz_full=2-3 on the kernel's command line, then run on them: taskset -c 2-3 …",
        ),
        Idle::BusyPoll => {
            let both = own.intersection(&isolated).copied().collect();
            Check::ok(NAME, format!("{count}, isolated are {}", format_list(&both)))
        }
        Idle::BackOff(nap) => Check::ok(
            NAME,
            format!("{count}; polling pauses for up to {} while nothing comes", Interval(nap)),
        ),
    }
}
