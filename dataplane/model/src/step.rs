//! One step of the model: the proximal update of Algorithm 1 (step 8) and of Algorithm 3 (step 8).
//!
//! All arithmetic is `f32`, in this order, for each coordinate:
//!
//! ```text
//! u = ζ + g                                      (ζ alone without correction)
//! z = v − η·u                                    v: x, or y of an accelerated model
//! s = z − η·λ₁ if z > η·λ₁; z + η·λ₁ if z < −η·λ₁; else 0      (z if λ₁ = 0)
//! v = s / (1 + η·λ₂)                             (s if λ₂ = 0), then clamped to the bounds
//! accelerated: x = x̃ + θ·(y − x̃); mean = mean + (x − mean) / (t + 1)
//! ```
//!
//! which is prox_ηh for h = λ₁‖x‖₁ + ½λ₂‖x‖² + the indicator of a box.

use crate::spec::Prox;

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
    /// For steps of size `rate`.
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

    /// A whole vector. `gradient` is g, empty without correction.
    pub fn advance(&self, v: &mut [f32], zeta: &[f32], gradient: &[f32]) {
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

    proptest! {
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
