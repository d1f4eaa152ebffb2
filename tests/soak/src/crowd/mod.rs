//! Jobs whose members come and go at any moment (P42, P43), two to sixteen of them at one server and its spare, on one link with
//! shallow queues.
//!
//! What must hold: whoever gets the result of an all-reduce gets the mean of what the members of its session put in, bit for bit; a
//! session ends with an error only if the server was away, or too few were left; and whenever disturbances cease, all that
//! live are members again, and all-reduces go on.

mod book;
mod host;
mod jobs;
mod process;

use crate::Report;
use crate::pace::Pace;
use book::Book;
use fastrand::Rng;
use host::{Host, address};
use jobs::Job;
use process::Process;
use std::net::SocketAddr;
use std::time::Duration;
use thc_p4::rows::address_number;
use thc_protocol::aggregator::Kernels;
use thc_support::{SimConfig, SimNet};

/// How long all may take to be members and to end another all-reduce when nothing happens any more.
const PATIENCE: Duration = Duration::from_secs(120);
/// A wait of this length is told of.
const LONG: Duration = Duration::from_secs(20);
/// How often a server looks what is due.
const POLL: Duration = Duration::from_millis(10);
/// All-reduces between two times that what nobody needs is forgotten.
const KEEP: u64 = 500;
/// Time moves at least so far, so that what comes at nearly the same time is handled together.
const TICK: Duration = Duration::from_micros(5);

/// Jobs in virtual time.
pub struct Crowd<K: Kernels> {
    seed: u64,
    rng: Rng,
    net: SimNet,
    hosts: [Host<K>; 2],
    jobs: Vec<Job>,
    book: Book,
    report: Report,
    /// All-reduces when what nobody needs was forgotten last.
    kept: u64,
    pace: Pace,
}

impl<K: Kernels> Crowd<K> {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Crowd<K> {
        let mut rng = Rng::with_seed(seed ^ 0x0C40_00D5);
        let net = SimNet::new(network(&mut rng, seed));
        net.take_arrivals(&mut Vec::new());
        let count = [2, 2, 3, 4, 8, 16][rng.usize(..6)];
        let mut book = Book::default();
        let jobs: Vec<Job> = (1..=count).map(|number| Job::new(&mut rng, number, seed)).collect();
        for host in 0..2 {
            let rate = [None, Some(1_000_000_000), Some(10_000_000_000)][rng.usize(..3)];
            net.set_host(address(host).ip(), rate);
        }
        let hosts = [0, 1].map(|share| Host::new(&net, share, &jobs, seed));
        jobs.iter().for_each(|job| book.add(job));
        let report = Report { jobs: jobs.len() as u64, ..Report::default() };
        Crowd { seed, rng, net, hosts, jobs, book, report, kept: 0, pace: Pace::new(seed, u64::MAX) }
    }

    /// Runs until so many all-reduces have ended well.
    ///
    /// # Panics
    /// If something does not hold.
    #[must_use]
    pub fn run(mut self, goal: u64) -> Report {
        self.pace = Pace::new(self.seed, goal);
        self.calm(0);
        while self.book.complete < goal {
            let happenings = self.rng.u64(1..=8);
            for _ in 0..happenings {
                self.happen();
                let longest = [10, 100, 1000, 20_000, 300_000, 2_000_000][self.rng.usize(..6)];
                let until = self.net.now() + Duration::from_micros(self.rng.u64(0..longest));
                let some = self.book.complete + self.rng.u64(0..30);
                self.advance(until, some);
            }
            self.report.happenings += happenings;
            let more = self.rng.u64(1..40);
            self.calm(more);
        }
        let processes = || self.jobs.iter().flat_map(|job| &job.seats).flatten();
        Report {
            complete: self.book.complete,
            results: self.book.results,
            failed: self.book.failed,
            sessions: self.book.begun,
            ended: self.report.ended + processes().map(|process| process.ended).sum::<u64>(),
            packets: self.net.stats().sent,
            time: self.net.now(),
            steps: self.pace.steps,
            repeated: self.jobs.iter().map(|job| job.repeated).sum::<u64>()
                + processes().map(Process::repeat_count).sum::<u64>(),
            killed: self.jobs.iter().map(|job| job.killed).sum(),
            started: self.jobs.iter().map(|job| u64::from(job.lives)).sum(),
            ..self.report
        }
    }

    /// Nothing happens but what the network does: all that live are members, and end another all-reduce, and then some more.
    fn calm(&mut self, more: u64) {
        let now = self.net.now();
        for host in &mut self.hosts {
            host.down_until = now;
            self.net.heal(host.address);
        }
        for process in self.jobs.iter_mut().flat_map(|job| &mut job.seats).flatten() {
            self.net.heal(process.address);
            process.done_before = process.done;
        }
        let goal = self.book.complete + more;
        let mut told = false;
        while self.fill() || self.processes().any(|process| self.waits(process)) {
            self.advance(self.net.now() + Duration::from_millis(1), u64::MAX);
            if !told && self.net.now() > now + LONG {
                told = true;
                let who: Vec<String> =
                    self.processes().filter(|p| self.waits(p)).map(Process::describe).collect();
                eprintln!(
                    "seed {}: {LONG:?} after a storm that ended at {now:?} wait: {}",
                    self.seed,
                    who.join("; ")
                );
            }
            assert!(
                self.net.now() < now + PATIENCE,
                "seed {}: {PATIENCE:?} without an all-reduce at {:?}: {}",
                self.seed,
                self.net.now(),
                self.describe()
            );
        }
        let took = self.net.now() - now;
        let (sum, count, longest) = &mut self.report.recovery;
        (*sum, *count, *longest) = (*sum + took, *count + 1, took.max(*longest));
        let start = self.net.now();
        while self.book.complete < goal {
            self.advance(self.net.now() + Duration::from_secs(1), goal);
            assert!(self.net.now() < start + PATIENCE * 10, "seed {}: slow: {}", self.seed, self.describe());
        }
        // What went before excuses no session that ends from now on.
        for job in &mut self.jobs {
            job.excused = false;
            job.seats.iter_mut().flatten().for_each(|process| process.excused = false);
        }
        self.forget();
        assert!(self.hosts.iter().all(|host| host.registry_size() < 400_000), "the registry grows");
        assert!(self.net.in_flight() < 100_000, "packets multiply");
    }

    /// Whether a process has not ended a call since disturbances ceased, is about to leave, or is in a session that the server, which
    /// has been started anew, does not know yet.
    fn waits(&self, process: &Process) -> bool {
        let known = self.hosts[0].session(process.job) == process.session();
        process.done == process.done_before || process.leaves() || !known
    }

    /// Starts processes where there are too few. Whether there were.
    fn fill(&mut self) -> bool {
        let mut any = false;
        for job in self.jobs.iter_mut().filter(|job| job.living_count() < usize::from(job.least)) {
            job.start(&mut self.rng, &self.net);
            any = true;
        }
        any
    }

    fn forget(&mut self) {
        self.kept = self.book.complete;
        self.book.keep(self.net.now(), self.jobs.iter().flat_map(|job| &job.seats).flatten());
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.jobs.iter().flat_map(|job| &job.seats).flatten()
    }

    fn happen(&mut self) {
        let now = self.net.now();
        let longest = [1, 1000, 300_000][self.rng.usize(..3)];
        let while_away = Duration::from_micros(self.rng.u64(0..longest));
        let which = self.rng.usize(..self.jobs.len());
        let what = self.rng.u8(..20);
        if let 0..3 = what {
            return self.fall(while_away);
        }
        let job = &mut self.jobs[which];
        let seat = self.rng.usize(..job.seats.len());
        let Some(process) = &mut job.seats[seat] else {
            // Nobody is there: another worker comes.
            return job.start_at(seat, &mut self.rng, &self.net);
        };
        match what {
            3..=7 => self.report.ended += job.kill(seat),
            8 | 9 => {
                // Another process in its place, maybe before anybody knows.
                self.report.ended += job.kill(seat);
                job.start_at(seat, &mut self.rng, &self.net);
            }
            10 | 11 => process.leave(),
            // Who does not answer for long is gone, and told so when it is back.
            12 => (process.away_until, process.excused) = (now + while_away * 20, true),
            13 => process.busy_until = now + while_away * 20,
            14 => {
                let peer = process.address;
                process.excused = true;
                self.net.partition(peer);
                let until = now + Duration::from_micros(self.rng.u64(0..3_000_000));
                self.advance(until, u64::MAX);
                self.net.heal(peer);
            }
            15 => {
                for seat in 0..job.seats.len() {
                    self.report.ended += job.kill(seat);
                }
                job.start(&mut self.rng, &self.net);
            }
            _ => {}
        }
    }

    /// The server or its spare dies, knows nothing when it is back, or is cut off.
    fn fall(&mut self, while_away: Duration) {
        let (now, host) = (self.net.now(), usize::from(self.rng.u8(..4) == 0));
        if self.rng.u8(..4) == 0 {
            let peer = self.hosts[host].address;
            self.net.partition(peer);
            self.excuse();
            let until = now + Duration::from_micros(self.rng.u64(0..3_000_000));
            self.advance(until, u64::MAX);
            self.net.heal(peer);
        } else {
            self.hosts[host].restart(&self.jobs);
            self.hosts[host].down_until = now + while_away * 20;
            self.report.falls += 1;
        }
        self.excuse();
    }

    /// Members that change while a server is away may end a session.
    fn excuse(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.excused = true);
    }

    /// Runs until a time, or until so many all-reduces have ended well. Only who has got something, or whose time has come, has a turn.
    fn advance(&mut self, until: Duration, goal: u64) {
        let mut arrivals = Vec::new();
        loop {
            let now = self.net.now();
            if now >= until || self.book.complete >= goal {
                return;
            }
            if self.book.complete >= self.kept + KEEP {
                self.forget();
            }
            self.net.take_arrivals(&mut arrivals);
            arrivals.drain(..).for_each(|at| self.wake(at));
            let mut next = until;
            for host in &mut self.hosts {
                if host.due <= now {
                    host.due = if host.serve(now, &mut self.book) { now } else { now + POLL };
                }
                next = next.min(host.due);
            }
            for job in &mut self.jobs {
                next = next.min(job.turn(now, &mut self.book));
            }
            if let Err(error) = self.pace.step(now) {
                panic!("{error}: {}", self.describe());
            }
            if next > now {
                let event = self.net.next_event().unwrap_or(until);
                self.net.advance_to(next.min(event).max(now + TICK));
            }
        }
    }

    /// Something has come for who is at this address.
    fn wake(&mut self, at: SocketAddr) {
        let job = match (address_number(at.ip()) as u32).to_be_bytes() {
            [_, 0, ..] => {
                return self
                    .hosts
                    .iter_mut()
                    .filter(|host| host.address == at)
                    .for_each(|host| host.due = Duration::ZERO);
            }
            [_, _, number, _] => usize::from(number) - 1,
        };
        if let Some(process) = self.jobs[job].find(at) {
            process.due = Duration::ZERO;
        }
    }

    fn describe(&self) -> String {
        let processes = self.jobs.iter().map(Job::describe);
        processes.collect::<Vec<_>>().join("\n")
    }
}

/// A network from faultless to bad, with queues from deep to shallow.
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
        late_by: Duration::from_millis([10, 1000][rng.usize(..2)]),
        queue_packets: [32, 64, 256, 1 << 16][rng.usize(..4)],
        mark_packets: [None, Some(4), Some(16)][rng.usize(..3)],
        ..SimConfig::default()
    }
}
