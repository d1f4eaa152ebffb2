//! Hardware addresses.

use std::fmt;
use std::str::FromStr;

/// A MAC address, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All hosts of a link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns whether it addresses a group of hosts.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is no MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a MAC address: write six bytes like 02:00:00:00:00:01")]
pub struct MacSyntax {
    /// The text.
    pub text: String,
}

impl FromStr for MacAddr {
    type Err = MacSyntax;

    fn from_str(text: &str) -> Result<Self, MacSyntax> {
        let wrong = || MacSyntax { text: text.to_owned() };
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| (1..=2).contains(&part.len())).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_read_as_they_are_written() {
        let mac: MacAddr = "02:a:Ff:00:10:01".parse().unwrap();
        assert_eq!(mac, MacAddr([2, 10, 255, 0, 16, 1]));
        assert_eq!(mac.to_string().parse::<MacAddr>().unwrap(), mac);
        for bad in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "02:00:00:00:00:1ff",
            "g2:00:00:00:00:00",
            "02::00:00:00:00",
        ] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }
}
