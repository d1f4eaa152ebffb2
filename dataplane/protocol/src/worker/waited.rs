//! Time that is counted in ticks.

use std::time::Duration;

/// Ticks come at least once a second while something is outstanding (P20 retransmission). A longer pause is one in which this
/// process was suspended, and probably others with it: no more than this of it counts.
const LONGEST: Duration = Duration::from_secs(1);

/// A span without events. Only time in which ticks were made counts, so that workers which are suspended
/// together do not time out when they go on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waited {
    /// The time of the last event.
    last: Duration,
    time: Duration,
}

impl Waited {
    /// A tick, when the one before was made at `since`, and something has happened at `last`.
    pub fn count(&mut self, since: Duration, now: Duration, last: Duration) {
        if last > self.last {
            *self = Waited { last, time: Duration::ZERO };
        }
        self.time += now.saturating_sub(last.max(since)).min(LONGEST);
    }

    /// For how long nothing had happened at the last tick.
    pub fn time(&self) -> Duration {
        self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_counts_as_a_second_at_most() {
        let s = Duration::from_secs;
        let mut waited = Waited::default();
        waited.count(s(10), s(11), s(10));
        assert_eq!(waited.time(), s(1));
        waited.count(s(11), s(600), s(10));
        assert_eq!(waited.time(), s(2));
        waited.count(s(600), s(601), s(10));
        assert_eq!(waited.time(), s(3));
        // Something happened a moment ago.
        waited.count(s(601), s(602), s(602));
        assert_eq!(waited.time(), s(0));
    }
}
