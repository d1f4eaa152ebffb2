//! Values that a file writes as a number or as text, and a flag as text.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::rack_size::RackSize;

/// A type that is read from text, numbers in a file included.
trait Textual: FromStr<Err = String> {
    /// What a value looks like.
    const EXPECTED: &'static str;
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: Textual> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

/// `$text` is what a value is written as.
macro_rules! textual {
    ($name:ident, $expected:literal, $text:expr) => {
        impl Textual for $name {
            const EXPECTED: &'static str = $expected;
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let text: fn(&$name) -> String = $text;
                to.serialize_str(&text(self))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(TextVisitor(PhantomData))
            }
        }
    };
}

textual!(Secret, "a number like 0x1234abcd", |secret| secret.0.clone());
textual!(Fraction, "a fraction like \"1/32\" or 0.03125", ToString::to_string);
textual!(Size, "bytes like 8388608 or \"8MiB\"", |size| size.0.to_string());
textual!(Interval, "a time like \"200ms\" or \"10s\"", ToString::to_string);
textual!(RackSize, "workers of a rack, like 8 or \"7/8\"", ToString::to_string);

/// A secret number, decimal or hexadecimal. It is parsed late, where the error message can avoid showing it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        let text = self.0.trim().replace('_', "");
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// The number, if it has the 32 bits of a cookie.
    #[must_use]
    pub fn cookie(&self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<u64> for Secret {
    fn from(number: u64) -> Secret {
        Secret(number.to_string())
    }
}

impl FromStr for Secret {
    type Err = String;

    fn from_str(text: &str) -> Result<Secret, String> {
        Ok(Secret(text.to_owned()))
    }
}

/// The share p of coordinates that is truncated: `1/32` or `0.03125`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction(pub f64);

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Fraction, String> {
        let wrong = || format!("{text:?} is not a fraction: write it like 1/32 or 0.03125");
        let number = |part: &str| part.trim().parse::<f64>().map_err(|_| wrong());
        let value = match text.split_once('/') {
            Some((above, below)) => number(above)? / number(below)?,
            None => number(text)?,
        };
        // The same limits as a lookup table has.
        if value > 0.0 && value < 1.0 {
            Ok(Fraction(value))
        } else {
            Err(format!("{text:?} is not between 0 and 1: 1/32 is usual"))
        }
    }
}

impl fmt::Display for Fraction {
    /// 1/32 instead of 0.03125 where that is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = (1.0 / self.0).round();
        if 1.0 / whole == self.0 { write!(f, "1/{whole}") } else { self.0.fmt(f) }
    }
}

/// A number of bytes: `8388608` or `8MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        text.parse::<ByteSize>()
            .ok()
            .and_then(|size| usize::try_from(size.as_u64()).ok())
            .map(Size)
            .ok_or_else(|| format!("{text:?} is not a size: write it like 8MiB or 8388608"))
    }
}

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_numbers_that_do_not_show() {
        for (text, number) in [
            ("0x1234", Some(0x1234)),
            ("0XfF", Some(255)),
            ("4660", Some(4660)),
            ("0xdead_beef", Some(0xdead_beef)),
            ("", None),
            ("0x", None),
            ("-1", None),
            ("1.5", None),
            ("password", None),
        ] {
            let secret: Secret = text.parse().unwrap();
            assert_eq!(secret.number(), number, "{text}");
            assert_eq!(format!("{secret:?}"), "Secret(…)");
        }
    }

    #[test]
    fn fractions_sizes_and_times() {
        assert_eq!("1/32".parse(), Ok(Fraction(0.03125)));
        assert_eq!(" 1 / 4 ".parse(), Ok(Fraction(0.25)));
        assert_eq!("0.5".parse(), Ok(Fraction(0.5)));
        for wrong in ["", "1/0", "0", "1", "2", "-1/2", "0/5", "x", "1/2/3", "NaN"] {
            assert!(wrong.parse::<Fraction>().is_err(), "{wrong}");
        }
        for (number, text) in [(1.0 / 32.0, "1/32"), (1.0 / 1000.0, "1/1000"), (0.3, "0.3")] {
            assert_eq!(Fraction(number).to_string(), text);
        }
        assert_eq!("8MiB".parse(), Ok(Size(8 << 20)));
        assert_eq!("4096".parse(), Ok(Size(4096)));
        assert!("much".parse::<Size>().is_err());
        assert_eq!("200ms".parse(), Ok(Interval(Duration::from_millis(200))));
        assert!("200".parse::<Interval>().is_err());
    }
}
