//! A training in virtual time.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use thc_policy::ratio::RatioLimits;

use super::links::max_min;
use super::scheme::{Scheme, WORD};
use super::workload::{BLOCKS, FORWARD, MEAN, Times};

/// Seconds between two looks at the ratios.
const TICK: f64 = 0.005;
/// Bytes and seconds that count as nothing.
const CRUMB: f64 = 1e-3;
const INSTANT: f64 = 1e-9;

/// A training to simulate.
#[derive(Clone, Debug)]
pub struct Training {
    pub scheme: Scheme,
    pub workers: usize,
    /// Bits a second of a worker's link, each way: from each of these times on.
    pub rates: Vec<(f64, f64)>,
    pub seconds: f64,
    pub times: Times,
    pub control: RatioLimits,
    pub seed: u64,
}

/// The outcome of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Iterations that all workers have ended.
    pub rounds: u64,
    /// The utilization of a worker's downlink.
    pub utilization: f64,
    /// Bits sent of each 32-bit number, both stages, in the mean.
    pub bits: f64,
    /// The first stage's ratio over time: (seconds, ratio), one for each block of the first worker.
    pub ratios: Vec<(f64, f64)>,
}

/// A block's gradient of one iteration, at whoever sends it. Bytes are before quantization.
#[derive(Clone, Copy, Debug, Default)]
struct Gradient {
    /// Not there yet, in part; and what the first stage has left out.
    first: f64,
    left_out: f64,
    /// The bytes of the second stage that have not been decided yet.
    second: f64,
    produced: bool,
    done: bool,
    /// Bytes that were sent.
    sent: f64,
}

/// The traffic of a worker to all others.
struct Sender {
    gradients: Vec<Gradient>,
    iteration: u64,
    /// Links that it crosses.
    links: Vec<usize>,
    /// The current transmission: block, ratio, whether in the second stage.
    now: Option<(usize, f64, bool)>,
    rate: f64,
    sent: f64,
}

/// A worker's computing: forward through blocks 0…, then backward through them.
struct TrainingWorker {
    iteration: u64,
    /// Which of the 2 · blocks pieces of computing is under way or next.
    piece: usize,
    ends: Option<f64>,
    scale: f64,
    /// A generator of its own, so that it takes the same times whatever the scheme.
    rng: ChaCha8Rng,
}

struct State<'a> {
    training: &'a Training,
    now: f64,
    workers: Vec<TrainingWorker>,
    senders: Vec<Sender>,
    carried: f64,
    ratios: Vec<(f64, f64)>,
}

impl Training {
    fn piece_seconds(&self, piece: usize, whole: f64) -> f64 {
        let n = BLOCKS.len();
        if piece < n {
            whole * FORWARD * BLOCKS[piece].forward
        } else {
            whole * (1.0 - FORWARD) * BLOCKS[2 * n - 1 - piece].backward
        }
    }

    fn rate(&self, at: f64) -> f64 {
        self.rates.iter().rev().find(|(from, _)| *from <= at).map_or(0.0, |(_, rate)| *rate / 8.0)
    }

    /// Simulates it.
    pub fn run(&self) -> Outcome {
        let (n, m) = (BLOCKS.len(), self.workers);
        let worker = |number: usize| {
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed << 16 ^ number as u64);
            TrainingWorker { iteration: 0, piece: 0, ends: None, scale: self.times.draw(&mut rng), rng }
        };
        let sender = |number: usize| Sender {
            gradients: vec![Gradient { done: true, ..Gradient::default() }; n],
            iteration: 0,
            // Up from the sender, down to all others.
            links: [number].into_iter().chain((0..m).filter(|to| *to != number).map(|to| m + to)).collect(),
            now: None,
            rate: 0.0,
            sent: 0.0,
        };
        let mut state = State {
            training: self,
            now: 0.0,
            workers: (0..m).map(worker).collect(),
            senders: (0..m).map(sender).collect(),
            carried: 0.0,
            ratios: Vec::new(),
        };
        while state.now < self.seconds {
            state.settle();
            state.advance();
        }
        state.outcome()
    }
}

impl State<'_> {
    /// Everything that happens now: pieces of computing end and begin, gradients are chosen to be sent.
    fn settle(&mut self) {
        let capacity = self.training.rate(self.now);
        loop {
            let mut changed = false;
            for w in 0..self.workers.len() {
                changed |= self.end_piece(w);
            }
            self.choose(capacity);
            for w in 0..self.workers.len() {
                changed |= self.begin_piece(w);
            }
            if !changed {
                break;
            }
        }
        let links = 2 * self.workers.len();
        let flows: Vec<Vec<usize>> = self
            .senders
            .iter()
            .map(|sender| if sender.now.is_some() { sender.links.clone() } else { Vec::new() })
            .collect();
        let rates = max_min(&vec![capacity; links], &flows);
        for (sender, rate) in self.senders.iter_mut().zip(rates) {
            sender.rate = rate;
        }
    }

    fn end_piece(&mut self, w: usize) -> bool {
        let n = BLOCKS.len();
        let worker = &mut self.workers[w];
        if worker.ends.is_none_or(|ends| ends > self.now + INSTANT) {
            return false;
        }
        worker.ends = None;
        worker.piece += 1;
        let (piece, iteration) = (worker.piece, worker.iteration);
        if piece > n {
            self.produce(w, 2 * n - piece, iteration);
        }
        if piece == 2 * n {
            self.end_iteration(w);
        }
        true
    }

    /// A gradient is there and is sent.
    fn produce(&mut self, w: usize, block: usize, iteration: u64) {
        let size = BLOCKS[block].parameters * WORD;
        let sender = &mut self.senders[w];
        if sender.iteration != iteration + 1 {
            // The first of an iteration: whatever was left of the one before is of no use any more.
            sender.iteration = iteration + 1;
            sender.gradients.fill(Gradient::default());
        }
        sender.gradients[block] = Gradient { first: size, produced: true, ..Gradient::default() };
    }

    fn end_iteration(&mut self, w: usize) {
        let worker = &mut self.workers[w];
        worker.iteration += 1;
        worker.piece = 0;
        worker.scale = self.training.times.draw(&mut worker.rng);
    }

    /// Returns `true` if the gradients of a block of all workers are there, in all stages, of the iteration before.
    fn is_there(&self, block: usize, iteration: u64) -> bool {
        let done = |sender: &Sender| sender.iteration == iteration && sender.gradients[block].done;
        iteration == 0 || self.senders.iter().all(|sender| sender.iteration > iteration || done(sender))
    }

    fn begin_piece(&mut self, w: usize) -> bool {
        let n = BLOCKS.len();
        let TrainingWorker { iteration, piece, ends, scale, .. } = self.workers[w];
        if ends.is_some() || (piece < n && !self.is_there(piece, iteration)) {
            return false;
        }
        self.workers[w].ends = Some(self.now + self.training.piece_seconds(piece, scale));
        true
    }

    /// The time at which a worker is expected to begin a piece of computing, by the usual durations of pieces: `block`'s forward pass of the
    /// iteration after `iteration`.
    fn expected_mean(&self, worker: &TrainingWorker, block: usize, iteration: u64) -> f64 {
        let n = BLOCKS.len();
        let at = worker.ends.unwrap_or(self.now);
        let next = worker.piece + usize::from(worker.ends.is_some());
        let usual = |pieces: std::ops::Range<usize>| -> f64 {
            pieces.map(|piece| self.training.piece_seconds(piece, MEAN)).sum()
        };
        if worker.iteration < iteration {
            at + usual(next..2 * n) + usual(0..block)
        } else {
            at + usual(next.min(block)..block)
        }
    }

    /// Chooses what each worker sends now, and by which ratio. A gradient that is not worth sending any more is done.
    fn choose(&mut self, capacity: f64) {
        let n = BLOCKS.len();
        for s in 0..self.senders.len() {
            let sender = &self.senders[s];
            let bandwidth =
                if sender.rate > 0.0 { sender.rate } else { capacity / self.senders.len() as f64 };
            let before = sender.now;
            // The last that came is needed first.
            let waiting = (0..n).find(|block| sender.gradients[*block].first > CRUMB);
            if let Some(block) = waiting {
                let undelivered: f64 = sender.gradients.iter().map(|gradient| gradient.first).sum();
                let next =
                    sender.gradients.iter().position(|gradient| gradient.produced).filter(|next| *next > 0);
                let left = next.map(|next| self.next_block(s, next - 1) - self.now);
                let scheme = self.training.scheme;
                let ratio = scheme.first(&self.training.control, undelivered, bandwidth, left);
                if s == 0 && before.is_none_or(|(of, _, second)| of != block || second) {
                    self.ratios.push((self.now, ratio));
                }
                self.senders[s].now = Some((block, ratio, false));
                continue;
            }
            self.senders[s].now = None;
            if !self.senders[s].gradients.iter().all(|gradient| gradient.produced) {
                // Blocks are missing: a second stage begins when all first ones are over. What is delivered may be all there is.
                continue;
            }
            self.choose_second(s, bandwidth);
        }
    }

    /// The time at which the sender's next block is expected to be produced.
    fn next_block(&self, s: usize, block: usize) -> f64 {
        let n = BLOCKS.len();
        let of = |worker: &TrainingWorker| {
            let at = worker.ends.unwrap_or(self.now);
            let next = worker.piece + usize::from(worker.ends.is_some());
            let usual =
                (next..2 * n - block).map(|piece| self.training.piece_seconds(piece, MEAN)).sum::<f64>();
            at + usual
        };
        of(&self.workers[s])
    }

    fn choose_second(&mut self, s: usize, bandwidth: f64) {
        let iteration = self.senders[s].iteration;
        for block in 0..BLOCKS.len() {
            let gradient = self.senders[s].gradients[block];
            if gradient.done {
                continue;
            }
            // All workers' expectation is known to all: the latest counts.
            let before = |worker: &TrainingWorker| worker.iteration < iteration || worker.piece <= block;
            let workers = self.workers.iter().filter(|worker| before(worker));
            let needed =
                workers.map(|worker| self.expected_mean(worker, block, iteration)).fold(self.now, f64::max);
            let control = &self.training.control;
            let has_begun = gradient.second > CRUMB;
            let size = if has_begun { gradient.second } else { gradient.left_out };
            let ratio = control.second(size, bandwidth, needed - self.now);
            // The forward pass waits for what has begun, so that all workers have the same gradients.
            let ratio = ratio.or_else(|| has_begun.then(|| control.least()));
            let of = &mut self.senders[s].gradients[block];
            match ratio.filter(|_| size > CRUMB) {
                Some(ratio) => {
                    of.second = size;
                    self.senders[s].now = Some((block, ratio, true));
                    return;
                }
                // With one stage, or without time for a second one, this is all.
                None => of.done = true,
            }
        }
    }

    /// Moves time to what happens next.
    fn advance(&mut self) {
        let mut step = TICK.min(self.training.seconds - self.now);
        for worker in &self.workers {
            step = worker.ends.map_or(step, |ends| step.min(ends - self.now));
        }
        for sender in &self.senders {
            if let Some((block, ratio, second)) = sender.now {
                let gradient = &sender.gradients[block];
                let volume = if second { gradient.second } else { gradient.first };
                step = step.min(volume * ratio / sender.rate);
            }
        }
        let step = step.max(INSTANT);
        let receivers = (self.workers.len() - 1) as f64;
        for sender in &mut self.senders {
            let Some((block, ratio, second)) = sender.now else { continue };
            let bytes = sender.rate * step;
            sender.sent += bytes;
            self.carried += bytes * receivers;
            let gradient = &mut sender.gradients[block];
            gradient.sent += bytes;
            let original = bytes / ratio;
            if second {
                gradient.second -= original;
                if gradient.second <= CRUMB {
                    gradient.second = 0.0;
                    gradient.left_out = 0.0;
                }
            } else {
                gradient.first -= original;
                if self.training.scheme == Scheme::Aqgb {
                    gradient.left_out += original * (1.0 - ratio);
                }
                if gradient.first <= CRUMB {
                    gradient.first = 0.0;
                }
            }
            // One stage alone is done when it is over, whatever is produced later.
            if gradient.first == 0.0 && gradient.produced && gradient.left_out <= CRUMB {
                gradient.done = true;
            }
        }
        self.now += step;
    }

    fn outcome(self) -> Outcome {
        let m = self.workers.len();
        let rounds = self.workers.iter().map(|worker| worker.iteration).min().unwrap_or(0);
        let capacity: f64 = self
            .training
            .rates
            .iter()
            .zip(self.training.rates.iter().skip(1).map(|(from, _)| *from).chain([self.training.seconds]))
            .map(|((from, rate), to)| (to.min(self.training.seconds) - from).max(0.0) * rate / 8.0)
            .sum();
        let sent: f64 =
            self.senders.iter().map(|sender| sender.sent).sum::<f64>() / self.senders.len() as f64;
        let parameters: f64 = BLOCKS.iter().map(|block| block.parameters).sum();
        Outcome {
            rounds,
            utilization: self.carried / m as f64 / capacity,
            bits: sent * 8.0 / parameters / rounds.max(1) as f64,
            ratios: self.ratios,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn training(scheme: Scheme) -> Training {
        Training {
            scheme,
            workers: 16,
            rates: vec![(0.0, 2.5e9)],
            seconds: 60.0,
            times: Times::Uniform,
            control: RatioLimits::default(),
            seed: 1,
        }
    }

    /// Without quantization the links are all that counts: 15 gradients of 102 MB down each of them, round by round.
    #[test]
    fn plain_gradients_take_what_links_take() {
        let outcome = training(Scheme::Plain).run();
        let round = 15.0 * 25.6e6 * 32.0 / 2.5e9;
        let rounds = 60.0 / round;
        assert!((rounds - 2.0..=rounds).contains(&(outcome.rounds as f64)), "{outcome:?}");
        assert!(outcome.utilization > 0.85, "{outcome:?}");
        assert!((30.0..40.0).contains(&outcome.bits), "{outcome:?}");
    }

    /// AQGB is about as quick as 4 bits, sends more, and hides more; stragglers cost all alike.
    #[test]
    fn what_is_adapted_is_as_quick_and_sends_more() {
        let [plain, fixed, adapted] =
            [Scheme::Plain, Scheme::Fixed4, Scheme::Aqgb].map(|scheme| training(scheme).run());
        assert!(adapted.rounds >= 2 * plain.rounds, "{plain:?} {adapted:?}");
        // A forward pass waits for a second stage that sends the least ratio.
        assert!(adapted.rounds as f64 >= 0.85 * fixed.rounds as f64, "{fixed:?} {adapted:?}");
        assert!(adapted.bits > 1.5 * fixed.bits, "{fixed:?} {adapted:?}");
        assert!(adapted.utilization > 1.5 * fixed.utilization, "{fixed:?} {adapted:?}");
        assert!((3.9..5.0).contains(&fixed.bits), "{fixed:?}");
        let slow = Training { times: Times::Stragglers, ..training(Scheme::Fixed4) }.run();
        assert!(slow.rounds < fixed.rounds, "{slow:?}");
    }

    /// A link that becomes slow is answered by smaller ratios within two rounds, and back.
    #[test]
    fn ratios_follow_the_link() {
        let rates = vec![(0.0, 10e9), (20.0, 1e9), (40.0, 10e9)];
        let outcome = Training { rates, ..training(Scheme::Aqgb) }.run();
        let mean = |from: f64, to: f64| {
            let ratios: Vec<f64> = outcome
                .ratios
                .iter()
                .filter(|(at, _)| (from..to).contains(at))
                .map(|(_, ratio)| *ratio)
                .collect();
            ratios.iter().sum::<f64>() / ratios.len() as f64
        };
        let (fast, slow, again) = (mean(4.0, 20.0), mean(26.0, 40.0), mean(46.0, 60.0));
        assert!(slow < 0.6 * fast && again > 1.5 * slow, "{fast} {slow} {again}");
    }

    /// A seed decides a training.
    #[test]
    fn a_seed_is_a_training() {
        let short = |seed| Training { seconds: 10.0, seed, ..training(Scheme::Aqgb) }.run();
        assert_eq!(short(4), short(4));
        assert_ne!(short(4).ratios, short(5).ratios);
    }
}
