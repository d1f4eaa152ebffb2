//! An aggregator's counters: for each job and worker packets, bytes, events and drop reasons (P7 membership).

use crate::{MAX_WORKERS, WorkerId};

/// Declares an enum whose variants are counted under a name.
macro_rules! counted {
    (
        $(#[$meta:meta])*
        pub enum $name:ident[$count:literal] { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant),* }

        impl $name {
            /// All, in order.
            pub const ALL: [$name; $count] = [$($name::$variant),*];

            /// A short lower-case name, for counters and logs.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }
    };
}

counted! {
    /// The reason why a packet was dropped without effect, in the order of P7.
    pub enum DropReason[13] {
        /// Shorter than a header.
        Short = "short",
        /// Another protocol version.
        Version = "version",
        /// Not NORM, DATA or RAW.
        Kind = "kind",
        /// No such job.
        Job = "job",
        /// Not the job's cookie.
        Cookie = "cookie",
        /// The job has no such member.
        Member = "member",
        /// From another address or port than the member's.
        Source = "source",
        /// Another number of workers.
        Workers = "workers",
        /// Wrong payload length.
        Length = "length",
        /// No such slot at this aggregator.
        Slot = "slot",
        /// DATA with a table that the job does not have.
        Table = "table",
        /// Too far ahead of its slot (P9 newer).
        Round = "round",
        /// Another kind or table than the slot's round has (P14 different collectives).
        Mixed = "mixed",
    }
}

counted! {
    /// The effect of a packet that was let in.
    pub enum Event[6] {
        /// The first of its round (P10 newer round).
        Opened = "opened",
        /// Added to a slot (P11 new worker).
        Added = "added",
        /// Already in the slot (P12 duplicates).
        Duplicate = "duplicate",
        /// The slot was complete without it (P13 completion).
        Late = "late",
        /// Its round was over (P15 older round).
        Stale = "stale",
        /// A packet of another all-reduce (P14 different collectives).
        Mismatch = "mismatch",
    }
}

/// Counters of packets that belong to no job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalCounters {
    /// Drops by [`DropReason`]; only the first four occur.
    pub drops: [u64; 4],
}

impl GlobalCounters {
    pub(super) fn drop(&mut self, reason: DropReason) -> Outcome {
        if let Some(cell) = self.drops.get_mut(reason as usize) {
            *cell += 1;
        }
        Outcome::Dropped(reason)
    }
}

/// The end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It changed a slot or was answered: see the event.
    Handled(Event),
    /// It came from the root, and all members of this rack have it now (P36 passed on).
    Passed,
    /// It was dropped and changed nothing.
    Dropped(DropReason),
}

/// Counters of one worker of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounters {
    /// Packets that named this worker.
    pub packets: u64,
    /// Their bytes, headers of the protocol included, UDP and below not.
    pub bytes: u64,
    /// Packets by [`Event`].
    pub events: [u64; Event::ALL.len()],
    /// Drops by [`DropReason`].
    pub drops: [u64; DropReason::ALL.len()],
}

/// Counters of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCounters {
    /// Counters by worker number; the last for all numbers from 64 on.
    workers: Box<[WorkerCounters; MAX_WORKERS + 1]>,
    /// Slots completed.
    pub results: u64,
    /// RESULTs sent again to one worker.
    pub resent: u64,
    /// NUDGEs passed on.
    pub nudges: u64,
    /// Packets of the root that a rack has passed on.
    pub passed: u64,
}

impl JobCounters {
    /// Bytes that they allocate.
    pub(super) const fn memory() -> usize {
        (MAX_WORKERS + 1) * size_of::<WorkerCounters>()
    }

    pub(super) fn new() -> JobCounters {
        let workers = Box::new([WorkerCounters::default(); _]);
        JobCounters { workers, results: 0, resent: 0, nudges: 0, passed: 0 }
    }

    /// Counters of one worker number; numbers from 64 on share one set.
    pub fn worker(&self, worker: WorkerId) -> &WorkerCounters {
        &self.workers[usize::from(worker.0).min(MAX_WORKERS)]
    }

    /// Counts a packet of this length, and its end.
    #[inline]
    pub(super) fn count(&mut self, worker: WorkerId, bytes: usize, end: Result<Event, DropReason>) {
        let w = &mut self.workers[usize::from(worker.0).min(MAX_WORKERS)];
        w.packets += 1;
        w.bytes += bytes as u64;
        match end {
            Ok(event) => w.events[event as usize] += 1,
            Err(reason) => w.drops[reason as usize] += 1,
        }
    }

    /// Counts a packet of the root of this length.
    pub(super) fn pass(&mut self, bytes: usize) {
        let w = &mut self.workers[MAX_WORKERS];
        w.packets += 1;
        w.bytes += bytes as u64;
        self.passed += 1;
    }

    /// Adds another shard's counters of the same job.
    pub fn merge(&mut self, other: &JobCounters) {
        for (mine, theirs) in self.workers.iter_mut().zip(&*other.workers) {
            mine.packets += theirs.packets;
            mine.bytes += theirs.bytes;
            mine.events.iter_mut().zip(theirs.events).for_each(|(a, b)| *a += b);
            mine.drops.iter_mut().zip(theirs.drops).for_each(|(a, b)| *a += b);
        }
        self.results += other.results;
        self.resent += other.resent;
        self.nudges += other.nudges;
        self.passed += other.passed;
    }
}
