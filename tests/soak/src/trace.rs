//! One trace: storms in which anything happens, and calms in which all-reduces must go on.

use crate::ledger::Ledger;
use crate::pace::Pace;
use crate::party::Party;
use crate::plan;
use crate::server::{Server, address};
use crate::stranger;
use fastrand::Rng;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::aggregator::Kernels;
use thc_support::{SimConfig, SimIo, SimNet};

/// How long all workers may take to end another all-reduce when nothing happens any more: the longest is that of a
/// worker whose number was taken when it joined.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time moves at least so far, so that what comes at nearly the same time is handled together.
const TICK: Duration = Duration::from_micros(5);

/// What came of a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// All-reduces that ended well on all workers.
    pub complete: u64,
    /// Results that were compared, one for each worker.
    pub results: u64,
    /// All-reduces that failed on all workers because of a tensor that was not finite.
    pub failed: u64,
    /// Things that happened.
    pub happenings: u64,
    /// Times that strangers tried to end a session, and nothing else happened.
    pub sieges: u64,
    /// Restarts and stops of the server, and stops of all workers, that sessions had to survive, and did.
    pub survived: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// Virtual time that passed.
    pub time: Duration,
    /// Steps that it took.
    pub steps: u64,
    /// The most bytes that it held.
    pub held: u64,
    /// Packets that workers sent again.
    pub repeated: u64,
    /// From the end of a storm to the next all-reduce on all workers: the sum of all, their number, the longest.
    pub recovery: (Duration, u64, Duration),
}

/// A job in virtual time.
pub struct Trace<K: Kernels> {
    seed: u64,
    rng: Rng,
    net: SimNet,
    server: Server<K>,
    parties: Vec<Party>,
    stranger: SimIo,
    ledger: Ledger,
    report: Report,
    /// Whether the network loses so little that whoever is asked four times (P24) answers, and nothing of the past comes up.
    sound: bool,
    pace: Pace,
}

impl<K: Kernels> Trace<K> {
    /// The trace of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Trace<K> {
        let mut rng = Rng::with_seed(seed ^ 0x50A7_1E55);
        let network = network(&mut rng, seed);
        let sound = network.loss + network.corrupt <= 0.002 && network.late == 0.0;
        let net = SimNet::new(network);
        let workers = [1, 2, 2, 3, 3, 4, 6][rng.usize(..7)];
        let job = plan::configuration(&mut rng, workers);
        let server = Server::new(&net, job, seed);
        let mut parties: Vec<Party> = (0..workers).map(|number| Party::new(&net, number, seed)).collect();
        for party in &mut parties {
            party.dawdle = Duration::from_micros([0, 0, 100, 2000][rng.usize(..4)]);
        }
        let stranger = net.endpoint(SocketAddr::from((Ipv4Addr::new(10, 9, 0, 1), 6000)));
        let (ledger, report) = (Ledger::default(), Report::default());
        Trace {
            seed,
            rng,
            net,
            server,
            parties,
            stranger,
            ledger,
            report,
            sound,
            pace: Pace::new(seed, u64::MAX),
        }
    }

    /// Runs until so many all-reduces have ended well.
    ///
    /// # Panics
    /// If something does not hold.
    #[must_use]
    pub fn run(mut self, goal: u64) -> Report {
        self.pace = Pace::new(self.seed, goal);
        self.calm(0);
        while self.ledger.complete < goal {
            match self.rng.u8(..8) {
                0 | 1 if self.sound => self.siege(),
                2 if self.sound => self.survive(),
                _ => {}
            }
            let happenings = self.rng.u64(1..=6);
            for _ in 0..happenings {
                self.happen();
                let longest = [10, 100, 1000, 20_000, 300_000, 2_000_000][self.rng.usize(..6)];
                self.pause(longest);
            }
            self.report.happenings += happenings;
            let calm = self.rng.u64(1..12);
            self.calm(calm);
        }
        let stats = self.net.stats();
        Report {
            complete: self.ledger.complete,
            results: self.ledger.results,
            failed: self.ledger.failed,
            sessions: self.server.begun,
            packets: stats.sent,
            time: self.net.now(),
            steps: self.pace.steps,
            repeated: self.parties.iter().map(Party::repeat_count).sum(),
            ..self.report
        }
    }

    /// Nothing happens but what the network does: each worker must end another all-reduce, and then some more.
    fn calm(&mut self, more: u64) {
        for party in &self.parties {
            self.net.heal(party.address);
        }
        self.net.heal(address(0));
        let start = self.net.now();
        let before: Vec<u64> = self.parties.iter().map(|party| party.done).collect();
        let all = self.ledger.complete;
        while self.parties.iter().zip(&before).any(|(party, before)| party.done == *before)
            || self.ledger.complete == all
        {
            let until = self.net.now() + Duration::from_millis(1);
            self.advance(until, u64::MAX);
            assert!(
                self.net.now() < start + PATIENCE,
                "seed {}: no all-reduce for {PATIENCE:?} at {:?}: {}",
                self.seed,
                self.net.now(),
                self.describe()
            );
        }
        let took = self.net.now() - start;
        let (sum, count, longest) = &mut self.report.recovery;
        (*sum, *count, *longest) = (*sum + took, *count + 1, took.max(*longest));
        let goal = self.ledger.complete + more;
        let start = self.net.now();
        while self.ledger.complete < goal {
            self.advance(self.net.now() + Duration::from_secs(1), goal);
            assert!(self.net.now() < start + PATIENCE * 10, "seed {}: slow: {}", self.seed, self.describe());
        }
        // What is kept is what is needed now.
        let parties = &self.parties;
        self.ledger.keep(|session| parties.iter().any(|party| party.is_in(session)));
        assert!(self.ledger.sessions() <= parties.len());
        assert!(self.server.registry_size() < 10_000, "the registry grows");
        assert!(self.net.in_flight() < 100_000, "packets multiply");
    }

    fn happen(&mut self) {
        let now = self.net.now();
        let workers = self.parties.len();
        let worker = self.rng.usize(..workers);
        let longest = [1, 1000, 300_000][self.rng.usize(..3)];
        let while_away = Duration::from_micros(self.rng.u64(0..longest));
        match self.rng.u8(..19) {
            0 | 1 => {
                let job = self.server.job.clone();
                self.server.restart(job);
                self.server.down_until = now + while_away;
            }
            2 => {
                // Somebody has changed its file.
                let job = plan::configuration(&mut self.rng, workers as u8);
                self.server.restart(job);
                self.server.down_until = now + while_away;
            }
            3 => self.server.forget_slots(),
            4 => self.server.restart_control(),
            5 | 6 => {
                let moved = self.rng.bool();
                self.parties[worker].die(moved);
                self.parties[worker].away_until = now + while_away;
            }
            7 => self.parties[worker].leave(),
            8 => {
                // Its process is stopped, the job's memory swapped out, …
                self.parties[worker].away_until = now + while_away * 5;
            }
            9 => self.parties[worker].busy_until = now + while_away * 20,
            10 => {
                let peer = if self.rng.bool() { address(0) } else { self.parties[worker].address };
                self.net.partition(peer);
                let until = now + Duration::from_micros(self.rng.u64(0..2_000_000));
                self.advance(until, u64::MAX);
                self.net.heal(peer);
            }
            11 => {
                // All at once.
                for party in &mut self.parties {
                    party.die(false);
                }
                let job = self.server.job.clone();
                self.server.restart(job);
            }
            12 => {
                // One worker and one shard do not reach each other.
                let shard = address(self.rng.u8(..self.server.shards()));
                let pair = [(self.parties[worker].address, shard), (shard, self.parties[worker].address)];
                pair.iter().for_each(|&(from, to)| self.net.set_loss(from, to, 1.0));
                let until = now + Duration::from_micros(self.rng.u64(0..2_000_000));
                self.advance(until, u64::MAX);
                pair.iter().for_each(|&(from, to)| self.net.reset_link(from, to));
            }
            13 => self.server.stopped_until = now + while_away * 20,
            14 => {
                for party in &mut self.parties {
                    party.away_until = now + while_away * 20;
                }
            }
            _ => self.strangers(),
        }
    }

    /// Strangers send for a while.
    fn strangers(&mut self) {
        let addresses: Vec<_> = self.parties.iter().map(|party| party.address).collect();
        let fingerprint = self.server.job.welcome.fingerprint();
        let longest = [1000, 50_000, 300_000][self.rng.usize(..3)];
        for _ in 0..self.rng.u8(1..40) {
            stranger::send(&mut self.rng, &mut self.stranger, &addresses, fingerprint);
            self.pause(longest);
        }
    }

    /// All-reduces go on for up to so many microseconds. Mostly some are enough: fast ones would be nearly all there are.
    fn pause(&mut self, longest: u64) {
        let until = self.net.now() + Duration::from_micros(self.rng.u64(0..longest));
        let some = self.ledger.complete + self.rng.u64(0..8);
        let goal = if self.rng.u8(..64) == 0 { u64::MAX } else { some };
        self.advance(until, goal);
    }

    /// Strangers send and nothing else happens, while workers may compute for long: no session ends, nobody is replaced.
    fn siege(&mut self) {
        let busy_until = self.net.now() + Duration::from_micros(self.rng.u64(0..5_000_000));
        for party in &mut self.parties {
            if self.rng.bool() {
                party.busy_until = busy_until;
            }
        }
        let before = (self.server.begun, self.server.removed);
        self.strangers();
        assert_eq!(before, (self.server.begun, self.server.removed), "strangers have ended a session");
        self.report.sieges += 1;
    }

    /// The server restarts as it was, or is stopped for less than the workers' time-out, or all workers are stopped for
    /// longer than that, and nothing else happens: the session goes on.
    fn survive(&mut self) {
        let session = self.server.installed.expect("it runs");
        let (begun, now) = (self.server.begun, self.net.now());
        let mut restarts = 0;
        match self.rng.u8(..3) {
            0 => {
                self.server.restart(self.server.job.clone());
                self.server.down_until = now + Duration::from_micros(self.rng.u64(0..300_000));
                restarts = 1;
            }
            1 => self.server.stopped_until = now + Duration::from_micros(self.rng.u64(0..10_000_000)),
            _ => {
                let until = now + Duration::from_secs(self.rng.u64(0..600));
                self.parties.iter_mut().for_each(|party| party.away_until = until);
                self.advance(until, u64::MAX);
            }
        }
        self.calm(1);
        assert!(self.server.installed == Some(session), "seed {}: a session has ended", self.seed);
        assert_eq!(self.server.begun, begun + restarts, "seed {}", self.seed);
        self.report.survived += 1;
    }

    /// Runs until a time, or until so many all-reduces have ended well.
    fn advance(&mut self, until: Duration, goal: u64) {
        loop {
            let now = self.net.now();
            if now >= until || self.ledger.complete >= goal {
                return;
            }
            let mut busy = self.server.serve(now);
            for party in &mut self.parties {
                busy |= party.turn(now, &mut self.ledger);
            }
            if let Err(error) = self.pace.step(now) {
                panic!("{error}: {}", self.describe());
            }
            if !busy {
                let due = self.parties.iter().map(|party| party.deadline(now));
                let next = due.chain(self.net.next_event()).min().unwrap_or(until).min(until);
                self.net.advance_to(next.max(now + TICK));
            }
        }
    }

    fn describe(&self) -> String {
        let parties = self.parties.iter().map(|party| {
            format!(
                "worker {}: {} done, the last at {:?}, {}",
                party.number,
                party.done,
                party.done_at,
                party.describe()
            )
        });
        let server = format!("{:?}, installed {:?}", self.server.job.config, self.server.installed.is_some());
        [server].into_iter().chain(parties).collect::<Vec<_>>().join("\n")
    }
}

/// A network from faultless to bad.
fn network(rng: &mut Rng, seed: u64) -> SimConfig {
    let most = [0, 5, 5][rng.usize(..3)];
    let rate = |rng: &mut Rng| [0.0, 0.0, 0.0, 0.001, 0.01, 0.05][rng.usize(..=most)];
    SimConfig {
        seed,
        latency: Duration::from_micros(rng.u64(1..100)),
        jitter: Duration::from_micros([0, 1, 50][rng.usize(..3)]),
        loss: rate(rng),
        duplicate: rate(rng),
        reorder: rate(rng),
        corrupt: rate(rng),
        late: rate(rng),
        late_by: Duration::from_millis([10, 1000, 5000][rng.usize(..3)]),
        mark_packets: [None, Some(4), Some(16)][rng.usize(..3)],
        ..SimConfig::default()
    }
}
