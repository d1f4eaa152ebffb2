//! An administrator's connection to a job's servers, which lists and deletes models.

use std::time::Duration;

use futures_util::future::try_join_all;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::client::ClientConfig;
use crate::client::link::{Link, Peer, within};
use crate::error::ModelError;
use crate::proof;
use crate::wire::{ADMIN, Request};

/// An administrator's connections to all servers of a job.
pub struct Admin {
    runtime: Runtime,
    timeout: Duration,
    links: Vec<Link>,
}

impl Admin {
    /// Connects to all servers that `config` names. The worker's number in it is ignored.
    ///
    /// # Errors
    /// [`ModelError::Config`], [`ModelError::Unreachable`], [`ModelError::Refused`].
    pub fn connect(config: &ClientConfig) -> Result<Self, ModelError> {
        proof::check(&config.secret).map_err(ModelError::Config)?;
        let config = ClientConfig { worker: ADMIN | (std::process::id() as u16 & 0xFF), ..config.clone() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let links = Peer::all(&config).into_iter().map(|peer| {
            let config = &config;
            async move { within(config.timeout, &peer, Link::connect(config, &peer)).await }
        });
        let links = runtime.block_on(try_join_all(links))?;
        Ok(Self { runtime, timeout: config.timeout, links })
    }

    /// The models on each server, as JSON.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn models(&mut self) -> Result<Vec<Vec<Value>>, ModelError> {
        let mut models = Vec::new();
        for link in &mut self.links {
            let peer = link.peer();
            let mut stats = self.runtime.block_on(within(self.timeout, &peer, link.stats()))?;
            models.push(stats["models"].as_array_mut().map(std::mem::take).unwrap_or_default());
        }
        Ok(models)
    }

    /// Deletes a model and its files on all servers.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if a server has no such model.
    pub fn delete(&mut self, model: &str) -> Result<(), ModelError> {
        let deleted = self.links.iter_mut().map(|link| {
            let (peer, timeout) = (link.peer(), self.timeout);
            async move { within(timeout, &peer, link.request(&Request::Delete { model })).await }
        });
        self.runtime.block_on(try_join_all(deleted)).map(drop)
    }
}
