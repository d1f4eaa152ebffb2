//! Retransmission time-out (P20).

use std::time::Duration;

/// Packets that each half of the sliding minimum covers.
const SPAN: u32 = 512;
/// The time-out is at most this multiple of the shortest recent round trip.
const CAP: u32 = 4;

/// Round-trip times of packets sent once, and the time-out that follows from them.
///
/// A round trip here includes the wait for the slowest worker, and so for other workers' time-outs. By RFC
/// 6298 alone every worker would take the others' time-outs for round trips and wait still longer, up to the
/// longest time-out; so the shortest recent round trip bounds the time-out.
#[derive(Clone, Debug)]
pub struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    /// The shortest of the latest samples, and how many these are.
    latest: (Duration, u32),
    /// The shortest of the [`SPAN`] samples before those.
    earlier: Duration,
    /// The shortest that other packets to the same aggregator have had.
    elsewhere: Duration,
    /// Smoothed time of an immediate answer of the aggregator, which includes no wait for other
    /// workers.
    answer: Option<Duration>,
    latest_answer: Duration,
    /// The shortest round trip of all.
    least: Duration,
    min: Duration,
    max: Duration,
    initial: Duration,
}

impl Rtt {
    /// No sample yet; time-outs stay within `min..=max` and start with `initial`.
    pub fn new(initial: Duration, min: Duration, max: Duration) -> Rtt {
        Rtt {
            smoothed: None,
            variation: Duration::ZERO,
            latest: (Duration::MAX, 0),
            earlier: Duration::MAX,
            elsewhere: Duration::MAX,
            answer: None,
            latest_answer: Duration::ZERO,
            least: Duration::MAX,
            min,
            max,
            initial,
        }
    }

    /// Takes one round trip of `packets` that were sent once and answered together.
    pub fn sample(&mut self, rtt: Duration, packets: u32) {
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
        self.least = self.least.min(rtt);
        let (shortest, count) = self.latest;
        self.latest = (shortest.min(rtt), count + packets);
        if self.latest.1 >= SPAN {
            self.earlier = self.latest.0;
            self.latest = (Duration::MAX, 0);
        }
    }

    /// The smoothed round-trip time.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The smoothed round trip less the wait for slow workers: at most four of the shortest recent ones.
    pub fn network_time(&self) -> Option<Duration> {
        Some(self.smoothed?.min(self.shortest()?.saturating_mul(CAP)))
    }

    /// The shortest round trip of the last 512 to 1,024 packets and a run more.
    pub fn shortest(&self) -> Option<Duration> {
        self.smoothed.map(|_| self.latest.0.min(self.earlier))
    }

    /// Returns how long to wait for results of packets that were not repeated before more is repeated: about one
    /// round trip, at most the shortest time-out.
    pub fn grace(&self) -> Duration {
        self.smoothed.unwrap_or(self.min).min(self.min)
    }

    /// Sets the shortest round trip of other packets: those measured here may have waited for slow workers.
    pub fn set_elsewhere(&mut self, shortest: Option<Duration>, answer: Option<Duration>) {
        self.elsewhere = shortest.unwrap_or(Duration::MAX);
        self.answer = self.answer.or(answer);
    }

    /// Smoothed time of an immediate answer of the aggregator, if a NUDGE has brought one.
    pub fn answer(&self) -> Option<Duration> {
        self.answer
    }

    /// Takes a round trip in which the aggregator waited for no worker. One that was longer than the longest time-out was
    /// not the network's: this process has been suspended meanwhile.
    pub fn add_answer(&mut self, rtt: Duration) {
        if rtt > self.max {
            return;
        }
        self.answer = Some(self.answer.map_or(rtt, |smoothed| (smoothed * 7 + rtt) / 8));
        self.latest_answer = rtt;
        self.least = self.least.min(rtt);
    }

    /// Returns whether a result can be an answer to what was sent so long ago.
    pub fn is_round_trip(&self, age: Duration) -> bool {
        self.prompt().is_some_and(|prompt| age >= prompt / 2)
    }

    /// Returns whether packets wait in queues on their way: the last immediate answer took three times as long as the
    /// quickest one, and so much longer that a host alone cannot be the cause (P41 congestion).
    pub fn is_crowded(&self) -> bool {
        let (latest, least) = (self.latest_answer, self.least);
        least < Duration::MAX && latest >= least * 3 && latest >= least + self.min / 100
    }

    /// Returns how long an immediate answer takes now; without such an answer, the shortest round trip.
    fn prompt(&self) -> Option<Duration> {
        self.answer.or_else(|| self.quickest())
    }

    fn quickest(&self) -> Option<Duration> {
        let shortest = self.shortest().unwrap_or(Duration::MAX).min(self.elsewhere);
        Some(shortest.min(self.answer.unwrap_or(Duration::MAX))).filter(|rtt| *rtt < Duration::MAX)
    }

    /// The time without any result after which expected packets count as missing: four of the shortest round
    /// trips, at least a 400th of the shortest time-out and at most all of it; without a sample, a quarter of
    /// it.
    pub fn silence(&self) -> Duration {
        self.prompt().map_or(self.min / 4, |rtt| rtt.saturating_mul(CAP).clamp(self.min / 400, self.min))
    }

    /// Returns how long the worker that is to act on a loss has for it: about a round trip.
    pub fn patience(&self) -> Duration {
        let usual = self.smoothed.unwrap_or(Duration::MAX);
        let prompt = self.answer.map(|rtt| rtt * 3 / 2).or_else(|| self.quickest().map(|rtt| rtt * 2));
        prompt.map_or(self.min / 4, |rtt| usual.min(rtt).max(self.min / 400))
    }

    /// Returns how long packets of the same burst may come one after the other.
    pub fn reorder_time(&self) -> Duration {
        self.prompt().map_or(self.min / 16, |rtt| (rtt / 4).clamp(self.min / 1600, self.min / 4))
    }

    /// The shortest time-out.
    pub fn min(&self) -> Duration {
        self.min
    }

    /// The time-out after `doublings` time-outs in a row.
    pub fn timeout(&self, doublings: u32) -> Duration {
        let base = match (self.smoothed, self.shortest()) {
            (Some(smoothed), Some(shortest)) => {
                (smoothed + self.variation * 4).min(shortest.saturating_mul(CAP))
            }
            _ => self.initial,
        };
        base.clamp(self.min, self.max).saturating_mul(1 << doublings.min(16)).min(self.max)
    }
}
