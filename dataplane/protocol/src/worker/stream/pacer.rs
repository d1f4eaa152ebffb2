//! Packets are spread over a round trip once congestion has been seen (P41).

use super::super::rtt::Rtt;
use std::time::Duration;

/// Packets that are sent at once: this part of the congestion window, within these bounds. A kernel takes 64 in one
/// piece, and a queue that holds a window holds an eighth of it.
pub(super) const BURST_PART: f64 = 8.0;
const MIN_BURST: f64 = 8.0;
const MAX_BURST: f64 = 64.0;
/// The rate of packets, as a multiple of the window over the round trip.
const GAIN: f64 = 1.25;

/// A token bucket that holds one burst.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    /// True if packets are paced: from the first congestion on, until the window is as large as it may be.
    pub active: bool,
    /// Packets that may go out, as of `since`.
    tokens: f64,
    since: Duration,
}

fn burst(cwnd: f64) -> f64 {
    (cwnd / BURST_PART).clamp(MIN_BURST, MAX_BURST)
}

/// Packets a second. Results that waited for a slow worker, for minutes perhaps, say nothing of what the network bears.
fn rate(cwnd: f64, rtt: &Rtt) -> f64 {
    let round_trip = rtt.network_time().unwrap_or(Duration::from_millis(1)).max(Duration::from_micros(20));
    GAIN * cwnd / round_trip.as_secs_f64()
}

impl Pacer {
    pub fn new() -> Pacer {
        Pacer { active: false, tokens: MIN_BURST, since: Duration::ZERO }
    }

    /// Congestion has been seen. What was sent before that is not owed.
    pub fn start(&mut self) {
        self.active = true;
        self.tokens = self.tokens.max(0.0);
    }

    /// Returns how many of `open` packets may go out now.
    pub fn room(&self, open: u64) -> u64 {
        if self.active { open.min(self.tokens as u64) } else { open }
    }

    pub fn count_sent(&mut self, packets: u64) {
        self.tokens -= packets as f64;
    }

    pub fn tick(&mut self, now: Duration, cwnd: f64, rtt: &Rtt) {
        let passed = now.saturating_sub(self.since).as_secs_f64();
        let tokens = if self.active { self.tokens + passed * rate(cwnd, rtt) } else { f64::MAX };
        (self.tokens, self.since) = (tokens.min(burst(cwnd)), now);
    }

    /// Returns when a quarter of a burst may go out, if pacing keeps packets back.
    pub fn opens_at(&self, cwnd: f64, rtt: &Rtt) -> Option<Duration> {
        let lacking = burst(cwnd) / 4.0 - self.tokens;
        (self.active && self.tokens < 1.0)
            .then(|| self.since + Duration::from_secs_f64(lacking / rate(cwnd, rtt)))
    }
}
