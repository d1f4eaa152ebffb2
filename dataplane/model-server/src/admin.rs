//! An administrator's connection to a server, which lists and deletes the models of a job.

use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;

use crate::client::ClientConfig;
use crate::client::link::{Link, Peer, within};
use crate::error::ModelError;
use crate::proof;
use crate::wire::{ADMIN, Request};

/// An administrator's connection.
pub struct Admin {
    runtime: Runtime,
    timeout: Duration,
    link: Link,
}

impl Admin {
    /// Connects to the server that `config` names. The worker's number in it is ignored.
    ///
    /// # Errors
    /// [`ModelError::Config`], [`ModelError::Unreachable`], [`ModelError::Refused`].
    pub fn connect(config: &ClientConfig) -> Result<Self, ModelError> {
        proof::check(&config.secret).map_err(ModelError::Config)?;
        let config = ClientConfig { worker: ADMIN | (std::process::id() as u16 & 0xFF), ..config.clone() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let peer = Peer::new(&config);
        let link = runtime.block_on(within(config.timeout, &peer, Link::connect(&config, &peer)))?;
        Ok(Self { runtime, timeout: config.timeout, link })
    }

    /// The models, as JSON.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn models(&mut self) -> Result<Vec<Value>, ModelError> {
        let peer = self.link.peer();
        let mut stats = self.runtime.block_on(within(self.timeout, &peer, self.link.stats()))?;
        Ok(stats["models"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Deletes a model and its files.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if the server has no such model.
    pub fn delete(&mut self, model: &str) -> Result<(), ModelError> {
        let peer = self.link.peer();
        let request = Request::Delete { model };
        self.runtime.block_on(within(self.timeout, &peer, self.link.request(&request))).map(drop)
    }
}
