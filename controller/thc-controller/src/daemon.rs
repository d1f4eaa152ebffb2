//! The controller at work: an agent per target, and the service.

use crate::agent::Agent;
use crate::config::Config;
use crate::error::{ControllerError, value};
use crate::listeners::{self, Addresses, Listeners};
use crate::service::Service;
use crate::state::{ControllerState, TargetHandle, on_disk};
use crate::state_file::StateFile;
use crate::store::Store;
use crate::switch;
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tonic::Status;

/// Requests that may wait for an agent.
const ROOM: usize = 64;
/// A controller.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
}

impl Daemon {
    /// A controller with this configuration.
    #[must_use]
    pub fn new(config: Config) -> Daemon {
        Daemon { config }
    }

    /// Checks that it could run: certificates can be read, declared jobs are possible, and the file of jobs
    /// is intact. Returns how many jobs are in the file.
    ///
    /// # Errors
    /// As [`Daemon::run`].
    pub fn check(self) -> Result<usize, ControllerError> {
        // Another controller may have it.
        let file = StateFile::new(self.config.state.as_deref());
        let store: Store = file.read()?;
        check_targets(&self.config, &store)?;
        let kept = store.jobs.len();
        if let Some(tls) = &self.config.tls {
            listeners::certificates(tls)?;
        }
        for target in
            self.config.targets.iter().filter(|target| target.service.address.starts_with("https://"))
        {
            switch::client_config(target)?;
        }
        let handle = |config| TargetHandle { config, syncs: mpsc::channel(1).0 };
        let targets = self.config.targets.into_iter().map(handle).collect();
        let service = Service::new(Arc::new(ControllerState::new(file, store, targets)));
        service.find_servers().and_then(|()| service.check(&self.config.jobs)).map_err(refusal_error)?;
        Ok(kept)
    }

    /// Runs until `stop`; the targets then go on as they are. `ready` is called when it can take requests;
    /// absent targets are tried again and again.
    ///
    /// # Errors
    /// [`ControllerError::Listen`], [`ControllerError::State`], [`ControllerError::Tls`], or the error of an
    /// impossible job in the configuration.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        ready: impl FnOnce(Addresses),
    ) -> Result<(), ControllerError> {
        let config = self.config;
        let path = config.state.clone();
        let (file, store) = on_disk(move || open(path.as_deref())).await?;
        check_targets(&config, &store)?;
        let mut handles = Vec::new();
        let mut queues = Vec::new();
        for target in config.targets.clone() {
            let (syncs, queue) = mpsc::channel(ROOM);
            queues.push((target.clone(), queue));
            handles.push(TargetHandle { config: target, syncs });
        }
        let shared = Arc::new(ControllerState::new(file, store, handles));
        let service = Service::new(Arc::clone(&shared));
        service.find_servers().map_err(refusal_error)?;
        service.apply_configured(&config.jobs).await.map_err(refusal_error)?;

        let listeners = Listeners::open(&config).await?;
        let (stopping, stopped) = watch::channel(false);
        let mut tasks = tokio::task::JoinSet::new();
        for (target, queue) in queues {
            tasks.spawn(Agent::new(target, Arc::clone(&shared)).run(queue, stopped.clone()));
        }
        let addresses = listeners.addresses;
        if let Some(certificates) = &listeners.certificates {
            let _ = shared.certificates.set(certificates.clone());
        }
        let serving = listeners.serve(service, &mut tasks, &stopped);
        let notify = Notify::from_environment();
        notify.say("READY=1");
        ready(addresses);
        tokio::pin!(serving);
        tokio::pin!(stop);
        let alive = async {
            let Some(every) = notify.alive else { return std::future::pending::<()>().await };
            let mut ticks = tokio::time::interval(every);
            loop {
                // Work that holds the only thread up keeps this from being said.
                ticks.tick().await;
                notify.say("WATCHDOG=1");
            }
        };
        let ended = tokio::select! {
            () = &mut stop => Ok(()),
            () = alive => Ok(()),
            result = &mut serving => result
                .map_err(|error| ControllerError::Listen { address: addresses.listen, message: error.to_string() }),
        };
        notify.say("STOPPING=1");
        let _ = stopping.send(true);
        while tasks.join_next().await.is_some() {}
        ended
    }
}

/// Takes the state file, and reads it if there is one.
fn open(path: Option<&Path>) -> Result<(StateFile, Store), ControllerError> {
    let file = StateFile::new(path);
    file.take()?;
    let store = file.read()?;
    Ok((file, store))
}

/// A store with jobs on a target that the configuration does not have is another controller's, or the target
/// was renamed: its rows would be lost.
fn check_targets(config: &Config, store: &Store) -> Result<(), ControllerError> {
    let known = |name: &String| config.targets.iter().any(|target| target.name == *name);
    for job in store.jobs.values() {
        if let Some(target) = job.places.keys().find(|target| !known(target)) {
            let (path, job) = (config.state.as_deref().unwrap_or(Path::new("none")), job.spec.name());
            let message = format!(
                "the state file {} has job {job} on target {target}, which the configuration lacks: give the target its name again, or delete the job before the target goes",
                path.display()
            );
            return Err(ControllerError::State { message });
        }
    }
    Ok(())
}

fn refusal_error(refusal: Status) -> ControllerError {
    value("job", "impossible", refusal.message())
}

/// Tells systemd that the service is ready, is alive, or stops (sd_notify(3), sd_watchdog_enabled(3)): where systemd
/// listens, if it has started this process.
#[derive(Debug)]
struct Notify {
    to: Option<OsString>,
    /// The interval at which it wants to hear that this process is alive.
    alive: Option<Duration>,
}

impl Notify {
    /// The notifier that the environment names.
    fn from_environment() -> Notify {
        let microseconds = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok().filter(|n| *n > 0);
        // The variables are inherited: what is meant for a parent is not for this process.
        let own = std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid == std::process::id().to_string());
        let limit = microseconds("WATCHDOG_USEC").filter(|_| own);
        Notify {
            to: std::env::var_os("NOTIFY_SOCKET"),
            alive: limit.map(|limit| Duration::from_micros(limit / 2)),
        }
    }

    /// Sends a message, if anybody listens. A lost message matters only for systemd's own time-outs.
    fn say(&self, what: &str) {
        let Some(to) = &self.to else { return };
        let name = to.as_bytes();
        let address = match name.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(to),
        };
        let said = address.and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.send_to_addr(what.as_bytes(), &address)
        });
        if let Err(error) = said {
            tracing::debug!("systemd does not hear {what:?}: {error}");
        }
    }
}
