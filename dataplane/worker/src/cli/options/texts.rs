//! Values as they are written: each error names the key.

use super::LONGEST;
use bytesize::ByteSize;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

pub(super) fn parse<T: FromStr<Err: Display>>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|e| format!("{key} = {text:?}: {e}"))
}

pub(super) fn time(key: &str, text: Option<&str>, default: Duration) -> Result<Duration, String> {
    let Some(text) = text else { return Ok(default) };
    let time = humantime::parse_duration(text)
        .map_err(|e| format!("{key} = {text:?}: {e}; write a time like 200ms or 10s"))?;
    match time {
        Duration::ZERO => Err(format!("{key} is 0: give a time like 200ms or 10s")),
        time if time > LONGEST => Err(format!("{key} = {text:?}: a year is the longest")),
        time => Ok(time),
    }
}

pub(super) fn size(key: &str, text: &str) -> Result<u64, String> {
    let size: ByteSize = text
        .parse()
        .map_err(|_| format!("{key} = {text:?} is not a size: write it like 100MiB or 8388608"))?;
    Ok(size.as_u64())
}

/// The cookie is not repeated in messages: it is a secret.
pub(super) fn cookie(text: Option<&str>) -> Result<Option<u32>, String> {
    let Some(text) = text.map(str::trim) else { return Ok(None) };
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map(Some).map_err(|_| "cookie is not a 32-bit number: write it like 0x1234abcd".into())
}

pub(super) fn resolve(key: &str, text: &str) -> Result<SocketAddr, String> {
    let ps = thc_transport::resolve(text)
        .map_err(|e| format!("{key} = {text:?}: {e}; write it like 10.0.0.1:9000 or [fd00::1]:9000"))?;
    if ps.port() == 0 {
        return Err(format!("{key} = {text:?}: no server has port 0; the usual port is 9000"));
    }
    let broadcast = matches!(ps.ip(), IpAddr::V4(ip) if ip.is_broadcast());
    if ps.ip().is_unspecified() || broadcast || ps.ip().is_multicast() {
        let own = if ps.is_ipv4() { "127.0.0.1" } else { "[::1]" };
        return Err(format!("{key} = {text:?}: that is not a server's address; on this host it is {own}"));
    }
    Ok(ps)
}
