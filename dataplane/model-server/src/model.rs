//! A model that many tasks use, and its files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::counters::{ModelStats, Reason, ShardStats};
use crate::error::ModelError;
use crate::lock;
use crate::shard::{ModelShard, Stamp, State};
use crate::spec::Spec;
use crate::store::{self, Folder};

/// A shard that many tasks use.
#[derive(Debug)]
pub(crate) struct SharedShard {
    shard: Mutex<ModelShard>,
    /// Notified at every change.
    pub changed: watch::Sender<()>,
    /// Held while its file is written, so that an older state never replaces a newer one.
    file: Mutex<()>,
    /// Version and epoch of its file (both 0 without one).
    durable: AtomicU64,
    durable_epoch: AtomicU64,
    /// The number of values and gradients that came, which differs from the version, and how many of them the file has.
    values: AtomicU64,
    durable_values: AtomicU64,
}

impl SharedShard {
    fn new(shard: ModelShard) -> Self {
        let Stamp { version, epoch, .. } = shard.stamp();
        Self {
            shard: Mutex::new(shard),
            changed: watch::Sender::new(()),
            file: Mutex::new(()),
            durable: AtomicU64::new(version),
            durable_epoch: AtomicU64::new(epoch),
            values: AtomicU64::new(0),
            durable_values: AtomicU64::new(0),
        }
    }

    /// The shard, for a step at most.
    ///
    /// # Errors
    /// [`Reason::Broken`] after a panic of whoever had it: its state may be half changed, so nobody gets it again, and no file.
    pub fn enter(&self) -> Result<MutexGuard<'_, ModelShard>, Reason> {
        self.shard.lock().map_err(|_| Reason::Broken)
    }
}

/// A model and its folder.
#[derive(Debug)]
pub(crate) struct Model {
    pub spec: Arc<Spec>,
    pub shards: Vec<SharedShard>,
    folder: Option<Folder>,
    /// `true` if the model was deleted: none of its files is written any more.
    retired: AtomicBool,
}

impl Model {
    fn new(spec: Spec, folder: Option<Folder>, mut states: Vec<Option<State>>) -> Arc<Self> {
        let spec = Arc::new(spec);
        states.resize_with(spec.shards(), || None);
        let shards = states.into_iter().zip(0..).map(|(state, number)| {
            SharedShard::new(match state {
                Some(state) => ModelShard::resume(Arc::clone(&spec), number, state),
                None => ModelShard::new(Arc::clone(&spec), number),
            })
        });
        let shards = shards.collect();
        Arc::new(Self { spec, shards, folder, retired: AtomicBool::new(false) })
    }

    /// A new one, whose folder is written if it has one.
    pub fn create(spec: Spec, folder: Option<Folder>) -> Result<Arc<Self>, ModelError> {
        if let Some(folder) = &folder {
            folder.create(&spec)?;
        }
        Ok(Self::new(spec, folder, Vec::new()))
    }

    /// Reads the model of a folder; `None` if the folder has none.
    pub fn read(folder: Folder) -> Result<Option<Arc<Self>>, ModelError> {
        let Some(spec) = folder.read_spec()? else { return Ok(None) };
        let states = folder.read_shards(&spec)?;
        Ok(Some(Self::new(spec, Some(folder), states)))
    }

    /// Returns whether the state of epoch `epoch` of a shard survives a restart.
    pub fn is_durable(&self, number: usize, epoch: u64) -> bool {
        self.folder.is_none() || self.shards[number].durable_epoch.load(Ordering::Acquire) >= epoch
    }

    /// Notes that a value or a gradient has arrived.
    pub fn count_value(&self, number: usize) {
        self.shards[number].values.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether a value or a gradient came that the file does not have.
    pub fn owes(&self, number: usize) -> bool {
        let shared = &self.shards[number];
        self.folder.is_some()
            && shared.values.load(Ordering::Acquire) != shared.durable_values.load(Ordering::Acquire)
    }

    /// Writes a shard's file, if the model is kept: whether it did.
    pub fn save(&self, number: usize) -> Result<bool, ModelError> {
        let shared = &self.shards[number];
        let Some(folder) = &self.folder else { return Ok(false) };
        let _file = lock(&shared.file);
        if self.retired.load(Ordering::Acquire) {
            return Ok(false);
        }
        let values = shared.values.load(Ordering::Acquire);
        // The numbers are shared, and copied, hashed and written without the lock.
        let state =
            shared.enter().map_err(|reason| folder.shard_error(number as u32, reason))?.state().clone();
        let stamp = state.stamp();
        let bytes = store::encode(&state);
        drop(state);
        folder.write_shard(number as u32, &store::seal(bytes))?;
        shared.durable_values.store(values, Ordering::Release);
        shared.durable.store(stamp.version, Ordering::Release);
        shared.durable_epoch.store(stamp.epoch, Ordering::Release);
        shared.changed.send_replace(());
        Ok(true)
    }

    pub fn is_dirty(&self, number: usize) -> bool {
        let shared = &self.shards[number];
        let Ok(version) = shared.enter().map(|shard| shard.stamp().version) else { return false };
        self.owes(number) || (self.folder.is_some() && shared.durable.load(Ordering::Acquire) != version)
    }

    /// Nothing of it is written any more; returns when nothing is being written.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        for shared in &self.shards {
            drop(lock(&shared.file));
            shared.changed.send_replace(());
        }
    }

    /// The versions of its slowest and of its quickest shard.
    pub fn versions(&self) -> (u64, u64) {
        let versions = || self.shards.iter().filter_map(|shared| Some(shared.enter().ok()?.stamp().version));
        (versions().min().unwrap_or(0), versions().max().unwrap_or(0))
    }

    pub fn stats(&self, name: &str) -> ModelStats {
        let one = |shared: &SharedShard| {
            let Ok(shard) = shared.enter() else {
                return ShardStats { phase: Reason::Broken.key(), ..ShardStats::default() };
            };
            let Stamp { epoch, step, version } = shard.stamp();
            ShardStats {
                phase: shard.state().phase.name(),
                epoch,
                step,
                version,
                durable: if self.folder.is_some() { shared.durable.load(Ordering::Acquire) } else { 0 },
                bits: shard.bits(),
                longest_delay: shard.longest,
            }
        };
        let (version, quickest) = self.versions();
        let shards = self.shards.iter().map(one).collect();
        ModelStats { name: name.to_owned(), spec: (*self.spec).clone(), version, quickest, shards }
    }
}
