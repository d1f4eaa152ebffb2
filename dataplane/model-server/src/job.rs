//! A job: its models, and the connections of its workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::config::{ModelJobConfig, ModelServerConfig};
use crate::counters::{ModelJobStats, Reason};
use crate::error::ModelError;
use crate::lock;
use crate::model::Model;
use crate::spec::Spec;
use crate::store::Folder;
use crate::wire::{ADMIN, is_name};

/// A refusal, with its text for the worker.
pub(crate) type Refusal = (Reason, String);

/// A job.
#[derive(Debug)]
pub(crate) struct Job {
    pub config: ModelJobConfig,
    stats: Mutex<ModelJobStats>,
    models: Mutex<BTreeMap<String, Arc<Model>>>,
    /// Held while a model is made or read, which takes as long as its files do.
    making: Mutex<()>,
    /// Each worker's connection, with a number of its own; those of administrators under theirs.
    holders: Mutex<BTreeMap<u16, (u64, quinn::Connection)>>,
    /// Most of these: its part of the server's, so that no job takes the connections of another.
    places: usize,
    /// The folder of its models.
    folder: Option<std::path::PathBuf>,
}

fn on_disk(error: ModelError) -> Refusal {
    tracing::error!("{error}");
    (Reason::Disk, Reason::Disk.message().to_owned())
}

impl Job {
    /// A job with the models of its files. A model whose files cannot be read keeps nothing else down: it is an error for
    /// workers that open it.
    pub fn read(config: &ModelJobConfig, server: &ModelServerConfig) -> Result<Self, ModelError> {
        let job = Self {
            config: config.clone(),
            stats: Mutex::default(),
            models: Mutex::default(),
            making: Mutex::default(),
            holders: Mutex::default(),
            places: (server.connections / server.jobs.len().max(1)).max(1),
            folder: server.state.as_ref().map(|state| state.join(&config.name)),
        };
        for name in job.folder.as_deref().map_or_else(|| Ok(Vec::new()), Folder::names)? {
            if let Err(error) = job.read_model(&name) {
                tracing::error!("job {}: model {name} cannot be used: {error}", config.name);
            }
        }
        Ok(job)
    }

    fn model_folder(&self, name: &str) -> Option<Folder> {
        self.folder.as_ref().map(|job| Folder::new(job, name))
    }

    /// The model of the files of this name, if there are files.
    fn read_model(&self, name: &str) -> Result<Option<Arc<Model>>, ModelError> {
        let Some(folder) = self.model_folder(name) else { return Ok(None) };
        let model = Model::read(folder)?;
        if let Some(model) = &model {
            let versions = model.versions();
            tracing::info!("job {}: model {name} goes on at version {}", self.config.name, versions.1);
            lock(&self.models).insert(name.to_owned(), Arc::clone(model));
        }
        Ok(model)
    }

    /// The model of this name, made if it is not there; not for threads that serve, since it may wait for files.
    pub fn open(&self, name: &str, spec: Spec) -> Result<Arc<Model>, Refusal> {
        if let Some(model) = self.model(name) {
            return check_spec(name, model, &spec);
        }
        let _making = lock(&self.making);
        // Files that could not be read at the start may be readable now.
        let read = || self.read_model(name).map_err(|error| (Reason::Disk, error.to_string()));
        if let Some(model) = self.model(name).map_or_else(read, |model| Ok(Some(model)))? {
            return check_spec(name, model, &spec);
        }
        let (count, held) = {
            let models = lock(&self.models);
            (models.len(), models.values().map(|model| model.spec.coordinates).sum::<u64>())
        };
        let (max_models, most) = (self.config.max_models, self.config.max_coordinates.0);
        if count >= max_models {
            let text = format!("the job has its {max_models} models already (max_models)");
            return Err((Reason::Limit, text));
        }
        let wanted = spec.coordinates;
        if held.checked_add(wanted).is_none_or(|sum| sum > most as u64) {
            let text =
                format!("{wanted} coordinates beside {held} are above the job's {most} (max_coordinates)");
            return Err((Reason::Limit, text));
        }
        let model = Model::create(spec, self.model_folder(name)).map_err(on_disk)?;
        tracing::info!("job {}: model {name} with {wanted} coordinates", self.config.name);
        lock(&self.models).insert(name.to_owned(), Arc::clone(&model));
        Ok(model)
    }

    pub fn model(&self, name: &str) -> Option<Arc<Model>> {
        lock(&self.models).get(name).cloned()
    }

    fn models(&self) -> Vec<Arc<Model>> {
        lock(&self.models).values().cloned().collect()
    }

    /// Registers a worker, and ends its older connection. [`Reason::Full`] if the job has no place left.
    pub fn enter(&self, worker: u16, number: u64, connection: &quinn::Connection) -> Result<(), Reason> {
        let mut holders = lock(&self.holders);
        if holders.len() >= self.places && !holders.contains_key(&worker) {
            return Err(Reason::Full);
        }
        let older = holders.insert(worker, (number, connection.clone()));
        drop(holders);
        if let Some((_, older)) = older {
            self.refuse(Reason::Replaced);
            Reason::Replaced.close(&older);
        }
        self.count(|stats| stats.connections += 1);
        Ok(())
    }

    /// Forgets a worker whose connection has ended, unless the worker has reconnected.
    pub fn leave(&self, worker: u16, number: u64) {
        let mut holders = lock(&self.holders);
        if holders.get(&worker).is_some_and(|(holder, _)| *holder == number) {
            holders.remove(&worker);
        }
    }

    /// Removes a model and its files.
    pub fn delete(&self, name: &str) -> Result<(), Refusal> {
        let _making = lock(&self.making);
        let folder = self.model_folder(name).filter(|folder| is_name(name) && folder.exists());
        let model = lock(&self.models).remove(name);
        if model.is_none() && folder.is_none() {
            let text = format!("job {} has no model {name}: thc-model list lists them", self.config.name);
            return Err((Reason::Limit, text));
        }
        if let Some(model) = model {
            model.retire();
        }
        for (worker, (_, connection)) in &*lock(&self.holders) {
            if *worker < ADMIN {
                Reason::Deleted.close(connection);
            }
        }
        tracing::warn!("job {}: model {name} is deleted", self.config.name);
        folder.map_or(Ok(()), |folder| folder.delete().map_err(on_disk))
    }

    /// Writes a shard's file.
    pub fn save(&self, model: &Model, number: usize) -> Result<(), Refusal> {
        let written = model.save(number).map_err(on_disk)?;
        self.count(|stats| stats.saves += u64::from(written));
        Ok(())
    }

    /// Writes the files of all shards that have changed. Returns the first error, after trying all.
    pub fn save_all(&self) -> Result<(), ModelError> {
        let mut first = Ok(());
        for model in self.models() {
            for number in (0..model.shards.len()).filter(|number| model.is_dirty(*number)) {
                match model.save(number) {
                    Ok(_) => self.count(|stats| stats.saves += 1),
                    Err(error) => first = first.and(Err(error)),
                }
            }
        }
        first
    }

    pub fn count(&self, count: impl FnOnce(&mut ModelJobStats)) {
        count(&mut lock(&self.stats));
    }

    pub fn refuse(&self, reason: Reason) {
        self.count(|stats| *stats.refused.entry(reason.key()).or_default() += 1);
    }

    pub fn stats(&self) -> ModelJobStats {
        let models: Vec<_> = lock(&self.models).iter().map(|(name, model)| model.stats(name)).collect();
        ModelJobStats { models, ..lock(&self.stats).clone() }
    }
}

/// The model, if it is what a worker takes it for.
fn check_spec(name: &str, model: Arc<Model>, spec: &Spec) -> Result<Arc<Model>, Refusal> {
    if *model.spec == *spec {
        return Ok(model);
    }
    // The first field that differs. By way of text, which has floats in their shortest form.
    let fields = |spec: &Spec| -> serde_json::Map<String, serde_json::Value> {
        let text = serde_json::to_string(spec).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    };
    let theirs = fields(spec);
    let differs = fields(&model.spec).into_iter().find(|(key, value)| theirs.get(key) != Some(value));
    let (key, value) = differs.unwrap_or_default();
    let other = theirs.get(&key).unwrap_or(&serde_json::Value::Null);
    let text = format!("model {name} is configured otherwise: {key} is {value}, and {other} for this worker");
    Err((Reason::Spec, text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    /// The other models of a job are served while one is made.
    #[test]
    fn models_are_served_while_another_is_made() {
        let config = ModelServerConfig {
            jobs: vec![ModelJobConfig::new("train", "a secret for tests".into())],
            ..ModelServerConfig::default()
        };
        let registry = Registry::read(&config).unwrap();
        let job = &registry.jobs["train"];
        job.open("m", Spec::sgd(32, 1.0)).unwrap();
        let _making = lock(&job.making);
        assert!(job.model("m").is_some());
        job.open("m", Spec::sgd(32, 1.0)).unwrap();
        assert_eq!(job.stats().models.len(), 1);
    }
}
