//! Networks of virtual hosts for demos and tests: each host is a network namespace with a veth device, and a bridge or a
//! switch connects the hosts.
//!
//! A network does not touch the machine's own interfaces. Its names contain the process id, and dropping its value
//! removes it. The next network that is created removes those that killed processes left behind. Creating a network
//! requires root.
#![forbid(unsafe_code)]

pub mod ports;

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::Serialize;

/// The folder in which `ip netns` keeps named namespaces.
const NAMED: &str = "/run/netns";
/// The beginning of all names.
const PREFIX: &str = "thc";
/// The number of networks that this process has created.
static NETWORKS: AtomicU32 = AtomicU32::new(0);
/// Length of the hosts' common network prefix.
pub const PREFIX_LEN: u8 = 24;

/// Bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// The name in tables.
    #[must_use]
    pub fn name(self) -> String {
        format!("{} Gb/s", self.0 as f64 / 1e9)
    }
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        // A capital B is a byte.
        let unit = match &text[end..] {
            "mbit" | "Mbit" | "Mb/s" => 1e6,
            "gbit" | "Gbit" | "Gb/s" => 1e9,
            _ => 0.0,
        };
        let bits = text[..end].parse::<f64>().unwrap_or(0.0) * unit;
        if (1e6..=1e13).contains(&bits) {
            return Ok(Self(bits.round() as u64));
        }
        Err("write a rate like 100mbit, 2.5gbit or 25Gb/s".to_owned())
    }
}

impl Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{}gbit", self.0 as f64 / 1e9))
    }
}

/// Hosts on one bridge, or on the ports of a switch.
#[derive(Debug)]
pub struct Network {
    hosts: Vec<Host>,
    bridge: Option<Namespace>,
}

/// A host: a namespace with the interface `eth0`.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    /// The host's IPv4 address. The kernel has it only between [`Host::assign`] and [`Host::release`].
    pub address: Ipv4Addr,
    /// The host's IPv6 address. The kernel has it after [`Host::assign_v6`].
    pub address_v6: Ipv6Addr,
    /// The hardware address of the host's interface.
    pub mac: String,
    /// The interface at the other end of the host's cable, which is a switch's port in this process's namespace. Empty if
    /// that end belongs to a bridge.
    pub port: String,
}

impl Network {
    /// Creates a network of `hosts` hosts on a bridge. Their interfaces are up and have no addresses. Offloads are off, so
    /// that packets are what a cable would carry, with their checksums and one by one.
    ///
    /// # Errors
    /// The reason for which there can be no network, as text for `not run: …`.
    pub fn star(hosts: u8) -> Result<Network, String> {
        let network = Network::lan(hosts)?;
        network.hosts.iter().try_for_each(Host::without_offloads)?;
        Ok(network)
    }

    /// Creates a network like [`Network::star`] whose offloads stay on, so that runs of packets travel in one piece, as most NICs
    /// accept them.
    ///
    /// # Errors
    /// The reason for which there can be no network, as text for `not run: …`.
    pub fn lan(hosts: u8) -> Result<Network, String> {
        sweep();
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let bridge = Namespace::new(name(number, "bridge"))?;
        bridge.ip("link add br0 type bridge")?;
        bridge.ip("link set br0 up")?;
        let mut network = Network { hosts: Vec::new(), bridge: Some(bridge) };
        for host in 1..=hosts {
            let namespace = Namespace::new(name(number, &host.to_string()))?;
            let port = format!("port{host}");
            if let Some(bridge) = &network.bridge {
                bridge.ip(&cable(host, &port, &namespace))?;
                bridge.ip(&format!("link set {port} master br0 up"))?;
            }
            network.hosts.push(Host::new(host, namespace, String::new())?);
        }
        Ok(network)
    }

    /// Creates `hosts` hosts, each on a cable whose other end is a port for a switch that this process runs itself.
    ///
    /// # Errors
    /// The reason for which there can be no network, as text for `not run: …`.
    pub fn with_cables(hosts: u8) -> Result<Network, String> {
        sweep();
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let mut network = Network { hosts: Vec::new(), bridge: None };
        for host in 1..=hosts {
            let namespace = Namespace::new(name(number, &host.to_string()))?;
            // An interface's name has at most 15 letters. The interface disappears with the namespace at the other end.
            let port = format!("t{}n{number}p{host}", std::process::id());
            let words = cable(host, &port, &namespace);
            run("ip", &words.split(' ').collect::<Vec<_>>())?;
            run("ip", &["link", "set", &port, "up"])?;
            run(
                "ethtool",
                &["-K", &port, "tx", "off", "rx", "off", "gso", "off", "gro", "off", "tso", "off"],
            )?;
            network.hosts.push(Host::new(host, namespace, port)?);
        }
        network.hosts.iter().try_for_each(Host::without_offloads)?;
        Ok(network)
    }

    /// Limits the `n`-th host's cable to `bits` bits a second in each direction, with a queue of 2 MB, like that of a small
    /// switch.
    ///
    /// # Errors
    /// The message of `tc`.
    pub fn shape(&self, n: usize, bits: u64) -> Result<(), String> {
        // A run of packets in one piece has 64 KiB, and must fit the bucket.
        let burst = if bits > 5_000_000_000 { "1mb" } else { "256kb" };
        let shape = format!("root tbf rate {bits}bit burst {burst} limit 2mb");
        let host = &self.hosts[n];
        let other = match &self.bridge {
            Some(bridge) => format!("-n {} qdisc add dev port{}", bridge.0, n + 1),
            None => format!("qdisc add dev {}", host.port),
        };
        for end in [format!("-n {} qdisc add dev eth0", host.namespace.0), other] {
            run("tc", &format!("{end} {shape}").split(' ').collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// The hosts.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The `n`-th host.
    ///
    /// # Panics
    /// If there are fewer hosts.
    #[must_use]
    pub fn host(&self, n: usize) -> &Host {
        &self.hosts[n]
    }
}

/// Creates a host's cable, one end of which is the host's `eth0`.
fn cable(host: u8, port: &str, namespace: &Namespace) -> String {
    format!("link add {port} type veth peer name eth0 address {} netns {}", mac(host), namespace.0)
}

fn mac(host: u8) -> String {
    format!("02:00:00:00:00:{host:02x}")
}

fn name(network: u32, what: &str) -> String {
    format!("{PREFIX}-{}-{network}-{what}", std::process::id())
}

impl Host {
    fn new(host: u8, namespace: Namespace, port: String) -> Result<Host, String> {
        namespace.ip("link set lo up")?;
        namespace.ip("link set eth0 up")?;
        let address = Ipv4Addr::new(10, 77, 0, host);
        let address_v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, host.into());
        Ok(Host { namespace, address, address_v6, mac: mac(host), port })
    }

    fn without_offloads(&self) -> Result<(), String> {
        self.namespace.run("ethtool", "-K eth0 tx off rx off gso off gro off tso off")
    }

    /// A command that runs a program on this host.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace.0]).arg(program);
        command
    }

    /// Gives the kernel this host's address.
    ///
    /// # Errors
    /// The message of `ip`.
    pub fn assign(&self) -> Result<(), String> {
        self.namespace.ip(&format!("addr add {}/{PREFIX_LEN} dev eth0", self.address))
    }

    /// Gives the kernel this host's IPv6 address, which other hosts can reach at once.
    ///
    /// # Errors
    /// The message of `ip`.
    pub fn assign_v6(&self) -> Result<(), String> {
        self.namespace.ip(&format!("-6 addr add {}/64 dev eth0 nodad", self.address_v6))
    }

    /// Takes the addresses from the kernel, for a program that answers to them without the kernel.
    ///
    /// # Errors
    /// The message of `ip`.
    pub fn release(&self) -> Result<(), String> {
        self.namespace.ip("addr flush dev eth0")
    }

    /// Runs `ip` with these arguments on this host.
    ///
    /// # Errors
    /// The message of `ip`.
    pub fn ip(&self, words: &str) -> Result<(), String> {
        self.namespace.ip(words)
    }
}

/// A named network namespace, removed when dropped.
#[derive(Debug)]
struct Namespace(String);

impl Namespace {
    fn new(name: String) -> Result<Namespace, String> {
        run("ip", &["netns", "add", &name]).map_err(|e| format!("no network namespaces: {e}"))?;
        Ok(Namespace(name))
    }

    fn ip(&self, words: &str) -> Result<(), String> {
        let mut all = vec!["-n", &self.0];
        all.extend(words.split(' '));
        run("ip", &all)
    }

    fn run(&self, program: &str, words: &str) -> Result<(), String> {
        let mut all = vec!["netns", "exec", &self.0, program];
        all.extend(words.split(' '));
        run("ip", &all)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Processes that still run in the namespace keep it alive without a name. There is no caller to report that to.
        let _ = run("ip", &["netns", "del", &self.0]);
    }
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {}: {}", words.join(" "), said.trim()))
        }
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// Removes namespaces whose process is gone.
fn sweep() {
    for entry in fs::read_dir(NAMED).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        if let (Some(PREFIX), Some(Ok(process))) = (parts.next(), parts.next().map(str::parse::<u32>))
            && parts.count() == 2
            && !Path::new(&format!("/proc/{process}")).exists()
        {
            let _ = run("ip", &["netns", "del", &name]);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let network = match Network::star(1) {
            Ok(network) => network,
            Err(reason) => {
                println!("not run: {reason}");
                return;
            }
        };
        let host = network.host(0);
        let names =
            [&host.namespace.0, &network.bridge.as_ref().unwrap().0].map(|name| Path::new(NAMED).join(name));
        assert!(names.iter().all(|name| name.exists()), "{names:?}");
        let mut stray = host.command("sleep".as_ref()).arg("100").stdin(Stdio::null()).spawn().unwrap();
        drop(network);
        stray.kill().unwrap();
        stray.wait().unwrap();
        assert!(!names.iter().any(|name| name.exists()), "{names:?}");
    }

    #[test]
    fn what_a_killed_test_left_goes() {
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let left = Namespace::new(format!("{PREFIX}-{}-0-1", gone.id()));
        let left = match left {
            Ok(left) => left,
            Err(reason) => {
                println!("not run: {reason}");
                return;
            }
        };
        sweep();
        assert!(!Path::new(NAMED).join(&left.0).exists());
    }
}
