//! A spare, which copies the models of a server to its own state folder, and takes over when that server is gone.
//!
//! The copy has for each shard the state of a moment, at most `every` and a copying old. Taking over is starting as a server
//! does after a crash, from these files, in the next *term*: workers tell the term to every server they come to, and a server
//! that hears of a later one than its own serves no more. So a server that was only out of the spare's sight stops as soon as
//! one worker has met both.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::admin::Remote;
use crate::client::ClientConfig;
use crate::client::link::Stream;
use crate::config::{ModelJobConfig, ModelServerConfig};
use crate::error::ModelError;
use crate::shard::Stamp;
use crate::spec::Spec;
use crate::store::{self, Folder};

/// The settings of a spare.
#[derive(Clone, Debug)]
pub struct FollowConfig {
    /// `host:port` of the server.
    pub server: String,
    /// How often changed shards are copied.
    pub every: Duration,
    /// How long the server must be gone before the spare takes over.
    pub takeover: Duration,
}

/// The reason for which a spare stops following.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The program was asked to stop.
    Stopped,
    /// The server is gone: the state folder has its models, and the term after its own.
    Alone,
}

/// A model's copy.
struct Copy {
    spec: Spec,
    folder: Folder,
    streams: Vec<Stream>,
    /// The versions in the files.
    known: Vec<Option<(Stamp, u8)>>,
}

/// A job's server.
struct Source {
    remote: Remote,
    copies: BTreeMap<String, Copy>,
}

impl Source {
    /// Copies changed shards, and returns their number.
    async fn copy(&mut self, state: &Path, job: &str) -> Result<usize, ModelError> {
        let models = self.remote.models().await?;
        let gone = |name: &String| !models.iter().any(|model| model.name == *name);
        for name in self.copies.keys().filter(|name| gone(name)) {
            Folder::new(state, job, name).delete()?;
        }
        self.copies.retain(|name, _| !gone(name));
        let mut copied = 0;
        for model in models {
            if self.copies.get(&model.name).is_none_or(|copy| copy.spec != model.spec) {
                let folder = Folder::create(state, job, &model.name)?;
                folder.write_spec(&model.spec)?;
                let streams = self.remote.attach(&model.name, model.spec.shards()).await?;
                let known = vec![None; streams.len()];
                self.copies.insert(model.name.clone(), Copy { spec: model.spec, folder, streams, known });
            }
            let Some(copy) = self.copies.get_mut(&model.name) else { continue };
            for (stream, known) in copy.streams.iter_mut().zip(&mut copy.known) {
                let number = stream.number;
                let Some(sealed) = self.remote.state(stream, &copy.spec, *known).await? else { continue };
                let state = store::decode(&sealed, &copy.spec, number)
                    .map_err(|reason| copy.folder.read_error(reason.to_owned()))?;
                copy.folder.write_shard(number, &sealed)?;
                *known = Some((state.stamp(), state.phase.code()));
                copied += 1;
            }
        }
        Ok(copied)
    }
}

/// Copies a server's models into the state folder of `config` until the server is gone, or `stop` is set.
///
/// # Errors
/// [`ModelError::Config`] without a state folder; [`ModelError::State`] if it cannot be written;
/// [`ModelError::Secret`].
pub fn follow(
    follow: &FollowConfig,
    config: &ModelServerConfig,
    stop: &AtomicBool,
    mut on_complete: impl FnMut(),
) -> Result<Followed, ModelError> {
    let Some(state) = &config.state else {
        return Err(ModelError::Config("a spare needs a folder for what it copies: give --state".to_owned()));
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut sources: Vec<Option<Source>> = config.jobs.iter().map(|_| None).collect();
    let (mut heard, mut complete, mut term) = (Instant::now(), false, store::read_term(state)?);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let mut failed = None;
        for (job, source) in config.jobs.iter().zip(&mut sources) {
            match runtime.block_on(round(follow, job, source, state, term)) {
                Ok(theirs) => term = term.max(theirs),
                Err(error @ (ModelError::State { .. } | ModelError::Secret { .. })) => return Err(error),
                Err(error) => {
                    *source = None;
                    failed = Some(error);
                }
            }
        }
        match failed {
            None => {
                heard = Instant::now();
                if !complete {
                    complete = true;
                    tracing::info!("all models of {} are here; it is followed in term {term}", follow.server);
                    on_complete();
                }
            }
            Some(error) if complete && heard.elapsed() >= follow.takeover => {
                store::write_term(state, term + 1)?;
                tracing::error!("{error}: this spare takes over, in term {}", term + 1);
                return Ok(Followed::Alone);
            }
            Some(error) => tracing::debug!("{error}"),
        }
        let pause = if failed_pause(heard, began) {
            follow.every.min(Duration::from_millis(100))
        } else {
            follow.every
        };
        std::thread::sleep(pause.saturating_sub(began.elapsed()).max(Duration::from_millis(10)));
    }
    Ok(Followed::Stopped)
}

/// Whether the last round failed.
fn failed_pause(heard: Instant, began: Instant) -> bool {
    heard < began
}

/// Copies one job once. Returns the server's term.
async fn round(
    follow: &FollowConfig,
    job: &ModelJobConfig,
    source: &mut Option<Source>,
    state: &Path,
    term: u64,
) -> Result<u64, ModelError> {
    if source.is_none() {
        let config = ClientConfig {
            job: job.name.clone(),
            secret: job.secret.clone(),
            timeout: follow.takeover,
            ..ClientConfig::default()
        };
        let remote = Remote::connect(config, &follow.server, term).await?;
        *source = Some(Source { remote, copies: BTreeMap::new() });
    }
    let Some(source) = source else { return Ok(term) };
    let copied = source.copy(state, &job.name).await?;
    if copied > 0 {
        tracing::debug!("job {}: {copied} shards copied", job.name);
    }
    Ok(source.remote.term())
}
