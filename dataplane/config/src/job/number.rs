//! Keys that are numbers in a range.

use std::ops::RangeInclusive;

use crate::job::error::{ConfigError, Section};

/// The value of a key that is a number, or its default.
///
/// # Errors
/// [`ConfigError::Value`] if the number is outside `range`.
pub fn number(
    section: Section,
    key: &'static str,
    given: Option<u64>,
    default: u64,
    range: RangeInclusive<u64>,
) -> Result<u64, ConfigError> {
    let value = given.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    Err(section.wrong(key, value, format!("use {} to {}", range.start(), range.end())))
}

/// A number of slots: even, since a slot has two places.
///
/// # Errors
/// [`ConfigError::Value`].
pub(crate) fn slots(
    section: Section,
    key: &'static str,
    given: Option<u64>,
    default: u64,
) -> Result<u32, ConfigError> {
    let value = number(section, key, given, default, 2..=65536)?;
    if value % 2 != 0 {
        return Err(section.wrong(key, value, format!("use an even number, such as {}", value + 1)));
    }
    Ok(value as u32)
}
