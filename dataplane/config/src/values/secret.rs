//! Secrets.

use super::textual;
use std::fmt;
use std::str::FromStr;

/// A secret of a job's members: text, or a number in decimal or hexadecimal. No message shows it. It is checked late, where
/// the error message can avoid showing it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

textual!(Secret, "a number like 0x1234abcd", |secret| secret.0.clone());

impl Secret {
    /// The text itself, from which a key can be made. It belongs in no message.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<u64> {
        let text = self.0.replace('_', "");
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// The number, if it has the 32 bits of a cookie.
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

impl From<&str> for Secret {
    /// Takes the text without the white space around it, such as the end of a file's line.
    fn from(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }
}

impl FromStr for Secret {
    type Err = String;

    fn from_str(text: &str) -> Result<Secret, String> {
        Ok(text.into())
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
            (" 4660\n", Some(4660)),
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
        assert_eq!(Secret::from(" sixteen letters!\n").expose(), "sixteen letters!");
        assert_eq!(Secret::from(1 << 32).cookie(), None);
    }
}
