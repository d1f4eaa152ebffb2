//! The engine: protocol, codec and network tied together, driven by whoever calls [`Engine::step`].
//!
//! Each step does the most urgent piece of work: take what has arrived, send what the window
//! allows, and only then compute, a few partitions at a time. So one thread keeps the
//! network busy while it computes; with more threads it does little else.

mod calls;
mod collective;
mod compressor;
mod config;
mod crew;
mod feedback;
mod link;
mod members;
mod memory;
mod packed;
mod task;

pub use collective::{Collective, CollectiveCall, CollectiveConfig};
pub use compressor::{Estimate, Numbers};
pub use config::EngineConfig;
pub use feedback::{KeptFeedback, RestoredFeedback};
pub use members::Membership;
pub use memory::Borrowed;
pub use packed::{CallKeys, Finished, Loan, Packed, PackedCall, PackedLayout, PackedPart, Piece};

use crate::{CallOptions, Computed, Span, Stats, WorkerError};
use calls::{Active, CallEvents, Calls, GROUP, Out, Outcome};
use compressor::{Compressor, Measured, write_raw};
use feedback::Feedback;
use link::Link;
use members::Changing;
use memory::Memory;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thc_codec::table::LookupTable;
use thc_protocol::session::{JoinEvent, Joiners};
use thc_protocol::wire::{Choice, Header, Kind, Mode, RESULT_LEN, Welcome};
use thc_protocol::worker::{CallError, CallSpec, PacketId, Parameters, PartSpec, SessionError, Worker};
use thc_protocol::{Ecn, TableId, WorkerId};
use thc_transport::{Origin, PacketIo};

/// Groups of partitions compressed and not all sent, at least, beside one for each thread.
const AHEAD: usize = 2;
/// Longest sleep in one go while work is under way.
pub(crate) const NAP: Duration = Duration::from_millis(5);
/// The same while somebody else computes what is to be sent next, and cannot wake the engine.
const PIECE_NAP: Duration = Duration::from_micros(50);
/// A worker that waits for nothing and has heard nothing of its session for so long introduces itself again: a server that was
/// restarted needs all workers of a session to know it (P24). Who waits for something finds out by that.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Fewer results than that in one go come one by one.
const TRICKLE: usize = 16;
/// Which part of a round trip results may gather, and from when and up to what that is worth a sleep.
const GATHER_PART: u32 = 16;
const GATHER_MIN: Duration = Duration::from_micros(80);
const GATHER_MAX: Duration = Duration::from_micros(200);
/// Which part of a mean must be given up for the engine to say so.
const MANY_LOST: usize = 20;
/// How long the engine waits for others before it says so, and how often it repeats that.
const REPORT: Duration = Duration::from_secs(3);

/// One worker's all-reduces over one packet interface.
pub struct Engine<I: PacketIo> {
    io: I,
    config: EngineConfig,
    link: Link,
    joiners: Joiners,
    worker: Worker,
    compressor: Arc<Compressor>,
    pool: Option<Arc<rayon::ThreadPool>>,
    calls: Calls,
    /// Groups that are compressed, or being compressed, and not all sent, or held until their results are in; and the most
    /// of them.
    ready: usize,
    ahead: usize,
    feedback: Feedback,
    stats: Stats,
    computed: Computed,
    failed: Option<WorkerError>,
    reported: Duration,
    /// Packets that came last time.
    burst: usize,
    /// When a sign of life was asked for.
    asked: Duration,
    /// How many results the receive buffer holds.
    capacity: usize,
    /// Where members come and go.
    members: Option<Changing>,
    /// The session that is to begin in place of this one.
    next: Option<(Welcome, u8)>,
    /// Who takes part, if that has changed since it was last asked.
    changed: Option<Membership>,
    /// Whether this worker leaves: nothing of its own is waited for any more.
    leaving: bool,
    /// The first seq of each session.
    first_seq: u64,
}

impl<I: PacketIo> Engine<I> {
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
        let compressor = Compressor::new(welcome, workers, number(&config, welcome), config.seed)?;
        let mut engine = Engine {
            link: Link::new(config.ps, welcome),
            worker: Worker::new(parameters(&config, workers, welcome), io.now()),
            io,
            config,
            joiners,
            compressor: Arc::new(compressor),
            pool: crew::pool(config.threads)?,
            calls: Calls::default(),
            ready: 0,
            ahead: 0,
            feedback: Feedback::default(),
            stats: Stats::default(),
            computed: Computed::default(),
            failed: None,
            reported: Duration::ZERO,
            burst: 0,
            asked: Duration::ZERO,
            capacity,
            members: Changing::of(welcome),
            next: None,
            changed: None,
            leaving: false,
            first_seq: 0,
        };
        engine.set_limits();
        Ok(engine)
    }

    fn set_limits(&mut self) {
        self.worker.set_limit((self.capacity / 2).max(1) as u64);
        let session = self.worker.parameters();
        let window = session.data_slots as usize / 2 * RESULT_LEN;
        let window = window.div_ceil(GROUP.max(1 << self.compressor.block));
        // What may be lost stays until its results are in.
        let held = if session.may_lose() { window + 1 } else { 0 };
        self.ahead = self.config.threads + window.max(AHEAD) + held;
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
        // Whoever begins anew knows.
        self.changed = None;
        self.joiners = joiners;
        self.calls.fail_all(&SessionError::Reforming { worker: WorkerId::NONE }.into());
        self.calls.begin_again();
        self.calls.forget_unheeded();
        self.failed = None;
        Ok(())
    }

    /// Turns to another parameter server, before a [`Self::restart`].
    pub fn set_ps(&mut self, ps: SocketAddrV4) {
        self.config.ps = ps;
    }

    /// Where each session begins to count calls and packets, for tests of numbers that wrap; on all workers alike, and before the
    /// first call.
    pub fn count_from(&mut self, call: u64, seq: u64) {
        (self.calls.start, self.first_seq) = (call, seq);
        let parameters = Parameters { first_seq: seq, ..*self.worker.parameters() };
        self.worker = Worker::new(parameters, self.io.now());
        self.worker.set_first_call(call);
        self.set_limits();
        self.calls.begin_again();
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

    /// The job's lookup tables by their numbers; calls take the first that name none.
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
    pub fn computed(&self) -> Computed {
        self.computed
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

    /// All error feedback as it is now. Saving it takes time, in which this engine may be wanted: that needs no engine.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call that keeps any is under way.
    pub fn feedback(&self) -> Result<KeptFeedback, WorkerError> {
        match self.calls.feedback_in_use().next() {
            Some(key) => Err(WorkerError::FeedbackBusy { key }),
            None => Ok(self.feedback.kept()),
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

    /// Starts an all-reduce of `length` coordinates and returns its number. With `owned` the data lies there and comes back
    /// through `outcome`; otherwise it is lent to every [`Self::step`] until the call is done.
    ///
    /// # Errors
    /// What is wrong with the call, or the session's end.
    pub fn submit(
        &mut self,
        options: CallOptions,
        owned: Option<Vec<f32>>,
        length: usize,
        outcome: Outcome,
    ) -> Result<u64, WorkerError> {
        let length = owned.as_ref().map_or(length, Vec::len);
        let (choice, feedback) = match options.mode {
            Mode::Compressed => (self.compressor.usual(), options.feedback),
            Mode::Raw => (Choice::Raw, None),
        };
        self.submit_plan(&[Span { length, choice }], feedback, owned, length, outcome)
    }

    /// As [`Self::submit`], with the choice of each span of the tensor and the key of its error feedback. A span that goes RAW
    /// takes its error feedback with it and leaves none.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn submit_plan(
        &mut self,
        plan: &[Span],
        feedback: Option<u64>,
        owned: Option<Vec<f32>>,
        length: usize,
        outcome: Outcome,
    ) -> Result<u64, WorkerError> {
        self.ready_for_calls()?;
        let length = owned.as_ref().map_or(length, Vec::len);
        self.compressor.check_plan(plan, length)?;
        if let Some(key) = feedback {
            self.feedback_is_free(key)?;
            let prepared = self.feedback.prepare(key, length);
            prepared.map_err(|before| WorkerError::FeedbackLength { key, before, now: length })?;
        }
        let mut active = Active::new(plan, &self.compressor, GROUP, owned, outcome);
        if let Some(key) = feedback {
            active.keep(key, self.feedback.take(length), self.worker.parameters().may_lose());
        }
        Ok(self.calls.push(active))
    }

    /// Why no call can be taken in.
    fn ready_for_calls(&mut self) -> Result<(), WorkerError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.calls.is_heeded() => Ok(()),
            None => Err(CallError::MembersChanged.into()),
        }
    }

    /// Hands the calls whose norms are all known over to be sent, in their order.
    fn submit_measured(&mut self) {
        let now = self.io.now();
        for (number, active) in self.calls.all().filter(|(_, active)| !active.submitted) {
            if active.measured < active.groups.len() {
                break;
            }
            let part = |&Measured { part, choice, norm, .. }: &Measured| {
                let packets = (part.padded / self.compressor.coordinates(choice)) as u32;
                PartSpec { choice, length: (active.length - part.offset) as u32, packets, norm }
            };
            let parts: Vec<PartSpec> = active.parts.iter().map(part).collect();
            let key = active.key.map_or(0, |key| (key ^ (key >> 32)) as u32);
            let spec = CallSpec { key, parts: &parts };
            let as_submitted = self.worker.submit(now, &spec, &mut self.link.tx(&mut self.io));
            debug_assert_eq!(as_submitted, number);
            active.submitted = true;
        }
    }

    /// Does one piece of work, or one for each thread; `lent` is the data of the call that was submitted without its own.
    /// Returns whether there was anything to do.
    pub fn step(&mut self, lent: &mut Borrowed<'_>) -> bool {
        if self.failed.is_some() {
            return false;
        }
        let busy = self.within(lent, |engine, memory, crew| engine.turn(memory, crew) || crew.is_busy());
        self.change();
        busy
    }

    /// Works until the oldest call is done, the session has failed, or `leave` says so; sleeps while there is nothing to do.
    pub fn run(&mut self, lent: &mut Borrowed<'_>, leave: impl Fn() -> bool) {
        if self.failed.is_some() {
            return;
        }
        self.within(lent, |engine, memory, crew| {
            loop {
                let busy = engine.turn(memory, crew);
                let over = engine.failed.is_some() || engine.next.is_some() || engine.calls.len() == 0;
                if over || engine.calls.has_done() || leave() {
                    break;
                }
                if busy {
                    continue;
                }
                if !crew.is_busy() {
                    engine.nap();
                } else if let Some(done) = crew.glance() {
                    engine.take_done(memory, done);
                }
            }
        });
        self.change();
    }

    /// Receives and sends.
    fn exchange(&mut self, memory: &mut Memory<'_>) -> Result<bool, WorkerError> {
        let got = self.receive(memory)?;
        let now = self.io.now();
        if got > 0 {
            self.burst = got;
        }
        let known = self.worker.heard().max(self.asked);
        if !self.worker.is_busy() && now.saturating_sub(known) > KEEP_ALIVE {
            self.joiners.resume(now);
            self.asked = now;
        }
        let Self { calls, compressor, .. } = self;
        let mut events = CallEvents { calls, compressor, memory };
        self.worker.tick(now, &mut events, &mut self.link.tx(&mut self.io));
        if self.worker.suspects_restart(now) {
            self.joiners.resume(now);
        }
        for (shard, waited) in self.worker.unanswered(now) {
            self.link.ps.take_over(now, shard, waited);
        }
        if let Some(share) = self.link.ps.due_for_asking(now) {
            self.joiners.resume_at(now, share);
        }
        self.join_traffic(now)?;
        let handed = self.exchange_packed()?;
        let sent = self.send_ready(memory);
        self.link.check()?;
        if let Some(error) = self.calls.take_broken() {
            return Err(error.into());
        }
        if let Some(error) = self.forsaken(now) {
            return Err(self.placed(error).into());
        }
        if let Some(error) = self.worker.failure() {
            return Err(self.placed(error).into());
        }
        Ok(got > 0 || sent || handed)
    }

    /// Names the share that is silent, where there are several.
    fn placed(&self, error: SessionError) -> SessionError {
        let SessionError::Silent { waited } = error else { return error };
        let ports = &self.link.ps;
        let shard = self.worker.waits_at().map(usize::from);
        match shard.and_then(|shard| ports.server(shard)) {
            Some(share) => SessionError::ShareSilent { share, at: ports.base(share), waited },
            None => error,
        }
    }

    fn receive(&mut self, memory: &mut Memory<'_>) -> Result<usize, WorkerError> {
        let started = Instant::now();
        let mut first = None;
        let now = self.io.now();
        let Self { io, worker, calls, compressor, link, joiners, .. } = self;
        let mut events = CallEvents { calls, compressor, memory };
        let mut control = None;
        let Link { ps, replies, .. } = link;
        let got = io.recv_burst_at(&mut |Origin { from, ecn, .. }, packet| {
            first.get_or_insert_with(Instant::now);
            let Some(port) = ps.find(from) else { return };
            let (share, is_base) = ps.share(port);
            let Some(&kind) = packet.get(1) else { return };
            ps.note_heard(now, share);
            // Control kinds have bit 5 set (P2).
            if kind & 0x20 != 0 {
                if is_base {
                    let was = joiners.has_joined(share);
                    match joiners.handle(now, share, packet) {
                        // The session goes on, and so does what else was said of it.
                        Some(JoinEvent::Welcome(welcome, _))
                            if welcome.session == worker.parameters().cookie =>
                        {
                            worker.note_alive(now);
                        }
                        None
                        | Some(JoinEvent::Pending(..) | JoinEvent::PendingRacks(..) | JoinEvent::Bye) => {}
                        // A BOUNDARY behind a WELCOME to the next session is one of that, and is repeated there.
                        Some(JoinEvent::Boundary(_))
                            if control.is_some() && !matches!(control, Some(JoinEvent::Boundary(_))) => {}
                        event => control = event,
                    }
                    if !was && joiners.has_joined(share) {
                        ps.welcomed(now, share);
                    }
                }
            } else {
                if kind == Kind::Nudge as u8
                    && let Ok((header, _)) = Header::parse(packet)
                    && worker.is_of_session(&header)
                {
                    ps.follow(now, header.slot, share);
                }
                worker.handle_with(now, Ecn::of_bits(ecn), packet, &mut events, replies);
            }
        })?;
        let ended = Instant::now();
        let handled = first.map_or(Duration::ZERO, |first| ended - first);
        self.stats.compression += handled;
        self.stats.network += (ended - started).saturating_sub(handled);
        self.link.send_replies(&mut self.io);
        match control {
            Some(JoinEvent::Boundary(boundary)) => self.obey(now, boundary),
            Some(JoinEvent::Welcome(welcome, workers)) => {
                self.worker.note_alive(now);
                if self.members.is_some() {
                    self.next = Some((welcome, workers));
                } else {
                    self.worker.fail(SessionError::Reforming { worker: WorkerId::NONE });
                }
            }
            Some(JoinEvent::Reforming(worker)) => self.worker.fail(SessionError::Reforming { worker }),
            Some(JoinEvent::Changed(change)) => self.worker.fail(SessionError::Changed { change }),
            Some(JoinEvent::Failed(error)) => return Err(error.into()),
            Some(JoinEvent::Pending(..) | JoinEvent::PendingRacks(..) | JoinEvent::Bye) | None => {}
        }
        Ok(got)
    }

    fn join_traffic(&mut self, now: Duration) -> Result<(), WorkerError> {
        let mut buffer = [0; 64];
        while let Some((share, packet)) = self.joiners.poll(now, &mut buffer) {
            // A session that is about to begin may have shares that the present one does not.
            let at = self.joiners.shares().get(share).filter(|_| share > 0);
            let at = at.copied().unwrap_or_else(|| self.link.ps.base(0));
            self.io.send_run(at, packet, packet.len())?;
        }
        Ok(())
    }

    /// Fills packets as far as the window goes and groups are compressed.
    fn send_ready(&mut self, memory: &mut Memory<'_>) -> bool {
        let mut sent = false;
        let now = self.io.now();
        while let Some(place) = self.worker.next_data() {
            let Some((active, shelf)) = self.calls.get_with_shelf(place.call) else { break };
            let Some((group, _)) = active.find(place) else { break };
            let state = &active.groups[group];
            let Out::Ready(packed) = &state.out else { break };
            let left = state.packets - state.sent;
            let mut tx = self.link.tx(&mut self.io);
            let direct = active.is_direct(group);
            let count = match direct {
                false => {
                    let write = |at: PacketId, payload: &mut [u8]| {
                        let first = active.find(at).map_or(0, |(_, packet)| packet * payload.len());
                        payload.copy_from_slice(&packed[first..first + payload.len()]);
                    };
                    self.worker.fill(now, &mut tx, left, write)
                }
                true => {
                    let x = memory.of(place.call).and_then(|memory| memory.x.get(state.range.clone()));
                    let Some(x) = x else { break };
                    let limit = self.compressor.raw_limit();
                    let write = |at: PacketId, payload: &mut [u8]| {
                        let measured = &active.parts[at.partition as usize];
                        let scale = self.compressor.raw_scale(measured.norm);
                        write_raw(&x[measured.place(state.range.start)], at, scale, limit, payload);
                    };
                    self.worker.fill(now, &mut tx, left, write)
                }
            };
            if count == 0 {
                break;
            }
            sent = true;
            if let Some(packed) = active.note_sent(group, count)
                && !direct
                && active.remote.is_none()
            {
                shelf.take_packed(packed);
                self.ready -= usize::from(active.groups[group].residual.is_none());
            }
        }
        sent
    }

    /// Hands out calls that are done, in their order.
    fn settle(&mut self) {
        while let Some(mut active) = self.calls.pop_done() {
            let left = std::mem::take(&mut active.left);
            match (&active.error, active.feedback) {
                (None, Some(key)) => self.feedback.commit(key, left),
                _ => self.feedback.discard(left),
            }
            match active.error {
                None => {
                    self.stats.calls += 1;
                    self.stats.coordinates += active.length as u64;
                    self.note_lost(active.lost, active.length);
                }
                Some(_) => self.stats.failed += 1,
            }
            self.calls.deliver(active);
        }
        self.tell_position();
    }

    /// So many coordinates of a call count as zero in its mean. Whoever trains on that should know when they are many.
    fn note_lost(&mut self, lost: usize, of: usize) {
        self.stats.lost_coordinates += lost as u64;
        let now = self.io.now();
        if lost * MANY_LOST >= of && now >= self.reported + REPORT {
            self.reported = now;
            let part = 100.0 * lost as f64 / of as f64;
            tracing::warn!("{part:.1} % of a mean were given up and count as zero");
        }
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

    /// Waits until a packet comes, something is due, or `at_most` has passed. If the interface fails, so do
    /// the session and all its calls.
    pub fn wait(&mut self, at_most: Duration) {
        let now = self.io.now();
        self.report_waiting(now);
        let due = self.deadline();
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

    /// Sleeps while work is under way and nothing is to be done.
    fn nap(&mut self) {
        if self.calls.awaits_pieces() {
            return self.wait(PIECE_NAP);
        }
        self.wait(NAP);
        if let Some(pause) = self.gathering() {
            std::thread::sleep(pause);
        }
    }

    /// How long to sleep after [`Self::wait`] so that results gather. On a slow link packets queue and
    /// results trickle in: each by itself would cost a wake-up and a system call. The window is much
    /// longer than this pause, so the link does not run dry. `None` where round trips are short.
    fn gathering(&self) -> Option<Duration> {
        let part = self.worker.round_trip()? / GATHER_PART;
        (self.burst < TRICKLE && part >= GATHER_MIN).then(|| part.min(GATHER_MAX))
    }

    /// When something is due, if anything is.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let works = !self.leaving && self.failed.is_none();
        let own = if works { self.worker.deadline() } else { None };
        [own, self.joiners.deadline()].into_iter().flatten().min()
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
        let nudged = self.worker.stats().nudged;
        self.receive(&mut Memory { first: 0, calls: Vec::new() })?;
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
        self.joiners.set_finished(self.calls.first() as u32);
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
        self.joiners.has_left()
    }
}

/// Whether a job so described can be taken part in.
///
/// # Errors
/// [`WorkerError::Unusable`] says why not.
pub fn usable(description: &Welcome, workers: u8) -> Result<(), WorkerError> {
    Compressor::new(description, workers, WorkerId(0), None).map(drop)
}

/// This worker's number in a session.
fn number(config: &EngineConfig, welcome: &Welcome) -> WorkerId {
    welcome.members.map_or(config.worker, |members| members.number)
}

fn parameters(config: &EngineConfig, workers: u8, welcome: &Welcome) -> Parameters {
    Parameters {
        timeout: config.timeout,
        patience: config.patience,
        min_rto: config.min_rto,
        ..Parameters::new(config.job, config.worker, workers, welcome)
    }
}
