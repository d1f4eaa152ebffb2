//! The congestion window (P41, P46): the window of RFC 5681 with the estimate of marks of RFC 8257.

use super::super::rtt::Rtt;
use super::pacer::{BURST_PART, Pacer};
use std::time::Duration;

/// Packets that may be outstanding at least.
const MIN_CWND: f64 = 4.0;
/// The part of the window that losses leave.
const BETA: f64 = 0.7;
/// The weight of a round trip's share of marks in `alpha` (P46).
const GAIN: f64 = 1.0 / 16.0;
/// Losses of more than this part of the packets are congestion, even if nothing shows that packets wait in
/// queues.
const TOLERATED: u32 = 4;
/// Results that losses are counted over.
const JUDGED: u32 = 256;

/// The events since the first packet of this round trip was sent.
#[derive(Clone, Debug, Default)]
struct RoundTrip {
    /// The first seq that belongs to the next one.
    end: u64,
    results: u32,
    /// Results with a mark.
    marked: u32,
    /// True once the window has been decreased.
    decreased: bool,
    /// True once the window has kept a packet back.
    filled: bool,
}

/// The congestion window: additive increase, multiplicative decrease. Late results are no sign of congestion, since a worker
/// may be slow.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Packets that may be outstanding; they begin at `initial_cwnd`.
    cwnd: f64,
    initial_cwnd: f64,
    max_cwnd: u64,
    /// From this size on the window grows by one packet for a round trip.
    ssthresh: f64,
    round: RoundTrip,
    /// The smoothed share of results with a mark, and their number so far.
    alpha: f64,
    marks: u64,
    /// Results and losses since they were last judged, which is over more than one round trip if that has few
    /// packets.
    judged: (u32, u32),
    decreases: u64,
    pacer: Pacer,
}

impl Window {
    pub fn new(max_cwnd: u64, initial_cwnd: u64) -> Window {
        Window {
            cwnd: initial_cwnd.min(max_cwnd) as f64,
            initial_cwnd: initial_cwnd as f64,
            max_cwnd,
            ssthresh: f64::MAX,
            round: RoundTrip::default(),
            alpha: 1.0,
            marks: 0,
            judged: (0, 0),
            decreases: 0,
            pacer: Pacer::new(),
        }
    }

    pub fn set_max_cwnd(&mut self, max_cwnd: u64) {
        self.max_cwnd = max_cwnd;
        let cwnd = if self.decreases == 0 { self.cwnd.max(self.initial_cwnd) } else { self.cwnd };
        self.cwnd = cwnd.min(max_cwnd as f64);
    }

    /// Packets that may be outstanding.
    pub fn packets(&self) -> u64 {
        (self.cwnd as u64).clamp(1, self.max_cwnd)
    }

    /// Returns how many packets may go out now if this number is outstanding.
    pub fn room(&self, outstanding: u64) -> u64 {
        self.pacer.room(self.packets().saturating_sub(outstanding))
    }

    /// Returns whether this number of packets is a small enough part of the window to be sent as soon as there is room.
    pub fn bears(&self, packets: u64) -> bool {
        !self.pacer.active && packets as f64 <= self.cwnd / BURST_PART
    }

    /// Returns the number of its decreases.
    pub fn decreases(&self) -> u64 {
        self.decreases
    }

    /// Results with a mark so far.
    pub fn marks(&self) -> u64 {
        self.marks
    }

    /// Counts packets that go out. `all` is true if the window kept others back.
    pub fn count_sent(&mut self, packets: u64, all: bool) {
        self.pacer.count_sent(packets);
        self.round.filled |= all;
    }

    /// Time passes.
    pub fn tick(&mut self, now: Duration, rtt: &Rtt) {
        self.pacer.tick(now, self.cwnd, rtt);
    }

    /// Returns when a quarter of a burst may go out, if pacing keeps packets back.
    pub fn opens_at(&self, rtt: &Rtt) -> Option<Duration> {
        self.pacer.opens_at(self.cwnd, rtt)
    }

    /// Results of `count` seqs in a row are in, all with a mark or all without; `next` is the first seq that has not been sent.
    pub fn handle_results(&mut self, first: u64, count: u32, next: u64, marked: bool) {
        if first >= self.round.end {
            self.end_round(next);
        }
        // Those from the next round trip on.
        let rest = (first + u64::from(count)).saturating_sub(self.round.end).min(count.into()) as u32;
        let count = count - rest;
        self.round.results += count;
        self.judged.0 += count;
        if self.judged.0 >= JUDGED {
            self.judged = (0, 0);
        }
        if marked {
            self.marks += u64::from(count);
            self.round.marked += count;
            self.decrease(1.0 - self.alpha / 2.0);
        }
        if rest > 0 {
            self.handle_results(self.round.end, rest, next, marked);
        }
    }

    /// The packets that were sent when the round trip began are answered: the next one begins, and lasts
    /// until `next` is answered.
    fn end_round(&mut self, next: u64) {
        let before = std::mem::replace(&mut self.round, RoundTrip { end: next, ..RoundTrip::default() });
        // Nothing is known of the share before the first mark, which so halves the window.
        if self.marks > 0 && before.results > 0 {
            self.alpha += GAIN * (f64::from(before.marked) / f64::from(before.results) - self.alpha);
        }
        if !before.decreased && before.filled {
            let more = if self.cwnd < self.ssthresh { f64::from(before.results) } else { 1.0 };
            self.cwnd = (self.cwnd + more).min(self.max_cwnd as f64);
        }
        self.pacer.active &= self.cwnd < self.max_cwnd as f64;
    }

    /// A packet of this worker, or its result, was lost, on a path with or without queueing.
    pub fn handle_loss(&mut self, crowded: bool) {
        self.judged.1 += 1;
        let congested = crowded || self.judged.1 * TOLERATED > JUDGED;
        if congested && self.decrease(BETA) {
            self.judged = (0, 0);
        }
    }

    /// Reduces the window to this part of itself, once in a round trip. Returns whether it did.
    fn decrease(&mut self, to: f64) -> bool {
        if self.round.decreased {
            return false;
        }
        self.cwnd = (self.cwnd * to).max(MIN_CWND).min(self.max_cwnd as f64);
        self.ssthresh = self.cwnd;
        self.round.decreased = true;
        self.decreases += 1;
        self.pacer.start();
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn micros(microseconds: u64) -> Duration {
        Duration::from_micros(microseconds)
    }

    /// Full windows, each a round trip, in which every so many-th packet is lost; the sizes.
    fn rounds(window: &mut Window, count: u64, lost: u64) -> Vec<u64> {
        let mut sizes = Vec::new();
        for _ in 0..count {
            let (first, packets) = (window.round.end, window.packets());
            window.count_sent(packets, true);
            let next = first + packets;
            for seq in first..next {
                if lost > 0 && seq % lost == 0 {
                    window.handle_loss(false);
                }
                window.handle_results(seq, 1, next, false);
            }
            sizes.push(window.packets());
        }
        sizes
    }

    #[test]
    fn it_grows_fast_until_congestion_and_slowly_from_there() {
        let mut window = Window::new(512, 64);
        assert_eq!(window.packets(), 64);
        rounds(&mut window, 600, 0);
        assert_eq!((window.packets(), window.room(12), window.decreases()), (512, 500, 0));
        // Half is lost.
        let sizes = rounds(&mut window, 10, 2);
        assert!(*sizes.last().unwrap() < 100, "{sizes:?}");
        let grown = rounds(&mut window, 10, 0);
        assert!(grown.windows(2).all(|pair| pair[1] == pair[0] + 1), "{grown:?}");
        // Paced: no more than a burst at a time, and some time later as many again.
        let mut rtt = Rtt::new(micros(1000), micros(20_000), micros(1_000_000));
        rtt.sample(micros(100), 1);
        window.tick(micros(1_000_000), &rtt);
        assert_eq!(window.room(0), 8);
        window.count_sent(8, false);
        let opens = window.opens_at(&rtt).unwrap();
        assert!((micros(1_000_001)..micros(1_000_100)).contains(&opens), "{opens:?}");
        window.tick(opens, &rtt);
        assert!(window.room(0) >= 1 && window.opens_at(&rtt).is_none());
    }

    #[test]
    fn a_wait_for_a_slow_worker_does_not_slow_the_pace() {
        let mut rtt = Rtt::new(micros(1000), micros(20_000), micros(1_000_000));
        rtt.sample(micros(100), 1);
        rtt.sample(Duration::from_secs(300), 16);
        let mut window = Window::new(512, 8);
        window.handle_loss(true);
        window.tick(micros(1_000_000), &rtt);
        window.count_sent(8, true);
        let opens = window.opens_at(&rtt).unwrap();
        assert!(opens < micros(1_002_000), "{opens:?}");
    }

    #[test]
    fn paced_bursts_are_an_eighth_of_the_window() {
        let rtt = Rtt::new(micros(1000), micros(20_000), micros(1_000_000));
        for (size, burst) in [(16, 8), (256, 32), (2048, 64)] {
            let mut window = Window::new(4096, size);
            window.pacer.active = true;
            window.tick(micros(1_000_000), &rtt);
            assert_eq!(window.room(0), burst, "{size}");
        }
    }

    /// Full windows, each a round trip, in which this share of the results is marked; the sizes.
    fn marked_rounds(window: &mut Window, count: u64, share: f64) -> Vec<u64> {
        let mut sizes = Vec::new();
        for _ in 0..count {
            let (first, packets) = (window.round.end, window.packets());
            window.count_sent(packets, true);
            let next = first + packets;
            for seq in first..next {
                window.handle_results(seq, 1, next, ((seq - first) as f64) < packets as f64 * share);
            }
            sizes.push(window.packets());
        }
        sizes
    }

    #[test]
    fn the_first_mark_halves_it_and_later_ones_take_their_share() {
        let mut window = Window::new(512, 64);
        // Before any mark it grows fast, and nothing is learnt from their lack.
        marked_rounds(&mut window, 5, 0.0);
        let before = window.packets();
        let sizes = marked_rounds(&mut window, 1, 0.01);
        assert_eq!((sizes[0], window.decreases()), (before / 2, 1));
        // Few marks for long: the share is small, and so are the steps.
        marked_rounds(&mut window, 300, 0.02);
        let (before, decreases) = (window.packets(), window.decreases());
        let sizes = marked_rounds(&mut window, 1, 0.02);
        assert!(sizes[0] + 5 >= before && window.decreases() > decreases, "{before} {sizes:?}");
        // All are marked: half of it each round trip, in the end, down to the least.
        let sizes = marked_rounds(&mut window, 100, 1.0);
        assert_eq!(sizes[99], MIN_CWND as u64);
        let marks = window.marks();
        marked_rounds(&mut window, 1, 1.0);
        assert_eq!(window.marks(), marks + MIN_CWND as u64);
    }

    /// A mark and a loss of one round trip are one decrease.
    #[test]
    fn one_decrease_a_round_trip_whatever_the_sign() {
        let mut window = Window::new(512, 512);
        window.handle_results(0, 1, 512, true);
        assert_eq!(window.packets(), 256);
        window.handle_results(1, 1, 512, true);
        window.handle_loss(true);
        assert_eq!((window.packets(), window.decreases()), (256, 1));
    }

    #[test]
    fn losses_of_some_per_cent_are_no_congestion() {
        let mut window = Window::new(512, 512);
        rounds(&mut window, 100, 10);
        assert_eq!((window.packets(), window.decreases()), (512, 0));
    }

    #[test]
    fn it_never_closes() {
        let mut window = Window::new(512, 64);
        let least = rounds(&mut window, 2000, 2).into_iter().min();
        assert!(least.is_some_and(|least| (MIN_CWND as u64..16).contains(&least)), "{least:?}");
        window.set_max_cwnd(2);
        assert_eq!(window.packets(), 2);
    }
}
