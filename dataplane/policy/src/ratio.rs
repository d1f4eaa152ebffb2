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

    /// The ratio of the second stage. Of the rest of a block after the first stage, `size`, so much is sent that it arrives by the
    /// time when the next forward pass needs the block, `left` from now. `None` if less than q̄ fits, so that the pass would
    /// have to wait (section 4.3.2).
    #[must_use]
    pub fn second(&self, size: f64, bandwidth: f64, left: f64) -> Option<f64> {
        let ratio = Self::fits(size, bandwidth, left);
        (ratio >= self.least).then_some(ratio.min(1.0))
    }
}

/// The bits that a ratio sends of a number of `bits`: ⌈q · bits⌉, at least 1 (section 4.4).
#[must_use]
pub fn bits(ratio: f64, bits: u32) -> u32 {
    // A product of two decimals may lie slightly above the whole number that it represents, which must not add a bit.
    ((ratio * f64::from(bits) - 1e-9).ceil() as u32).clamp(1, bits.max(1))
}

/// A link's bandwidth, as a mean of its transfers in which later transfers have more weight. It follows a change of the
/// link within two steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bandwidth(Option<f64>);

/// The weight of the latest transfer.
const LATEST: f64 = 0.7;

impl Bandwidth {
    /// Records a transfer of this many bytes in this many seconds. A transfer that took no time is ignored.
    pub fn note(&mut self, bytes: f64, seconds: f64) {
        if bytes > 0.0 && seconds > 0.0 {
            let seen = bytes / seconds;
            self.0 = Some(self.0.map_or(seen, |before| before + LATEST * (seen - before)));
        }
    }

    /// The bandwidth in bytes a second. `None` before the first transfer.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        self.0
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
    fn the_second_stage_sends_what_fits_or_nothing() {
        let control = RatioLimits::default();
        assert_eq!(control.second(100.0, 50.0, 1.0), Some(0.5));
        assert_eq!(control.second(100.0, 50.0, 5.0), Some(1.0));
        assert_eq!(control.second(100.0, 50.0, 0.2), None);
        assert_eq!(control.second(100.0, 50.0, -3.0), None);
    }

    #[test]
    fn ratios_are_bits() {
        assert_eq!([0.125, 0.126, 1.0, 0.0, 0.3].map(|ratio| bits(ratio, 32)), [4, 5, 32, 1, 10]);
        assert_eq!((bits(0.5, 28), bits(1.0 / 28.0, 28)), (14, 1));
        assert_eq!(RatioLimits::new(0.0).or(RatioLimits::new(1.5)).or(RatioLimits::new(f64::NAN)), None);
    }

    #[test]
    fn bandwidth_follows_within_two_steps() {
        let mut bandwidth = Bandwidth::default();
        assert_eq!(bandwidth.get(), None);
        bandwidth.note(100.0, 1.0);
        bandwidth.note(5.0, 0.0);
        assert_eq!(bandwidth.get(), Some(100.0));
        (0..2).for_each(|_| bandwidth.note(30.0, 1.0));
        let seen = bandwidth.get().unwrap_or(0.0);
        assert!((30.0..37.0).contains(&seen), "{seen}");
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
            match control.second(size, bandwidth, left) {
                Some(second) => prop_assert!(size * second / bandwidth <= left * (1.0 + 1e-9)),
                None => prop_assert!(size * 0.1 / bandwidth > left * (1.0 - 1e-9)),
            }
        }
    }
}
