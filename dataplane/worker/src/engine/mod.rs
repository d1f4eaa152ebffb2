//! The engine: protocol, codec and network tied together, driven by whoever calls [`Engine::step`].
//!
//! Each step does the most urgent piece of work: take what has arrived, send what the window
//! allows, and only then transform, one partition at a time. So one thread keeps the
//! network busy while it computes.

mod active;
mod codec;
mod feedback;
mod link;
mod transform;

pub use active::Borrowed;

use crate::{CallOptions, Stats, WorkerError};
use active::{Active, Calls, Outcome, Stage};
use codec::Codec;
use feedback::Feedback;
use link::Link;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use thc_codec::{buffer::Buffer, norm};
use thc_protocol::session::{JoinEvent, Joiner};
use thc_protocol::wire::{Mode, Norm, RAW_WORDS, Welcome};
use thc_protocol::worker::{CallSpec, Parameters, SessionError, Worker};
use thc_protocol::{JobId, WorkerId};
use thc_transport::PacketIo;

/// Partitions transformed and not yet sent and fed back, at most, beside one for each thread.
const SCRATCH: usize = 2;
/// An idle worker that has heard nothing for so long introduces itself again: a server that was restarted needs all
/// workers of a session to know it (P24), also one that waits for nothing itself.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Fewer results than that in one go come one by one.
const TRICKLE: usize = 16;
/// Which part of a round trip results may gather, and from when and up to what that is worth a sleep.
const GATHER_PART: u32 = 16;
const GATHER_MIN: Duration = Duration::from_micros(80);
const GATHER_MAX: Duration = Duration::from_micros(200);
/// How long the engine waits for others before it says so, and how often it repeats that.
const REPORT: Duration = Duration::from_secs(3);

/// What an engine is made of.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// The parameter server's base address.
    pub ps: SocketAddrV4,
    /// The job.
    pub job: JobId,
    /// This worker.
    pub worker: WorkerId,
    /// How long a session may stand still.
    pub timeout: Duration,
    /// Shortest retransmission time-out.
    pub min_rto: Duration,
    /// Seed of the private rounding, `None` to derive it.
    pub seed: Option<u64>,
    /// Threads that transform partitions, the caller's among them; at least 1.
    pub threads: usize,
}

/// One worker's all-reduces over one packet interface.
pub struct Engine<I: PacketIo> {
    io: I,
    config: EngineConfig,
    link: Link,
    joiner: Joiner,
    worker: Worker,
    codec: Codec,
    pool: Option<rayon::ThreadPool>,
    calls: Calls,
    /// Free scratch memory, each piece large enough for any partition.
    scratch: Vec<Buffer>,
    scratch_out: usize,
    /// Transformed partitions that may wait for results beside those, as what is lost returns to them.
    held: usize,
    feedback: Feedback,
    stats: Stats,
    failed: Option<WorkerError>,
    reported: Duration,
    /// Packets that came last time.
    burst: usize,
    /// When anything came last, or a sign of life was asked for.
    heard: Duration,
}

impl<I: PacketIo> Engine<I> {
    /// Begins a session that `joiner` has been welcomed to. `capacity` is how many results the
    /// receive buffer holds.
    ///
    /// # Errors
    /// [`WorkerError::Unusable`] if the welcome's table or numbers make no sense here.
    pub fn new(
        io: I,
        config: EngineConfig,
        joiner: Joiner,
        welcome: &Welcome,
        workers: u8,
        capacity: usize,
    ) -> Result<Self, WorkerError> {
        let codec = Codec::new(welcome, workers, config.worker, config.seed)?;
        let mut engine = Engine {
            link: Link::new(config.ps, welcome.shards),
            worker: Worker::new(parameters(&config, workers, welcome), io.now()),
            io,
            config,
            joiner,
            codec,
            pool: transform::pool(config.threads)?,
            calls: Calls::default(),
            scratch: Vec::new(),
            scratch_out: 0,
            held: 0,
            feedback: Feedback::new(welcome.block),
            stats: Stats::default(),
            failed: None,
            reported: Duration::ZERO,
            burst: 0,
            heard: Duration::ZERO,
        };
        engine.set_limits(capacity);
        Ok(engine)
    }

    fn set_limits(&mut self, capacity: usize) {
        self.worker.set_limit((capacity / 2).max(1) as u64);
        let session = self.worker.parameters();
        let window = session.data_slots as usize / 2 * session.lane.coordinates();
        self.held = if session.may_lose() { window.div_ceil(1 << self.codec.block) + 1 } else { 0 };
    }

    /// Begins another session on the same interface; error feedback and totals stay.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn restart(
        &mut self,
        joiner: Joiner,
        welcome: &Welcome,
        workers: u8,
        capacity: usize,
    ) -> Result<(), WorkerError> {
        self.fold_stats();
        self.codec = Codec::new(welcome, workers, self.config.worker, self.config.seed)?;
        self.feedback.set_block(self.codec.block);
        self.link = Link::new(self.config.ps, welcome.shards);
        self.worker = Worker::new(parameters(&self.config, workers, welcome), self.io.now());
        self.set_limits(capacity);
        self.joiner = joiner;
        self.calls.fail_all(&SessionError::Reforming { worker: WorkerId::NONE }.into());
        self.calls = Calls::default();
        self.scratch.clear();
        self.scratch_out = 0;
        self.failed = None;
        Ok(())
    }

    /// Turns to another parameter server, before a [`Self::restart`].
    pub fn set_ps(&mut self, ps: SocketAddrV4) {
        self.config.ps = ps;
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
        self.codec.block
    }

    /// The lookup table in use.
    #[must_use]
    pub fn table(&self) -> &thc_codec::table::LookupTable {
        &self.codec.table
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
            lost: self.stats.lost + w.data.given_up,
            round_trip: self.worker.round_trip().unwrap_or_default(),
            network: self.stats.network + self.link.time,
            ..self.stats
        }
    }

    fn fold_stats(&mut self) {
        let s = self.stats();
        self.stats = s;
        self.link.time = Duration::ZERO;
    }

    /// Calls under way.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.calls.len()
    }

    /// All error feedback: key and saved form, in the order of the keys.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call that keeps any is under way.
    pub fn save_feedback(&self) -> Result<Vec<(u64, Vec<u8>)>, WorkerError> {
        match self.calls.feedback_in_use().next() {
            Some(key) => Err(WorkerError::FeedbackBusy { key }),
            None => Ok(self.feedback.save()),
        }
    }

    fn feedback_is_free(&self, key: u64) -> Result<(), WorkerError> {
        let busy = self.calls.feedback_in_use().any(|used| used == key);
        if busy { Err(WorkerError::FeedbackBusy { key }) } else { Ok(()) }
    }

    /// Restores what [`Self::save_feedback`] saved for a tensor of `length` coordinates.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackState`] if it does not fit, [`WorkerError::FeedbackBusy`] while the tensor is being reduced.
    pub fn restore_feedback(&mut self, key: u64, length: usize, saved: &[u8]) -> Result<(), WorkerError> {
        self.feedback_is_free(key)?;
        let restored = self.feedback.restore(key, length, saved);
        restored.map_err(|error| WorkerError::FeedbackState { key, reason: error.to_string() })
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

    /// Starts an all-reduce and returns its number. With `owned` the data lies there and comes back
    /// through `outcome`; otherwise it is lent to every [`Self::step`] until the call is done.
    ///
    /// # Errors
    /// What is wrong with the call, or the session's end.
    pub fn submit(
        &mut self,
        options: CallOptions,
        owned: Option<Vec<f32>>,
        lent: &[f32],
        outcome: Outcome,
    ) -> Result<u64, WorkerError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let length = owned.as_ref().map_or(lent.len(), Vec::len);
        if length == 0 {
            return Err(WorkerError::Empty);
        }
        let wire_length = u32::try_from(length).map_err(|_| WorkerError::TooLong { length })?;
        let feedback = options.feedback.filter(|_| options.mode == Mode::Compressed);
        if let Some(key) = feedback {
            self.feedback_is_free(key)?;
            let prepared = self.feedback.prepare(key, length);
            prepared.map_err(|before| WorkerError::FeedbackLength { key, before, now: length })?;
        }
        let started = Instant::now();
        let may_lose = self.worker.parameters().may_lose();
        let mut active =
            Active::new(options.mode, feedback, may_lose, length, self.codec.block, owned, outcome);
        let data = active.owned.as_deref().unwrap_or(lent);
        let mut packets = Vec::with_capacity(active.parts.len());
        let mut norms = Vec::with_capacity(active.parts.len());
        for work in &active.parts {
            let range = work.part.offset..work.part.offset + work.part.len;
            let x = &data[range];
            let kept = feedback.and_then(|key| self.feedback.get(key, &work.part));
            let value = match (options.mode, kept) {
                (Mode::Raw, _) => norm::max_abs(x),
                (Mode::Compressed, Some(kept)) => norm::l2_sum(x, kept),
                (Mode::Compressed, None) => norm::l2(x),
            };
            norms.push(if value.is_nan() || value > f32::from_bits(Norm::MAX) {
                Norm::non_finite(self.config.worker)
            } else if value < f32::from_bits(Norm::MIN) {
                0
            } else {
                value.to_bits()
            });
            packets.push(match options.mode {
                Mode::Raw => (work.part.padded / RAW_WORDS) as u32,
                Mode::Compressed => (work.part.padded / self.codec.lane.coordinates()) as u32,
            });
        }
        for (work, &count) in active.parts.iter_mut().zip(&packets) {
            work.packets = count;
        }
        self.stats.compression += started.elapsed();
        let key = feedback.map_or(0, |key| (key ^ (key >> 32)) as u32);
        let spec =
            CallSpec { mode: options.mode, length: wire_length, key, packets: &packets, norms: &norms };
        let now = self.io.now();
        let number = self.worker.submit(now, &spec, &mut self.link.tx(&mut self.io));
        self.calls.push(number, active);
        Ok(number)
    }

    /// Does one piece of work; `lent` is the data of the call that was submitted without its own.
    /// Returns whether there was anything to do.
    pub fn step(&mut self, lent: &mut Borrowed<'_>) -> bool {
        if self.failed.is_some() {
            return false;
        }
        let busy = match self.exchange(lent) {
            Ok(busy) => busy,
            Err(error) => {
                self.fail(error);
                return false;
            }
        };
        busy || self.transform(lent)
    }

    /// Receives and sends.
    fn exchange(&mut self, lent: &mut Borrowed<'_>) -> Result<bool, WorkerError> {
        let got = self.receive(lent)?;
        let now = self.io.now();
        if got > 0 {
            self.burst = got;
            self.heard = now;
        } else if self.calls.len() == 0 && now.saturating_sub(self.heard) > KEEP_ALIVE {
            self.joiner.resume(now);
            self.heard = now;
        }
        let mut events = self.calls.events(&self.codec, lent);
        self.worker.tick(now, &mut events, &mut self.link.tx(&mut self.io));
        if self.worker.suspects_restart(now) {
            self.joiner.resume(now);
        }
        self.join_traffic(now)?;
        let sent = self.send_ready(lent)?;
        self.link.check()?;
        if let Some(error) = self.calls.take_broken() {
            return Err(error.into());
        }
        if let Some(error) = self.worker.failure() {
            return Err(error.into());
        }
        self.settle();
        Ok(got > 0 || sent)
    }

    fn receive(&mut self, lent: &mut Borrowed<'_>) -> Result<usize, WorkerError> {
        let started = Instant::now();
        let mut first = None;
        let now = self.io.now();
        let Self { io, worker, calls, codec, link, joiner, .. } = self;
        let mut events = calls.events(codec, lent);
        let mut control = None;
        let replies = &mut link.replies;
        let got = io.recv_burst(&mut |from, packet| {
            first.get_or_insert_with(Instant::now);
            if !link.ps.serves(from) {
                return;
            }
            // Kind byte: control kinds have bit 5 set (P2).
            if packet.get(1).is_some_and(|kind| kind & 0x20 != 0) {
                if let Some(event) = joiner.handle(now, packet) {
                    control = Some(event);
                }
            } else {
                worker.handle(now, packet, &mut events, replies);
            }
        })?;
        let ended = Instant::now();
        let handled = first.map_or(Duration::ZERO, |first| ended - first);
        self.stats.compression += handled;
        self.stats.network += (ended - started).saturating_sub(handled);
        self.link.send_replies(&mut self.io);
        match control {
            Some(JoinEvent::Welcome(welcome, _)) => {
                self.worker.note_alive(now);
                if welcome.session != self.worker.parameters().cookie {
                    self.worker.fail(SessionError::Reforming { worker: WorkerId::NONE });
                }
            }
            Some(JoinEvent::Reforming(worker)) => self.worker.fail(SessionError::Reforming { worker }),
            Some(JoinEvent::Changed(change)) => self.worker.fail(SessionError::Changed { change }),
            Some(JoinEvent::Failed(error)) => return Err(error.into()),
            Some(JoinEvent::Pending(..) | JoinEvent::Bye) | None => {}
        }
        Ok(got)
    }

    fn join_traffic(&mut self, now: Duration) -> Result<(), WorkerError> {
        let mut buffer = [0; 64];
        if let Some(packet) = self.joiner.poll(now, &mut buffer) {
            self.io.send_run(self.config.ps, packet, packet.len())?;
        }
        Ok(())
    }

    /// Quantizes into packets as far as the window goes and partitions are transformed.
    fn send_ready(&mut self, lent: &mut Borrowed<'_>) -> Result<bool, WorkerError> {
        let mut sent = false;
        while let Some(place) = self.worker.next_data() {
            let Some(active) = self.calls.get_mut(place.call) else { break };
            let started = Instant::now();
            let before = self.link.time;
            let index = place.partition as usize;
            let now = self.io.now();
            let count = match active.mode {
                Mode::Compressed => {
                    let work = &mut active.parts[index];
                    let Stage::Rotated(scratch) = &mut work.stage else { break };
                    let round = self.codec.round(place, work.norm, work.part.padded)?;
                    let mut tx = self.link.tx(&mut self.io);
                    let mut result = Ok(());
                    let quantize = |at, payload: &mut [u8]| {
                        let quantized = round.quantize(at, scratch, payload);
                        if result.is_ok() {
                            result = quantized;
                        }
                    };
                    let count = self.worker.fill(now, &mut tx, quantize);
                    result?;
                    count
                }
                Mode::Raw => {
                    let work = &active.parts[index];
                    let data = active.owned.as_deref().or(lent.get(place.call)).unwrap_or(&[]);
                    let Some(x) = data.get(work.part.offset..work.part.offset + work.part.len) else { break };
                    let (scale, limit) = (self.codec.raw_scale(work.norm), self.codec.raw_limit());
                    let mut tx = self.link.tx(&mut self.io);
                    let write = |at, payload: &mut [u8]| codec::write_raw(x, at, scale, limit, payload);
                    self.worker.fill(now, &mut tx, write)
                }
            };
            let network = self.link.time - before;
            self.stats.compression += started.elapsed().saturating_sub(network);
            if count == 0 {
                break;
            }
            sent = true;
            let work = &mut active.parts[index];
            work.sent += count as u32;
            if work.sent == work.packets {
                work.all_sent();
            }
        }
        Ok(sent)
    }

    /// Hands out calls that are done, in their order.
    fn settle(&mut self) {
        for scratch in self.calls.reclaim() {
            self.scratch.push(scratch);
            self.scratch_out -= 1;
        }
        while let Some((number, mut active)) = self.calls.pop_done() {
            let left = active.parts.iter_mut().map(|work| work.left.take());
            match (&active.error, active.feedback) {
                (None, Some(key)) => self.feedback.commit(key, left),
                _ => self.feedback.discard(left),
            }
            match active.error {
                None => {
                    self.stats.calls += 1;
                    self.stats.coordinates += active.length as u64;
                }
                Some(_) => self.stats.failed += 1,
            }
            self.calls.deliver(number, active);
        }
    }

    /// Ends the session and all its calls.
    pub fn end(&mut self, error: WorkerError) {
        self.fail(error);
    }

    fn fail(&mut self, error: WorkerError) {
        self.calls.fail_all(&error);
        self.scratch_out = 0;
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

    /// Waits until a packet comes, something is due, or `at_most` has passed. If the interface fails, so do
    /// the session and all its calls.
    pub fn wait(&mut self, at_most: Duration) {
        let now = self.io.now();
        self.report_waiting(now);
        let due = [self.worker.deadline(), self.joiner.deadline()].into_iter().flatten().min();
        let timeout = due.map_or(at_most, |due| due.saturating_sub(now).min(at_most));
        if timeout.is_zero() {
            return;
        }
        let started = Instant::now();
        if let Err(error) = self.io.wait(timeout) {
            self.fail(error.into());
        }
        self.stats.waiting += started.elapsed();
    }

    /// How long the caller may sleep after [`Self::wait`] so that results gather. On a slow link packets queue and
    /// results trickle in: each by itself would cost a wake-up and a system call. The window is much
    /// longer than this pause, so the link does not run dry. `None` where round trips are short.
    #[must_use]
    pub fn gathering(&self) -> Option<Duration> {
        let part = self.worker.round_trip()? / GATHER_PART;
        (self.burst < TRICKLE && part >= GATHER_MIN).then(|| part.min(GATHER_MAX))
    }

    /// When something is due, if anything is.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        [self.worker.deadline(), self.joiner.deadline()].into_iter().flatten().min()
    }

    fn report_waiting(&mut self, now: Duration) {
        if let Some((missing, since)) = self.worker.waiting_for(now)
            && since >= REPORT
            && now >= self.reported + REPORT
        {
            self.reported = now;
            let workers = thc_protocol::worker::Workers(missing).to_string();
            tracing::warn!("waiting for {workers} for {:.0} s", since.as_secs_f64());
        }
    }

    /// Answers whoever waits for this worker, without work of its own: after a failure, and while leaving.
    pub fn serve_others(&mut self) -> Result<(), WorkerError> {
        self.receive(&mut Borrowed::none())?;
        let now = self.io.now();
        self.join_traffic(now)
    }

    /// Begins to leave; [`Self::serve_others`] until [`Self::has_left`].
    pub fn leave(&mut self) {
        self.joiner.leave(self.io.now());
    }

    /// Whether the parameter server knows that all have left, or a second has passed.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.joiner.has_left()
    }
}

/// Whether a job so described can be taken part in.
///
/// # Errors
/// [`WorkerError::Unusable`] says why not.
pub fn usable(description: &Welcome, workers: u8) -> Result<(), WorkerError> {
    Codec::new(description, workers, WorkerId(0), None).map(drop)
}

fn parameters(config: &EngineConfig, workers: u8, welcome: &Welcome) -> Parameters {
    Parameters {
        timeout: config.timeout,
        min_rto: config.min_rto,
        ..Parameters::new(config.job, config.worker, workers, welcome)
    }
}
