//! Retransmission time-out by the estimator of RFC 6298 (P20).

use std::time::Duration;

/// Smoothed round-trip time and the time-out that follows from it.
#[derive(Clone, Debug)]
pub struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    min: Duration,
    max: Duration,
    initial: Duration,
}

impl Rtt {
    /// No sample yet; time-outs stay within `min..=max` and start with `initial`.
    #[must_use]
    pub fn new(initial: Duration, min: Duration, max: Duration) -> Rtt {
        Rtt { smoothed: None, variation: Duration::ZERO, min, max, initial }
    }

    /// Takes one round trip of a packet that was sent once.
    pub fn sample(&mut self, rtt: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
    }

    /// The smoothed round-trip time.
    #[must_use]
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The time-out after `doublings` time-outs in a row.
    #[must_use]
    pub fn timeout(&self, doublings: u32) -> Duration {
        let base = match self.smoothed {
            None => self.initial,
            Some(smoothed) => smoothed + self.variation * 4,
        };
        base.clamp(self.min, self.max).saturating_mul(1 << doublings.min(16)).min(self.max)
    }
}
