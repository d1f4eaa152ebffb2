//! Units in flags and tables: rates of links, sizes of tensors.

use thc_config::values::Size;
use thc_netns::Rate;

/// Bytes of a tensor at most.
const MOST: usize = 1 << 32;

/// The rate of a link. `None` is the loopback interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(pub Option<Rate>);

impl Link {
    /// The name in tables.
    pub fn name(self) -> String {
        self.0.map_or("loopback".to_owned(), Rate::name)
    }
}

impl std::str::FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "loopback" => Ok(Self(None)),
            _ => text.parse().map(|rate| Self(Some(rate))).map_err(|why| format!("{why}, or loopback")),
        }
    }
}

/// Reads the bytes of a tensor of f32.
///
/// # Errors
/// A text that says how to write them.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse::<Size>() {
        Ok(Size(bytes)) if (4..=MOST).contains(&bytes) && bytes.is_multiple_of(4) => Ok(bytes as u64),
        _ => Err("write a size like 64KiB or 64MiB, of whole f32, at most 4GiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!("2.5Gb/s".parse(), Ok(Rate(2_500_000_000)));
        assert_eq!("2.5gbit".parse(), Ok(Link(Some(Rate(2_500_000_000)))));
        assert_eq!("loopback".parse(), Ok(Link(None)));
        for wrong in ["", "1", "0gbit", "1kbit", "10gbps", "gbit", "-1gbit", "1GB/s"] {
            assert!(wrong.parse::<Link>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1.5 KiB"), Ok(1536));
        assert_eq!(size("4"), Ok(4));
        assert_eq!(size("1e6"), Ok(1_000_000));
        for wrong in ["", "MiB", "-1KiB", "3", "8GiB", "nan", "1e9KiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
