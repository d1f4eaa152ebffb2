//! The controller at work: an agent per target, and the service.

use crate::addresses::Addresses;
use crate::agent::Agent;
use crate::config::Config;
use crate::error::ControllerError;
use crate::listeners::{self, Listeners};
use crate::notify::Notify;
use crate::refusal::Refusal;
use crate::service::Service;
use crate::state::{ControllerState, TargetHandle, on_disk};
use crate::store::Store;
use crate::tls;
use std::future::Future;
use std::sync::Arc;
use thc_control_proto::v1::control_server::SERVICE_NAME;
use tokio::sync::{mpsc, watch};
use tonic_health::ServingStatus;

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
        let store = Store::read(self.config.state.as_deref())?;
        check_targets(&self.config, &store)?;
        let kept = store.jobs.len();
        if let Some(tls) = &self.config.tls {
            listeners::certificates(tls)?;
        }
        for target in self.config.targets.iter().filter(|target| target.address.starts_with("https://")) {
            tls::client_config(target)?;
        }
        let handle = |config| TargetHandle { config, commands: mpsc::channel(1).0 };
        let targets = self.config.targets.into_iter().map(handle).collect();
        let service = Service::new(Arc::new(ControllerState::new(store, targets)));
        service.find_servers().and_then(|()| service.check(&self.config.jobs)).map_err(refusal_error)?;
        Ok(kept)
    }

    /// Whether it has certificates, of its own or for targets, which SIGHUP makes it read again.
    #[must_use]
    pub fn has_certificates(&self) -> bool {
        self.config.tls.is_some() || self.config.targets.iter().any(|target| target.ca.is_some())
    }

    /// Runs until `stop`; the targets then go on as they are. `ready` is called when it can take requests;
    /// absent targets are tried again and again. Each message of `reread` makes it read its certificates
    /// again.
    ///
    /// # Errors
    /// [`ControllerError::Listen`], [`ControllerError::StateInUse`], [`ControllerError::StateDamaged`], [`ControllerError::Tls`], or the error of an
    /// impossible job in the configuration.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        mut reread: mpsc::Receiver<()>,
        ready: impl FnOnce(Addresses),
    ) -> Result<(), ControllerError> {
        let config = self.config;
        let path = config.state.clone();
        let store = on_disk(move || Store::open(path.as_deref())).await?;
        check_targets(&config, &store)?;
        let mut handles = Vec::new();
        let mut queues = Vec::new();
        for target in config.targets.clone() {
            let (commands, queue) = mpsc::channel(ROOM);
            queues.push((target.clone(), queue));
            handles.push(TargetHandle { config: target, commands });
        }
        let shared = Arc::new(ControllerState::new(store, handles));
        let service = Service::new(Arc::clone(&shared));
        service.find_servers().map_err(refusal_error)?;
        service.apply_configured(&config.jobs).await.map_err(refusal_error)?;

        let listeners = Listeners::open(&config).await?;
        let (reporter, health) = tonic_health::server::health_reporter();
        for service in ["", SERVICE_NAME] {
            reporter.set_service_status(service, ServingStatus::Serving).await;
        }
        let (stopping, stopped) = watch::channel(false);
        let mut tasks = tokio::task::JoinSet::new();
        for (target, queue) in queues {
            tasks.spawn(Agent::new(target, Arc::clone(&shared)).run(queue, stopped.clone()));
        }
        let (addresses, certificates) = (listeners.addresses, listeners.certificates.clone());
        if let Some(certificates) = &certificates {
            let _ = shared.certificates.set(Arc::clone(certificates));
            let (watched, mut end) = (Arc::clone(certificates), stopped.clone());
            tasks.spawn(async move {
                tokio::select! {
                    _ = end.wait_for(|stop| *stop) => {}
                    never = watched.watch() => match never {},
                }
            });
        }
        let serving = listeners.serve(service, health, &mut tasks, &stopped);
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
        let rereading = async {
            while reread.recv().await.is_some() {
                certificates.iter().for_each(|of_service| of_service.ask());
            }
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            () = rereading => Ok(()),
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

/// A store with jobs on a target that the configuration does not have is another controller's, or the target
/// was renamed: its rows would be lost.
fn check_targets(config: &Config, store: &Store) -> Result<(), ControllerError> {
    let known = |name: &String| config.targets.iter().any(|target| target.name == *name);
    for job in store.jobs.values() {
        if let Some(target) = job.places.keys().find(|target| !known(target)) {
            return Err(ControllerError::StateOfOthers {
                path: config.state.clone().unwrap_or_default(),
                job: job.spec.name().to_owned(),
                target: target.clone(),
            });
        }
    }
    Ok(())
}

fn refusal_error(refusal: Refusal) -> ControllerError {
    ControllerError::Value { key: "job".to_owned(), value: "impossible".to_owned(), mend: refusal.message }
}
