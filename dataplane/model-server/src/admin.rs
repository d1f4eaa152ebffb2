//! An administrator's connection to a job's servers, which lists and deletes models.

use futures_util::future::try_join_all;
use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::client::ClientConfig;
use crate::client::link::{Failure, Introduction, introduce, nonsense};
use crate::error::ModelError;
use crate::proof;
use crate::spec::Spec;
use crate::wire::{ADMIN, Command, Frame, kind};

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
    /// The progress of each shard.
    pub shards: Vec<Value>,
}

/// A connection to one server, for which the job's secret is needed.
struct Remote {
    config: ClientConfig,
    introduced: Introduction,
}

impl Remote {
    async fn connect(mut config: ClientConfig, server: &str) -> Result<Self, ModelError> {
        config.worker = ADMIN | (std::process::id() as u16 & 0xFF);
        config.servers = vec![server.to_owned()];
        let introduced = within_timeout(&config, introduce(&config, server)).await?;
        Ok(Self { config, introduced })
    }

    async fn execute(&mut self, command: &Command) -> Result<Value, ModelError> {
        let text = serde_json::to_vec(command).map_err(|error| ModelError::Config(error.to_string()))?;
        let request = Frame::new(kind::COMMAND).raw(&text).finish();
        let answer = within_timeout(&self.config, self.introduced.control.request(&request, LONGEST)).await?;
        let refused = |reason: String| as_error(&self.config, Failure::Refused(reason));
        match answer.as_slice() {
            [kind::COUNTED, text @ ..] => {
                serde_json::from_slice(text).map_err(|error| refused(error.to_string()))
            }
            [kind::REFUSED, _, text @ ..] => Err(refused(String::from_utf8_lossy(text).into_owned())),
            _ => Err(as_error(&self.config, nonsense())),
        }
    }

    async fn models(&mut self) -> Result<Vec<ModelInfo>, ModelError> {
        let models = self.execute(&Command::Models).await?;
        serde_json::from_value(models).map_err(|_| as_error(&self.config, nonsense()))
    }
}

fn as_error(config: &ClientConfig, failure: Failure) -> ModelError {
    failure.into_error(&config.servers[0], &config.job)
}

/// Waits for an answer, for at most the time-out of `config`.
async fn within_timeout<T>(
    config: &ClientConfig,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, ModelError> {
    let answer = tokio::time::timeout(config.timeout, work).await;
    let answer = answer.unwrap_or_else(|_| Err(Failure::Lost("no answer".to_owned())));
    answer.map_err(|failure| failure.into_error(&config.servers[0], &config.job))
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
        proof::check(&config.secret).map_err(ModelError::Config)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let servers = runtime.block_on(try_join_all(
            config.servers.iter().map(|server| Remote::connect(config.clone(), server)),
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

    /// Deletes a model and its files on all servers.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if a server has no such model.
    pub fn delete(&mut self, model: &str) -> Result<(), ModelError> {
        let Self { runtime, servers } = self;
        let command = Command::Delete { model: model.to_owned() };
        let answers = try_join_all(servers.iter_mut().map(|server| server.execute(&command)));
        runtime.block_on(answers).map(drop)
    }
}
