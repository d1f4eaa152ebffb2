//! The engine: protocol, codec and network tied together, driven by whoever calls [`Engine::step`].
//!
//! Each step does the most urgent piece of work: take what has arrived, send what the window
//! allows, and only then compute, a few partitions at a time. So one thread keeps the
//! network busy while it computes; with more threads it does little else.

mod calls;
mod collective;
mod compressor;
mod config;
mod feedback;
mod handle;
mod link;
mod loan;
mod memory;
mod packed;
mod pool;
mod remote;
mod task;
mod task_pool;
mod traffic;
mod waiting;

pub use collective::{Collective, CollectiveCall, CollectiveConfig};
pub use compressor::{CallKeys, Estimate, Numbers};
pub use config::EngineConfig;
pub use feedback::{KeptFeedback, RestoredFeedback};
pub use handle::Handle;
pub use loan::Loan;
pub use memory::Borrowed;
pub use packed::{Packed, PackedLayout, PackedPart, PackedTensor, Piece};
pub use remote::Finished;

use crate::{Call, Computed, Stats, WorkerError};
use calls::{Active, Calls, Owned, group_len};
use compressor::{Compressor, Measured};
use feedback::Feedback;
use link::Link;
use memory::Memory;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_protocol::session::Joiners;
use thc_protocol::wire::{RESULT_LEN, Welcome};
use thc_protocol::worker::{CallSpec, Parameters, PartSpec, SessionError, Worker};
use thc_protocol::{TableId, WorkerId};
use thc_transport::RetainedTx;

/// Least number of groups of partitions that are compressed and not all sent, beside one for each thread.
const AHEAD: usize = 2;
/// Longest sleep in one go while work is under way.
pub(crate) const NAP: Duration = Duration::from_millis(5);
/// How long the engine waits for others before it reports that, and how often it repeats the report.
pub(crate) const REPORT: Duration = Duration::from_secs(3);

/// One worker's all-reduces over one packet interface.
pub struct Engine<I: RetainedTx> {
    io: I,
    config: EngineConfig,
    link: Link,
    joiners: Joiners,
    worker: Worker,
    compressor: Arc<Compressor>,
    pool: Option<Arc<rayon::ThreadPool>>,
    calls: Calls,
    /// Groups that are compressed, or being compressed, and not all sent, or held until their results are in;
    /// and the bound on their number.
    ready: usize,
    ahead: usize,
    feedback: Feedback,
    stats: Stats,
    computed: Computed,
    failed: Option<WorkerError>,
    reported: Duration,
    /// Packets that came last time.
    burst: usize,
    /// How often it has received or sent since it computed last.
    exchanges: u32,
    /// When a sign of life was asked for.
    asked: Duration,
    /// How many results the receive buffer holds.
    capacity: usize,
    /// Whether this worker leaves: nothing of its own is waited for any more.
    leaving: bool,
    /// The first seq of each session.
    first_seq: u64,
}

impl<I: RetainedTx> Engine<I> {
    /// Begins a session that `joiners` have been welcomed to. `capacity` is how many results the
    /// receive buffer holds.
    ///
    /// # Errors
    /// [`WorkerError::Unusable`] if the welcome's table or numbers make no sense here.
    pub fn new(
        io: I,
        config: EngineConfig,
        joiners: Joiners,
        welcome: &Welcome,
        workers: u8,
        capacity: usize,
    ) -> Result<Self, WorkerError> {
        let compressor = Compressor::new(welcome, workers, config.worker, config.seed)?;
        let mut engine = Engine {
            link: Link::new(config.ps, welcome),
            worker: Worker::new(parameters(&config, workers, welcome), io.now()),
            io,
            config,
            joiners,
            compressor: Arc::new(compressor),
            pool: pool::pool(config.threads)?,
            calls: Calls::default(),
            ready: 0,
            ahead: 0,
            feedback: Feedback::default(),
            stats: Stats::default(),
            computed: Computed::default(),
            failed: None,
            reported: Duration::ZERO,
            burst: 0,
            exchanges: 0,
            asked: Duration::ZERO,
            capacity,
            leaving: false,
            first_seq: 0,
        };
        engine.set_limits();
        engine.worker.handle_members(engine.io.now(), engine.joiners.members_here());
        Ok(engine)
    }

    fn set_limits(&mut self) {
        self.worker.set_limit((self.capacity / 2).max(1) as u64);
        let session = self.worker.parameters();
        let window = session.data_slots as usize / 2 * RESULT_LEN;
        let window = window.div_ceil(self.group_len());
        // What may be lost stays until its results are in.
        let held = if session.may_lose() { window + 1 } else { 0 };
        self.ahead = self.config.threads + window.max(AHEAD) + held;
    }

    /// Coordinates of a group.
    fn group_len(&self) -> usize {
        group_len(self.compressor.block, self.worker.parameters().shards)
    }

    /// Begins another session on the same interface; error feedback and totals stay.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn restart(
        &mut self,
        joiners: Joiners,
        welcome: &Welcome,
        workers: u8,
        capacity: usize,
    ) -> Result<(), WorkerError> {
        self.fold_stats();
        self.capacity = capacity;
        self.begin(welcome, workers)?;
        self.joiners = joiners;
        self.worker.handle_members(self.io.now(), self.joiners.members_here());
        self.calls.fail_all(&SessionError::Reforming { worker: WorkerId::NONE }.into());
        self.calls.count_anew();
        self.failed = None;
        Ok(())
    }

    /// Another session in place of this one, with nothing in it yet.
    fn begin(&mut self, welcome: &Welcome, workers: u8) -> Result<(), WorkerError> {
        self.compressor = Arc::new(Compressor::new(welcome, workers, self.config.worker, self.config.seed)?);
        self.link = Link::new(self.config.ps, welcome);
        let first_seq = self.first_seq;
        let parameters = Parameters { first_seq, ..parameters(&self.config, workers, welcome) };
        self.worker = Worker::new(parameters, self.io.now());
        self.worker.set_first_call(self.calls.start);
        self.ready = 0;
        self.set_limits();
        Ok(())
    }

    /// Turns to another parameter server, before a [`Self::restart`].
    pub fn set_ps(&mut self, ps: SocketAddr) {
        self.config.ps = ps;
    }

    /// Sets where each session begins to count calls and packets, for tests of numbers that wrap; the same on
    /// all workers, and before the first call.
    pub fn count_from(&mut self, call: u64, seq: u64) {
        (self.calls.start, self.first_seq) = (call, seq);
        let parameters = Parameters { first_seq: seq, ..*self.worker.parameters() };
        self.worker = Worker::new(parameters, self.io.now());
        self.worker.set_first_call(call);
        self.set_limits();
        self.calls.count_anew();
    }

    /// The packet interface.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// What this engine is made of.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The job's table and this worker's parameters.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        self.worker.parameters()
    }

    /// log₂ of the coordinates of a full partition (P4).
    #[must_use]
    pub fn block(&self) -> u8 {
        self.compressor.block
    }

    /// The job's lookup tables by number; calls that name none use the first.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &LookupTable)> {
        self.compressor.tables()
    }

    /// Totals so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let io = self.io.stats();
        let w = self.worker.stats();
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
            round_trip: self.worker.round_trip().unwrap_or_default(),
            shortest_round_trip: self.worker.shortest_round_trip().unwrap_or_default(),
            window: self.worker.window().0,
            decreases: self.stats.decreases + self.worker.window().1,
            marks: self.stats.marks + self.worker.marks(),
            network: self.stats.network + self.link.time,
            ..self.stats
        }
    }

    /// What it has computed so far, in all sessions.
    #[must_use]
    pub fn computed_counts(&self) -> Computed {
        self.computed
    }

    fn fold_stats(&mut self) {
        let s = self.stats();
        self.stats = s;
        self.link.time = Duration::ZERO;
    }

    /// Calls under way.
    #[must_use]
    pub fn pending_calls(&self) -> usize {
        self.calls.len()
    }

    /// A snapshot of all error feedback. Saving it takes time, and does not need the engine.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call that keeps any is under way.
    pub fn feedback(&self) -> Result<KeptFeedback, WorkerError> {
        match self.calls.feedback_in_use().next() {
            Some(key) => Err(WorkerError::FeedbackBusy { key }),
            None => Ok(self.feedback.snapshot()),
        }
    }

    fn feedback_is_free(&self, key: u64) -> Result<(), WorkerError> {
        let busy = self.calls.feedback_in_use().any(|used| used == key);
        if busy { Err(WorkerError::FeedbackBusy { key }) } else { Ok(()) }
    }

    /// Puts a tensor's error feedback in place.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while the tensor is being reduced.
    pub fn put_feedback(&mut self, key: u64, restored: RestoredFeedback) -> Result<(), WorkerError> {
        self.feedback_is_free(key)?;
        self.feedback.put(key, restored);
        Ok(())
    }

    /// Forgets the error feedback of a tensor.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while it is being reduced.
    pub fn reset_feedback(&mut self, key: u64) -> Result<(), WorkerError> {
        self.feedback_is_free(key)?;
        self.feedback.reset(key);
        Ok(())
    }

    /// Starts an all-reduce of `length` coordinates, which are lent to every [`Self::step`] until it is done,
    /// and returns its number; [`Self::take_outcome`] tells how it ended.
    ///
    /// # Errors
    /// What is wrong with the call, or the session's end.
    pub fn submit(&mut self, length: usize, call: Call<'_>) -> Result<u64, WorkerError> {
        self.submit_tensor(length, call, None)
    }

    fn submit_tensor(
        &mut self,
        length: usize,
        call: Call<'_>,
        owned: Option<Owned>,
    ) -> Result<u64, WorkerError> {
        self.ready_for_calls()?;
        let (plan, feedback) = (call.spans(length, self.compressor.usual()), call.key());
        self.compressor.check_plan(&plan, length)?;
        if let Some(key) = feedback {
            self.feedback_is_free(key)?;
            let prepared = self.feedback.prepare(key, length);
            prepared.map_err(|before| WorkerError::FeedbackLength { key, before, now: length })?;
        }
        let mut active = Active::new(&plan, &self.compressor, self.group_len());
        if let Some(owned) = owned {
            active.own(owned);
        }
        if let Some(key) = feedback {
            active.keep(key, self.feedback.take(length), self.worker.parameters().may_lose());
        }
        Ok(self.calls.push(active))
    }

    /// Why no call can be taken in.
    fn ready_for_calls(&self) -> Result<(), WorkerError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Submits the calls whose norms are all known, in their order. Their NORMs leave with the next exchange of
    /// packets, those of several small calls together.
    fn submit_measured(&mut self) {
        while let Some(active) = self.calls.next_measured() {
            let part = |&Measured { part, choice, norm, .. }: &Measured| {
                let packets = (part.padded / self.compressor.coordinates(choice)) as u32;
                PartSpec { choice, length: (active.length - part.offset) as u32, packets, norm }
            };
            let parts: Vec<PartSpec> = active.parts.iter().map(part).collect();
            let key = active.key.map_or(0, |key| (key ^ (key >> 32)) as u32);
            let as_submitted = self.worker.submit(&CallSpec { key, parts: &parts });
            self.calls.count_submitted(as_submitted);
        }
    }

    /// Does one piece of work, or one for each thread; `lent` is the data of a call from
    /// [`Self::submit`]. Returns whether there was anything to do.
    pub fn step(&mut self, lent: &mut Borrowed<'_>) -> bool {
        if self.failed.is_some() {
            return false;
        }
        self.with_memory(lent, |engine, memory, tasks| engine.turn(memory, tasks) || tasks.is_busy())
    }

    /// Works until the oldest call is done, the session has failed, or `leave` says so; sleeps while there is nothing to do.
    pub fn run(&mut self, lent: &mut Borrowed<'_>, leave: impl Fn() -> bool) {
        if self.failed.is_some() {
            return;
        }
        self.with_memory(lent, |engine, memory, tasks| {
            loop {
                let busy = engine.turn(memory, tasks);
                let over = engine.failed.is_some() || engine.calls.len() == 0;
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
        self.fail(error);
    }

    fn fail(&mut self, error: WorkerError) {
        self.calls.fail_all(&error);
        self.failed = Some(error);
    }

    /// The outcome of a lent call, once.
    pub fn take_outcome(&mut self, number: u64) -> Option<Result<(), WorkerError>> {
        self.calls.take_outcome(number)
    }

    /// Why the session is over, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<&WorkerError> {
        self.failed.as_ref()
    }

    /// Answers other workers that wait for this one, without work of its own: after a failure, and while
    /// leaving.
    pub fn serve_others(&mut self) -> Result<(), WorkerError> {
        let nudged = self.worker.stats().nudged;
        let mut memory = Memory::default();
        self.receive(&mut memory)?;
        let now = self.io.now();
        if self.worker.stats().nudged > nudged {
            self.joiners.stay(now);
        }
        self.join_traffic(now)
    }

    /// Begins to leave; [`Self::serve_others`] until [`Self::has_left`]. Others may need this worker for their last call if it has
    /// finished all of its own.
    pub fn leave(&mut self) {
        self.leaving = true;
        let now = self.io.now();
        if self.failed.is_none() && self.calls.len() == 0 {
            self.joiners.leave(now);
        } else {
            self.joiners.quit(now);
        }
    }

    /// Whether nobody can need this worker any more, or it has stayed long enough (P25).
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.joiners.has_left() || self.failed.is_some() && self.lost_server().is_some()
    }
}

/// Whether this worker can take part in a job with this description.
///
/// # Errors
/// [`WorkerError::Unusable`] says why not.
pub fn usable(description: &Welcome, workers: u8) -> Result<(), WorkerError> {
    Compressor::new(description, workers, WorkerId(0), None).map(drop)
}

fn parameters(config: &EngineConfig, workers: u8, welcome: &Welcome) -> Parameters {
    Parameters {
        timeout: config.timeout,
        patience: config.patience,
        min_rto: config.min_rto,
        ..Parameters::new(config.job, config.worker, workers, welcome)
    }
}
