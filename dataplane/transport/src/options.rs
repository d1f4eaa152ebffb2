//! Flags and TOML keys that choose a backend, the same for every program (feature `options`).
//!
//! As written, every key may be absent and nothing is checked; [`backend`] makes the checked [`Backend`] of them.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::{Backend, DpdkConfig, Idle, MacAddr, Neighbour, TransportError};

/// A backend by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum IoName {
    /// Kernel UDP sockets
    #[default]
    Udp,
    /// DPDK devices, which bypass the kernel, in a build with `--features dpdk`
    Dpdk,
}

/// Checks the settings of the requested backend, `io`; `own` is the address on which the program listens or
/// from which it sends, which DPDK uses if `address` is absent.
///
/// # Errors
/// [`TransportError::Setting`] for the first key that is wrong, [`TransportError::NoDpdk`] if DPDK was asked for and this
/// program was built without.
pub fn backend(io: Option<IoName>, own: IpAddr, dpdk: &DpdkOptions) -> Result<Backend, TransportError> {
    let unnamed =
        |backend, mend| TransportError::Setting { backend, key: "io", value: "not given".to_owned(), mend };
    match io {
        Some(IoName::Udp) => Ok(Backend::Udp),
        Some(IoName::Dpdk) if !cfg!(feature = "dpdk") => Err(TransportError::NoDpdk),
        Some(IoName::Dpdk) => dpdk.config(own).map(Backend::Dpdk),
        None if *dpdk != DpdkOptions::default() => {
            Err(unnamed("dpdk", "say io = \"dpdk\" (--io dpdk) too, or leave these settings out"))
        }
        None => Ok(Backend::Udp),
    }
}

/// The keys of the `[dpdk]` section, each also a flag with `--dpdk-` in front.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "DPDK (with --io dpdk; docs/dpdk.md)")]
pub struct DpdkOptions {
    /// A device: a NIC's PCI address (0000:3b:00.0), a kernel interface (net_af_packet0,iface=NAME), or memory shared
    /// with another process (net_memif0,role=client,id=0,socket-abstract=no,socket=PATH); may be repeated
    #[arg(long = "dpdk-device", alias = "dpdk-devices", value_name = "DEVICE")]
    pub devices: Option<Vec<String>>,
    /// This end's own IPv4 address, which the kernel must not have, and the length of its network prefix
    /// [default: that of --listen or --bind, /24]
    #[arg(long = "dpdk-address", value_name = "ADDRESS/PREFIX")]
    pub address: Option<String>,
    /// Router to addresses outside the prefix [default: none]
    #[arg(long = "dpdk-gateway", value_name = "ADDRESS")]
    pub gateway: Option<String>,
    /// A host whose MAC address is given here rather than found by ARP; may be repeated. DEVICE counts from 0
    #[arg(long = "dpdk-neighbour", alias = "dpdk-neighbours", value_name = "ADDRESS=MAC[@DEVICE]")]
    pub neighbours: Option<Vec<String>>,
    /// MAC address of the first device [default: the device's own]
    #[arg(long = "dpdk-mac", value_name = "MAC")]
    pub mac: Option<String>,
    /// Largest IPv4 packet, headers included [default: 1500]
    #[arg(long = "dpdk-mtu", value_name = "BYTES")]
    pub mtu: Option<u64>,
    /// Take memory from hugepages; NICs need them, virtual devices do not [default: true]
    #[arg(long = "dpdk-hugepages", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub hugepages: Option<bool>,
    /// Packet buffers of each queue [default: 8192]
    #[arg(long = "dpdk-packets", value_name = "NUMBER")]
    pub packets: Option<u64>,
    /// Length of receive and send rings [default: 1024]
    #[arg(long = "dpdk-descriptors", value_name = "NUMBER")]
    pub descriptors: Option<u64>,
    /// Fill in and check UDP checksums [default: true]
    #[arg(long = "dpdk-checksums", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub checksums: Option<bool>,
    /// Longest sleep while no packet comes, or `busy` to poll without pause [default: 100us]
    #[arg(long = "dpdk-idle", value_name = "TIME")]
    pub idle: Option<String>,
    /// A further argument for DPDK's environment layer, such as --dpdk-eal=--log-level=8; may be repeated
    #[arg(long = "dpdk-eal", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub eal: Option<Vec<String>>,
}

impl DpdkOptions {
    /// The settings of the DPDK backend, checked, whether or not it is built in; `own` as for [`backend`].
    ///
    /// # Errors
    /// [`TransportError::Setting`] for the first key that is wrong.
    pub fn config(&self, own: IpAddr) -> Result<DpdkConfig, TransportError> {
        let config = self.read(own)?;
        config.check()?;
        Ok(config)
    }

    fn read(&self, own: IpAddr) -> Result<DpdkConfig, TransportError> {
        let (address, prefix) = match &self.address {
            Some(text) => network(text)?,
            None if own.is_unspecified() || own.is_loopback() => {
                return Err(wrong(
                    "address",
                    &"missing",
                    "give this end an IPv4 address of its own, such as 10.0.0.1/24",
                ));
            }
            None => match own {
                IpAddr::V4(own) => (own, None),
                IpAddr::V6(_) => {
                    let mend =
                        "DPDK devices speak IPv4 here, give this end an IPv4 address, such as 10.0.0.1/24";
                    return Err(wrong("address", &own, mend));
                }
            },
        };
        let mut config = DpdkConfig::new(address);
        config.prefix = prefix.unwrap_or(config.prefix);
        config.devices = self.devices.clone().unwrap_or_default();
        config.eal = self.eal.clone().unwrap_or_default();
        if let Some(text) = &self.gateway {
            let mend = "give the router's IPv4 address, such as 10.0.0.254";
            config.gateway = Some(text.parse().map_err(|_| wrong("gateway", &quote(text), mend))?);
        }
        for text in self.neighbours.iter().flatten() {
            config.neighbours.push(neighbour(text)?);
        }
        if let Some(text) = &self.mac {
            let mend = "write six bytes like 02:00:00:00:00:01";
            config.mac = Some(text.parse().map_err(|_| wrong("mac", &quote(text), mend))?);
        }
        // A number that does not fit the type becomes the largest value, which `check` refuses with the range.
        if let Some(mtu) = self.mtu {
            config.mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        }
        if let Some(packets) = self.packets {
            config.packets = u32::try_from(packets).unwrap_or(u32::MAX);
        }
        if let Some(descriptors) = self.descriptors {
            config.descriptors = u16::try_from(descriptors).unwrap_or(u16::MAX);
        }
        config.hugepages = self.hugepages.unwrap_or(config.hugepages);
        config.checksums = self.checksums.unwrap_or(config.checksums);
        if let Some(text) = &self.idle {
            config.idle = idle(text)?;
        }
        Ok(config)
    }
}

fn wrong(key: &'static str, value: &dyn std::fmt::Display, mend: &'static str) -> TransportError {
    TransportError::Setting { backend: "dpdk", key, value: value.to_string(), mend }
}

fn quote(text: &str) -> String {
    format!("{text:?}")
}

/// `10.0.0.1/24`, or without a prefix.
fn network(text: &str) -> Result<(Ipv4Addr, Option<u8>), TransportError> {
    let bad =
        || wrong("address", &quote(text), "write an IPv4 address and the prefix's length like 10.0.0.1/24");
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse().map_err(|_| bad())?)),
        None => (text, None),
    };
    Ok((address.parse().map_err(|_| bad())?, prefix))
}

/// `10.0.0.2=02:00:00:00:00:02`, with `@1` for the second device.
fn neighbour(text: &str) -> Result<Neighbour, TransportError> {
    let parse = || -> Option<Neighbour> {
        let (address, rest) = text.split_once('=')?;
        let (mac, device) = match rest.split_once('@') {
            Some((mac, device)) => (mac, device.parse().ok()?),
            None => (rest, 0),
        };
        let mac: MacAddr = mac.trim().parse().ok()?;
        Some(Neighbour { address: address.trim().parse().ok()?, mac, device })
    };
    parse().ok_or_else(|| wrong("neighbours", &quote(text), "write them like 10.0.0.2=02:00:00:00:00:02"))
}

fn idle(text: &str) -> Result<Idle, TransportError> {
    if text.eq_ignore_ascii_case("busy") {
        return Ok(Idle::BusyPoll);
    }
    let mend = "write the longest sleep like 100us, or busy to poll without pause";
    let nap = humantime::parse_duration(text).map_err(|_| wrong("idle", &quote(text), mend))?;
    match nap {
        Duration::ZERO => Ok(Idle::BusyPoll),
        nap if nap > Duration::from_secs(1) => {
            Err(wrong("idle", &quote(text), "sleeps of more than 1s would stall every all-reduce: use 100us"))
        }
        nap => Ok(Idle::BackOff(nap)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn options() -> DpdkOptions {
        DpdkOptions {
            devices: Some(vec!["net_null0".into()]),
            address: Some("10.1.2.3/16".into()),
            ..DpdkOptions::default()
        }
    }

    #[test]
    fn every_key_arrives() {
        let options = DpdkOptions {
            gateway: Some("10.1.0.1".into()),
            neighbours: Some(vec![
                "10.1.2.4=02:00:00:00:00:04".into(),
                "10.1.2.5=02:00:00:00:00:05@1".into(),
            ]),
            devices: Some(vec!["net_null0".into(), "net_null1,size=64".into()]),
            mac: Some("02:0:0:0:0:3".into()),
            mtu: Some(9000),
            hugepages: Some(false),
            packets: Some(5000),
            descriptors: Some(512),
            checksums: Some(false),
            idle: Some("1ms".into()),
            eal: Some(vec!["--log-level=8".into()]),
            ..options()
        };
        let config = options.config(Ipv4Addr::UNSPECIFIED.into()).unwrap();
        config.check().unwrap();
        let mac = |last| MacAddr([2, 0, 0, 0, 0, last]);
        let neighbour = |last, device| Neighbour { address: [10, 1, 2, last].into(), mac: mac(last), device };
        let expected = DpdkConfig {
            eal: vec!["--log-level=8".into()],
            devices: vec!["net_null0".into(), "net_null1,size=64".into()],
            hugepages: false,
            address: [10, 1, 2, 3].into(),
            prefix: 16,
            gateway: Some([10, 1, 0, 1].into()),
            neighbours: vec![neighbour(4, 0), neighbour(5, 1)],
            mac: Some(mac(3)),
            mtu: 9000,
            packets: 5000,
            descriptors: 512,
            checksums: false,
            idle: Idle::BackOff(Duration::from_millis(1)),
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn the_own_address_serves_if_none_is_given() {
        let options = DpdkOptions { address: None, ..options() };
        let config = options.config([10, 0, 0, 7].into()).unwrap();
        assert_eq!((config.address, config.prefix), ([10, 0, 0, 7].into(), 24));
        for own in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST] {
            let error = options.config(own.into()).unwrap_err().to_string();
            assert!(error.starts_with("dpdk: address is missing: "), "{error}");
        }
    }

    #[test]
    fn wrong_values_are_named_with_the_mend() {
        type Change = fn(&mut DpdkOptions);
        let cases: [(Change, &str); 12] = [
            (|o| o.devices = None, "dpdk: devices is empty"),
            (|o| o.address = Some("10.0.0.1/x".into()), "dpdk: address is \"10.0.0.1/x\""),
            (|o| o.address = Some("10.0.0/24".into()), "dpdk: address is \"10.0.0/24\""),
            (|o| o.address = Some("10.0.0.1/33".into()), "dpdk: prefix is 33"),
            (|o| o.gateway = Some("router".into()), "dpdk: gateway is \"router\""),
            (|o| o.gateway = Some("192.168.0.1".into()), "dpdk: gateway is 192.168.0.1"),
            (|o| o.neighbours = Some(vec!["10.1.2.4".into()]), "dpdk: neighbours is \"10.1.2.4\""),
            (|o| o.mac = Some("02:00".into()), "dpdk: mac is \"02:00\""),
            (|o| o.mtu = Some(1 << 40), "dpdk: mtu is 65535"),
            (|o| o.packets = Some(0), "dpdk: packets is 0"),
            (|o| o.idle = Some("100".into()), "dpdk: idle is \"100\""),
            (|o| o.idle = Some("1h".into()), "dpdk: idle is \"1h\""),
        ];
        for (change, says) in cases {
            let mut options = options();
            change(&mut options);
            let error = options.config(Ipv4Addr::UNSPECIFIED.into()).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }

    fn choose(dpdk: &DpdkOptions, io: Option<IoName>) -> Result<Backend, TransportError> {
        backend(io, Ipv4Addr::UNSPECIFIED.into(), dpdk)
    }

    #[test]
    fn a_backend_needs_to_be_named() {
        assert_eq!(choose(&DpdkOptions::default(), None).unwrap(), Backend::Udp);
        assert_eq!(choose(&options(), Some(IoName::Udp)).unwrap(), Backend::Udp);
        let error = choose(&options(), None).unwrap_err().to_string();
        assert!(error.contains("--io dpdk"), "{error}");
        let dpdk = choose(&options(), Some(IoName::Dpdk));
        if cfg!(feature = "dpdk") {
            assert!(matches!(dpdk, Ok(Backend::Dpdk(_))));
        } else {
            let error = dpdk.unwrap_err().to_string();
            assert!(error.contains("--features dpdk") && error.contains("libdpdk-dev"), "{error}");
        }
    }
}
