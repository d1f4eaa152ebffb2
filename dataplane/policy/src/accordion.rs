//! Critical regimes (Agarwal et al., Accordion, MLSys 2021): a layer is compressed little while its gradient changes fast,
//! and much otherwise. [`layerwise`](crate::layerwise) takes its bound from these choices (L-GreCo, section 5.3).

use crate::error::{AdaptError, check};

/// The norms at the last look, by layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Accordion {
    eta: f64,
    before: Option<Vec<f64>>,
}

impl Accordion {
    /// Creates a policy by which a layer is critical if its norm has changed by at least the share `eta` since the last look.
    ///
    /// # Errors
    /// [`AdaptError::Value`] if `eta` is negative or not finite.
    pub fn new(eta: f64) -> Result<Self, AdaptError> {
        Ok(Self { eta: check("η", || "Accordion".to_owned(), eta)?, before: None })
    }

    /// Returns which layers are critical, from the norms of the gradients accumulated since the last look. At the first look
    /// all layers are. Call this once an epoch, and call [`Self::restart`] after a change of the learning rate.
    ///
    /// # Errors
    /// [`AdaptError::Count`] for another number of layers than before, [`AdaptError::Value`] for a bad norm.
    pub fn look(&mut self, norms: &[f64]) -> Result<Vec<bool>, AdaptError> {
        for (layer, &norm) in norms.iter().enumerate() {
            check("the norm", || format!("layer {layer}"), norm)?;
        }
        let critical = match &self.before {
            None => vec![true; norms.len()],
            Some(before) if before.len() != norms.len() => {
                let (actual, expected) = (norms.len(), before.len());
                return Err(AdaptError::Count { what: "layers", actual, expected });
            }
            Some(before) => before
                .iter()
                .zip(norms)
                .map(|(before, now)| {
                    (before - now).abs() >= self.eta * before && (*before, *now) != (0.0, 0.0)
                })
                .collect(),
        };
        self.before = Some(norms.to_vec());
        Ok(critical)
    }

    /// Makes all layers critical at the next look.
    pub fn restart(&mut self) {
        self.before = None;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn fast_changes_are_critical() {
        let mut accordion = Accordion::new(0.5).unwrap();
        assert_eq!(accordion.look(&[4.0, 4.0, 0.0]).unwrap(), [true; 3]);
        assert_eq!(accordion.look(&[2.0, 2.1, 0.0]).unwrap(), [true, false, false]);
        assert_eq!(accordion.look(&[3.0, 3.2, 1.0]).unwrap(), [true, true, true]);
        assert!(accordion.look(&[1.0]).is_err());
        assert!(accordion.look(&[1.0, f64::NAN, 1.0]).is_err());
        accordion.restart();
        assert_eq!(accordion.look(&[3.0]).unwrap(), [true]);
        assert!(Accordion::new(-1.0).is_err());
    }
}
