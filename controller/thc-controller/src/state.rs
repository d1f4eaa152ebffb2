//! The state that the targets' agents and the service share.

use crate::config::TargetConfig;
use crate::error::ControllerError;
use crate::live::TargetView;
use crate::spec::ShareServers;
use crate::state_file::StateFile;
use crate::store::Store;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use thc_config::tls::Certificates;
use thc_control_proto::v1::WorkerReport;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tonic::Status;

/// The time that the disk may take to write the jobs.
const DISK: Duration = Duration::from_secs(10);

/// To the caller that waits until a target holds what the store says.
pub type Answer = oneshot::Sender<Result<(), ControllerError>>;

/// A target as others see it.
#[derive(Debug)]
pub struct TargetHandle {
    /// Its configuration.
    pub config: TargetConfig,
    /// Makes its agent write what the store says now.
    pub syncs: mpsc::Sender<Answer>,
}

/// The controller's state. Locks are held for lookups and changes, never over an await.
#[derive(Debug)]
pub struct ControllerState {
    store: Mutex<Store>,
    /// The path of the state file.
    file: Arc<StateFile>,
    views: Mutex<BTreeMap<String, TargetView>>,
    reports: Mutex<BTreeMap<(String, u8), WorkerReport>>,
    /// One writer of the file at a time: a disk that hangs holds up one thread.
    saving: Arc<tokio::sync::Mutex<()>>,
    /// Since when the last change has not been in the file.
    unsaved: Mutex<Option<Instant>>,
    /// The targets, in the order of the configuration.
    pub targets: Vec<TargetHandle>,
    /// The service's certificates, if it has any.
    pub certificates: OnceLock<Certificates>,
    /// One change of jobs and tables at a time, until it is in the file: one that the disk does not take is
    /// undone, and what it took is still free then.
    pub changing: tokio::sync::Mutex<()>,
    /// Jobs with a change under way, by name.
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// No thread panics while it holds one of these, and if one did, the data would be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an operation on the disk on a separate thread.
pub async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ControllerError> + Send + 'static,
) -> Result<T, ControllerError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is about to end, and everything that waits with it.
            Err(_) => std::future::pending().await,
        },
    }
}

impl ControllerState {
    /// The state of a controller with this store and these targets.
    pub fn new(file: StateFile, store: Store, targets: Vec<TargetHandle>) -> ControllerState {
        let views =
            targets.iter().map(|target| (target.config.name.clone(), TargetView::default())).collect();
        ControllerState {
            store: Mutex::new(store),
            file: Arc::new(file),
            views: Mutex::new(views),
            reports: Mutex::new(BTreeMap::new()),
            saving: Arc::default(),
            unsaved: Mutex::default(),
            targets,
            certificates: OnceLock::new(),
            changing: tokio::sync::Mutex::default(),
            turns: Mutex::default(),
        }
    }

    /// Waits until no other change of a job is under way; none begins until the result is dropped. Other jobs
    /// do not wait for its targets.
    pub async fn turn(&self, job: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = lock(&self.turns);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(job.to_owned()).or_default())
        };
        turn.lock_owned().await
    }

    /// The jobs.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    /// Writes the jobs to their file, unless they are there already. The disk may be slow; nothing else waits
    /// for it.
    pub async fn save(&self) -> Result<(), ControllerError> {
        let file = Arc::clone(&self.file);
        let Some(path) = file.path().map(Path::to_owned) else { return Ok(()) };
        lock(&self.unsaved).get_or_insert_with(Instant::now);
        let write = async {
            let turn = Arc::clone(&self.saving).lock_owned().await;
            let content = file.content(&*self.store())?;
            on_disk(move || {
                let _turn = turn;
                file.write(content)
            })
            .await
        };
        let message = format!("the disk has not answered for {}", humantime::format_duration(DISK));
        let slow = ControllerError::StateFile { path, message };
        let saved = tokio::time::timeout(DISK, write).await.unwrap_or(Err(slow));
        if saved.is_ok() {
            *lock(&self.unsaved) = None;
        }
        saved
    }

    /// The time for which the last change has been waiting to be written to the file; zero if it is there.
    pub fn unsaved(&self) -> Duration {
        lock(&self.unsaved).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The last observations of the targets, by name.
    pub fn views(&self) -> MutexGuard<'_, BTreeMap<String, TargetView>> {
        lock(&self.views)
    }

    /// The last report of each worker.
    pub fn reports(&self) -> MutexGuard<'_, BTreeMap<(String, u8), WorkerReport>> {
        lock(&self.reports)
    }

    /// A target.
    pub fn target(&self, name: &str) -> Result<&TargetHandle, Status> {
        self.targets.iter().find(|target| target.config.name == name).ok_or_else(|| {
            let there: Vec<&str> = self.targets.iter().map(|target| target.config.name.as_str()).collect();
            Status::not_found(format!("there is no target {name:?}, but {}", there.join(", ")))
        })
    }

    /// The addresses of a job's servers, each of which has a share of its slots.
    pub fn deal(&self, servers: &[String]) -> Result<ShareServers, Status> {
        let found = servers.iter().map(|name| Ok(&self.target(name)?.config));
        let found: Vec<&TargetConfig> = found.collect::<Result<_, Status>>()?;
        let shards = found.first().map_or(1, |first| first.shards);
        if let Some(other) = found.iter().find(|config| config.shards != shards) {
            let (name, first) = (&other.name, &found[0].name);
            return Err(Status::invalid_argument(format!(
                "servers: {name} has {} shards, {first} has {shards}: give all as many",
                other.shards
            )));
        }
        Ok(ShareServers { at: found.iter().map(|config| config.at).collect(), shards })
    }
}
