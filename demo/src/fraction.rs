//! Fractions as people write them: `1/32` or `0.03125`.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A number strictly between 0 and 1, such as THC's p.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction(f64);

impl Fraction {
    /// The number.
    pub fn value(self) -> f64 {
        self.0
    }

    /// A fraction that was computed. `None` outside (0, 1).
    pub fn new(value: f64) -> Option<Self> {
        (value > 0.0 && value < 1.0).then_some(Self(value))
    }
}

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.trim().parse::<f64>().ok();
        let value = match text.split_once('/') {
            Some((above, below)) => number(above).zip(number(below)).map(|(above, below)| above / below),
            None => number(text),
        };
        value
            .and_then(Self::new)
            .ok_or_else(|| "not a fraction between 0 and 1, such as 1/32 or 0.03125".to_owned())
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inverse = 1.0 / self.0;
        if inverse.round() <= 1e6 && (inverse - inverse.round()).abs() < 1e-9 * inverse {
            write!(f, "1/{}", inverse.round())
        } else {
            write!(f, "{:.6}", self.0)
        }
    }
}

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_writing_are_read() {
        for text in ["1/32", "0.03125", "2 / 64", "3.125e-2"] {
            let fraction: Fraction = text.parse().unwrap();
            assert_eq!((fraction.value(), fraction.to_string().as_str()), (0.03125, "1/32"), "{text}");
        }
        assert_eq!("0.3".parse::<Fraction>().unwrap().to_string(), "0.300000");
    }

    #[test]
    fn others_are_refused() {
        for text in ["", "0", "1", "1/1", "-1/2", "1/0", "0/0", "nan", "half", "1/2/3", "3/2"] {
            assert!(text.parse::<Fraction>().is_err(), "{text}");
        }
    }
}
