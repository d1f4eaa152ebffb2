//! The rates at which a network mistreats datagrams.

use std::str::FromStr;

use crate::TransportError;

/// Probabilities, per datagram, of what an unreliable network does to it.
///
/// Reads from text such as `loss=0.01,duplicate=0.001,reorder=0.01`, or a single number, which is
/// the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// The datagram vanishes.
    pub loss: f64,
    /// The datagram arrives twice.
    pub duplicate: f64,
    /// The datagram is held back so that later ones overtake it.
    pub reorder: f64,
}

impl FaultRates {
    /// No faults.
    pub const NONE: Self = Self { loss: 0.0, duplicate: 0.0, reorder: 0.0 };

    /// Checks that every rate is a probability.
    ///
    /// # Errors
    /// [`TransportError::Probability`] for the first that isn't.
    pub fn validate(&self) -> Result<(), TransportError> {
        for (name, value) in [("loss", self.loss), ("duplicate", self.duplicate), ("reorder", self.reorder)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(TransportError::Probability { name, value });
            }
        }
        Ok(())
    }
}

impl FromStr for FaultRates {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Self, TransportError> {
        let unreadable = |part: &str| TransportError::FaultSyntax { part: part.to_owned() };
        let mut rates = Self::NONE;
        for part in text.split(',') {
            let (name, number) = part.split_once('=').unwrap_or(("loss", part));
            let value = number.trim().parse().map_err(|_| unreadable(part))?;
            match name.trim() {
                "loss" => rates.loss = value,
                "duplicate" => rates.duplicate = value,
                "reorder" => rates.reorder = value,
                _ => return Err(unreadable(part)),
            }
        }
        rates.validate()?;
        Ok(rates)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_from_text() {
        let rates: FaultRates = "loss=0.01, duplicate=0.002,reorder=0.5".parse().unwrap();
        let expected = FaultRates { loss: 0.01, duplicate: 0.002, reorder: 0.5 };
        assert_eq!(rates, expected);
        let loss_alone: FaultRates = "0.25".parse().unwrap();
        assert_eq!(loss_alone, FaultRates { loss: 0.25, ..FaultRates::NONE });
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (text, named) in [
            ("", "``"),
            ("loss=", "`loss=`"),
            ("loss=0.1,delay=3", "`delay=3`"),
            ("loss=0.1,duplicate=1.5", "duplicate is 1.5"),
            ("loss=NaN", "loss is NaN"),
            ("-0.5", "loss is -0.5"),
        ] {
            let message = text.parse::<FaultRates>().unwrap_err().to_string();
            assert!(message.contains(named), "{text:?}: {message}");
        }
    }
}
