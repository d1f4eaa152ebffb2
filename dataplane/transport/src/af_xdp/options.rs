//! Flags and TOML keys of the backend, as written (feature `options`).

use clap::Args;
use serde::{Deserialize, Serialize};

use super::XdpConfig;
use crate::TransportError;

/// The keys of the `[xdp]` section, each also a flag with `--xdp-` in front.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "AF_XDP (with --io xdp; docs/xdp.md)")]
pub struct XdpOptions {
    /// Kernel interface that leads to the other hosts, such as eth1. It keeps its addresses; this end uses the first,
    /// unless --listen or --bind names another
    #[arg(id = "xdp_device", long = "xdp-device", value_name = "INTERFACE")]
    pub device: Option<String>,
    /// How many of the interface's queues are used, from queue 0 on [default: all]
    #[arg(id = "xdp_queues", long = "xdp-queues", value_name = "NUMBER")]
    pub queues: Option<u64>,
    /// Have the NIC use this process's memory without a copy, which its driver must support [default: false]
    #[arg(id = "xdp_zero_copy", long = "xdp-zero-copy", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub zero_copy: Option<bool>,
    /// Run the XDP program above the driver: slower, but possible on every interface [default: in the driver where
    /// possible]
    #[arg(id = "xdp_generic", long = "xdp-generic", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub generic: Option<bool>,
    /// Entries of each queue's rings, a power of two; each takes 4 KiB [default: 2048]
    #[arg(id = "xdp_descriptors", long = "xdp-descriptors", value_name = "NUMBER")]
    pub descriptors: Option<u64>,
    /// Fill in and check UDP checksums [default: true]
    #[arg(id = "xdp_checksums", long = "xdp-checksums", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub checksums: Option<bool>,
}

impl XdpOptions {
    /// The settings of the backend, checked.
    ///
    /// # Errors
    /// [`TransportError::Setting`] for the first key that is wrong.
    pub fn config(&self) -> Result<XdpConfig, TransportError> {
        let mut config = XdpConfig::new(self.device.as_deref().unwrap_or_default());
        // What does not even fit the type gets the largest value, which `check` refuses with the range.
        config.queues = self.queues.map(|queues| u16::try_from(queues).unwrap_or(u16::MAX));
        config.zero_copy = self.zero_copy.unwrap_or(config.zero_copy);
        config.generic = self.generic.unwrap_or(config.generic);
        if let Some(descriptors) = self.descriptors {
            config.descriptors = u32::try_from(descriptors).unwrap_or(u32::MAX);
        }
        config.checksums = self.checksums.unwrap_or(config.checksums);
        config.check()?;
        Ok(config)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_key_arrives() {
        let options = XdpOptions {
            device: Some("eth1".into()),
            queues: Some(3),
            zero_copy: Some(true),
            generic: None,
            descriptors: Some(512),
            checksums: Some(false),
        };
        let expected = XdpConfig {
            device: "eth1".into(),
            queues: Some(3),
            zero_copy: true,
            generic: false,
            descriptors: 512,
            checksums: false,
        };
        assert_eq!(options.config().unwrap(), expected);
    }

    #[test]
    fn wrong_values_are_named_with_the_mend() {
        let error = |options: XdpOptions| options.config().unwrap_err().to_string();
        let device = Some("eth1".to_owned());
        assert!(error(XdpOptions::default()).starts_with("xdp: device is missing: "));
        let huge = XdpOptions { queues: Some(1 << 40), device: device.clone(), ..XdpOptions::default() };
        assert!(error(huge).starts_with("xdp: queues is 65535: "));
        let odd = XdpOptions { descriptors: Some(1 << 40), device, ..XdpOptions::default() };
        assert!(error(odd).starts_with("xdp: descriptors is 4294967295: "));
    }
}
