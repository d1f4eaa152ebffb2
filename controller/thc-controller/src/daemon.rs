//! The controller at work: an agent per target, and the service.

use crate::agent::Agent;
use crate::book::Book;
use crate::config::{Config, TargetConfig, Tls};
use crate::desk::Desk;
use crate::error::ControllerError;
use crate::notify::Notify;
use crate::refusal::Refusal;
use crate::service::Service;
use crate::state::{AgentCommand, ControllerState, TargetHandle};
use crate::{standby, tls, web};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use thc_control_proto::v1::JobSpec;
use thc_control_proto::v1::control_server::ControlServer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// Requests that may wait for an agent.
const ROOM: usize = 64;
/// Far above any request of ours.
const MAX_MESSAGE: usize = 1 << 20;

/// Where a controller that runs can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The service.
    pub listen: SocketAddr,
    /// Page and metrics.
    pub http: Option<SocketAddr>,
}

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

    /// Whether it could run: certificates are such, declared jobs can be, and the file of jobs is whole. How many jobs are in that.
    ///
    /// # Errors
    /// As [`Daemon::run`].
    pub fn check(self) -> Result<usize, ControllerError> {
        let book = Book::open(self.config.state.as_deref())?;
        let kept = book.jobs.len();
        if let Some(tls) = &self.config.tls {
            secured(tls)?;
        }
        for target in self.config.targets.iter().filter(|target| target.address.starts_with("https://")) {
            tls::of_target(target)?;
        }
        let handle = |config| TargetHandle { config, commands: mpsc::channel(1).0 };
        let targets = self.config.targets.into_iter().map(handle).collect();
        let desk = Desk::new(Arc::new(ControllerState::new(book, targets)));
        desk.check(&self.config.jobs).map_err(impossible)?;
        Ok(kept)
    }

    /// Runs until `stop`; the targets then go on as they are. `ready` is called when it can be asked; targets that
    /// are not there yet are tried again and again.
    ///
    /// # Errors
    /// [`ControllerError::Listen`], [`ControllerError::State`], [`ControllerError::Tls`], or a job of the
    /// configuration that cannot be.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        ready: impl FnOnce(Addresses),
    ) -> Result<(), ControllerError> {
        let config = self.config;
        let book = Book::open(config.state.as_deref())?;
        let mut handles = Vec::new();
        let mut queues = Vec::new();
        for target in config.targets {
            let (commands, queue) = mpsc::channel(ROOM);
            queues.push((target.clone(), queue));
            handles.push(TargetHandle { config: target, commands });
        }
        let shared = Arc::new(ControllerState::new(book, handles));
        let desk = Desk::new(Arc::clone(&shared));
        // At once, if it can be: whoever asks when this is ready finds the jobs.
        let first = standby::try_first(&shared).await?;
        if first {
            configured(&desk, &config.jobs).await?;
        }

        let (listener, listen) = bind(config.listen).await?;
        if let Some(warning) = exposed(listen, config.tls.as_ref().map(|tls| tls.client_ca.is_some())) {
            tracing::warn!("{warning}");
        }
        if let Some(address) = config.http.filter(|address| !address.ip().is_loopback()) {
            tracing::warn!(
                "page and metrics on {address}: whoever reaches it can read jobs and who works for them; listen on the loopback, or on a network of your own"
            );
        }
        let page = match config.http {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let (stopping, stopped) = watch::channel(false);
        let mut tasks = tokio::task::JoinSet::new();
        let (first_desk, mut end) = (desk.clone(), stopped.clone());
        tasks.spawn(async move {
            let mut first = first;
            loop {
                let turn = async {
                    standby::until_first(first_desk.shared()).await;
                    if first { Ok(()) } else { configured(&first_desk, &config.jobs).await }
                };
                let turn = tokio::select! {
                    _ = end.wait_for(|stop| *stop) => return,
                    turn = turn => turn,
                };
                first = false;
                if let Err(error) = turn {
                    tracing::warn!("{error}; all other jobs are served");
                }
                queues = serve(first_desk.shared(), queues, end.clone()).await;
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
        let http = page.as_ref().map(|(_, address)| *address);
        if let Some((listener, _)) = page {
            tasks.spawn(web::serve(listener, desk.clone(), stopped.clone()));
        }
        let mut server = match &config.tls {
            Some(tls) => secured(tls)?,
            None => Server::builder(),
        };
        let service =
            ControlServer::new(Service { desk, roles: config.roles }).max_decoding_message_size(MAX_MESSAGE);
        let mut end = stopped.clone();
        let serving = server.add_service(service).serve_with_incoming_shutdown(
            TcpListenerStream::new(listener),
            async move {
                let _ = end.wait_for(|stop| *stop).await;
            },
        );
        let notify = Notify::from_environment();
        notify.say("READY=1");
        ready(Addresses { listen, http });
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
        let ended = tokio::select! {
            () = &mut stop => Ok(()),
            () = alive => Ok(()),
            result = &mut serving => result
                .map_err(|error| ControllerError::Listen { address: listen, message: error.to_string() }),
        };
        notify.say("STOPPING=1");
        let _ = stopping.send(true);
        while tasks.join_next().await.is_some() {}
        ended
    }
}

/// What agents are asked by.
type Queues = Vec<(TargetConfig, mpsc::Receiver<AgentCommand>)>;

/// Serves all targets until it is to stop, or somebody else has the file of jobs.
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
async fn configured(desk: &Desk, jobs: &[JobSpec]) -> Result<(), ControllerError> {
    desk.apply_configured(jobs).await.map_err(impossible)
}

fn impossible(refusal: Refusal) -> ControllerError {
    ControllerError::Value { key: "job".to_owned(), value: "impossible".to_owned(), mend: refusal.message }
}

/// A service that shows these certificates.
fn secured(tls: &Tls) -> Result<Server, ControllerError> {
    let what = "the service".to_owned();
    Server::builder()
        .tls_config(tls::of_service(tls))
        .map_err(|error| ControllerError::Tls { what, message: error.to_string() })
}

/// What to say if strangers may ask the service. `tls` says whether clients need certificates, if it has any.
fn exposed(listen: SocketAddr, tls: Option<bool>) -> Option<String> {
    let (what, way) = match tls {
        _ if listen.ip().is_loopback() => return None,
        None => ("jobs' secrets travel readably, and whoever reaches it", "give [controller.tls]"),
        Some(false) => ("whoever reaches it", "give client_ca in [controller.tls]"),
        Some(true) => return None,
    };
    Some(format!(
        "listening on {listen}: {what} may join, create and delete jobs; {way}, or listen on the loopback"
    ))
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ControllerError> {
    let failed = |error: std::io::Error| ControllerError::Listen { address, message: error.to_string() };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_to_all_without_certificates_is_warned() {
        let (all, own) = ("0.0.0.0:9700".parse().unwrap(), "127.0.0.1:9700".parse().unwrap());
        assert!(exposed(all, None).unwrap().contains("give [controller.tls]"));
        assert!(exposed(all, Some(false)).unwrap().contains("give client_ca"));
        for (at, tls) in [(all, Some(true)), (own, None), (own, Some(false))] {
            assert_eq!(exposed(at, tls), None, "{at} {tls:?}");
        }
    }
}
