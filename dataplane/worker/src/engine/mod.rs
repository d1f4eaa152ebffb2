//! The engine joins protocol, codec and network. The callers of [`Engine::step`] and [`Engine::run`] drive it.
//!
//! Each step does the most urgent work: it takes what has arrived, sends what the window allows, and only then computes a
//! few partitions. So one thread keeps the network busy while it computes. With more threads, the others compute.

mod calls;
mod collective;
mod compressor;
mod config;
mod feedback;
mod link;
mod loan;
mod memory;
mod packed;
mod pool;
mod remote;
mod session;
mod submit;
mod task;
mod task_pool;
mod traffic;
mod waiting;

pub use collective::{Collective, CollectiveCall, CollectiveConfig};
pub use compressor::{CallKeys, Estimate, Numbers};
pub use config::EngineConfig;
pub use feedback::{KeptFeedback, RestoredFeedback};
pub use loan::Loan;
pub use memory::Borrowed;
pub use packed::{Packed, PackedLayout, PackedPart, PackedTensor, Piece};
pub use remote::Finished;
pub use submit::Handle;

use crate::{Computed, Rounding, Stats, WorkerError};
use calls::{Calls, group_len};
use compressor::Compressor;
use feedback::Feedback;
use memory::Memory;
use session::{Session, State};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_protocol::session::Joiners;
use thc_protocol::wire::{RESULT_LEN, Welcome};
use thc_protocol::worker::{Parameters, SessionError};
use thc_protocol::{TableId, WorkerId};
use thc_transport::RetainedTx;

/// The least number of groups that may be ready, beside one for each thread.
const AHEAD: usize = 2;
/// Longest sleep in one go while work is under way.
pub(crate) const NAP: Duration = Duration::from_millis(5);
/// The engine reports after this time that it waits for others, and repeats the report as often.
pub(crate) const REPORT: Duration = Duration::from_secs(3);

/// One worker's all-reduces over one packet interface.
pub struct Engine<I: RetainedTx> {
    io: I,
    config: EngineConfig,
    session: Session,
    state: State,
    pool: Option<Arc<rayon::ThreadPool>>,
    calls: Calls,
    ready: ReadyGroups,
    feedback: Feedback,
    recent: Recent,
    /// Totals of past sessions, and of this one what session and interface do not count.
    stats: Stats,
    computed: Computed,
}

/// Groups that are compressed, or being compressed, and not all sent, or held until their results are in.
struct ReadyGroups {
    count: usize,
    /// With this many ready groups, no other is compressed.
    limit: usize,
}

/// The most recent activity of the engine. Times are the interface's.
#[derive(Default)]
struct Recent {
    /// Packets that it received the last time that any came.
    burst: usize,
    /// Exchanges of packets since it computed last.
    exchanges: u32,
    /// When it warned last.
    reported: Duration,
    /// When it asked last whether the session still runs.
    resumed: Duration,
}

impl ReadyGroups {
    /// No group of this session is ready yet.
    fn new(session: &Session, threads: usize) -> ReadyGroups {
        let parameters = session.worker.parameters();
        let group_len = group_len(session.compressor.block, parameters.shards);
        let window = (parameters.data_slots as usize / 2 * RESULT_LEN).div_ceil(group_len);
        // Groups whose packets may be lost stay until their results are in.
        let held = if parameters.may_lose() { window + 1 } else { 0 };
        ReadyGroups { count: 0, limit: threads + window.max(AHEAD) + held }
    }
}

impl<I: RetainedTx> Engine<I> {
    /// Begins a session that `joiners` have been welcomed to. The receive buffer of `io` holds `capacity` results.
    ///
    /// # Errors
    /// [`WorkerError::Unusable`] if the welcome's tables or numbers cannot be used.
    pub fn new(
        io: I,
        config: EngineConfig,
        joiners: Joiners,
        welcome: &Welcome,
        capacity: usize,
    ) -> Result<Self, WorkerError> {
        let session = Session::new(&config, joiners, welcome, capacity, io.now())?;
        Ok(Engine {
            pool: pool::pool(config.threads)?,
            ready: ReadyGroups::new(&session, config.threads),
            io,
            config,
            session,
            state: State::Working,
            calls: Calls::default(),
            feedback: Feedback::default(),
            recent: Recent::default(),
            stats: Stats::default(),
            computed: Computed::default(),
        })
    }

    /// Begins another session on the same interface. Calls under way fail; error feedback and totals stay.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn restart(
        &mut self,
        joiners: Joiners,
        welcome: &Welcome,
        capacity: usize,
    ) -> Result<(), WorkerError> {
        let session = Session::new(&self.config, joiners, welcome, capacity, self.io.now())?;
        self.stats = self.stats();
        self.ready = ReadyGroups::new(&session, self.config.threads);
        self.session = session;
        self.calls.fail_all(&SessionError::Reforming { worker: WorkerId::NONE }.into());
        self.feedback.release_all();
        self.calls.count_anew();
        self.state = State::Working;
        Ok(())
    }

    /// Coordinates of a group.
    fn group_len(&self) -> usize {
        group_len(self.session.compressor.block, self.session.worker.parameters().shards)
    }

    /// Turns to another parameter server, before a [`Self::restart`].
    pub fn set_ps(&mut self, ps: SocketAddr) {
        self.config.ps = ps;
    }

    /// The packet interface.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// The job's table and this worker's parameters.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        self.session.worker.parameters()
    }

    /// log₂ of the coordinates of a full partition (P4).
    #[must_use]
    pub fn block(&self) -> u8 {
        self.session.compressor.block
    }

    /// The job's lookup tables by number; calls that name none use the first.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &LookupTable)> {
        self.session.compressor.tables()
    }

    /// Totals so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let io = self.io.stats();
        let w = self.session.worker.stats();
        Stats {
            bytes_up: io.bytes_out,
            bytes_down: io.bytes_in,
            packets_up: io.packets_out,
            packets_down: io.packets_in,
            retransmissions: self.stats.retransmissions + w.norm.repeated + w.data.repeated - w.nudged,
            timeouts: self.stats.timeouts + w.norm.timeouts + w.data.timeouts,
            nudged: self.stats.nudged + w.nudged,
            stragglers: self.stats.stragglers + w.stragglers,
            lost: self.stats.lost + w.data.given_up + w.left_out,
            round_trip: self.session.worker.round_trip().unwrap_or_default(),
            shortest_round_trip: self.session.worker.shortest_round_trip().unwrap_or_default(),
            window: self.session.worker.window().0,
            decreases: self.stats.decreases + self.session.worker.window().1,
            marks: self.stats.marks + self.session.worker.marks(),
            network: self.stats.network + self.session.link.time,
            ..self.stats
        }
    }

    /// Coordinates that it has computed so far, in all sessions.
    #[must_use]
    pub fn computed_counts(&self) -> Computed {
        self.computed
    }

    /// Calls under way.
    #[must_use]
    pub fn pending_calls(&self) -> usize {
        self.calls.len()
    }

    /// Does one piece of work, or one for each thread; `lent` is the data of a call from
    /// [`Self::submit`]. Returns whether there was anything to do.
    pub fn step(&mut self, lent: &mut Borrowed<'_>) -> bool {
        if self.failure().is_some() {
            return false;
        }
        self.with_memory(lent, |engine, memory, tasks| engine.turn(memory, tasks) || tasks.is_busy())
    }

    /// Works until the oldest call is done, the session has failed, or `leave` says so; sleeps while there is nothing to do.
    pub fn run(&mut self, lent: &mut Borrowed<'_>, leave: impl Fn() -> bool) {
        if self.failure().is_some() {
            return;
        }
        self.with_memory(lent, |engine, memory, tasks| {
            loop {
                let busy = engine.turn(memory, tasks);
                let over = engine.failure().is_some() || engine.calls.len() == 0;
                if over || engine.calls.has_done() || leave() {
                    break;
                }
                if busy {
                    continue;
                }
                if !tasks.is_busy() {
                    engine.nap();
                } else if let Some(done) = tasks.glance() {
                    engine.take_done(memory, done);
                }
            }
        });
    }

    /// Ends the session and all its calls.
    pub fn end(&mut self, error: WorkerError) {
        self.calls.fail_all(&error);
        self.feedback.release_all();
        self.state.fail(error);
    }

    /// The outcome of a lent call, once.
    pub fn take_outcome(&mut self, number: u64) -> Option<Result<(), WorkerError>> {
        self.calls.take_outcome(number)
    }

    /// The reason for the end of the session, if it is over.
    #[must_use]
    pub fn failure(&self) -> Option<&WorkerError> {
        self.state.failure()
    }

    /// Answers other workers that wait for this one, without work of its own: after a failure, and while leaving.
    ///
    /// # Errors
    /// The error that ends the session.
    pub fn serve_others(&mut self) -> Result<(), WorkerError> {
        let nudged = self.session.worker.stats().nudged;
        self.receive(&mut Memory::default())?;
        let now = self.io.now();
        if self.session.worker.stats().nudged > nudged {
            self.session.joiners.stay(now);
        }
        self.join_traffic(now)
    }

    /// Begins to leave; call [`Self::serve_others`] until [`Self::has_left`], since others may need this worker for their
    /// last call when it has finished all of its own.
    pub fn leave(&mut self) {
        let now = self.io.now();
        if self.failure().is_none() && self.calls.len() == 0 {
            self.session.joiners.leave(now);
        } else {
            self.session.joiners.quit(now);
        }
        self.state.leave();
    }

    /// Returns whether no other worker can need this one any more, or it has stayed long enough (P25 leaving).
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.session.joiners.has_left() || self.failure().is_some() && self.lost_server().is_some()
    }

    /// A snapshot of all error feedback. Saving the snapshot takes time, and does not need the engine.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call that keeps error feedback is under way.
    pub fn feedback(&self) -> Result<KeptFeedback, WorkerError> {
        self.feedback.snapshot()
    }

    /// Replaces a tensor's error feedback.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while the tensor is being reduced.
    pub fn put_feedback(&mut self, key: u64, restored: RestoredFeedback) -> Result<(), WorkerError> {
        self.feedback.put(key, restored)
    }

    /// Discards the error feedback of a tensor.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while the tensor is being reduced.
    pub fn reset_feedback(&mut self, key: u64) -> Result<(), WorkerError> {
        self.feedback.reset(key)
    }
}

/// Checks whether a worker of this build can take part in a job with this description.
///
/// # Errors
/// [`WorkerError::Unusable`].
pub fn usable(description: &Welcome) -> Result<(), WorkerError> {
    Compressor::new(description, WorkerId(0), Rounding::Stratified).map(drop)
}
