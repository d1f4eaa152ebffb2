//! Values as users write them: times, cookies, addresses, faults.

use pyo3::FromPyObject;
use serde::Deserialize;
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;
use thc_ps::{Interval, Secret};
use thc_transport::{Backend, DpdkOptions, IoName, LossyConfig, TransportError};

/// A time: seconds, or text with a unit like "200ms".
#[derive(Clone, Debug, Deserialize, FromPyObject)]
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
            Time::Text(text) => {
                text.parse::<Interval>().map_err(|_| format!("{key} = {text:?} is not a time: {mend}"))?.0
            }
        };
        if time.is_zero() { Err(format!("{key} is 0: {mend}")) } else { Ok(time) }
    }
}

/// A cookie, which has 32 bits. No message shows it.
pub fn cookie(secret: &Secret) -> Result<u32, String> {
    secret.cookie().ok_or_else(|| "cookie is not a 32-bit number: write it like 0x1234abcd".to_owned())
}

/// Reads text, and names the key if it cannot.
pub fn parse<T: FromStr<Err: Display>>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{key} = {text:?}: {error}"))
}

/// What a package says that was built without DPDK.
const NO_DPDK: &str = "this package was built without DPDK: install it by \
    pip install ./python --config-settings=build-args=\"--features dpdk\", which needs DPDK's headers and libraries \
    (on Debian: apt-get install libdpdk-dev libclang-dev)";

/// What carries the packets: `io` by name, and the keys of the section `[dpdk]`. `own` is what is bound.
pub fn backend(io: Option<IoName>, options: &DpdkOptions, own: IpAddr) -> Result<Backend, String> {
    thc_transport::backend(io, own, options).map_err(|error| match error {
        // Its own mend is for who builds a program.
        TransportError::NoDpdk => NO_DPDK.to_owned(),
        other => other.to_string(),
    })
}

/// Faults to inject, like "loss=0.01,duplicate=0.001".
pub fn faults(text: Option<&str>, seed: u64) -> Result<Option<LossyConfig>, String> {
    let rates = text.map(|text| parse("inject", text)).transpose()?;
    Ok(rates.map(|rates| LossyConfig::both_ways(rates, seed)))
}
