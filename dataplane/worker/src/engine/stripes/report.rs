//! What a stripe's thread writes and the engine reads: counters, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thc_protocol::worker::{ProtocolStats, StreamStats, StripeReport};

/// No time.
const NONE: u64 = u64::MAX;
/// Bits of the first word: busy, deaf, a shard and its number, time-outs.
const BUSY: u64 = 1;
const DEAF: u64 = 2;
const WAITS: u64 = 4;
const SHARD: u32 = 8;
const TIMEOUTS: u32 = 32;

/// A [`StripeReport`] in words.
pub(in crate::engine) struct Shared {
    /// Whether it waits for anything is written last and read first, so that a reader that sees it waiting
    /// also sees since when.
    state: AtomicU64,
    words: [AtomicU64; 15],
}

impl Shared {
    /// The report of a stripe that has done nothing yet.
    pub fn new() -> Shared {
        let shared = Shared { state: AtomicU64::new(0), words: Default::default() };
        shared.write(&StripeReport::default());
        shared
    }

    pub fn write(&self, report: &StripeReport) {
        let StripeReport { busy, waits_at, timeouts, deaf, heard, progress, missing, .. } = *report;
        let StripeReport { smoothed, shortest, answer, window, marks, stats, .. } = *report;
        let ProtocolStats { data: StreamStats { sent, repeated, timeouts: all_timeouts, .. }, .. } = stats;
        let time = |time: Option<Duration>| time.map_or(NONE, |time| time.as_nanos() as u64);
        let words = [
            heard.as_nanos() as u64,
            progress.as_nanos() as u64,
            missing,
            time(smoothed),
            time(shortest),
            time(answer),
            window.0,
            window.1,
            marks,
            sent,
            repeated,
            all_timeouts,
            stats.stragglers,
            stats.nudged,
            stats.foreign,
        ];
        self.words.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        let flags = if busy { BUSY } else { 0 } | if deaf { DEAF } else { 0 };
        let waits = waits_at.map_or(0, |shard| WAITS | u64::from(shard) << SHARD);
        self.state.store(flags | waits | u64::from(timeouts) << TIMEOUTS, Ordering::Release);
    }

    pub fn report(&self) -> StripeReport {
        let state = self.state.load(Ordering::Acquire);
        let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let [heard, progress, missing, smoothed, shortest, answer, packets, decreases, marks, ..] = words;
        let [.., sent, repeated, timeouts, stragglers, nudged, foreign] = words;
        let time = |word: u64| (word != NONE).then(|| Duration::from_nanos(word));
        StripeReport {
            busy: state & BUSY != 0,
            waits_at: (state & WAITS != 0).then_some((state >> SHARD) as u8),
            timeouts: (state >> TIMEOUTS) as u32,
            deaf: state & DEAF != 0,
            heard: Duration::from_nanos(heard),
            progress: Duration::from_nanos(progress),
            missing,
            smoothed: time(smoothed),
            shortest: time(shortest),
            answer: time(answer),
            window: (packets, decreases),
            marks,
            stats: ProtocolStats {
                data: StreamStats { sent, repeated, timeouts, given_up: 0 },
                stragglers,
                nudged,
                foreign,
                ..ProtocolStats::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let shared = Shared::new();
        assert_eq!(shared.report(), StripeReport::default());
        let at = |milliseconds| Some(Duration::from_millis(milliseconds));
        let report = StripeReport {
            busy: true,
            waits_at: Some(63),
            timeouts: 7,
            deaf: true,
            heard: Duration::from_secs(1),
            progress: Duration::from_secs(2),
            missing: 1 << 63,
            smoothed: at(3),
            shortest: None,
            answer: at(5),
            window: (6, 7),
            marks: 8,
            stats: ProtocolStats {
                data: StreamStats { sent: 9, repeated: 10, timeouts: 11, given_up: 0 },
                stragglers: 12,
                nudged: 13,
                foreign: 14,
                ..ProtocolStats::default()
            },
        };
        shared.write(&report);
        assert_eq!(shared.report(), report);
        shared.write(&StripeReport { busy: false, waits_at: Some(0), deaf: false, ..report });
        assert_eq!(shared.report(), StripeReport { busy: false, waits_at: Some(0), deaf: false, ..report });
    }
}
