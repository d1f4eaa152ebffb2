//! Jobs and their models, and when these are written to files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::{JobConfig, ServerConfig};
use crate::counters::{Counters, JobStats, Reason, ServerStats, ShardStats, add};
use crate::error::ModelError;
use crate::lock::lock;
use crate::memory::{self, Memory, Reservation};
use crate::shard::{Phase, Shard};
use crate::spec::Spec;
use crate::store::{self, Folder};

/// A shard that many tasks use.
#[derive(Debug)]
pub(crate) struct Cell {
    shard: Mutex<Shard>,
    /// Rung at every change.
    pub changed: Notify,
    /// Held while its file is written, so that an older state never replaces a newer one.
    file: Mutex<()>,
    /// What its file has: version, and epoch (both 0 without one).
    durable: AtomicU64,
    durable_epoch: AtomicU64,
    /// How many values and gradients came, which the version does not tell, and how many of them the file has.
    given: AtomicU64,
    durable_given: AtomicU64,
}

impl Cell {
    /// The shard, for milliseconds at most.
    ///
    /// # Errors
    /// [`Reason::Broken`] after a panic of whoever had it: its state may be half changed, so nobody gets it again, and no file.
    pub fn enter(&self) -> Result<MutexGuard<'_, Shard>, Reason> {
        self.shard.lock().map_err(|_| Reason::Broken)
    }
}

/// A model and where it is kept.
#[derive(Debug)]
pub(crate) struct Model {
    pub spec: Arc<Spec>,
    pub cells: Vec<Cell>,
    folder: Option<Folder>,
    _memory: Reservation,
}

impl Model {
    fn new(
        spec: Spec,
        lease: Duration,
        folder: Option<Folder>,
        memory: Reservation,
        resume: bool,
    ) -> Result<Arc<Self>, ModelError> {
        let spec = Arc::new(spec);
        let mut cells = Vec::with_capacity(spec.shards());
        for number in 0..spec.shards() as u32 {
            let kept = match &folder {
                Some(folder) if resume => folder.read_shard(&spec, number)?,
                _ => None,
            };
            let shard = match kept {
                Some(state) => Shard::resumed(Arc::clone(&spec), number, lease, state),
                None => Shard::new(Arc::clone(&spec), number, lease),
            };
            let stamp = shard.stamp();
            cells.push(Cell {
                shard: Mutex::new(shard),
                changed: Notify::new(),
                file: Mutex::new(()),
                durable: AtomicU64::new(stamp.version),
                durable_epoch: AtomicU64::new(stamp.epoch),
                given: AtomicU64::new(0),
                durable_given: AtomicU64::new(0),
            });
        }
        Ok(Arc::new(Self { spec, cells, folder, _memory: memory }))
    }

    /// Whether what a worker is told of epoch `epoch` of a shard will still be so after a restart.
    pub fn is_durable(&self, number: usize, epoch: u64) -> bool {
        self.folder.is_none() || self.cells[number].durable_epoch.load(Ordering::Acquire) >= epoch
    }

    /// A value or a gradient came.
    pub fn given(&self, number: usize) {
        self.cells[number].given.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a value or a gradient came that the file does not have.
    pub fn owes(&self, number: usize) -> bool {
        let cell = &self.cells[number];
        self.folder.is_some()
            && cell.given.load(Ordering::Acquire) != cell.durable_given.load(Ordering::Acquire)
    }

    /// Its file, all of it if there is one.
    fn read(folder: Folder, lease: Duration, memory: &Arc<Memory>) -> Result<Option<Arc<Self>>, ModelError> {
        let Some(spec) = folder.read_spec()? else { return Ok(None) };
        let memory = memory.reserve(memory::of_model(&spec, true), "its model");
        let memory = memory.map_err(|reason| folder.refused(reason))?;
        Self::new(spec, lease, Some(folder), memory, true).map(Some)
    }

    /// Writes a shard's file, if the model is kept: whether it did.
    pub fn save(&self, number: usize) -> Result<bool, ModelError> {
        let cell = &self.cells[number];
        let Some(folder) = &self.folder else { return Ok(false) };
        let _file = lock(&cell.file);
        let given = cell.given.load(Ordering::Acquire);
        let (bytes, stamp) = {
            // Copied under its lock, hashed and written without.
            let shard = cell.enter().map_err(|reason| folder.broken(number as u32, reason))?;
            (store::encode(shard.state()), shard.stamp())
        };
        folder.write_shard(number as u32, &store::seal(bytes))?;
        cell.durable_given.store(given, Ordering::Release);
        cell.durable.store(stamp.version, Ordering::Release);
        cell.durable_epoch.store(stamp.epoch, Ordering::Release);
        cell.changed.notify_waiters();
        Ok(true)
    }

    fn is_dirty(&self, number: usize) -> bool {
        let cell = &self.cells[number];
        let Ok(version) = cell.enter().map(|shard| shard.stamp().version) else { return false };
        self.owes(number) || (self.folder.is_some() && cell.durable.load(Ordering::Acquire) != version)
    }

    fn stats(&self) -> Vec<ShardStats> {
        self.cells
            .iter()
            .map(|cell| {
                let Ok(shard) = cell.enter() else {
                    return ShardStats { phase: Reason::Broken.key(), ..ShardStats::default() };
                };
                let stamp = shard.stamp();
                ShardStats {
                    phase: match shard.state().phase {
                        Phase::Empty => "empty",
                        Phase::Waiting => "waiting",
                        Phase::Running => "running",
                    },
                    epoch: stamp.epoch,
                    step: stamp.step,
                    version: stamp.version,
                    durable: if self.folder.is_some() { cell.durable.load(Ordering::Acquire) } else { 0 },
                    bits: shard.bits(),
                    delays: shard.delays,
                    longest_delay: shard.longest,
                    expired: shard.expired,
                }
            })
            .collect()
    }
}

/// A job.
#[derive(Debug)]
pub(crate) struct Job {
    pub config: JobConfig,
    pub counters: Counters,
    models: Mutex<BTreeMap<String, Arc<Model>>>,
    /// Models whose files cannot be read.
    damaged: Mutex<BTreeSet<String>>,
    /// Held while a model is made or read, which takes as long as its files do.
    making: Mutex<()>,
    /// Each worker's connection, with a number of its own.
    holders: Mutex<BTreeMap<u16, (u64, quinn::Connection)>>,
    /// Most of these.
    connections: usize,
    pub memory: Arc<Memory>,
    state: Option<PathBuf>,
    lease: Duration,
}

fn on_disk(error: ModelError) -> (Reason, String) {
    tracing::error!("{error}");
    (Reason::Disk, "the server cannot write its state: see its log".to_owned())
}

impl Job {
    /// Its models, from their files. One whose files cannot be read keeps nothing else down: who opens it is told.
    fn read(config: &JobConfig, server: &ServerConfig, memory: &Arc<Memory>) -> Result<Self, ModelError> {
        let (mut models, mut damaged) = (BTreeMap::new(), BTreeSet::new());
        if let Some(state) = &server.state {
            for (name, folder) in Folder::of_job(state, &config.name)? {
                match Model::read(folder, server.lease, memory) {
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
            memory: Arc::clone(memory),
            state: server.state.clone(),
            lease: server.lease,
        })
    }

    /// The model of this name, made if it is not there; not for threads that serve, since it may wait for files.
    pub fn open(&self, name: &str, spec: Spec) -> Result<Arc<Model>, (Reason, String)> {
        if let Some(model) = self.model(name) {
            return alike(name, model, &spec);
        }
        let _making = lock(&self.making);
        if let Some(model) = self.model(name).or(self.again(name)?) {
            return alike(name, model, &spec);
        }
        let (count, held) = {
            let models = lock(&self.models);
            (models.len(), models.values().map(|model| model.spec.coordinates).sum::<u64>())
        };
        if count + lock(&self.damaged).len() >= self.config.max_models {
            let most = self.config.max_models;
            return Err((Reason::Limit, format!("the job has its {most} models already (max_models)")));
        }
        if held.checked_add(spec.coordinates).is_none_or(|sum| sum > self.config.max_coordinates) {
            let most = self.config.max_coordinates;
            let wanted = spec.coordinates;
            return Err((
                Reason::Limit,
                format!("{wanted} coordinates beside {held} are above the job's {most} (max_coordinates)"),
            ));
        }
        let bytes = memory::of_model(&spec, self.state.is_some());
        let memory = self.memory.reserve(bytes, &format!("model {name}"));
        let memory = memory.map_err(|text| (Reason::Memory, text))?;
        let folder = self.state.as_ref().map(|state| Folder::create(state, &self.config.name, name));
        let folder = folder.transpose().map_err(on_disk)?;
        if let Some(folder) = &folder {
            folder.write_spec(&spec).map_err(on_disk)?;
        }
        let model = Model::new(spec, self.lease, folder, memory, false).map_err(on_disk)?;
        tracing::info!("job {}: model {name} with {} coordinates", self.config.name, model.spec.coordinates);
        lock(&self.models).insert(name.to_owned(), Arc::clone(&model));
        Ok(model)
    }

    /// A model whose files could not be read, if they can be now; `None` if they are gone.
    fn again(&self, name: &str) -> Result<Option<Arc<Model>>, (Reason, String)> {
        let Some(state) = self.state.as_ref().filter(|_| lock(&self.damaged).contains(name)) else {
            return Ok(None);
        };
        let read = Model::read(Folder::new(state, &self.config.name, name), self.lease, &self.memory);
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

    fn all(&self) -> Vec<(String, Arc<Model>)> {
        lock(&self.models).iter().map(|(name, model)| (name.clone(), Arc::clone(model))).collect()
    }

    /// A worker has come; its older connection goes.
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

    /// A connection has ended: nobody waits for its worker, unless that has come again.
    pub fn leave(&self, worker: u16, number: u64) {
        let mut holders = lock(&self.holders);
        if holders.get(&worker).is_none_or(|(holder, _)| *holder != number) {
            return;
        }
        holders.remove(&worker);
        drop(holders);
        self.release(worker);
    }

    /// Nobody waits for a worker any longer.
    pub fn release(&self, worker: u16) {
        for (_, model) in self.all() {
            for cell in &model.cells {
                if let Ok(mut shard) = cell.enter() {
                    shard.release(worker);
                }
                cell.changed.notify_waiters();
            }
        }
    }

    pub fn stats(&self) -> JobStats {
        let models = self.all().into_iter().map(|(name, model)| (name, model.stats())).collect();
        JobStats { models, ..self.counters.read() }
    }
}

fn goes_on(job: &str, name: &str, model: &Model) {
    let version =
        model.cells.iter().filter_map(|cell| cell.enter().ok()).map(|shard| shard.stamp().version).max();
    tracing::info!("job {job}: model {name} goes on at version {}", version.unwrap_or(0));
}

/// The model, if it is what a worker takes it for.
fn alike(name: &str, model: Arc<Model>, spec: &Spec) -> Result<Arc<Model>, (Reason, String)> {
    if *model.spec == *spec {
        return Ok(model);
    }
    let differs = difference(&model.spec, spec);
    Err((Reason::Spec, format!("model {name} is configured otherwise: {differs}")))
}

/// Which field of two specs differs first.
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

/// All jobs of a server.
#[derive(Debug)]
pub(crate) struct Book {
    pub jobs: BTreeMap<String, Arc<Job>>,
    /// What never got as far as a job.
    pub counters: Counters,
    memory: Arc<Memory>,
    /// Tells one life of the server from the next.
    pub incarnation: u64,
}

impl Book {
    /// With what the files have.
    pub fn read(config: &ServerConfig, incarnation: u64) -> Result<Self, ModelError> {
        let memory = Memory::new(config.memory);
        let mut jobs = BTreeMap::new();
        for job in &config.jobs {
            jobs.insert(job.name.clone(), Arc::new(Job::read(job, config, &memory)?));
        }
        Ok(Self { jobs, counters: Counters::default(), memory, incarnation })
    }

    /// Writes everything that has changed. What cannot be written stays to be written; the first error is returned.
    pub fn save(&self) -> Result<(), ModelError> {
        let mut first = Ok(());
        for job in self.jobs.values() {
            for (_, model) in job.all() {
                for number in 0..model.cells.len() {
                    if !model.is_dirty(number) {
                        continue;
                    }
                    match model.save(number) {
                        Ok(_) => add(&job.counters.saves, 1),
                        Err(error) => first = first.and(Err(error)),
                    }
                }
            }
        }
        first
    }

    pub fn stats(&self) -> ServerStats {
        let (memory, most_memory) = self.memory.counted();
        ServerStats {
            memory,
            most_memory,
            refused: self.counters.read().refused,
            jobs: self.jobs.iter().map(|(name, job)| (name.clone(), job.stats())).collect(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_panicked_is_given_to_nobody_and_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            jobs: vec![JobConfig::new("train", "a secret for tests".into())],
            state: Some(folder.path().to_owned()),
            ..ServerConfig::default()
        };
        let book = Book::read(&config, 1).unwrap();
        let model = book.jobs["train"].open("m", Spec { shard: 16, ..Spec::sgd(32, 1.0) }).unwrap();
        for number in 0..2 {
            assert!(model.cells[number].enter().unwrap().initialise(&[1.0; 16]));
            model.given(number);
        }
        book.save().unwrap();
        let poisoner = Arc::clone(&model);
        let panicked = std::thread::spawn(move || {
            let _shard = poisoner.cells[0].enter().unwrap();
            panic!("of the test");
        });
        assert!(panicked.join().is_err());
        assert_eq!(model.cells[0].enter().err(), Some(Reason::Broken));
        assert!(model.save(0).is_err());
        assert_eq!(model.stats()[0].phase, "broken");
        // The rest goes on, and so does the whole after a restart, from the file.
        assert!(model.cells[1].enter().is_ok() && model.save(1).unwrap());
        book.save().unwrap();
        let again = Book::read(&config, 2).unwrap();
        let model = again.jobs["train"].model("m").unwrap();
        assert_eq!(model.cells[0].enter().unwrap().state().x, [1.0; 16]);
    }

    /// Whoever makes a model holds up nobody who has one.
    #[test]
    fn models_are_served_while_another_is_made() {
        let config = ServerConfig {
            jobs: vec![JobConfig::new("train", "a secret for tests".into())],
            ..ServerConfig::default()
        };
        let book = Book::read(&config, 1).unwrap();
        let job = &book.jobs["train"];
        job.open("m", Spec::sgd(32, 1.0)).unwrap();
        let _making = lock(&job.making);
        assert!(job.model("m").is_some());
        job.open("m", Spec::sgd(32, 1.0)).unwrap();
        job.release(0);
        assert_eq!(job.stats().models.len(), 1);
    }
}
