//! A worker's connection, at the server.

mod requests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::counters::Reason;
use crate::job::{Job, Refusal};
use crate::lock;
use crate::payload;
use crate::proof::{Role, prove, verify};
use crate::registry::Registry;
use crate::spec::{MAX_SHARDS, MAX_WORKERS, Spec};
use crate::transport::WINDOW;
use crate::wire::{ADMIN, Answer, Frame, LONGEST_OPEN, NoFrame, Request, SMALL, is_name, read_frame, split};

/// The longest time that a handshake and an introduction may take.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// Most streams of a connection: one for each shard of a model, and the first.
const STREAMS: u32 = MAX_SHARDS as u32 + 1;

/// Numbers of connections.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// The reason for which a request has no answer of its own.
enum Failure {
    /// The peer has gone.
    Gone,
    /// Its connection is closed.
    Close(Reason),
    /// The request is refused, and the stream goes on.
    Refused(Reason, String),
}

impl From<NoFrame> for Failure {
    fn from(no_frame: NoFrame) -> Self {
        match no_frame {
            NoFrame::Ended(_) => Self::Gone,
            NoFrame::TooLong(_) => Self::Close(Reason::Malformed),
            NoFrame::TooLate => Self::Close(Reason::Silent),
        }
    }
}

impl From<Refusal> for Failure {
    fn from((reason, text): Refusal) -> Self {
        Self::Refused(reason, text)
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason, reason.message().to_owned())
    }
}

/// Runs what may wait for files, away from the threads that serve.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Failure> {
    let stopping = |_| Err((Reason::Disk, "the server is stopping".to_owned()));
    Ok(tokio::task::spawn_blocking(work).await.unwrap_or_else(stopping)?)
}

/// Serves a peer until it goes.
pub(crate) async fn serve(registry: Arc<Registry>, connecting: quinn::Connecting, patience: Duration) {
    let Ok(handshake) = timeout(INTRODUCTION, connecting).await else {
        registry.refuse(Reason::Silent);
        return;
    };
    // A handshake that failed is no worker's: nothing to count it under but its absence.
    let Ok(connection) = handshake else { return };
    let introduced = timeout(INTRODUCTION, introduce(&registry, &connection)).await;
    let (job, worker, control) = match introduced.unwrap_or(Err(Failure::Close(Reason::Silent))) {
        Ok(introduced) => introduced,
        Err(Failure::Close(reason)) => {
            registry.refuse(reason);
            return reason.close(&connection);
        }
        Err(_) => return,
    };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    if let Err(reason) = job.enter(worker, number, &connection) {
        job.refuse(reason);
        return reason.close(&connection);
    }
    connection.set_max_concurrent_bi_streams(STREAMS.into());
    connection.set_receive_window(WINDOW.into());
    let (incarnation, attached) = (registry.incarnation, Mutex::default());
    let session =
        Arc::new(Session { job: Arc::clone(&job), worker, incarnation, patience, connection, attached });
    if let Some(reason) = Arc::clone(&session).run(control).await {
        job.refuse(reason);
        reason.close(&session.connection);
    }
    job.leave(worker, number);
}

/// Reads [`Request::Hello`], which [`Answer::Welcome`] answers when the worker has its place.
async fn introduce(
    registry: &Registry,
    connection: &Connection,
) -> Result<(Arc<Job>, u16, (SendStream, RecvStream)), Failure> {
    let (send, mut receive) = connection.accept_bi().await.map_err(|_| Failure::Gone)?;
    let mut buffer = Vec::new();
    read_frame(&mut receive, SMALL, INTRODUCTION, &mut buffer).await?;
    let Some((Request::Hello { worker, job: name, proof }, [])) = split(&buffer) else {
        return Err(Failure::Close(Reason::Malformed));
    };
    let job = registry.jobs.get(name).ok_or(Failure::Close(Reason::Job))?;
    if !verify(Role::Worker, &job.config.secret, connection, name, worker, &proof) {
        return Err(Failure::Close(Reason::Proof));
    }
    if (MAX_WORKERS..ADMIN).contains(&worker) {
        return Err(Failure::Close(Reason::Limit));
    }
    Ok((Arc::clone(job), worker, (send, receive)))
}

struct Session {
    job: Arc<Job>,
    worker: u16,
    /// The number of this life of the server.
    incarnation: u64,
    patience: Duration,
    connection: Connection,
    /// The shards that have a stream.
    attached: Mutex<BTreeSet<(String, u32)>>,
}

impl Session {
    /// Serves all streams until the connection ends. Returns the reason if the server is to close it.
    async fn run(self: Arc<Self>, (send, receive): (SendStream, RecvStream)) -> Option<Reason> {
        let mut streams = JoinSet::new();
        let own = Arc::clone(&self);
        streams.spawn(async move { own.control(send, receive).await });
        loop {
            tokio::select! {
                stream = self.connection.accept_bi() => {
                    let (send, receive) = stream.ok()?;
                    let own = Arc::clone(&self);
                    streams.spawn(async move { own.stream(send, receive).await });
                }
                Some(joined) = streams.join_next() => {
                    if let Some(reason) = close_reason(joined) {
                        return Some(reason);
                    }
                }
            }
        }
    }

    /// Sends an answer. A refusal is one, too, after which the stream goes on.
    async fn respond(&self, send: &mut SendStream, answer: Result<Frame, Failure>) -> Result<(), Failure> {
        let frame = match answer {
            Ok(frame) => frame,
            Err(Failure::Refused(reason, text)) => {
                self.job.refuse(reason);
                Frame::new(&Answer::Refused { reason, text })
            }
            Err(failure) => return Err(failure),
        };
        match timeout(self.patience, send.write_all(&frame.finish())).await {
            Ok(sent) => sent.map_err(|_| Failure::Gone),
            Err(_) => Err(Failure::Close(Reason::Silent)),
        }
    }

    async fn control(&self, mut send: SendStream, mut receive: RecvStream) -> Result<(), Failure> {
        let (name, secret) = (&self.job.config.name, &self.job.config.secret);
        let proof = prove(Role::Server, secret, &self.connection, name, self.worker);
        let proof = proof.ok_or(Failure::Close(Reason::Proof))?;
        let mut answer = Ok(Frame::new(&Answer::Welcome { incarnation: self.incarnation, proof }));
        let mut buffer = Vec::new();
        loop {
            self.respond(&mut send, answer).await?;
            read_frame(&mut receive, LONGEST_OPEN, self.patience, &mut buffer).await?;
            answer = match split(&buffer) {
                Some((Request::Open { model, spec }, [])) => self.open(model, spec).await,
                Some((Request::Stats, [])) => {
                    let mut frame = Frame::new(&Answer::Stats);
                    frame.tail().extend(serde_json::to_vec(&self.job.stats()).unwrap_or_default());
                    Ok(frame)
                }
                Some((Request::Delete { model }, [])) if self.worker >= ADMIN => {
                    let (job, name) = (Arc::clone(&self.job), model.to_owned());
                    blocking(move || job.delete(&name)).await.map(|()| Frame::new(&Answer::Done))
                }
                _ => Err(Failure::Close(Reason::Malformed)),
            };
        }
    }

    async fn open(&self, name: &str, spec: Spec) -> Result<Frame, Failure> {
        if !is_name(name) {
            return Err(Failure::Close(Reason::Malformed));
        }
        spec.validate().map_err(|error| (Reason::Malformed, error.to_string()))?;
        if (spec.workers..ADMIN).contains(&self.worker) {
            let text = format!("worker {} is not one of the model's {}", self.worker, spec.workers);
            return Err(Failure::Refused(Reason::Limit, text));
        }
        let (job, name) = (Arc::clone(&self.job), name.to_owned());
        let model = blocking(move || job.open(&name, spec)).await?;
        Ok(Frame::new(&Answer::Opened { shards: model.shards.len() as u32 }))
    }

    /// One shard's stream.
    async fn stream(&self, mut send: SendStream, mut receive: RecvStream) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        read_frame(&mut receive, SMALL, self.patience, &mut buffer).await?;
        let malformed = || Failure::Close(Reason::Malformed);
        let Some((Request::Attach { model: name, shard }, [])) = split(&buffer) else {
            return Err(malformed());
        };
        let model = self.job.model(name).filter(|model| {
            !(model.spec.workers..ADMIN).contains(&self.worker) && (shard as usize) < model.shards.len()
        });
        let model = model.ok_or_else(malformed)?;
        if !lock(&self.attached).insert((name.to_owned(), shard)) {
            return Err(malformed());
        }
        let requests = self.shard(model, shard as usize);
        let longest = 64 + payload::max_len(requests.length());
        let mut answer = requests.attach();
        loop {
            self.respond(&mut send, answer).await?;
            read_frame(&mut receive, longest, self.patience, &mut buffer).await?;
            answer = requests.answer(&buffer).await;
        }
    }
}

/// The reason for which a stream's task ends the connection, if it does.
fn close_reason(joined: Result<Result<(), Failure>, JoinError>) -> Option<Reason> {
    match joined {
        Ok(Err(Failure::Close(reason))) => Some(reason),
        Ok(_) => None,
        Err(error) if error.is_panic() => {
            tracing::error!("a stream's task has panicked: {error}");
            Some(Reason::Broken)
        }
        Err(_) => None,
    }
}
