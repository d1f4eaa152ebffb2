//! AQGB's control of the quantization ratio, by which gradients arrive in time (section 4.3).
//!
//! A ratio is the size after quantization divided by the size before (Eq. 3): a ratio of 1 sends everything. Sizes are bytes
//! before quantization, times are seconds from now, and bandwidths are bytes a second.

/// The least ratio in the paper, which sends 4 bits of 32.
pub const LEAST: f64 = 0.125;

/// The range of ratios.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioLimits {
    /// q̄, the least ratio.
    least: f64,
}

impl Default for RatioLimits {
    fn default() -> Self {
        Self { least: LEAST }
    }
}

impl RatioLimits {
    /// Creates a range that never sends less than the share `least` of a gradient. `None` unless `least` is above 0 and at most 1.
    #[must_use]
    pub fn new(least: f64) -> Option<Self> {
        (least > 0.0 && least <= 1.0).then_some(Self { least })
    }

    /// q̄.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.least
    }

    /// The ratio that fits: `bandwidth · left / size`.
    fn fits(size: f64, bandwidth: f64, left: f64) -> f64 {
        if size > 0.0 { bandwidth.max(0.0) * left.max(0.0) / size } else { 1.0 }
    }

    /// The ratio of the first stage. Everything that was produced and is not delivered yet, `size`, should arrive by the time
    /// when the next block is produced, `left` from now. After the last block `left` is `None`, and everything should
    /// arrive as soon as possible. The ratio is at least q̄ and at most 1 (section 4.3.1).
    #[must_use]
    pub fn first(&self, size: f64, bandwidth: f64, left: Option<f64>) -> f64 {
        match left {
            Some(left) => Self::fits(size, bandwidth, left).clamp(self.least, 1.0),
            None => self.least,
        }
    }

    /// The ratio of the second stage, max(q̄, q₂): of the rest of a block after the first stage, `size`, so much is sent that it
    /// arrives by the time when the next forward pass needs the block, `left` from now. At least q̄ is sent, even if the
    /// pass has to wait for it. `None` if no time is left: such a block has no second stage (section 4.3.2).
    #[must_use]
    pub fn second(&self, size: f64, bandwidth: f64, left: f64) -> Option<f64> {
        (left > 0.0).then(|| Self::fits(size, bandwidth, left).clamp(self.least, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of the paper's Fig. 5(a): g_4 should arrive by the time when g_3 is produced.
    #[test]
    fn the_first_stage_ends_when_the_next_block_comes() {
        let control = RatioLimits::default();
        assert_eq!(control.first(100.0, 50.0, Some(1.0)), 0.5);
        // More was produced than can be sent, so everything is late.
        assert_eq!(control.first(1000.0, 50.0, Some(1.0)), LEAST);
        assert_eq!(control.first(100.0, 50.0, Some(-1.0)), LEAST);
        // There is time for everything.
        assert_eq!(control.first(100.0, 50.0, Some(9.0)), 1.0);
        // The last block.
        assert_eq!(control.first(100.0, 50.0, None), LEAST);
        assert_eq!(control.first(0.0, 0.0, Some(0.0)), 1.0);
    }

    #[test]
    fn the_second_stage_sends_what_fits_and_the_least_ratio_otherwise() {
        let control = RatioLimits::default();
        assert_eq!(control.second(100.0, 50.0, 1.0), Some(0.5));
        assert_eq!(control.second(100.0, 50.0, 5.0), Some(1.0));
        assert_eq!(control.second(100.0, 50.0, 0.2), Some(LEAST));
        assert_eq!(control.second(100.0, 50.0, 0.0), None);
        assert_eq!(control.second(100.0, 50.0, -3.0), None);
    }

    #[test]
    fn a_least_ratio_is_a_share() {
        assert_eq!(RatioLimits::new(0.0).or(RatioLimits::new(1.5)).or(RatioLimits::new(f64::NAN)), None);
    }

    proptest! {
        /// Whatever a ratio above the least sends arrives in time, and more would not.
        #[test]
        fn what_is_chosen_is_there_in_time(size in 1.0..1e9, bandwidth in 1.0..1e9, left in 0.0..100.0) {
            let control = RatioLimits::new(0.1).unwrap_or_default();
            let first = control.first(size, bandwidth, Some(left));
            prop_assert!((0.1..=1.0).contains(&first));
            if first > 0.1 {
                prop_assert!(size * first / bandwidth <= left * (1.0 + 1e-9));
            }
            prop_assert_eq!(control.second(size, bandwidth, left), (left > 0.0).then_some(first));
        }
    }
}
