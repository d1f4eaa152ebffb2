//! A worker's connection, at the server.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::book::{Book, Cell, Job, Model, lock};
use crate::counters::{Reason, add};
use crate::memory;
use crate::payload;
use crate::proof::{Role, prove, verify};
use crate::server::WINDOW;
use crate::shard::{Applied, Phase, PushHead, Shard};
use crate::spec::{MAX_SHARDS, MAX_WORKERS, Spec};
use crate::step::LARGEST;
use crate::strangers::Stranger;
use crate::wire::{
    Body, Frame, NoFrame, SMALL, VERSION, is_name, kind, pulled, pushed, read_body, read_frame, read_length,
};

/// How long a handshake and an introduction may take.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// How long an answer to a patient pull is held back while the epoch's gradient is missing.
const HELD: Duration = Duration::from_secs(5);
/// Most streams of a connection: one for each shard of a model, and the first.
const STREAMS: u32 = MAX_SHARDS as u32 + 1;

/// Numbers of connections.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Why a connection ends.
struct End(Reason);

type Ended<T> = Result<T, Option<End>>;

fn malformed<T>(value: Option<T>) -> Ended<T> {
    value.ok_or(Some(End(Reason::Malformed)))
}

impl From<NoFrame> for Option<End> {
    fn from(no_frame: NoFrame) -> Self {
        match no_frame {
            NoFrame::Ended(_) => None,
            NoFrame::TooLong(_) => Some(End(Reason::Malformed)),
        }
    }
}

/// Serves a peer until it goes. `stranger` is its place until it has shown the secret.
pub(crate) async fn serve(
    book: Arc<Book>,
    connecting: quinn::Connecting,
    stranger: Stranger,
    patience: Duration,
) {
    let Ok(handshake) = timeout(INTRODUCTION, connecting).await else {
        book.counters.refuse(Reason::Silent);
        return;
    };
    // A handshake that failed is no worker's: nothing to count it under but its absence.
    let Ok(connection) = handshake else { return };
    let introduced = timeout(INTRODUCTION, introduce(&book, &connection)).await;
    let (job, worker, control) = match introduced {
        Ok(Ok(introduced)) => introduced,
        Ok(Err(end)) => {
            if let Some(End(reason)) = end {
                book.counters.refuse(reason);
                close(&connection, reason);
            }
            return;
        }
        Err(_) => {
            book.counters.refuse(Reason::Silent);
            close(&connection, Reason::Silent);
            return;
        }
    };
    drop(stranger);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    if let Err(reason) = job.enter(worker, number, &connection) {
        job.counters.refuse(reason);
        close(&connection, reason);
        return;
    }
    add(&job.counters.connections, 1);
    connection.set_max_concurrent_bi_streams(STREAMS.into());
    let session = Session { book, job: Arc::clone(&job), worker, patience, window: Arc::default() };
    if let Some(End(reason)) = session.run(&connection, control).await {
        job.counters.refuse(reason);
        close(&connection, reason);
    }
    job.leave(worker, number);
}

fn close(connection: &Connection, reason: Reason) {
    connection.close(VarInt::from_u32(reason as u32), reason.message().as_bytes());
}

/// HELLO. WELCOME answers it when the worker has its place.
async fn introduce(book: &Book, connection: &Connection) -> Ended<(Arc<Job>, u16, (SendStream, RecvStream))> {
    let (send, mut receive) = connection.accept_bi().await.map_err(|_| None)?;
    let mut buffer = Vec::new();
    let kind = read_frame(&mut receive, SMALL, &mut buffer).await?;
    let mut body = Body(&buffer[1..]);
    if kind != kind::HELLO || body.u8() != Some(VERSION) {
        return Err(Some(End(Reason::Malformed)));
    }
    let worker = malformed(body.u16())?;
    let name = malformed(body.name())?;
    let proof = malformed(body.raw(32))?;
    malformed(body.end())?;
    let job = book.jobs.get(name).ok_or(Some(End(Reason::Job)))?;
    if !verify(Role::Worker, &job.config.secret, connection, name, worker, proof) {
        return Err(Some(End(Reason::Proof)));
    }
    if worker >= MAX_WORKERS {
        return Err(Some(End(Reason::Limit)));
    }
    Ok((Arc::clone(job), worker, (send, receive)))
}

#[derive(Clone)]
struct Session {
    book: Arc<Book>,
    job: Arc<Job>,
    worker: u16,
    patience: Duration,
    /// What may wait on its way, each way, for all streams.
    window: Arc<AtomicU32>,
}

impl Session {
    /// Until the connection ends; `Some`: because of this.
    async fn run(&self, connection: &Connection, control: (SendStream, RecvStream)) -> Option<End> {
        let attached = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
        let mut streams = JoinSet::new();
        let (own, theirs) = (self.clone(), connection.clone());
        streams.spawn(async move { own.control(&theirs, control.0, control.1).await });
        loop {
            tokio::select! {
                stream = connection.accept_bi() => {
                    let (send, receive) = stream.ok()?;
                    let (own, theirs, attached) = (self.clone(), connection.clone(), Arc::clone(&attached));
                    streams.spawn(async move { own.stream(&theirs, send, receive, &attached).await });
                }
                Some(joined) = streams.join_next() => {
                    if let Some(end) = ended(joined) {
                        return Some(end);
                    }
                }
            }
        }
    }

    /// The next request: its kind. Between requests a worker may take its time, within one it may not.
    async fn request(&self, receive: &mut RecvStream, longest: usize, buffer: &mut Vec<u8>) -> Ended<u8> {
        let length = read_length(receive, longest).await?;
        match timeout(self.patience, read_body(receive, length, buffer)).await {
            Ok(kind) => Ok(kind?),
            Err(_) => Err(Some(End(Reason::Silent))),
        }
    }

    async fn answer(&self, send: &mut SendStream, frame: Frame) -> Ended<()> {
        match timeout(self.patience, send.write_all(&frame.finish())).await {
            Ok(sent) => sent.map_err(|_| None),
            Err(_) => Err(Some(End(Reason::Silent))),
        }
    }

    /// An answer that refuses, after which the stream goes on.
    async fn refuse(&self, send: &mut SendStream, reason: Reason, text: &str) -> Ended<()> {
        self.job.counters.refuse(reason);
        self.answer(send, Frame::new(kind::REFUSED).u8(reason as u8).raw(text.as_bytes())).await
    }

    async fn control(
        &self,
        connection: &Connection,
        mut send: SendStream,
        mut receive: RecvStream,
    ) -> Ended<()> {
        let (name, secret) = (&self.job.config.name, &self.job.config.secret);
        let proof = prove(Role::Server, secret, connection, name, self.worker);
        let own = proof.ok_or(Some(End(Reason::Proof)))?;
        self.answer(&mut send, Frame::new(kind::WELCOME).u64(self.book.incarnation).raw(&own)).await?;
        let mut buffer = Vec::new();
        loop {
            match self.request(&mut receive, SMALL, &mut buffer).await? {
                kind::OPEN => {
                    let mut body = Body(&buffer[1..]);
                    let name = malformed(body.name())?;
                    let spec: Option<Spec> = serde_json::from_slice(body.0).ok();
                    let spec = malformed(spec.filter(|_| is_name(name)))?;
                    if let Err(error) = spec.validate() {
                        self.refuse(&mut send, Reason::Malformed, &error.to_string()).await?;
                        continue;
                    }
                    if self.worker >= spec.workers {
                        let text =
                            format!("worker {} is not one of the model's {}", self.worker, spec.workers);
                        self.refuse(&mut send, Reason::Limit, &text).await?;
                        continue;
                    }
                    let (job, name) = (Arc::clone(&self.job), name.to_owned());
                    let opened = tokio::task::spawn_blocking(move || job.open(&name, spec)).await;
                    let stopping = |_| Err((Reason::Disk, "the server is stopping".to_owned()));
                    match opened.unwrap_or_else(stopping) {
                        Ok(model) => {
                            let frame = Frame::new(kind::OPENED).u32(model.cells.len() as u32);
                            self.answer(&mut send, frame).await?;
                        }
                        Err((reason, text)) => self.refuse(&mut send, reason, &text).await?,
                    }
                }
                kind::STATS => {
                    let stats = serde_json::to_vec(&self.job.stats()).unwrap_or_default();
                    self.answer(&mut send, Frame::new(kind::COUNTED).raw(&stats)).await?;
                }
                kind::LEAVE => {
                    self.job.release(self.worker);
                    self.answer(&mut send, Frame::new(kind::DONE)).await?;
                }
                _ => return Err(Some(End(Reason::Malformed))),
            }
        }
    }

    /// One shard's stream.
    async fn stream(
        &self,
        connection: &Connection,
        mut send: SendStream,
        mut receive: RecvStream,
        attached: &std::sync::Mutex<BTreeSet<(String, u32)>>,
    ) -> Ended<()> {
        let mut buffer = Vec::new();
        if self.request(&mut receive, SMALL, &mut buffer).await? != kind::ATTACH {
            return Err(Some(End(Reason::Malformed)));
        }
        let mut body = Body(&buffer[1..]);
        let name = malformed(body.name())?.to_owned();
        let number = malformed(body.u32())?;
        malformed(body.end())?;
        let model = malformed(self.job.model(&name).filter(|model| self.worker < model.spec.workers))?;
        malformed(model.cells.get(number as usize))?;
        if !lock(attached).insert((name, number)) {
            return Err(Some(End(Reason::Malformed)));
        }
        let at = At { session: self, model: &model, number: number as usize };
        let what = format!("worker {} with shard {number}", self.worker);
        let _memory = match self.job.memory.reserve(memory::of_stream(at.length()), &what) {
            Ok(memory) => memory,
            Err(text) => {
                self.refuse(&mut send, Reason::Memory, &text).await?;
                return Ok(());
            }
        };
        let more = memory::window(at.length());
        let window = (self.window.fetch_add(more, Ordering::Relaxed) + more).min(WINDOW);
        connection.set_receive_window(window.into());
        connection.set_send_window(window.into());
        let (stamp, phase, sequence) = {
            let shard = at.enter()?;
            (shard.stamp(), shard.state().phase, shard.sequence(self.worker))
        };
        let phase = match phase {
            Phase::Empty => pulled::EMPTY,
            Phase::Waiting => pulled::WAITING,
            Phase::Running => pulled::VECTOR,
        };
        let frame = Frame::new(kind::ATTACHED).u8(phase).stamp(stamp).u64(sequence);
        self.answer(&mut send, frame).await?;
        let longest = 64 + payload::max_len(at.length());
        loop {
            let kind = self.request(&mut receive, longest, &mut buffer).await?;
            let body = Body(&buffer[1..]);
            let frame = match kind {
                kind::PULL => at.pull(body).await,
                kind::PUSH => at.push(body).await,
                kind::SNAPSHOT => at.snapshot(body).await,
                kind::INIT | kind::BEGIN => at.give(kind, body).await,
                _ => Err(Some(End(Reason::Malformed))),
            };
            match frame? {
                Ok(frame) => self.answer(&mut send, frame).await?,
                Err((reason, text)) => self.refuse(&mut send, reason, &text).await?,
            }
        }
    }
}

/// Why a stream's task ends the connection, if it does.
fn ended(joined: Result<Ended<()>, JoinError>) -> Option<End> {
    match joined {
        Ok(ended) => ended.err().flatten(),
        Err(error) if error.is_panic() => {
            tracing::error!("a stream's task has panicked: {error}");
            Some(End(Reason::Broken))
        }
        Err(_) => None,
    }
}

/// An answer, or a refusal that the stream survives.
type Answer = Result<Frame, (Reason, String)>;

fn refusal(reason: Reason) -> Answer {
    Err((reason, reason.message().to_owned()))
}

/// A shard, as one worker uses it.
struct At<'a> {
    session: &'a Session,
    model: &'a Arc<Model>,
    number: usize,
}

impl At<'_> {
    fn cell(&self) -> &Cell {
        &self.model.cells[self.number]
    }

    fn length(&self) -> usize {
        self.model.spec.range(self.number).len()
    }

    fn enter(&self) -> Ended<MutexGuard<'_, Shard>> {
        self.cell().enter().map_err(|reason| Some(End(reason)))
    }

    /// Writes the shard's file, away from the threads that serve.
    async fn save(&self) -> Result<(), (Reason, String)> {
        let (model, number) = (Arc::clone(self.model), self.number);
        let saved = tokio::task::spawn_blocking(move || model.save(number)).await;
        match saved {
            Ok(Ok(written)) => {
                add(&self.session.job.counters.saves, u64::from(written));
                Ok(())
            }
            Ok(Err(error)) => {
                tracing::error!("{error}");
                Err((Reason::Disk, "the server cannot write its state: see its log".to_owned()))
            }
            Err(_) => Err((Reason::Disk, "the server is stopping".to_owned())),
        }
    }

    async fn pull(&self, mut body: Body<'_>) -> Ended<Answer> {
        let patient = malformed(body.u8())? == 1;
        let known = malformed(body.u64())?;
        let stamp = malformed(body.stamp())?;
        let snapshot = malformed(body.u64())?;
        malformed(body.end())?;
        let known = (known == self.session.book.incarnation).then_some(stamp);
        let snapshot = snapshot.checked_sub(1);
        let held = Instant::now() + HELD;
        let counters = &self.session.job.counters;
        loop {
            let changed = self.cell().changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = Instant::now();
            let head = 1 + 24;
            let mut frame = Frame::new(kind::PULLED).raw(&[0; 25]);
            let at = frame.tail().len() - head;
            let pulled = self.enter()?.pull(self.session.worker, known, snapshot, now, frame.tail());
            let (code, stamp) = match pulled {
                Ok(crate::shard::Pulled::Empty) => (pulled::EMPTY, Default::default()),
                Ok(crate::shard::Pulled::Waiting { epoch }) => {
                    let durable = self.model.is_durable(self.number, epoch);
                    if (patient || !durable) && now < held {
                        let _ = timeout(held - now, changed).await;
                        continue;
                    }
                    if !durable {
                        return Ok(Err((
                            Reason::Disk,
                            "the end of an epoch cannot be written: see the server's log".to_owned(),
                        )));
                    }
                    (pulled::WAITING, crate::shard::Stamp { epoch, ..Default::default() })
                }
                Ok(crate::shard::Pulled::Running(stamp)) => (pulled::VECTOR, stamp),
                Ok(crate::shard::Pulled::Unchanged(stamp)) => (pulled::UNCHANGED, stamp),
                Ok(crate::shard::Pulled::Snapshot(stamp)) => (pulled::SNAPSHOT, stamp),
                Err(_) => {
                    return Ok(Err((
                        Reason::NotFinite,
                        "the model is no longer finite: begin anew with a lower rate".to_owned(),
                    )));
                }
            };
            let sent = frame.tail().len() - at - head;
            let stamped = Frame::new(0).u8(code).stamp(stamp).finish();
            frame.tail()[at..at + head].copy_from_slice(&stamped[5..]);
            if matches!(code, pulled::VECTOR | pulled::UNCHANGED | pulled::SNAPSHOT) {
                add(&counters.pulls, 1);
                add(&counters.flags, u64::from(sent == 0));
                add(&counters.pulled_bytes, sent as u64);
            }
            return Ok(Ok(frame));
        }
    }

    async fn push(&self, mut body: Body<'_>) -> Ended<Answer> {
        let counters = &self.session.job.counters;
        let sequence = malformed(body.u64())?;
        let incarnation = malformed(body.u64())?;
        let stamp = malformed(body.stamp())?;
        let scale = malformed(body.f32())?;
        let reply =
            |code: u8, stamp, delay: u64| Ok(Ok(Frame::new(kind::PUSHED).u8(code).stamp(stamp).u64(delay)));
        let refused = |reason: Reason| {
            counters.refuse(reason);
            let stamp = self.enter()?.stamp();
            reply(reason as u8, stamp, 0)
        };
        if !(scale.is_finite() && scale >= 0.0) {
            return refused(Reason::NotFinite);
        }
        let mut zeta = vec![0.0; self.length()];
        let spans = match payload::decode_push(body.0, &mut zeta) {
            Ok(spans) => spans,
            Err(payload::Broken::NotFinite) => return refused(Reason::NotFinite),
            // Whoever sends this is no worker of this version.
            Err(payload::Broken::Shape(_)) => return Err(Some(End(Reason::Malformed))),
        };
        if incarnation != self.session.book.incarnation {
            // It may have been taken before the restart, and kept.
            let shard = self.enter()?;
            if sequence <= shard.sequence(self.session.worker) {
                add(&counters.repeated, 1);
                return reply(pushed::REPEATED, shard.stamp(), 0);
            }
            drop(shard);
            return refused(Reason::Incarnation);
        }
        let head = PushHead { sequence, stamp, scale };
        let mut waited = false;
        loop {
            let changed = self.cell().changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = Instant::now();
            let applied = self.enter()?.push_part(self.session.worker, &head, &zeta, &spans, now);
            match applied {
                Applied::Taken { stamp, delay, ended } => {
                    add(&counters.pushes, 1);
                    add(&counters.pushed_bytes, body.0.len() as u64);
                    add(&counters.epochs, u64::from(ended));
                    self.cell().changed.notify_waiters();
                    if ended
                        && self.model.spec.corrected
                        && let Err(error) = self.save().await
                    {
                        return Ok(Err(error));
                    }
                    return reply(pushed::TAKEN, stamp, delay);
                }
                Applied::Repeated => {
                    add(&counters.repeated, 1);
                    let stamp = self.enter()?.stamp();
                    return reply(pushed::REPEATED, stamp, 0);
                }
                Applied::Refused(reason) => return refused(reason),
                Applied::Wait(until) => {
                    if !waited {
                        add(&counters.waits, 1);
                        waited = true;
                    }
                    let _ = timeout(until.saturating_duration_since(now), changed).await;
                }
            }
        }
    }

    async fn snapshot(&self, body: Body<'_>) -> Ended<Answer> {
        malformed(body.end())?;
        let held = Instant::now() + HELD;
        loop {
            let changed = self.cell().changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let frame = {
                let shard = self.enter()?;
                let state = shard.state();
                if state.phase == Phase::Empty {
                    return Ok(refusal(Reason::Empty));
                }
                // A model without epochs has no snapshot but itself.
                let vector = if state.snapshot.is_empty() { &state.x } else { &state.snapshot };
                self.model.is_durable(self.number, state.epoch).then(|| {
                    let mut frame = Frame::new(kind::SNAPPED).u64(state.epoch);
                    payload::put_floats(vector, frame.tail());
                    frame
                })
            };
            if let Some(frame) = frame {
                add(&self.session.job.counters.snapshots, 1);
                return Ok(Ok(frame));
            }
            let now = Instant::now();
            if now >= held {
                return Ok(refusal(Reason::Disk));
            }
            let _ = timeout(held - now, changed).await;
        }
    }

    /// INIT and BEGIN: a vector of floats that must not be forgotten once it is answered.
    async fn give(&self, kind: u8, mut body: Body<'_>) -> Ended<Answer> {
        let epoch = malformed(body.u64())?;
        let mut vector = vec![0.0; self.length()];
        match payload::take_floats(body.0, &mut vector) {
            Ok(()) => {}
            Err(payload::Broken::NotFinite) => return Ok(refusal(Reason::NotFinite)),
            Err(payload::Broken::Shape(_)) => return Err(Some(End(Reason::Malformed))),
        }
        if kind == kind::INIT && !Shard::holds(&vector) {
            return Ok(Err((
                Reason::Range,
                format!("a value is above {LARGEST:e}, the most that a model holds"),
            )));
        }
        let taken = {
            let mut shard = self.enter()?;
            let taken =
                if kind == kind::INIT { shard.initialise(&vector) } else { shard.begin(epoch, &vector) };
            if taken {
                self.model.given(self.number);
            }
            taken
        };
        if taken {
            self.cell().changed.notify_waiters();
        }
        // Also if another worker was first, whose file may not be written yet.
        if self.model.owes(self.number)
            && let Err(error) = self.save().await
        {
            return Ok(Err(error));
        }
        let stamp = self.enter()?.stamp();
        Ok(Ok(Frame::new(kind::DONE).u8(u8::from(taken)).stamp(stamp)))
    }
}
