//! Jobs and their models, and when these are written to files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::{JobConfig, ServerConfig};
use crate::counters::{Counters, JobStats, Reason, ServerStats, ShardStats, add};
use crate::error::ModelError;
use crate::shard::{Phase, Shard};
use crate::spec::Spec;
use crate::store::{self, Folder};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shard that many tasks use.
#[derive(Debug)]
pub(crate) struct Cell {
    pub shard: Mutex<Shard>,
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

/// A model and where it is kept.
#[derive(Debug)]
pub(crate) struct Model {
    pub spec: Arc<Spec>,
    pub cells: Vec<Cell>,
    folder: Option<Folder>,
}

impl Model {
    fn new(
        spec: Spec,
        lease: Duration,
        folder: Option<Folder>,
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
        Ok(Arc::new(Self { spec, cells, folder }))
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

    /// Writes a shard's file, if the model is kept: whether it did.
    pub fn save(&self, number: usize) -> Result<bool, ModelError> {
        let cell = &self.cells[number];
        let Some(folder) = &self.folder else { return Ok(false) };
        let _file = lock(&cell.file);
        let given = cell.given.load(Ordering::Acquire);
        let (bytes, stamp) = {
            let shard = lock(&cell.shard);
            (store::encode(shard.state()), shard.stamp())
        };
        folder.write_shard(number as u32, &bytes)?;
        cell.durable_given.store(given, Ordering::Release);
        cell.durable.store(stamp.version, Ordering::Release);
        cell.durable_epoch.store(stamp.epoch, Ordering::Release);
        cell.changed.notify_waiters();
        Ok(true)
    }

    fn is_dirty(&self, number: usize) -> bool {
        let cell = &self.cells[number];
        let version = lock(&cell.shard).stamp().version;
        self.owes(number) || (self.folder.is_some() && cell.durable.load(Ordering::Acquire) != version)
    }

    fn stats(&self) -> Vec<ShardStats> {
        self.cells
            .iter()
            .map(|cell| {
                let shard = lock(&cell.shard);
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
    /// Each worker's connection, with a number of its own.
    holders: Mutex<BTreeMap<u16, (u64, quinn::Connection)>>,
    state: Option<PathBuf>,
    lease: Duration,
}

impl Job {
    /// The model of this name, made if it is not there.
    pub fn open(&self, name: &str, spec: Spec) -> Result<Arc<Model>, (Reason, String)> {
        let mut models = lock(&self.models);
        if let Some(model) = models.get(name) {
            return if *model.spec == spec {
                Ok(Arc::clone(model))
            } else {
                Err((
                    Reason::Spec,
                    format!("model {name} is configured otherwise: {}", difference(&model.spec, &spec)),
                ))
            };
        }
        let held: u64 = models.values().map(|model| model.spec.coordinates).sum();
        if models.len() >= self.config.max_models {
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
        let on_disk = |error: ModelError| {
            tracing::error!("{error}");
            (Reason::Disk, "the server cannot write its state: see its log".to_owned())
        };
        let folder = self.state.as_ref().map(|state| Folder::create(state, &self.config.name, name));
        let folder = folder.transpose().map_err(on_disk)?;
        if let Some(folder) = &folder {
            folder.write_spec(&spec).map_err(on_disk)?;
        }
        let model = Model::new(spec, self.lease, folder, false).map_err(on_disk)?;
        tracing::info!("job {}: model {name} with {} coordinates", self.config.name, model.spec.coordinates);
        models.insert(name.to_owned(), Arc::clone(&model));
        Ok(model)
    }

    pub fn model(&self, name: &str) -> Option<Arc<Model>> {
        lock(&self.models).get(name).cloned()
    }

    fn all(&self) -> Vec<(String, Arc<Model>)> {
        lock(&self.models).iter().map(|(name, model)| (name.clone(), Arc::clone(model))).collect()
    }

    /// A worker has come; its older connection goes.
    pub fn enter(&self, worker: u16, number: u64, connection: &quinn::Connection) {
        let older = lock(&self.holders).insert(worker, (number, connection.clone()));
        if let Some((_, older)) = older {
            self.counters.refuse(Reason::Replaced);
            older.close((Reason::Replaced as u32).into(), Reason::Replaced.message().as_bytes());
        }
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
                lock(&cell.shard).release(worker);
                cell.changed.notify_waiters();
            }
        }
    }

    pub fn stats(&self) -> JobStats {
        let models = self.all().into_iter().map(|(name, model)| (name, model.stats())).collect();
        JobStats { models, ..self.counters.read() }
    }
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
    /// Tells one life of the server from the next.
    pub incarnation: u64,
}

impl Book {
    /// With what the files have.
    pub fn read(config: &ServerConfig, incarnation: u64) -> Result<Self, ModelError> {
        let mut jobs = BTreeMap::new();
        for job in &config.jobs {
            let mut models = BTreeMap::new();
            if let Some(state) = &config.state {
                for (name, folder) in Folder::of_job(state, &job.name)? {
                    if let Some(spec) = folder.read_spec()? {
                        let model = Model::new(spec, config.lease, Some(folder), true)?;
                        let version = model.cells.iter().map(|cell| lock(&cell.shard).stamp().version).max();
                        tracing::info!(
                            "job {}: model {name} goes on at version {}",
                            job.name,
                            version.unwrap_or(0)
                        );
                        models.insert(name, model);
                    }
                }
            }
            let made = Job {
                config: job.clone(),
                counters: Counters::default(),
                models: Mutex::new(models),
                holders: Mutex::new(BTreeMap::new()),
                state: config.state.clone(),
                lease: config.lease,
            };
            jobs.insert(job.name.clone(), Arc::new(made));
        }
        Ok(Self { jobs, counters: Counters::default(), incarnation })
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
        ServerStats {
            refused: self.counters.read().refused,
            jobs: self.jobs.iter().map(|(name, job)| (name.clone(), job.stats())).collect(),
        }
    }
}
