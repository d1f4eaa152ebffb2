//! Numbers of bytes or of coordinates.

use super::textual;
use bytesize::ByteSize;
use std::fmt;
use std::str::FromStr;

/// A number of bytes or of coordinates: `8388608`, `8MiB`, `8Mi`, `8M` or `8e6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

impl fmt::Display for Size {
    /// In the largest binary unit that suits it, such as 8.0 MiB.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(self.0 as u64).fmt(f)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let power = text.split_once(['e', 'E']).and_then(|(digits, power)| {
            10usize.checked_pow(power.parse().ok()?)?.checked_mul(digits.parse().ok()?)
        });
        let size = || usize::try_from(text.parse::<ByteSize>().ok()?.as_u64()).ok();
        power
            .or_else(size)
            .map(Size)
            .ok_or_else(|| format!("{text:?} is not a size: write it like 8Mi, 8e6 or 8388608"))
    }
}

textual!(Size, "bytes like 8388608 or \"8MiB\"", |size| size.0.to_string());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("8MiB", 8 << 20),
            ("8Mi", 8 << 20),
            ("1.5 KiB", 1536),
            ("4096", 4096),
            ("1G", 1_000_000_000),
            ("1e6", 1_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        assert_eq!(Size(8 << 20).to_string(), "8.0 MiB");
        for wrong in ["", "much", "MiB", "-1KiB", "nan", "1e99", "e6", "1e-3"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
