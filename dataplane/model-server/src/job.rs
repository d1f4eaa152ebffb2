//! A job: its models, and the connections of its workers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;

use crate::config::{ModelJobConfig, ModelServerConfig};
use crate::counters::{Counters, ModelJobStats, Reason};
use crate::error::ModelError;
use crate::lock::lock;
use crate::model::Model;
use crate::spec::Spec;
use crate::store::Folder;
use crate::wire::ADMIN;

/// A model as an administrator sees it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Description {
    name: String,
    spec: Spec,
    /// The versions of its slowest and of its quickest shard.
    version: (u64, u64),
    shards: Vec<crate::counters::ShardStats>,
}

/// A job.
#[derive(Debug)]
pub(crate) struct Job {
    pub config: ModelJobConfig,
    pub counters: Counters,
    models: Mutex<BTreeMap<String, Arc<Model>>>,
    /// Models whose files cannot be read.
    damaged: Mutex<BTreeSet<String>>,
    /// Held while a model is made or read, which takes as long as its files do.
    making: Mutex<()>,
    /// Each worker's connection, with a number of its own; those of administrators under theirs.
    holders: Mutex<BTreeMap<u16, (u64, quinn::Connection)>>,
    /// Most of these.
    connections: usize,
    state: Option<PathBuf>,
    lease: Duration,
}

fn on_disk(error: ModelError) -> (Reason, String) {
    tracing::error!("{error}");
    (Reason::Disk, "the server cannot write its state: see its log".to_owned())
}

impl Job {
    /// Its models, from their files. One whose files cannot be read keeps nothing else down: who opens it is told.
    pub fn read(config: &ModelJobConfig, server: &ModelServerConfig) -> Result<Self, ModelError> {
        let (mut models, mut damaged) = (BTreeMap::new(), BTreeSet::new());
        if let Some(state) = &server.state {
            for (name, folder) in Folder::of_job(state, &config.name)? {
                match Model::read(folder, server.lease.0) {
                    Ok(Some(model)) => {
                        goes_on(&config.name, &name, &model);
                        models.insert(name, model);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!("job {}: model {name} cannot be used: {error}", config.name);
                        damaged.insert(name);
                    }
                }
            }
        }
        Ok(Self {
            config: config.clone(),
            counters: Counters::default(),
            models: Mutex::new(models),
            damaged: Mutex::new(damaged),
            making: Mutex::new(()),
            holders: Mutex::new(BTreeMap::new()),
            connections: server.connections,
            state: server.state.clone(),
            lease: server.lease.0,
        })
    }

    /// The model of this name, made if it is not there; not for threads that serve, since it may wait for files.
    pub fn open(&self, name: &str, spec: Spec) -> Result<Arc<Model>, (Reason, String)> {
        if let Some(model) = self.model(name) {
            return check_spec(name, model, &spec);
        }
        let _making = lock(&self.making);
        if let Some(model) = self.model(name).or(self.reread(name)?) {
            return check_spec(name, model, &spec);
        }
        let (count, held) = {
            let models = lock(&self.models);
            (models.len(), models.values().map(|model| model.spec.coordinates).sum::<u64>())
        };
        if count + lock(&self.damaged).len() >= self.config.max_models {
            let most = self.config.max_models;
            return Err((Reason::Limit, format!("the job has its {most} models already (max_models)")));
        }
        if held.checked_add(spec.coordinates).is_none_or(|sum| sum > self.config.max_coordinates.0 as u64) {
            let most = self.config.max_coordinates.0;
            let wanted = spec.coordinates;
            return Err((
                Reason::Limit,
                format!("{wanted} coordinates beside {held} are above the job's {most} (max_coordinates)"),
            ));
        }
        let folder = self.state.as_ref().map(|state| Folder::create(state, &self.config.name, name));
        let folder = folder.transpose().map_err(on_disk)?;
        let model = Model::create(spec, self.lease, folder).map_err(on_disk)?;
        tracing::info!("job {}: model {name} with {} coordinates", self.config.name, model.spec.coordinates);
        lock(&self.models).insert(name.to_owned(), Arc::clone(&model));
        Ok(model)
    }

    /// A model whose files could not be read, if they can be now; `None` if they are gone.
    fn reread(&self, name: &str) -> Result<Option<Arc<Model>>, (Reason, String)> {
        let Some(state) = self.state.as_ref().filter(|_| lock(&self.damaged).contains(name)) else {
            return Ok(None);
        };
        let read = Model::read(Folder::new(state, &self.config.name, name), self.lease);
        let model = read.map_err(|error| (Reason::Disk, error.to_string()))?;
        lock(&self.damaged).remove(name);
        if let Some(model) = &model {
            goes_on(&self.config.name, name, model);
            lock(&self.models).insert(name.to_owned(), Arc::clone(model));
        }
        Ok(model)
    }

    pub fn model(&self, name: &str) -> Option<Arc<Model>> {
        lock(&self.models).get(name).cloned()
    }

    pub fn models(&self) -> Vec<(String, Arc<Model>)> {
        lock(&self.models).iter().map(|(name, model)| (name.clone(), Arc::clone(model))).collect()
    }

    /// Registers a worker, and ends its older connection.
    ///
    /// # Errors
    /// [`Reason::Full`] if the job has its connections already.
    pub fn enter(&self, worker: u16, number: u64, connection: &quinn::Connection) -> Result<(), Reason> {
        let older = {
            let mut holders = lock(&self.holders);
            if !holders.contains_key(&worker) && holders.len() >= self.connections {
                return Err(Reason::Full);
            }
            holders.insert(worker, (number, connection.clone()))
        };
        if let Some((_, older)) = older {
            self.counters.refuse(Reason::Replaced);
            older.close((Reason::Replaced as u32).into(), Reason::Replaced.message().as_bytes());
        }
        Ok(())
    }

    /// Ends waiting for a worker whose connection has ended, unless the worker has reconnected.
    pub fn leave(&self, worker: u16, number: u64) {
        let mut holders = lock(&self.holders);
        if holders.get(&worker).is_none_or(|(holder, _)| *holder != number) {
            return;
        }
        holders.remove(&worker);
        drop(holders);
        self.release(worker);
    }

    /// Ends waiting for a worker.
    pub fn release(&self, worker: u16) {
        for (_, model) in self.models() {
            for shared in &model.shards {
                if let Ok(mut shard) = shared.enter() {
                    shard.release(worker);
                }
                shared.changed.notify_waiters();
            }
        }
    }

    /// Describes all models for an administrator.
    pub fn describe(&self) -> Vec<Description> {
        let one = |(name, model): (String, Arc<Model>)| Description {
            name,
            spec: (*model.spec).clone(),
            version: model.versions(),
            shards: model.stats(),
        };
        self.models().into_iter().map(one).collect()
    }

    fn require_model(&self, name: &str) -> Result<Arc<Model>, ModelError> {
        let missing = || {
            let names: Vec<String> = lock(&self.models).keys().cloned().collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            ModelError::Config(format!("job {} has no model {name}; it has: {there}", self.config.name))
        };
        self.model(name).ok_or_else(missing)
    }

    /// Removes a model and its files.
    pub fn delete(&self, name: &str) -> Result<(), ModelError> {
        let _making = lock(&self.making);
        let folder = if lock(&self.damaged).contains(name) {
            self.state.as_ref().map(|state| Folder::new(state, &self.config.name, name))
        } else {
            let model = self.require_model(name)?;
            model.retire();
            model.folder().cloned()
        };
        lock(&self.models).remove(name);
        self.disconnect(Reason::Deleted);
        if let Some(folder) = folder {
            folder.delete()?;
        }
        lock(&self.damaged).remove(name);
        tracing::warn!("job {}: model {name} was deleted", self.config.name);
        Ok(())
    }

    /// Ends the connections of all workers.
    pub fn disconnect(&self, reason: Reason) {
        for (worker, (_, connection)) in &*lock(&self.holders) {
            if *worker < ADMIN {
                connection.close((reason as u32).into(), reason.message().as_bytes());
            }
        }
    }

    pub fn stats(&self) -> ModelJobStats {
        let models = self.models().into_iter().map(|(name, model)| (name, model.stats())).collect();
        ModelJobStats { models, ..self.counters.read() }
    }
}

fn goes_on(job: &str, name: &str, model: &Model) {
    let version =
        model.shards.iter().filter_map(|shared| shared.enter().ok()).map(|shard| shard.stamp().version).max();
    tracing::info!("job {job}: model {name} goes on at version {}", version.unwrap_or(0));
}

/// The model, if it is what a worker takes it for.
fn check_spec(name: &str, model: Arc<Model>, spec: &Spec) -> Result<Arc<Model>, (Reason, String)> {
    if *model.spec == *spec {
        return Ok(model);
    }
    let differs = difference(&model.spec, spec);
    Err((Reason::Spec, format!("model {name} is configured otherwise: {differs}")))
}

/// The first field in which two specs differ.
fn difference(a: &Spec, b: &Spec) -> String {
    // By way of text, which has floats in their shortest form.
    let fields = |spec: &Spec| -> serde_json::Map<String, serde_json::Value> {
        let text = serde_json::to_string(spec).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    };
    let (a, b) = (fields(a), fields(b));
    let differs = a.iter().find(|(key, value)| b.get(*key) != Some(value));
    differs.map_or_else(String::new, |(key, value)| {
        format!("{key} is {value}, and {} for this worker", b.get(key).unwrap_or(&serde_json::Value::Null))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    /// Whoever makes a model holds up nobody who has one.
    #[test]
    fn models_are_served_while_another_is_made() {
        let config = ModelServerConfig {
            jobs: vec![ModelJobConfig::new("train", "a secret for tests".into())],
            ..ModelServerConfig::default()
        };
        let registry = Registry::read(&config, 1).unwrap();
        let job = &registry.jobs["train"];
        job.open("m", Spec::sgd(32, 1.0)).unwrap();
        let _making = lock(&job.making);
        assert!(job.model("m").is_some());
        job.open("m", Spec::sgd(32, 1.0)).unwrap();
        job.release(0);
        assert_eq!(job.stats().models.len(), 1);
    }
}
