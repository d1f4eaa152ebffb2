//! Lengths of time.

use super::textual;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A length of time: `200ms`, `10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(pub Duration);

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Interval, String> {
        humantime::parse_duration(text)
            .map(Interval)
            .map_err(|_| format!("{text:?} is not a time: write it with its unit, like 200ms or 10s"))
    }
}

textual!(Interval, "a time like \"200ms\" or \"10s\"", ToString::to_string);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!("200ms".parse(), Ok(Interval(Duration::from_millis(200))));
        assert_eq!(Interval(Duration::from_millis(10_200)).to_string(), "10s 200ms");
        for wrong in ["", "200", "-1s", "soon"] {
            assert!(wrong.parse::<Interval>().is_err(), "{wrong}");
        }
    }
}
