//! Values as they are written: each error names the key.

use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use thc_config::values::{Interval, Secret};

/// The port of a server whose address has none.
const PORT: u16 = 9000;
/// The longest of all times, a year: further sums of times stay representable.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) fn parse<T: FromStr<Err: Display>>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|e| format!("{key} = {text:?}: {e}"))
}

pub(super) fn time(key: &str, text: Option<&str>, default: Duration) -> Result<Duration, String> {
    let Some(text) = text else { return Ok(default) };
    match parse::<Interval>(key, text)?.0 {
        Duration::ZERO => Err(format!("{key} is 0: give a time like 200ms or 10s")),
        time if time > LONGEST => Err(format!("{key} = {text:?}: a year is the longest")),
        time => Ok(time),
    }
}

/// The cookie is not repeated in messages: it is a secret.
pub(super) fn cookie(secret: Option<&Secret>) -> Result<Option<u32>, String> {
    let number = |secret: &Secret| {
        secret.cookie().ok_or("cookie is not a 32-bit number: write it like 0x1234abcd".to_owned())
    };
    secret.map(number).transpose()
}

pub(super) fn resolve(key: &str, text: &str) -> Result<SocketAddr, String> {
    let is_ipv6 = text.parse::<Ipv6Addr>().is_ok();
    let whole = match text {
        _ if is_ipv6 => format!("[{text}]:{PORT}"),
        _ if text.is_empty() || text.contains(':') && !text.ends_with(']') => text.to_owned(),
        _ => format!("{text}:{PORT}"),
    };
    let ps = thc_transport::resolve(&whole)
        .map_err(|e| format!("{key} = {text:?}: {e}; write it like 10.0.0.1:9000 or [fd00::1]:9000"))?;
    if ps.port() == 0 {
        return Err(format!("{key} = {text:?}: no server has port 0; the usual port is {PORT}"));
    }
    let broadcast = matches!(ps.ip(), IpAddr::V4(ip) if ip.is_broadcast());
    if ps.ip().is_unspecified() || broadcast || ps.ip().is_multicast() {
        let own = if ps.is_ipv4() { "127.0.0.1" } else { "[::1]" };
        return Err(format!("{key} = {text:?}: that is not a server's address; on this host it is {own}"));
    }
    Ok(ps)
}
