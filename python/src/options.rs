//! Values as users write them: times, cookies, addresses, faults.

use pyo3::FromPyObject;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use thc_transport::{
    Backend, DpdkOptions, FaultRates, IoName, LossyConfig, TransportError, XdpOptions, resolve,
};

/// A time: seconds, or text with a unit like "200ms".
#[derive(Clone, Debug, Deserialize, Serialize, FromPyObject)]
#[serde(untagged)]
pub enum Time {
    /// Seconds.
    Seconds(f64),
    /// With its unit.
    Text(String),
}

impl Time {
    /// The time, which must not be nothing.
    pub fn read(&self, key: &str) -> Result<Duration, String> {
        let mend = "give seconds, or a time like \"200ms\"";
        let time = match self {
            Time::Seconds(seconds) => Duration::try_from_secs_f64(*seconds)
                .map_err(|_| format!("{key} = {seconds} is not a time: {mend}"))?,
            Time::Text(text) => humantime::parse_duration(text)
                .map_err(|error| format!("{key} = {text:?}: {error}; {mend}"))?,
        };
        if time.is_zero() { Err(format!("{key} is 0: {mend}")) } else { Ok(time) }
    }
}

/// A secret number, as such or as text like "0x1234abcd". It has no `Debug`, and no message shows it.
#[derive(Clone, Deserialize, Serialize, FromPyObject)]
#[serde(untagged)]
pub enum Secret {
    /// As a number.
    Number(u64),
    /// As text.
    Text(String),
}

impl Secret {
    /// The number.
    pub fn number(&self, key: &str) -> Result<u64, String> {
        let number = match self {
            Secret::Number(number) => Some(*number),
            Secret::Text(text) => text.parse().ok().and_then(|secret: thc_ps::Secret| secret.number()),
        };
        number.ok_or_else(|| format!("{key} is not a number: write it like 0x1234abcd"))
    }

    /// A cookie, which has 32 bits.
    pub fn cookie(&self) -> Result<u32, String> {
        u32::try_from(self.number("cookie")?)
            .map_err(|_| "cookie is not a 32-bit number: write it like 0x1234abcd".to_owned())
    }
}

/// Reads text, and names the key if it cannot.
pub fn parse<T: FromStr<Err: Display>>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{key} = {text:?}: {error}"))
}

/// The parameter server's address, by number or name.
pub fn address(key: &str, text: &str) -> Result<SocketAddr, String> {
    resolve(text).map_err(|error| {
        format!("{key} = {text:?}: {error}; write it like \"10.0.0.1:9000\" or \"[fd00::1]:9000\"")
    })
}

/// What a package says that was built without DPDK.
const NO_DPDK: &str = "this package was built without DPDK: install it by \
    pip install ./python --config-settings=build-args=\"--features dpdk\", which needs DPDK's headers and libraries \
    (on Debian: apt-get install libdpdk-dev libclang-dev)";

/// What carries the packets: `io` by name, and the keys of the sections `[dpdk]` and `[xdp]` as JSON. `own` is what is
/// bound.
pub fn backend(
    io: Option<&str>,
    dpdk: Option<&str>,
    xdp: Option<&str>,
    own: IpAddr,
) -> Result<Backend, String> {
    let io = match io {
        None => None,
        Some("udp") => Some(IoName::Udp),
        Some("dpdk") => Some(IoName::Dpdk),
        Some("xdp") => Some(IoName::Xdp),
        Some(other) => return Err(format!("io = {other:?}: write \"udp\", \"dpdk\" or \"xdp\"")),
    };
    let options: DpdkOptions = match dpdk {
        None => DpdkOptions::default(),
        Some(json) => serde_json::from_str(json).map_err(|error| format!("dpdk: {error}"))?,
    };
    let xdp: XdpOptions = match xdp {
        None => XdpOptions::default(),
        Some(json) => serde_json::from_str(json).map_err(|error| format!("xdp: {error}"))?,
    };
    thc_transport::backend(io, own, &options, &xdp).map_err(|error| match error {
        // Its own mend is for who builds a program.
        TransportError::NoDpdk => NO_DPDK.to_owned(),
        other => other.to_string(),
    })
}

/// Faults to inject, like "loss=0.01,duplicate=0.001".
pub fn faults(text: Option<&str>, seed: u64) -> Result<Option<LossyConfig>, String> {
    let Some(text) = text else { return Ok(None) };
    let rates: FaultRates = parse("inject", text)?;
    Ok(Some(LossyConfig { seed, outgoing: rates, incoming: rates, ..LossyConfig::default() }))
}
