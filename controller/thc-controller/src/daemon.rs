//! The controller at work: an agent per target, and the service.

use crate::addresses::Addresses;
use crate::agent::Agent;
use crate::book::Book;
use crate::config::{Config, TargetConfig};
use crate::desk::Desk;
use crate::error::ControllerError;
use crate::listeners::{self, Listeners};
use crate::notify::Notify;
use crate::refusal::Refusal;
use crate::section::JobSection;
use crate::state::{AgentCommand, ControllerState, TargetHandle};
use crate::{standby, tls};
use std::future::Future;
use std::sync::Arc;
use thc_control_proto::v1::control_server::SERVICE_NAME;
use tokio::sync::{mpsc, watch};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

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
        let book = Book::open(self.config.state.as_deref())?;
        let kept = book.jobs.len();
        if let Some(tls) = &self.config.tls {
            listeners::certificates(tls)?;
        }
        for target in self.config.targets.iter().filter(|target| target.address.starts_with("https://")) {
            tls::client_config(target)?;
        }
        let handle = |config| TargetHandle { config, commands: mpsc::channel(1).0 };
        let targets = self.config.targets.into_iter().map(handle).collect();
        let desk = Desk::new(Arc::new(ControllerState::new(book, targets)));
        desk.check(&self.config.jobs).map_err(refusal_error)?;
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
    /// [`ControllerError::Listen`], [`ControllerError::State`], [`ControllerError::Tls`], or the error of an
    /// impossible job in the configuration.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        mut reread: mpsc::Receiver<()>,
        ready: impl FnOnce(Addresses),
    ) -> Result<(), ControllerError> {
        let config = self.config;
        let book = Book::open(config.state.as_deref())?;
        let mut handles = Vec::new();
        let mut queues = Vec::new();
        for target in config.targets.clone() {
            let (commands, queue) = mpsc::channel(ROOM);
            queues.push((target.clone(), queue));
            handles.push(TargetHandle { config: target, commands });
        }
        let shared = Arc::new(ControllerState::new(book, handles));
        let desk = Desk::new(Arc::clone(&shared));
        // At once, if it can be: whoever asks when this is ready finds the jobs.
        let first = standby::try_first(&shared).await?;
        if first {
            apply_configured(&desk, &config.jobs).await?;
        }

        let listeners = Listeners::open(&config).await?;
        let (reporter, health) = tonic_health::server::health_reporter();
        say_health(&reporter, first).await;
        let (stopping, stopped) = watch::channel(false);
        let mut tasks = tokio::task::JoinSet::new();
        let (first_desk, mut end) = (desk.clone(), stopped.clone());
        tasks.spawn(async move {
            let mut first = first;
            loop {
                let turn = async {
                    standby::until_first(first_desk.state()).await;
                    if first { Ok(()) } else { apply_configured(&first_desk, &config.jobs).await }
                };
                let turn = tokio::select! {
                    _ = end.wait_for(|stop| *stop) => return,
                    turn = turn => turn,
                };
                first = false;
                if let Err(error) = turn {
                    tracing::warn!("{error}; all other jobs are served");
                }
                say_health(&reporter, true).await;
                queues = serve(first_desk.state(), queues, end.clone()).await;
                say_health(&reporter, false).await;
                if *end.borrow() {
                    return;
                }
            }
        });
        let (sampled, mut end) = (desk.clone(), stopped.clone());
        tasks.spawn(async move {
            tokio::select! {
                _ = end.wait_for(|stop| *stop) => {}
                () = sampled.sample() => {}
            }
        });
        let (carrying, mut end) = (desk.clone(), stopped.clone());
        tasks.spawn(async move {
            tokio::select! {
                _ = end.wait_for(|stop| *stop) => {}
                () = carrying.carry_out() => {}
            }
        });
        let (addresses, certificates) = (listeners.addresses, listeners.certificates.clone());
        if let Some(of_service) = certificates.first() {
            let _ = desk.state().certificates.set(Arc::clone(of_service));
        }
        for certificates in &certificates {
            let (watched, mut end) = (Arc::clone(certificates), stopped.clone());
            tasks.spawn(async move {
                tokio::select! {
                    _ = end.wait_for(|stop| *stop) => {}
                    never = watched.watch() => match never {},
                }
            });
        }
        let serving = listeners.serve(desk, health, &mut tasks, &stopped);
        let notify = Notify::from_environment();
        notify.say("READY=1");
        ready(addresses);
        tokio::pin!(serving);
        tokio::pin!(stop);
        let alive = async {
            let Some(every) = notify.alive else { return std::future::pending::<()>().await };
            let mut ticks = tokio::time::interval(every);
            loop {
                // Whoever holds the only thread up keeps this from being said.
                ticks.tick().await;
                notify.say("WATCHDOG=1");
            }
        };
        let rereading = async {
            while reread.recv().await.is_some() {
                certificates.iter().for_each(|certificates| certificates.ask());
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

/// Reports to health probes whether this controller is active: a standby does not serve.
async fn say_health(reporter: &HealthReporter, serves: bool) {
    let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", SERVICE_NAME] {
        reporter.set_service_status(service, status).await;
    }
}

/// What agents are asked by.
type Queues = Vec<(TargetConfig, mpsc::Receiver<AgentCommand>)>;

/// Serves all targets until it is to stop, or another controller has the file of jobs.
async fn serve(shared: &Arc<ControllerState>, queues: Queues, mut stop: watch::Receiver<bool>) -> Queues {
    let (over, end) = watch::channel(false);
    let mut agents = tokio::task::JoinSet::new();
    for (target, queue) in queues {
        agents.spawn(Agent::new(target, Arc::clone(shared)).run(queue, end.clone()));
    }
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        () = standby::until_lost(shared) => {}
    }
    let _ = over.send(true);
    let mut queues = Queues::new();
    while let Some(agent) = agents.join_next().await {
        // The target of one that has panicked is served no more.
        let Ok((target, mut queue)) = agent else { continue };
        // Who waits hears that nobody answers.
        while queue.try_recv().is_ok() {}
        queues.push((target, queue));
    }
    queues
}

/// Makes jobs what the configuration says.
async fn apply_configured(desk: &Desk, jobs: &[JobSection]) -> Result<(), ControllerError> {
    desk.apply_configured(jobs).await.map_err(refusal_error)
}

fn refusal_error(refusal: Refusal) -> ControllerError {
    ControllerError::Value { key: "job".to_owned(), value: "impossible".to_owned(), mend: refusal.message }
}
