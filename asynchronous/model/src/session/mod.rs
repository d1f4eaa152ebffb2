//! A worker's connection, at the server.

mod answer;
mod requests;

use answer::{Close, Served, require_field};
use requests::ShardRequests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::counters::{Reason, add};
use crate::error::ModelError;
use crate::job::Job;
use crate::lock::lock;
use crate::memory::{self, WINDOW};
use crate::payload;
use crate::proof::{Role, prove, verify};
use crate::registry::Registry;
use crate::shard::Phase;
use crate::spec::{MAX_SHARDS, MAX_WORKERS, Spec};
use crate::strangers::Stranger;
use crate::wire::{
    ADMIN, Body, Command, Frame, LONGEST_OPEN, SMALL, VERSION, is_name, kind, pulled, read_body, read_frame,
    read_length,
};

/// How long a handshake and an introduction may take.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// Most streams of a connection: one for each shard of a model, and the first.
const STREAMS: u32 = MAX_SHARDS as u32 + 1;

/// Numbers of connections.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Serves a peer until it goes. `stranger` is its place until it has shown the secret.
pub(crate) async fn serve(
    registry: Arc<Registry>,
    connecting: quinn::Connecting,
    stranger: Stranger,
    patience: Duration,
) {
    let Ok(handshake) = timeout(INTRODUCTION, connecting).await else {
        registry.counters.refuse(Reason::Silent);
        return;
    };
    // A handshake that failed is no worker's: nothing to count it under but its absence.
    let Ok(connection) = handshake else { return };
    let introduced = timeout(INTRODUCTION, introduce(&registry, &connection)).await;
    let (job, worker, control) = match introduced {
        Ok(Ok(introduced)) => introduced,
        Ok(Err(end)) => {
            if let Some(Close(reason)) = end {
                registry.counters.refuse(reason);
                close(&connection, reason);
            }
            return;
        }
        Err(_) => {
            registry.counters.refuse(Reason::Silent);
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
    let incarnation = job.incarnation();
    let session =
        Session { registry, job: Arc::clone(&job), worker, incarnation, patience, window: Arc::default() };
    if let Some(Close(reason)) = session.run(&connection, control).await {
        job.counters.refuse(reason);
        close(&connection, reason);
    }
    job.leave(worker, number);
}

fn close(connection: &Connection, reason: Reason) {
    connection.close(VarInt::from_u32(reason as u32), reason.message().as_bytes());
}

/// HELLO. WELCOME answers it when the worker has its place.
async fn introduce(
    registry: &Registry,
    connection: &Connection,
) -> Served<(Arc<Job>, u16, (SendStream, RecvStream))> {
    let (send, mut receive) = connection.accept_bi().await.map_err(|_| None)?;
    let mut buffer = Vec::new();
    let kind = read_frame(&mut receive, SMALL, &mut buffer).await?;
    let mut body = Body(&buffer[1..]);
    if kind != kind::HELLO || body.u8() != Some(VERSION) {
        return Err(Some(Close(Reason::Malformed)));
    }
    let worker = require_field(body.u16())?;
    let term = require_field(body.u64())?;
    let name = require_field(body.name())?;
    let proof = require_field(body.raw(32))?;
    require_field(body.end())?;
    let job = registry.jobs.get(name).ok_or(Some(Close(Reason::Job)))?;
    if !verify(Role::Worker, &job.config.secret, connection, name, worker, proof) {
        return Err(Some(Close(Reason::Proof)));
    }
    // Only whoever knows the secret may tell that another server has taken over.
    registry.supersede(term);
    if registry.is_superseded() {
        return Err(Some(Close(Reason::Superseded)));
    }
    if (MAX_WORKERS..ADMIN).contains(&worker) {
        return Err(Some(Close(Reason::Limit)));
    }
    if !job.config.admits(connection.remote_address().ip()) {
        return Err(Some(Close(Reason::Address)));
    }
    Ok((Arc::clone(job), worker, (send, receive)))
}

#[derive(Clone)]
struct Session {
    registry: Arc<Registry>,
    job: Arc<Job>,
    worker: u16,
    /// The incarnation of the job's models when the worker came.
    incarnation: u64,
    patience: Duration,
    /// What may wait on its way, each way, for all streams.
    window: Arc<AtomicU32>,
}

impl Session {
    /// Until the connection ends; `Some`: because of this.
    async fn run(&self, connection: &Connection, control: (SendStream, RecvStream)) -> Option<Close> {
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
                    if let Some(end) = close_reason(joined) {
                        return Some(end);
                    }
                }
            }
        }
    }

    /// The next request: its kind. Between requests a worker may take its time, within one it may not.
    async fn request(&self, receive: &mut RecvStream, longest: usize, buffer: &mut Vec<u8>) -> Served<u8> {
        let length = read_length(receive, longest).await?;
        match timeout(self.patience, read_body(receive, length, buffer)).await {
            Ok(kind) => Ok(kind?),
            Err(_) => Err(Some(Close(Reason::Silent))),
        }
    }

    async fn answer(&self, send: &mut SendStream, frame: Frame) -> Served<()> {
        match timeout(self.patience, send.write_all(&frame.finish())).await {
            Ok(sent) => sent.map_err(|_| None),
            Err(_) => Err(Some(Close(Reason::Silent))),
        }
    }

    /// An answer that refuses, after which the stream goes on.
    async fn refuse(&self, send: &mut SendStream, reason: Reason, text: &str) -> Served<()> {
        self.job.counters.refuse(reason);
        self.answer(send, Frame::new(kind::REFUSED).u8(reason as u8).raw(text.as_bytes())).await
    }

    async fn control(
        &self,
        connection: &Connection,
        mut send: SendStream,
        mut receive: RecvStream,
    ) -> Served<()> {
        let (name, secret) = (&self.job.config.name, &self.job.config.secret);
        let proof = prove(Role::Server, secret, connection, name, self.worker);
        let own = proof.ok_or(Some(Close(Reason::Proof)))?;
        self.answer(
            &mut send,
            Frame::new(kind::WELCOME).u64(self.incarnation).u64(self.registry.term).raw(&own),
        )
        .await?;
        let mut buffer = Vec::new();
        loop {
            match self.request(&mut receive, LONGEST_OPEN, &mut buffer).await? {
                kind::OPEN => {
                    let mut body = Body(&buffer[1..]);
                    let name = require_field(body.name())?;
                    let spec: Option<Spec> = serde_json::from_slice(body.0).ok();
                    let spec = require_field(spec.filter(|_| is_name(name)))?;
                    if let Err(error) = spec.validate() {
                        self.refuse(&mut send, Reason::Malformed, &error.to_string()).await?;
                        continue;
                    }
                    if (spec.workers..ADMIN).contains(&self.worker) {
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
                            let frame = Frame::new(kind::OPENED).u32(model.shards.len() as u32);
                            self.answer(&mut send, frame).await?;
                        }
                        Err((reason, text)) => self.refuse(&mut send, reason, &text).await?,
                    }
                }
                kind::STATS => {
                    let stats = serde_json::to_vec(&self.job.stats()).unwrap_or_default();
                    self.answer(&mut send, Frame::new(kind::COUNTED).raw(&stats)).await?;
                }
                kind::COMMAND => {
                    let command: Option<Command> = serde_json::from_slice(&buffer[1..]).ok();
                    let command = require_field(command.filter(|_| self.worker >= ADMIN))?;
                    let job = Arc::clone(&self.job);
                    let obeyed = tokio::task::spawn_blocking(move || obey(&job, command)).await;
                    match obeyed {
                        Ok(Ok(answer)) => {
                            let text = answer.to_string();
                            self.answer(&mut send, Frame::new(kind::COUNTED).raw(text.as_bytes())).await?;
                        }
                        Ok(Err(error)) => {
                            self.refuse(&mut send, Reason::Limit, &error.to_string()).await?;
                        }
                        Err(_) => self.refuse(&mut send, Reason::Broken, "the server is stopping").await?,
                    }
                }
                kind::LEAVE => {
                    self.job.release(self.worker);
                    self.answer(&mut send, Frame::new(kind::DONE)).await?;
                }
                _ => return Err(Some(Close(Reason::Malformed))),
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
    ) -> Served<()> {
        let mut buffer = Vec::new();
        if self.request(&mut receive, SMALL, &mut buffer).await? != kind::ATTACH {
            return Err(Some(Close(Reason::Malformed)));
        }
        let mut body = Body(&buffer[1..]);
        let name = require_field(body.name())?.to_owned();
        let number = require_field(body.u32())?;
        require_field(body.end())?;
        let model = require_field(
            self.job.model(&name).filter(|model| !(model.spec.workers..ADMIN).contains(&self.worker)),
        )?;
        require_field(model.shards.get(number as usize))?;
        if !lock(attached).insert((name, number)) {
            return Err(Some(Close(Reason::Malformed)));
        }
        let requests = ShardRequests {
            job: &self.job,
            worker: self.worker,
            incarnation: self.incarnation,
            model: &model,
            number: number as usize,
        };
        let what = format!("worker {} with shard {number}", self.worker);
        let more = memory::window(requests.length());
        let before = self.window.fetch_add(more, Ordering::Relaxed);
        let ways = 2 * u64::from(memory::window_growth(before, more));
        let _memory = match self.job.memory.reserve(memory::of_stream(requests.length()) + ways, &what) {
            Ok(memory) => memory,
            Err(text) => {
                self.window.fetch_sub(more, Ordering::Relaxed);
                self.refuse(&mut send, Reason::Memory, &text).await?;
                return Ok(());
            }
        };
        let window = before.saturating_add(more).min(WINDOW);
        connection.set_receive_window(window.into());
        connection.set_send_window(window.into());
        let (stamp, phase, sequence) = {
            let shard = requests.enter()?;
            (shard.stamp(), shard.state().phase, shard.sequence(self.worker))
        };
        let phase = match phase {
            Phase::Empty => pulled::EMPTY,
            Phase::Waiting => pulled::WAITING,
            Phase::Running => pulled::VECTOR,
        };
        let frame = Frame::new(kind::ATTACHED).u8(phase).stamp(stamp).u64(sequence);
        self.answer(&mut send, frame).await?;
        let whole = if self.worker < ADMIN { 0 } else { memory::of_state(&model.spec, requests.length()) };
        let longest = 64 + payload::max_len(requests.length()).max(whole);
        loop {
            let kind = self.request(&mut receive, longest, &mut buffer).await?;
            let body = Body(&buffer[1..]);
            let frame = match kind {
                kind::PULL if self.worker < ADMIN => requests.pull(body).await,
                kind::PUSH if self.worker < ADMIN => requests.push(body).await,
                kind::EXACT => requests.exact(body).await,
                kind::STATE if self.worker >= ADMIN => requests.state(body).await,
                kind::RESTORE if self.worker >= ADMIN => requests.restore(body).await,
                kind::SNAPSHOT => requests.snapshot(body).await,
                kind::INIT | kind::BEGIN => requests.give(kind, body).await,
                _ => Err(Some(Close(Reason::Malformed))),
            };
            match frame? {
                Ok(frame) => self.answer(&mut send, frame).await?,
                Err((reason, text)) => self.refuse(&mut send, reason, &text).await?,
            }
        }
    }
}

/// Why a stream's task ends the connection, if it does.
fn close_reason(joined: Result<Served<()>, JoinError>) -> Option<Close> {
    match joined {
        Ok(ended) => ended.err().flatten(),
        Err(error) if error.is_panic() => {
            tracing::error!("a stream's task has panicked: {error}");
            Some(Close(Reason::Broken))
        }
        Err(_) => None,
    }
}

/// What an administrator wants done, by a thread that may wait for files.
fn obey(job: &Job, command: Command) -> Result<serde_json::Value, ModelError> {
    let number = |number: u64| serde_json::json!({ "number": number });
    match command {
        Command::Models => {
            serde_json::to_value(job.describe()).map_err(|error| ModelError::Config(error.to_string()))
        }
        Command::Checkpoint { model } => job.keep(&model).map(number),
        Command::Rollback { model, to } => job.rollback(&model, to).map(number),
        Command::Delete { model } => job.delete(&model).map(|()| serde_json::json!({})),
    }
}
