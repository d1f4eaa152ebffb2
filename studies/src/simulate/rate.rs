//! What links carry, as people write it.

use serde::{Deserialize, Serialize};

/// Bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// As it is written.
    pub fn name(self) -> String {
        format!("{} Gb/s", self.0 as f64 / 1e9)
    }
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let unit = match &text[end..] {
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => 0.0,
        };
        let bits = text[..end].parse::<f64>().unwrap_or(0.0) * unit;
        if (1e6..=1e13).contains(&bits) {
            return Ok(Self(bits.round() as u64));
        }
        Err("write a rate like 100mbit, 2.5gbit or 25gbit".to_owned())
    }
}

impl Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{}gbit", self.0 as f64 / 1e9))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!("2.5gbit".parse(), Ok(Rate(2_500_000_000)));
        for wrong in ["", "1", "0gbit", "1kbit", "gbit", "-1gbit"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
