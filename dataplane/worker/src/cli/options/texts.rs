//! Values as they are written: each error names the key.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;
use thc_config::values::{Interval, Secret};

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
