//! Shares of a whole.

use super::textual;
use std::fmt;
use std::str::FromStr;

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
        // A lookup table has these limits.
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

textual!(Fraction, "a fraction like \"1/32\" or 0.03125", ToString::to_string);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions() {
        assert_eq!("1/32".parse(), Ok(Fraction(0.03125)));
        assert_eq!(" 1 / 4 ".parse(), Ok(Fraction(0.25)));
        assert_eq!("0.5".parse(), Ok(Fraction(0.5)));
        for wrong in ["", "1/0", "0", "1", "2", "-1/2", "0/5", "x", "1/2/3", "NaN"] {
            assert!(wrong.parse::<Fraction>().is_err(), "{wrong}");
        }
        for (number, text) in [(1.0 / 32.0, "1/32"), (1.0 / 1000.0, "1/1000"), (0.3, "0.3")] {
            assert_eq!(Fraction(number).to_string(), text);
        }
    }
}
