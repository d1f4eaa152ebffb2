//! How much may be outstanding for the network's sake (P41, P46).

use super::super::rtt::Rtt;
use std::time::Duration;

/// Packets that may be outstanding at least.
const LEAST: f64 = 4.0;
/// What losses leave of the window.
const AFTER_LOSS: f64 = 0.7;
/// What a round trip's share of marks counts in the smoothed one (P46).
const GAIN: f64 = 1.0 / 16.0;
/// Losses of more than this part of the packets are congestion, even if nothing shows that packets wait in
/// queues.
const TOLERATED: u32 = 4;
/// Results that losses are counted over.
const JUDGED: u32 = 256;
/// Packets that are sent at once if sending is paced: this part of the window, within these bounds. A kernel
/// takes 64 in one piece, and a queue that holds a window holds an eighth of it.
const BURST_PART: f64 = 8.0;
const BURST_LEAST: f64 = 8.0;
const BURST_MOST: f64 = 64.0;
/// How much faster than the window over the round trip packets go out.
const PACE: f64 = 1.25;

/// The window and what it depends on: additive increase, multiplicative decrease. Late results are no sign of
/// congestion, since a worker may be slow.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Packets that may be outstanding.
    size: f64,
    /// From there on it grows by one packet for a round trip.
    threshold: f64,
    most: u64,
    /// Where it begins.
    first: f64,
    /// First seq of the next round trip; results and losses of this one; whether it has had its decrease.
    round: u64,
    results: u32,
    decreased: bool,
    /// Results of this round trip with a mark, and the smoothed share of such.
    marked: u32,
    share: f64,
    marks: u64,
    /// Whether it has kept anything back.
    filled: bool,
    /// Results and losses since they were last judged, which is over more than one round trip if that has few
    /// packets.
    judged: (u32, u32),
    /// Whether congestion has been seen: then packets are paced.
    paced: bool,
    /// How many may go out now, and since when that is so.
    tokens: f64,
    since: Duration,
    decreases: u64,
}

impl Window {
    pub fn new(most: u64, first: u64) -> Window {
        Window {
            size: first.min(most) as f64,
            threshold: f64::MAX,
            most,
            first: first as f64,
            round: 0,
            results: 0,
            decreased: false,
            marked: 0,
            share: 1.0,
            marks: 0,
            filled: false,
            judged: (0, 0),
            paced: false,
            tokens: BURST_LEAST,
            since: Duration::ZERO,
            decreases: 0,
        }
    }

    pub fn set_most(&mut self, most: u64) {
        self.most = most;
        let size = if self.decreases == 0 { self.size.max(self.first) } else { self.size };
        self.size = size.min(most as f64);
    }

    /// Packets that may be outstanding.
    pub fn packets(&self) -> u64 {
        (self.size as u64).clamp(1, self.most)
    }

    /// How many packets may go out now if so many are outstanding.
    pub fn room(&self, outstanding: u64) -> u64 {
        let open = self.packets().saturating_sub(outstanding);
        if self.paced { open.min(self.tokens as u64) } else { open }
    }

    /// Whether so many packets are so small a part of the window that they are sent as soon as there is room.
    pub fn bears(&self, packets: u64) -> bool {
        !self.paced && packets as f64 <= self.size / BURST_PART
    }

    /// How often congestion has made it smaller.
    pub fn decreases(&self) -> u64 {
        self.decreases
    }

    /// Results with a mark so far.
    pub fn marks(&self) -> u64 {
        self.marks
    }

    /// So many packets go out; more would, had they been let.
    pub fn note_sent(&mut self, packets: u64, all: bool) {
        self.tokens -= packets as f64;
        self.filled |= all;
    }

    fn burst(&self) -> f64 {
        (self.size / BURST_PART).clamp(BURST_LEAST, BURST_MOST)
    }

    fn pace(&self, rtt: &Rtt) -> f64 {
        let round_trip =
            rtt.smoothed_rtt().unwrap_or(Duration::from_millis(1)).max(Duration::from_micros(20));
        PACE * self.size / round_trip.as_secs_f64()
    }

    /// Time passes.
    pub fn tick(&mut self, now: Duration, rtt: &Rtt) {
        if self.paced {
            let passed = now.saturating_sub(self.since).as_secs_f64();
            self.tokens = (self.tokens + passed * self.pace(rtt)).min(self.burst());
        } else {
            self.tokens = self.burst();
        }
        self.since = now;
    }

    /// When a quarter of a burst may go out, if pacing keeps packets back.
    pub fn opens_at(&self, rtt: &Rtt) -> Option<Duration> {
        let lacking = self.burst() / 4.0 - self.tokens;
        (self.paced && self.tokens < 1.0)
            .then(|| self.since + Duration::from_secs_f64(lacking / self.pace(rtt)))
    }

    /// Results of `count` seqs in a row are in, all with a mark or all without; `next` is the first seq that has not been sent.
    pub fn note_results(&mut self, first: u64, count: u32, next: u64, marked: bool) {
        if first >= self.round {
            self.end_round(next);
        }
        // Those from the next round trip on.
        let rest = (first + u64::from(count)).saturating_sub(self.round).min(count.into()) as u32;
        let count = count - rest;
        self.results += count;
        self.judged.0 += count;
        if self.judged.0 >= JUDGED {
            self.judged = (0, 0);
        }
        if marked {
            self.marks += u64::from(count);
            self.marked += count;
            if !self.decreased {
                self.decrease(1.0 - self.share / 2.0);
            }
        }
        if rest > 0 {
            self.note_results(self.round, rest, next, marked);
        }
    }

    /// The packets that were sent when the round trip began are answered: the next one begins, and lasts
    /// until `next` is answered.
    fn end_round(&mut self, next: u64) {
        self.round = next;
        // Nothing is known of the share before the first mark, which so halves the window.
        if self.marks > 0 && self.results > 0 {
            self.share += GAIN * (f64::from(self.marked) / f64::from(self.results) - self.share);
        }
        if !self.decreased && self.filled {
            let more = if self.size < self.threshold { f64::from(self.results) } else { 1.0 };
            self.size = (self.size + more).min(self.most as f64);
        }
        self.paced &= self.size < self.most as f64;
        (self.results, self.marked, self.decreased, self.filled) = (0, 0, false, false);
    }

    /// A packet of this worker, or its result, was lost, on a path with or without queueing.
    pub fn note_loss(&mut self, crowded: bool) {
        self.judged.1 += 1;
        if (crowded || self.judged.1 * TOLERATED > JUDGED) && !self.decreased {
            self.decrease(AFTER_LOSS);
            self.judged = (0, 0);
        }
    }

    /// To this part of itself, for this round trip.
    fn decrease(&mut self, to: f64) {
        self.size = (self.size * to).max(LEAST).min(self.most as f64);
        self.threshold = self.size;
        (self.decreased, self.paced) = (true, true);
        self.tokens = self.tokens.max(0.0);
        self.decreases += 1;
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
            let (first, packets) = (window.round, window.packets());
            window.note_sent(packets, true);
            let next = first + packets;
            for seq in first..next {
                if lost > 0 && seq % lost == 0 {
                    window.note_loss(false);
                }
                window.note_results(seq, 1, next, false);
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
        window.note_sent(8, false);
        let opens = window.opens_at(&rtt).unwrap();
        assert!((micros(1_000_001)..micros(1_000_100)).contains(&opens), "{opens:?}");
        window.tick(opens, &rtt);
        assert!(window.room(0) >= 1 && window.opens_at(&rtt).is_none());
    }

    #[test]
    fn paced_bursts_are_an_eighth_of_the_window() {
        let rtt = Rtt::new(micros(1000), micros(20_000), micros(1_000_000));
        for (size, burst) in [(16, 8), (256, 32), (2048, 64)] {
            let mut window = Window::new(4096, size);
            window.paced = true;
            window.tick(micros(1_000_000), &rtt);
            assert_eq!(window.room(0), burst, "{size}");
        }
    }

    /// Full windows, each a round trip, in which this share of the results is marked; the sizes.
    fn marked_rounds(window: &mut Window, count: u64, share: f64) -> Vec<u64> {
        let mut sizes = Vec::new();
        for _ in 0..count {
            let (first, packets) = (window.round, window.packets());
            window.note_sent(packets, true);
            let next = first + packets;
            for seq in first..next {
                window.note_results(seq, 1, next, ((seq - first) as f64) < packets as f64 * share);
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
        assert_eq!(sizes[99], LEAST as u64);
        let marks = window.marks();
        marked_rounds(&mut window, 1, 1.0);
        assert_eq!(window.marks(), marks + LEAST as u64);
    }

    /// A mark and a loss of one round trip are one decrease.
    #[test]
    fn one_decrease_a_round_trip_whatever_the_sign() {
        let mut window = Window::new(512, 512);
        window.note_results(0, 1, 512, true);
        assert_eq!(window.packets(), 256);
        window.note_results(1, 1, 512, true);
        window.note_loss(true);
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
        assert!(least.is_some_and(|least| (LEAST as u64..16).contains(&least)), "{least:?}");
        window.set_most(2);
        assert_eq!(window.packets(), 2);
    }
}
