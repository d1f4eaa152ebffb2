//! The rule of the server's steps.

use serde::{Deserialize, Serialize};

/// What the server makes of gradients. u is a push, with correction plus the full-batch gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Optimizer {
    /// x ← x − η·u.
    #[default]
    Sgd,
    /// Polyak's heavy ball: m ← β·m + u, x ← x − η·m.
    Momentum {
        /// β, from 0 and below 1.
        beta: f32,
    },
    /// Kingma and Ba's: m ← β₁·m + (1 − β₁)·u, s ← β₂·s + (1 − β₂)·u², x ← x − η·m̂/(√ŝ + ε), with m̂ and ŝ corrected for
    /// their beginning at zero. λ₂ of the proximal step is decoupled from the gradient, as in AdamW.
    Adam {
        /// β₁, from 0 and below 1.
        beta1: f32,
        /// β₂, from 0 and below 1.
        beta2: f32,
        /// ε, above 0.
        epsilon: f32,
    },
}

impl Optimizer {
    /// Vectors as long as the model that it keeps: m, and s.
    #[must_use]
    pub fn vectors(self) -> usize {
        match self {
            Self::Sgd => 0,
            Self::Momentum { .. } => 1,
            Self::Adam { .. } => 2,
        }
    }

    /// The first invalid setting, as a message.
    pub(crate) fn fault(self) -> Option<&'static str> {
        let share = |beta: f32| (0.0..1.0).contains(&beta);
        match self {
            Self::Momentum { beta } if !share(beta) => Some("optimizer: β must be from 0 and below 1"),
            Self::Adam { beta1, beta2, .. } if !share(beta1) || !share(beta2) => {
                Some("optimizer: β₁ and β₂ must be from 0 and below 1")
            }
            Self::Adam { epsilon, .. } if !(epsilon.is_finite() && epsilon >= 1e-12) => {
                Some("optimizer: ε must be a finite number of at least 1e-12")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_fields_are_named() {
        for (wrong, word) in [
            (Optimizer::Momentum { beta: 1.0 }, "β"),
            (Optimizer::Adam { beta1: 0.9, beta2: -0.1, epsilon: 1e-8 }, "β₂"),
            (Optimizer::Adam { beta1: 0.9, beta2: 0.99, epsilon: 0.0 }, "ε"),
        ] {
            assert!(wrong.fault().is_some_and(|fault| fault.contains(word)));
        }
        assert_eq!(Optimizer::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 }.fault(), None);
    }
}
