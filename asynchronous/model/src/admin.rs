//! An administrator's connection to a job's servers: it lists, keeps, restores, deletes, exports and imports models.

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::archive::Archive;
use crate::client::ClientConfig;
use crate::client::link::{Failure, Introduction, Stream, attach, introduce, nonsense};
use crate::error::ModelError;
use crate::memory;
use crate::proof;
use crate::shard::{Stamp, State};
use crate::spec::Spec;
use crate::store::{self, Kept};
use crate::wire::{ADMIN, Command, Frame, SMALL, kind};

/// The longest description of a job's models.
const LONGEST: usize = 1 << 26;

/// A model on one server.
#[derive(Clone, Debug, Deserialize)]
pub struct ModelInfo {
    /// The model's name.
    pub name: String,
    /// The model's specification.
    pub spec: Spec,
    /// The numbers of pushes that its slowest and its quickest shard have taken.
    pub version: (u64, u64),
    /// The states that can be restored, the oldest first.
    #[serde(rename = "kept")]
    pub kept_states: Vec<Kept>,
    /// The progress of each shard.
    pub shards: Vec<Value>,
}

/// A complete state with its digest, as a server sends it.
pub(crate) type Sealed = Vec<u8>;

/// A connection to one server, for which the job's secret is needed.
pub(crate) struct Remote {
    config: ClientConfig,
    introduced: Introduction,
}

impl Remote {
    /// Connects to the server, or to one of its spares.
    pub async fn connect(mut config: ClientConfig, server: &str, term: u64) -> Result<Self, ModelError> {
        config.worker = ADMIN | (std::process::id() as u16 & 0xFF);
        config.servers = vec![server.to_owned()];
        let introduced = answer_of(&config, introduce(&config, server, term)).await?;
        Ok(Self { config, introduced })
    }

    /// The server's term.
    pub fn term(&self) -> u64 {
        self.introduced.term
    }

    async fn execute(&mut self, command: &Command) -> Result<Value, ModelError> {
        let text = serde_json::to_vec(command).map_err(|error| ModelError::Config(error.to_string()))?;
        let request = Frame::new(kind::COMMAND).raw(&text).finish();
        let answer = answer_of(&self.config, self.introduced.control.request(&request, LONGEST)).await?;
        let refused = |reason: String| as_error(&self.config, Failure::Refused(reason));
        match answer.as_slice() {
            [kind::COUNTED, text @ ..] => {
                serde_json::from_slice(text).map_err(|error| refused(error.to_string()))
            }
            [kind::REFUSED, _, text @ ..] => Err(refused(String::from_utf8_lossy(text).into_owned())),
            _ => Err(as_error(&self.config, nonsense())),
        }
    }

    /// The models of the job.
    pub async fn models(&mut self) -> Result<Vec<ModelInfo>, ModelError> {
        let found = self.execute(&Command::Models).await?;
        serde_json::from_value(found).map_err(|_| as_error(&self.config, nonsense()))
    }

    /// Streams for all shards of a model.
    pub async fn attach(&self, model: &str, shards: usize) -> Result<Vec<Stream>, ModelError> {
        let connection = &self.introduced.connection;
        let all = try_join_all((0..shards as u32).map(|number| attach(connection, model, number)));
        let streams = answer_of(&self.config, all).await?;
        Ok(streams.into_iter().map(|(stream, _)| stream).collect())
    }

    /// The state of a shard. `None` if it is the `known` one.
    pub async fn state(
        &self,
        stream: &mut Stream,
        spec: &Spec,
        known: Option<(Stamp, u8)>,
    ) -> Result<Option<Sealed>, ModelError> {
        let (stamp, phase) = known.unwrap_or_default();
        let request = Frame::new(kind::STATE).u8(u8::from(known.is_some())).stamp(stamp).u8(phase).finish();
        let longest = 64 + memory::of_state(spec, spec.range(stream.number as usize).len());
        let answer = answer_of(&self.config, stream.request(&request, longest)).await?;
        match answer.as_slice() {
            [kind::STATED] => Ok(None),
            [kind::STATED, sealed @ ..] => Ok(Some(sealed.to_vec())),
            _ => Err(as_error(&self.config, nonsense())),
        }
    }

    async fn create(&mut self, model: &str, spec: &Spec) -> Result<(), ModelError> {
        let text = serde_json::to_vec(spec).map_err(|error| ModelError::Config(error.to_string()))?;
        let request = Frame::new(kind::OPEN).name(model).raw(&text).finish();
        let answer = answer_of(&self.config, self.introduced.control.request(&request, SMALL)).await?;
        match answer.as_slice() {
            [kind::OPENED, ..] => Ok(()),
            [kind::REFUSED, _, text @ ..] => {
                Err(as_error(&self.config, Failure::Refused(String::from_utf8_lossy(text).into_owned())))
            }
            _ => Err(as_error(&self.config, nonsense())),
        }
    }

    async fn restore(&self, stream: &mut Stream, state: &State) -> Result<bool, ModelError> {
        let request = Frame::new(kind::RESTORE).raw(&store::seal(store::encode(state))).finish();
        let answer = answer_of(&self.config, stream.request(&request, SMALL)).await?;
        match answer.as_slice() {
            [kind::DONE, taken, ..] => Ok(*taken == 1),
            [kind::REFUSED, _, text @ ..] => {
                Err(as_error(&self.config, Failure::Refused(String::from_utf8_lossy(text).into_owned())))
            }
            _ => Err(as_error(&self.config, nonsense())),
        }
    }
}

/// What a server refuses, or answers against the protocol.
fn as_error(config: &ClientConfig, failure: Failure) -> ModelError {
    failure.into_error(&config.servers[0], &config.job, Duration::ZERO)
}

/// Waits for an answer, for as long as `config` says.
async fn answer_of<T>(
    config: &ClientConfig,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, ModelError> {
    let began = Instant::now();
    let answer = tokio::time::timeout(config.timeout, work).await;
    let answer = answer.unwrap_or_else(|_| Err(Failure::Lost("no answer".to_owned())));
    answer.map_err(|failure| failure.into_error(&config.servers[0], &config.job, began.elapsed()))
}

/// An administrator's connections to all servers of a job.
pub struct Admin {
    runtime: Runtime,
    servers: Vec<Remote>,
}

impl Admin {
    /// Connects to all servers that `config` names. The worker's number in it is ignored.
    ///
    /// # Errors
    /// [`ModelError::Unreachable`], [`ModelError::Secret`].
    pub fn connect(config: &ClientConfig) -> Result<Self, ModelError> {
        if let Err(error) = proof::check(&config.secret) {
            return Err(ModelError::Config(error.to_string()));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let servers = runtime.block_on(try_join_all(
            config.servers.iter().map(|server| Remote::connect(config.clone(), server, 0)),
        ))?;
        Ok(Self { runtime, servers })
    }

    /// The models on each server.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn models(&mut self) -> Result<Vec<Vec<ModelInfo>>, ModelError> {
        let Self { runtime, servers } = self;
        runtime.block_on(try_join_all(servers.iter_mut().map(Remote::models)))
    }

    fn on_all(&mut self, command: &Command) -> Result<Vec<Value>, ModelError> {
        let Self { runtime, servers } = self;
        runtime.block_on(try_join_all(servers.iter_mut().map(|server| server.execute(command))))
    }

    fn numbers(answers: &[Value]) -> Vec<u64> {
        answers.iter().filter_map(|answer| answer["number"].as_u64()).collect()
    }

    /// Keeps the state of a model. Returns the number of the kept state on each server.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if there is no such model, or the server keeps nothing.
    pub fn checkpoint(&mut self, model: &str) -> Result<Vec<u64>, ModelError> {
        self.on_all(&Command::Checkpoint { model: model.to_owned() }).map(|answers| Self::numbers(&answers))
    }

    /// Replaces the state of a model by a kept one, or by the newest. Returns the number of that state on each server.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if there is none.
    pub fn rollback(&mut self, model: &str, to: Option<u64>) -> Result<Vec<u64>, ModelError> {
        let command = Command::Rollback { model: model.to_owned(), to };
        self.on_all(&command).map(|answers| Self::numbers(&answers))
    }

    /// Deletes a model, its files and its kept states.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if there is none.
    pub fn delete(&mut self, model: &str) -> Result<(), ModelError> {
        self.on_all(&Command::Delete { model: model.to_owned() }).map(drop)
    }

    /// Reads a whole model, with the vectors of its optimizer.
    ///
    /// # Errors
    /// [`ModelError::Config`] if there is no such model, if servers are missing or in another order than that of its workers,
    /// or if its shards are in different epochs.
    pub fn export(&mut self, model: &str) -> Result<Archive, ModelError> {
        let Self { runtime, servers } = self;
        let parts = runtime.block_on(async {
            let mut parts = Vec::new();
            for server in servers {
                let models = server.models().await?;
                let missing =
                    || ModelError::Config(format!("{} has no model {model}", server.config.servers[0]));
                let spec = models.iter().find(|one| one.name == model).ok_or_else(missing)?.spec.clone();
                let mut states = Vec::with_capacity(spec.shards());
                for (number, mut stream) in server.attach(model, spec.shards()).await?.into_iter().enumerate()
                {
                    let sealed = server.state(&mut stream, &spec, None).await?.unwrap_or_default();
                    let state =
                        store::decode(&sealed, &spec, number as u32).map_err(|reason| ModelError::State {
                            path: PathBuf::from(format!("shard-{number}")),
                            reason: reason.to_owned(),
                        })?;
                    states.push(state);
                }
                parts.push((spec, states));
            }
            Ok::<_, ModelError>(parts)
        })?;
        Archive::join(parts)
    }

    /// Creates a model from an exported one, cut over these servers, whose number may differ from the earlier one.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the model exists and has a value already.
    pub fn import(&mut self, model: &str, archive: &Archive) -> Result<(), ModelError> {
        let Self { runtime, servers } = self;
        let parts = archive.cut(servers.len())?;
        runtime.block_on(async {
            for (server, (spec, states)) in servers.iter_mut().zip(parts) {
                server.create(model, &spec).await?;
                for (mut stream, state) in server.attach(model, spec.shards()).await?.into_iter().zip(states)
                {
                    if !server.restore(&mut stream, &state).await? {
                        let text = format!(
                            "model {model} has a value already: delete it first, or import under another name"
                        );
                        return Err(ModelError::Config(text));
                    }
                }
            }
            Ok(())
        })
    }
}
