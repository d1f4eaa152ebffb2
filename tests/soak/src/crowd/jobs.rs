//! A job whose members come and go, and its processes by seat.

use super::book::Book;
use super::process::Process;
use crate::plan;
use fastrand::Rng;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_protocol::session::{Sizes, StaticJob};
use thc_protocol::wire::{Form, Members, Shares, Table, Tables, Welcome};
use thc_protocol::{JobId, TableId};
use thc_support::{SimNet, wire_table};

use super::TICK;
use super::host::address;

/// A member that is silent for so long is gone.
const GONE_AFTER: Duration = Duration::from_millis(1500);
const GATHER: Duration = Duration::from_millis(300);

/// Where counts begin: near where they wrap, half of the time.
#[derive(Clone, Copy)]
pub struct Counts {
    /// Calls and packets of a session.
    pub call: u64,
    pub seq: u64,
    /// Sessions.
    pub epoch: u16,
}

impl Counts {
    fn draw(rng: &mut Rng, job: &StaticJob) -> Counts {
        let wrap = |rng: &mut Rng, at: u64, most: u64| (at - rng.u64(1..=most)) * u64::from(rng.bool());
        let call = [1 << 15, 1 << 16, 1 << 31, 1 << 32][rng.usize(..4)];
        let epoch = [1 << 15, 1 << 16][rng.usize(..2)];
        let slots = [job.config.data_slots, job.config.norm_slots][rng.usize(..2)];
        let rounds = [1 << 31, 1 << 32][rng.usize(..2)];
        let call = wrap(rng, call, 30);
        let epoch = wrap(rng, epoch, 10) as u16;
        Counts { call, seq: wrap(rng, rounds, 3) * u64::from(slots), epoch }
    }
}

pub struct Job {
    pub number: JobId,
    pub configured: StaticJob,
    pub least: u8,
    /// Whether nothing tells a call from another.
    pub alike: bool,
    pub counts: Counts,
    /// Calls between two boundaries.
    pub stretch: u64,
    pub seats: Vec<Option<Process>>,
    /// Whether something was done since the last calm that may end a session.
    pub excused: bool,
    /// Processes started and killed so far, and packets that those who are gone have sent again.
    pub lives: u32,
    pub killed: u64,
    pub repeated: u64,
    seed: u64,
}

impl Job {
    pub fn new(rng: &mut Rng, number: u16, seed: u64) -> Job {
        let least = if rng.u8(..4) == 0 { 2 } else { 1 };
        let most = rng.u8(least + 1..=4);
        let configured = configuration(rng, number, least, most);
        let stretch = rng.u64(1..=3);
        let alike = rng.u8(..2) == 0;
        let counts = Counts::draw(rng, &configured);
        let seats = (0..most).map(|_| None).collect();
        let (number, seed) = (JobId(number), seed ^ (u64::from(number) << 40));
        Job {
            number,
            configured,
            least,
            alike,
            counts,
            stretch,
            seats,
            excused: true,
            lives: 0,
            killed: 0,
            repeated: 0,
            seed,
        }
    }

    pub fn living_count(&self) -> usize {
        self.seats.iter().flatten().filter(|process| !process.leaves()).count()
    }

    /// Another process in a seat that nobody has.
    pub fn start(&mut self, rng: &mut Rng, net: &SimNet) {
        let free: Vec<usize> = (0..self.seats.len()).filter(|&seat| self.seats[seat].is_none()).collect();
        if !free.is_empty() {
            self.start_at(free[rng.usize(..free.len())], rng, net);
        }
    }

    pub fn start_at(&mut self, seat: usize, rng: &mut Rng, net: &SimNet) {
        self.lives += 1;
        let seed = self.seed ^ (u64::from(self.lives) << 16) ^ seat as u64;
        self.seats[seat] =
            Some(Process::new(net, self, seat as u8, self.lives, Rng::with_seed(seed ^ rng.u64(..))));
    }

    /// Kills whoever has this seat; how many sessions have ended for it by an error.
    pub fn kill(&mut self, seat: usize) -> u64 {
        // Too few may be left.
        self.excused |= self.living_count() <= usize::from(self.least);
        let Some(process) = self.seats[seat].take() else { return 0 };
        self.killed += 1;
        self.repeated += process.repeat_count();
        process.ended
    }

    /// Who has this address.
    pub fn find(&mut self, at: SocketAddr) -> Option<&mut Process> {
        self.seats.iter_mut().flatten().find(|process| process.address == at)
    }

    /// A turn for every process whose time has come; when the next one's comes.
    pub fn turn(&mut self, now: Duration, book: &mut Book) -> Duration {
        let mut next = Duration::MAX;
        // Who leaves, or is found to be gone, leaves the others.
        let few = self.least > 1;
        for seat in &mut self.seats {
            let Some(process) = seat else { continue };
            if process.due <= now {
                let busy = process.turn(now, book, self.excused || few);
                process.due = if busy { now } else { process.deadline(now).max(now + TICK) };
                if process.has_left() {
                    self.repeated += process.repeat_count();
                    *seat = None;
                    continue;
                }
            }
            next = next.min(process.due);
        }
        next
    }

    pub fn describe(&self) -> String {
        let each = self.seats.iter().flatten().map(Process::describe).collect::<Vec<_>>().join("; ");
        format!("job {}, {} to {}: {each}", self.number, self.least, self.seats.len())
    }
}

/// A job of so many workers, with one table for all sizes or one for each.
fn configuration(rng: &mut Rng, number: u16, least: u8, most: u8) -> StaticJob {
    let mut first = plan::configuration(rng, most);
    let same = rng.u8(..4) == 0;
    let fraction = [1.0 / 32.0, 1.0 / 512.0][rng.usize(..2)];
    let at = [address(0), address(1)];
    let shares = Shares::new(&at, 1).unwrap();
    let members = Some(Members { spares: 1, ..Members::default() });
    let slots = [2, 4, 16, 64, 200][rng.usize(..5)];
    let shape = |workers: u8| {
        let granularity = if same { 30 } else { 20 + 5 * u16::from(4 - workers) };
        let table = LookupTable::solve(4, granularity, fraction).unwrap();
        let size = if same { 0 } else { workers - 1 };
        let id = TableId((number as u8 - 1) * 4 + 1 + size);
        let table = Table { id, ..wire_table(Form::USUAL, &table) };
        let config = thc_protocol::aggregator::JobConfig {
            job: JobId(number),
            workers,
            quorum: workers,
            data_slots: slots,
            tables: vec![id],
            ..first.config.clone()
        };
        let welcome = Welcome {
            quorum: workers,
            data_slots: slots,
            shards: 1,
            tables: Tables::one(table),
            min_workers: least,
            max_workers: most,
            shares,
            members,
            ..first.welcome
        };
        (config, welcome)
    };
    let shapes: Vec<_> = (least..=most).map(shape).collect();
    (first.config, first.welcome) = shapes.last().unwrap().clone();
    first.sizes = Some(Arc::new(Sizes { shapes, gone_after: GONE_AFTER, gather: GATHER }));
    first
}
