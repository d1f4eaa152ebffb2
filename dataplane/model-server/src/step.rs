//! The rules of the server's steps. One step of the model: the proximal update of Algorithm 1 (step 8) and of Algorithm 3 (step 8).
//!
//! All arithmetic is `f32`, in this order, for each coordinate:
//!
//! ```text
//! u = ζ + g                                      (ζ alone without correction)
//! d = u                                          SGD
//! m = β·m + u; d = m                             momentum
//! m = β₁·m + (1 − β₁)·u; s = β₂·s + (1 − β₂)·u²  Adam, the t-th step of the shard:
//! d = m/(1 − β₁ᵗ) / (√(s/(1 − β₂ᵗ)) + ε)
//! z = v − η·d                                    v: x, or y of an accelerated model
//! s = z − η·λ₁ if z > η·λ₁; z + η·λ₁ if z < −η·λ₁; else 0      (z if λ₁ = 0)
//! v = s / (1 + η·λ₂)                             (s if λ₂ = 0), then clamped to the bounds
//! accelerated: x = x̃ + θ·(y − x̃); mean = mean + (x − mean) / (t + 1)
//! ```
//!
//! which is prox_ηh for h = λ₁‖x‖₁ + ½λ₂‖x‖² + the indicator of a box. A step that would take a number beyond
//! ±[`LARGEST`] is not made ([`Proximal::keeps`]).

use serde::{Deserialize, Serialize};
use thc_codec::norm;

/// The largest magnitude of a model's numbers. Every lattice holds it, and no difference of two of them overflows.
pub const LARGEST: f32 = 1.0e37;

/// The nonsmooth part h: its proximal operator is applied after each step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prox {
    /// λ₁ of λ₁‖x‖₁.
    #[serde(default)]
    pub l1: f32,
    /// λ₂ of ½λ₂‖x‖².
    #[serde(default)]
    pub l2: f32,
    /// Ω: every coordinate stays between these two.
    #[serde(default)]
    pub bounds: Option<(f32, f32)>,
}

/// [`Prox`] for one rate.
#[derive(Clone, Copy, Debug)]
pub struct Proximal {
    rate: f32,
    threshold: f32,
    shrink: f32,
    lower: f32,
    upper: f32,
}

impl Proximal {
    /// The operator for steps of size `rate`.
    #[must_use]
    pub fn new(prox: &Prox, rate: f32) -> Self {
        let (lower, upper) = prox.bounds.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        Self { rate, threshold: rate * prox.l1, shrink: 1.0 + rate * prox.l2, lower, upper }
    }

    /// One coordinate: prox(v − η·u).
    #[inline]
    #[must_use]
    pub fn step(&self, v: f32, u: f32) -> f32 {
        let z = v - self.rate * u;
        let s = if self.threshold == 0.0 {
            z
        } else if z > self.threshold {
            z - self.threshold
        } else if z < -self.threshold {
            z + self.threshold
        } else {
            0.0
        };
        let s = if self.shrink == 1.0 { s } else { s / self.shrink };
        s.max(self.lower).min(self.upper)
    }

    /// Returns whether steps along directions of at most `longest` leave all numbers within ±[`LARGEST`]. The proximal step
    /// makes no number larger unless the box lies out of range. Half is room for rounding.
    fn reaches(&self, v: &[f32], longest: f64) -> bool {
        let reach = f64::from(norm::max_abs(v)) + f64::from(self.rate) * longest;
        self.rate.is_finite()
            && longest <= f64::from(f32::MAX)
            && reach <= f64::from(LARGEST) / 2.0
            && self.lower <= LARGEST
            && self.upper >= -LARGEST
    }

    /// Returns whether [`Self::advance`] leaves every number finite and within ±[`LARGEST`].
    #[must_use]
    fn keeps(&self, v: &[f32], zeta: &[f32], gradient: &[f32]) -> bool {
        if !self.rate.is_finite() {
            return false;
        }
        if self.reaches(v, max_abs(zeta) + max_abs(gradient)) {
            return true;
        }
        let stays = |v: f32, u: f32| !(v - self.rate * u).is_nan() && self.step(v, u).abs() <= LARGEST;
        if gradient.is_empty() {
            v.iter().zip(zeta).all(|(v, zeta)| stays(*v, *zeta))
        } else {
            v.iter().zip(zeta).zip(gradient).all(|((v, zeta), g)| stays(*v, zeta + g))
        }
    }

    /// A whole vector, by SGD. `gradient` is g, empty without correction.
    fn advance(&self, v: &mut [f32], zeta: &[f32], gradient: &[f32]) {
        if gradient.is_empty() {
            for (v, zeta) in v.iter_mut().zip(zeta) {
                *v = self.step(*v, *zeta);
            }
        } else {
            for ((v, zeta), g) in v.iter_mut().zip(zeta).zip(gradient) {
                *v = self.step(*v, zeta + g);
            }
        }
    }
}

fn max_abs(x: &[f32]) -> f64 {
    f64::from(norm::max_abs(x))
}

/// The server's way of applying gradients. u is a push, with correction plus the full-batch gradient.
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

    /// Returns whether [`Self::advance`] leaves every number finite and within ±[`LARGEST`]: exact for SGD, and by a bound for the
    /// others, which refuses only what is within a factor of a few of that. The step comes after `before` others; `m` is the
    /// optimizer's first vector.
    pub(crate) fn keeps(
        self,
        before: u64,
        prox: &Proximal,
        v: &[f32],
        zeta: &[f32],
        gradient: &[f32],
        m: &[f32],
    ) -> bool {
        let u = max_abs(zeta) + max_abs(gradient);
        match self {
            Self::Sgd => prox.keeps(v, zeta, gradient),
            Self::Momentum { beta } => prox.reaches(v, f64::from(beta) * max_abs(m) + u),
            // Squares stay far from the largest float; |d| is at most |m̂|/ε.
            Self::Adam { beta1, epsilon, .. } => {
                let first = f64::from(correction(beta1, before));
                let longest = (f64::from(beta1) * max_abs(m) + u) * first / f64::from(epsilon);
                u <= 1e18 && prox.reaches(v, longest)
            }
        }
    }

    /// A step of a whole vector after `before` others. `gradient` is g, empty without correction; `m` and `s` are the optimizer's
    /// vectors, empty where it has none.
    #[allow(clippy::too_many_arguments, reason = "the vectors of a step")]
    pub(crate) fn advance(
        self,
        before: u64,
        prox: &Proximal,
        v: &mut [f32],
        zeta: &[f32],
        gradient: &[f32],
        m: &mut [f32],
        s: &mut [f32],
    ) {
        let u = |i: usize| zeta[i] + gradient.get(i).copied().unwrap_or(0.0);
        match self {
            Self::Sgd => prox.advance(v, zeta, gradient),
            Self::Momentum { beta } => {
                for (i, (v, m)) in v.iter_mut().zip(m).enumerate() {
                    *m = beta * *m + u(i);
                    *v = prox.step(*v, *m);
                }
            }
            Self::Adam { beta1, beta2, epsilon } => {
                let (first, second) = (correction(beta1, before), correction(beta2, before));
                for (i, ((v, m), s)) in v.iter_mut().zip(m).zip(s).enumerate() {
                    let u = u(i);
                    *m = beta1 * *m + (1.0 - beta1) * u;
                    *s = beta2 * *s + (1.0 - beta2) * u * u;
                    *v = prox.step(*v, *m * first / ((*s * second).sqrt() + epsilon));
                }
            }
        }
    }
}

/// 1/(1 − βᵗ) for the step after `before` others.
fn correction(beta: f32, before: u64) -> f32 {
    (1.0 / (1.0 - f64::from(beta).powf(before as f64 + 1.0))) as f32
}

/// θ of epoch number `epoch` from 0: 2/(s + 2) for s = epoch + 1.
#[must_use]
pub fn theta(epoch: u64) -> f32 {
    2.0 / (epoch as f32 + 3.0)
}

/// x between snapshot and y, and the running mean of x, of which `before` are in already.
pub fn couple(x: &mut [f32], y: &[f32], snapshot: &[f32], mean: &mut [f32], theta: f32, before: u64) {
    let weight = 1.0 / (before as f32 + 1.0);
    for (((x, y), snapshot), mean) in x.iter_mut().zip(y).zip(snapshot).zip(mean) {
        *x = snapshot + theta * (y - snapshot);
        *mean += (*x - *mean) * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        let prox = Proximal::new(&Prox { l1: 1.0, l2: 2.0, bounds: Some((-0.25, 1.0)) }, 0.5);
        // 3 − 0.5·1 = 2.5; 2.5 − 0.5 = 2; 2 / 2 = 1.
        assert_eq!(prox.step(3.0, 1.0), 1.0);
        assert_eq!(prox.step(0.4, 0.0), 0.0);
        assert_eq!(prox.step(-9.0, 0.0), -0.25);
        let none = Proximal::new(&Prox::default(), 0.5);
        assert_eq!(none.step(3.0, 1.0), 2.5);
        assert_eq!(theta(0), 2.0 / 3.0);
    }

    #[test]
    fn a_step_out_of_range_is_foreseen() {
        let none = Proximal::new(&Prox::default(), 2.0);
        assert!(none.keeps(&[1.0, -1.0], &[1e36, 0.0], &[]));
        assert!(none.keeps(&[LARGEST], &[0.0], &[1.0]));
        assert!(!none.keeps(&[1.0, -1.0], &[1e37, 0.0], &[]));
        assert!(!none.keeps(&[0.0], &[f32::MAX], &[f32::MAX]));
        let overflown = Proximal::new(&Prox { bounds: Some((-1.0, 1.0)), ..Prox::default() }, f32::INFINITY);
        assert!(!overflown.keeps(&[0.0], &[0.0], &[]));
        let still = Proximal::new(&Prox { bounds: Some((-1.0, 1.0)), ..Prox::default() }, 0.0);
        assert!(!still.keeps(&[0.0], &[f32::MAX], &[f32::MAX]));
        // Numbers in the box are in range, however long the step.
        let boxed = Proximal::new(&Prox { bounds: Some((-1.0, 1.0)), ..Prox::default() }, 1.0);
        assert!(boxed.keeps(&[0.0], &[f32::MAX], &[]));
        let far = Proximal::new(&Prox { bounds: Some((2e37, 3e37)), ..Prox::default() }, 1.0);
        assert!(!far.keeps(&[0.0], &[0.0], &[]));
    }

    #[test]
    fn momentum_and_adam_by_hand() {
        let prox = Proximal::new(&Prox::default(), 0.5);
        let (mut v, mut m) = ([1.0, 2.0], [4.0, 0.0]);
        let momentum = Optimizer::Momentum { beta: 0.5 };
        assert!(momentum.keeps(7, &prox, &v, &[2.0, -1.0], &[], &m));
        momentum.advance(7, &prox, &mut v, &[2.0, -1.0], &[], &mut m, &mut []);
        assert_eq!((v, m), ([-1.0, 2.5], [4.0, -1.0]));
        // The first step of Adam has the rate's length, whatever the gradient's.
        let adam = Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
        let (mut v, mut m, mut s) = ([0.0, 0.0], [0.0; 2], [0.0; 2]);
        adam.advance(0, &prox, &mut v, &[1.0, -300.0], &[2.0, 0.0], &mut m, &mut s);
        assert!((v[0] + 0.5).abs() < 1e-5 && (v[1] - 0.5).abs() < 1e-5);
        assert!((m[0] - 0.3).abs() < 1e-6 && (s[1] - 90.0).abs() < 0.01);
        for optimizer in [adam, Optimizer::Momentum { beta: 0.9 }] {
            assert!(!optimizer.keeps(0, &prox, &v, &[f32::MAX, 0.0], &[], &m));
            assert!(optimizer.keeps(0, &prox, &v, &[1e3, 0.0], &[], &m));
        }
    }

    #[test]
    fn wrong_fields_of_an_optimizer_are_named() {
        for (wrong, word) in [
            (Optimizer::Momentum { beta: 1.0 }, "β"),
            (Optimizer::Adam { beta1: 0.9, beta2: -0.1, epsilon: 1e-8 }, "β₂"),
            (Optimizer::Adam { beta1: 0.9, beta2: 0.99, epsilon: 0.0 }, "ε"),
        ] {
            assert!(wrong.fault().is_some_and(|fault| fault.contains(word)));
        }
        assert_eq!(Optimizer::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 }.fault(), None);
    }

    proptest! {
        /// Steps predicted to stay in range do, and others do not.
        #[test]
        fn range_is_foreseen(
            numbers in prop::collection::vec((-1.1e37_f32..1.1e37, any::<f32>(), any::<f32>()), 1..20),
            rate in prop_oneof![0.0_f32..10.0, 0.0_f32..1e38],
            l1 in prop_oneof![Just(0.0_f32), 0.0_f32..1e37],
        ) {
            let finite = |v: f32| if v.is_finite() { v } else { 0.0 };
            let mut v: Vec<f32> = numbers.iter().map(|(v, ..)| *v).collect();
            let zeta: Vec<f32> = numbers.iter().map(|(_, zeta, _)| finite(*zeta)).collect();
            let g: Vec<f32> = numbers.iter().map(|(.., g)| finite(*g)).collect();
            let step = Proximal::new(&Prox { l1, ..Prox::default() }, rate);
            let keeps = step.keeps(&v, &zeta, &g);
            step.advance(&mut v, &zeta, &g);
            prop_assert_eq!(keeps, v.iter().all(|v| v.abs() <= LARGEST));
        }

        /// prox is the minimum of h(y) + (y − z)²/2η: nothing near it is lower.
        #[test]
        fn is_the_minimum(z in -4.0_f32..4.0, l1 in 0.0_f32..2.0, l2 in 0.0_f32..2.0, rate in 0.01_f32..2.0) {
            let y = f64::from(Proximal::new(&Prox { l1, l2, bounds: Some((-2.0, 3.0)) }, rate).step(z, 0.0));
            let (z, l1, l2, rate) = (f64::from(z), f64::from(l1), f64::from(l2), f64::from(rate));
            let objective = |y: f64| l1 * y.abs() + 0.5 * l2 * y * y + (y - z).powi(2) / (2.0 * rate);
            for k in -100..=100 {
                let other = (y + f64::from(k) * 0.01).clamp(-2.0, 3.0);
                prop_assert!(objective(y) <= objective(other) + 1e-4);
            }
        }
    }
}
