//! The state that the threads of one server share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thc_protocol::JobId;
use thc_protocol::aggregator::{GlobalCounters, JobCounters};
use thc_transport::{FrameCounts, IoStats, Peer};

use crate::error::PsError;
use crate::kinds::ALL_CONTROL_KINDS;
use crate::liveness::Liveness;

/// For how long a host must have said that no program listens at a worker's port before the worker counts as gone.
const GONE: Duration = Duration::from_secs(1);

/// A job's session as reports show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionView {
    /// True if it runs.
    pub running: bool,
    /// One bit per worker that has joined.
    pub joined: u64,
    /// Sessions begun so far, resumed ones included.
    pub begun: u64,
}

/// The control thread's counters.
#[derive(Debug, Default)]
pub struct ControlCounters {
    /// Control packets taken.
    pub packets: AtomicU64,
    /// REFUSED sent because a worker may not join.
    pub refused: AtomicU64,
}

/// A shard's counters.
#[derive(Clone, Debug, Default)]
pub struct ShardReport {
    /// The shard's number.
    pub index: u8,
    /// Counts of its socket.
    pub io: IoStats,
    /// The number of times that its socket's receive buffer overflowed.
    pub recv_overflows: u64,
    /// Counts of frames, where it sees them.
    pub frames: FrameCounts,
    /// Datagrams that could not be sent, for a reason that does not pass.
    pub send_failures: u64,
    /// Control packets dropped because the control thread was behind.
    pub control_dropped: u64,
    /// Packets of no job.
    pub globals: GlobalCounters,
    /// Bytes that its jobs take.
    pub memory: usize,
    /// Counters by the index of the jobs' counters, sessions that are over included.
    pub jobs: BTreeMap<u16, JobCounters>,
}

/// The state that the threads of one server share. Packet threads read only `stop`, once per burst, and for control
/// packets `control_kinds`.
#[derive(Debug)]
pub struct ServerState {
    /// Ends all threads.
    pub stop: AtomicBool,
    /// Packets of each worker.
    pub liveness: Liveness,
    /// The control thread's counters.
    pub control: ControlCounters,
    /// Kinds of packets that go to the control thread, as bits of [`crate::kinds::kind_bit`]. It is read only
    /// for packets of such kinds.
    pub control_kinds: AtomicU8,
    /// The root's address, if this server is a rack.
    pub root: Option<Peer>,
    /// By shard, a peer at whose port no program has listened for [`GONE`].
    refused: Mutex<Vec<Option<Peer>>>,
    failure: Mutex<Option<PsError>>,
    sessions: Mutex<BTreeMap<JobId, SessionView>>,
    /// Reports of shards that have ended.
    last: Mutex<Vec<Option<ShardReport>>>,
}

/// No thread panics while it holds one of these locks, and if one did, the data would be consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServerState {
    /// The state of a server with these static jobs and `shards` shards, below this root if it is a rack.
    #[must_use]
    pub fn new(jobs: Vec<JobId>, shards: usize, root: Option<Peer>) -> ServerState {
        ServerState {
            stop: AtomicBool::new(false),
            control: ControlCounters::default(),
            // A worker whose JOIN comes before the jobs are ready need not send it again.
            control_kinds: AtomicU8::new(if jobs.is_empty() { 0 } else { ALL_CONTROL_KINDS }),
            root,
            refused: Mutex::new(vec![None; shards]),
            failure: Mutex::new(None),
            sessions: Mutex::new(BTreeMap::new()),
            last: Mutex::new(vec![None; shards]),
            liveness: Liveness::new(jobs, shards),
        }
    }

    /// Stops the server because of an error; the first one counts.
    pub fn fail(&self, error: PsError) {
        tracing::error!("{error}");
        lock(&self.failure).get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Publishes the peer that has refused a shard's packets for longest, and for how long.
    pub fn publish_refused(&self, shard: usize, refused: Option<(Peer, Duration)>) {
        let gone = refused.filter(|(_, waited)| *waited >= GONE).map(|(peer, _)| peer);
        if let Some(cell) = lock(&self.refused).get_mut(shard) {
            *cell = gone;
        }
    }

    /// Peers at whose ports no program listens any more.
    #[must_use]
    pub fn refused(&self) -> Vec<Peer> {
        lock(&self.refused).iter().flatten().copied().collect()
    }

    /// Returns whether an error has stopped it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        lock(&self.failure).is_some()
    }

    /// Takes the error that stopped it, if one did.
    #[must_use]
    pub fn take_failure(&self) -> Option<PsError> {
        lock(&self.failure).take()
    }

    /// The sessions of the jobs.
    #[must_use]
    pub fn sessions(&self) -> BTreeMap<JobId, SessionView> {
        lock(&self.sessions).clone()
    }

    /// Sets a job's session.
    pub fn show(&self, job: JobId, view: SessionView) {
        lock(&self.sessions).insert(job, view);
    }

    /// Uses the last reports of shards that have ended, which no longer report.
    pub fn last_reports(&self, reports: &mut [Option<ShardReport>]) {
        for (report, last) in reports.iter_mut().zip(lock(&self.last).iter()) {
            if last.is_some() {
                report.clone_from(last);
            }
        }
    }

    /// Keeps the report of a shard that ends.
    pub fn leave_report(&self, shard: usize, report: ShardReport) {
        lock(&self.last)[shard] = Some(report);
    }
}
