//! The rule of the server's steps, and the schedule of its rate.

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

/// The shape in which the rate falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// The rate does not fall.
    #[default]
    Constant,
    /// Along a straight line.
    Linear,
    /// Along half a cosine.
    Cosine,
}

/// A factor of the rate that depends on the model's version, which all workers share, and not on anybody's own steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Pushes over which the factor grows from 0 to 1.
    #[serde(default)]
    pub warmup: u64,
    /// How it falls afterwards.
    #[serde(default)]
    pub decay: Decay,
    /// The version at which it has fallen to `floor`, where it stays.
    #[serde(default)]
    pub steps: u64,
    /// The least factor, 0 to 1.
    #[serde(default)]
    pub floor: f32,
}

impl Schedule {
    /// The factor for the push that makes version `version` + 1.
    #[must_use]
    pub fn factor(&self, version: u64) -> f32 {
        if version < self.warmup {
            return ((version + 1) as f64 / self.warmup as f64) as f32;
        }
        let floor = f64::from(self.floor);
        let length = self.steps.saturating_sub(self.warmup).max(1) as f64;
        let done = ((version - self.warmup) as f64 / length).min(1.0);
        let left = match self.decay {
            Decay::Constant => return 1.0,
            Decay::Linear => 1.0 - done,
            Decay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
        };
        (floor + (1.0 - floor) * left) as f32
    }

    /// The first invalid setting, as a message.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if !(0.0..=1.0).contains(&self.floor) {
            return Some("schedule: floor must be 0 to 1");
        }
        if self.decay != Decay::Constant && self.steps <= self.warmup {
            return Some("schedule: steps must be above warmup, as the rate falls between them");
        }
        None
    }
}

/// Factor of the rate for a gradient that is `delay` steps old: 1/delay, as in staleness-aware SGD (Zhang, Gupta, Lian, Liu:
/// Staleness-aware Async-SGD for Distributed Deep Learning, IJCAI 2016), and 1 for a fresh one.
#[must_use]
pub fn freshness(delay: u64) -> f32 {
    1.0 / delay.max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_by_hand() {
        let of = |decay| Schedule { warmup: 4, decay, steps: 12, floor: 0.2 };
        let constant = of(Decay::Constant);
        assert_eq!([0, 1, 3, 4, 99].map(|v| constant.factor(v)), [0.25, 0.5, 1.0, 1.0, 1.0]);
        assert_eq!([4, 8, 12, 99].map(|v| of(Decay::Linear).factor(v)), [1.0, 0.6, 0.2, 0.2]);
        let cosine = [4, 8, 12].map(|v| of(Decay::Cosine).factor(v));
        assert!((cosine[1] - 0.6).abs() < 1e-6 && cosine[0] == 1.0 && cosine[2] == 0.2);
        assert_eq!(Schedule::default().factor(u64::MAX), 1.0);
        assert_eq!([0, 1, 4].map(freshness), [1.0, 1.0, 0.25]);
    }

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
        assert!(Schedule { floor: 2.0, ..Schedule::default() }.fault().is_some());
        assert!(Schedule { decay: Decay::Cosine, ..Schedule::default() }.fault().is_some());
    }
}
