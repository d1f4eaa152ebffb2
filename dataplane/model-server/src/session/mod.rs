//! A worker's connection, at the server.

mod answer;
mod requests;

use answer::{Close, Served, require_field};
use requests::ShardRequests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::counters::{Reason, add};
use crate::datagrams::WINDOW;
use crate::error::ModelError;
use crate::job::Job;
use crate::lock::lock;
use crate::payload;
use crate::proof::{Role, prove, verify};
use crate::registry::Registry;
use crate::shard::Phase;
use crate::spec::{MAX_SHARDS, MAX_WORKERS, Spec};
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

/// Serves a peer until it goes. `place` is among those of connections that have not shown the secret, and is given back then.
pub(crate) async fn serve(
    registry: Arc<Registry>,
    connecting: quinn::Connecting,
    place: OwnedSemaphorePermit,
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
    drop(place);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    if let Err(reason) = job.enter(worker, number, &connection) {
        job.counters.refuse(reason);
        close(&connection, reason);
        return;
    }
    add(&job.counters.connections, 1);
    connection.set_max_concurrent_bi_streams(STREAMS.into());
    connection.set_receive_window(WINDOW.into());
    let incarnation = registry.incarnation;
    let session = Session { job: Arc::clone(&job), worker, incarnation, patience };
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
    let name = require_field(body.name())?;
    let proof = require_field(body.raw(32))?;
    require_field(body.end())?;
    let job = registry.jobs.get(name).ok_or(Some(Close(Reason::Job)))?;
    if !verify(Role::Worker, &job.config.secret, connection, name, worker, proof) {
        return Err(Some(Close(Reason::Proof)));
    }
    if (MAX_WORKERS..ADMIN).contains(&worker) {
        return Err(Some(Close(Reason::Limit)));
    }
    Ok((Arc::clone(job), worker, (send, receive)))
}

#[derive(Clone)]
struct Session {
    job: Arc<Job>,
    worker: u16,
    /// The number of this life of the server.
    incarnation: u64,
    patience: Duration,
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
                    let (own, attached) = (self.clone(), Arc::clone(&attached));
                    streams.spawn(async move { own.stream(send, receive, &attached).await });
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
        self.answer(&mut send, Frame::new(kind::WELCOME).u64(self.incarnation).raw(&own)).await?;
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
                    let executed = tokio::task::spawn_blocking(move || execute(&job, command)).await;
                    match executed {
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
        let longest = 64 + payload::max_len(requests.length());
        loop {
            let kind = self.request(&mut receive, longest, &mut buffer).await?;
            let body = Body(&buffer[1..]);
            let frame = match kind {
                kind::PULL if self.worker < ADMIN => requests.pull(body).await,
                kind::PUSH if self.worker < ADMIN => requests.push(body).await,
                kind::EXACT => requests.exact(body).await,
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

/// Carries out an administrator's command, on a thread that may wait for files.
fn execute(job: &Job, command: Command) -> Result<serde_json::Value, ModelError> {
    match command {
        Command::Models => {
            serde_json::to_value(job.describe()).map_err(|error| ModelError::Config(error.to_string()))
        }
        Command::Delete { model } => job.delete(&model).map(|()| serde_json::json!({})),
    }
}
