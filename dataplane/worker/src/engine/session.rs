//! A session of an engine, and the state of the engine.

use super::EngineConfig;
use super::compressor::Compressor;
use super::link::Link;
use crate::{Silence, WorkerError};
use std::sync::Arc;
use std::time::Duration;
use thc_protocol::session::Joiners;
use thc_protocol::wire::Welcome;
use thc_protocol::worker::{Parameters, SessionError, Worker};
use thc_transport::Peer;

/// A session of an engine. Another one takes its place as a whole.
pub(super) struct Session {
    pub link: Link,
    pub joiners: Joiners,
    pub worker: Worker,
    pub compressor: Arc<Compressor>,
}

impl Session {
    /// The session of these `joiners`, which `welcome` describes. The receive buffer holds `capacity` results.
    ///
    /// # Errors
    /// [`WorkerError::Unusable`] if a table or a number of the welcome cannot be used.
    pub fn new(
        config: &EngineConfig,
        joiners: Joiners,
        welcome: &Welcome,
        capacity: usize,
        now: Duration,
    ) -> Result<Session, WorkerError> {
        let compressor = Compressor::new(welcome, config.worker, config.rounding)?;
        let parameters = Parameters {
            timeout: config.timeout,
            patience: config.patience,
            min_rto: config.min_rto,
            ..Parameters::new(config.job, config.worker, welcome)
        };
        let mut worker = Worker::new(parameters, now);
        worker.set_limit((capacity / 2).max(1) as u64);
        worker.handle_members(now, joiners.members_here());
        Ok(Session { link: Link::new(config.ps, welcome), joiners, worker, compressor: Arc::new(compressor) })
    }

    /// The error of a session, with the address of the server if that is silent.
    pub fn error(&self, error: SessionError, refused: bool) -> WorkerError {
        let SessionError::Silent { waited } = error else { return error.into() };
        let ports = &self.link.ps;
        let share = self.worker.waits_at().map_or(0, |shard| ports.share_of(shard));
        Silence { at: ports.base(share), refused, waited, joining: false }.into()
    }

    /// The server, or the share of one, that has the port `refused`, at which no program has listened for `waited`.
    pub fn refused_server(&self, refused: Peer, waited: Duration) -> Silence {
        let ports = &self.link.ps;
        let at = ports.position(refused).map_or(refused, |port| ports.base(ports.share(port).0));
        Silence { at, refused: true, waited, joining: false }
    }
}

/// The state of an engine, which takes calls while it is `Working`.
#[derive(Debug, Default)]
pub(super) enum State {
    #[default]
    Working,
    /// The session is over.
    Failed(WorkerError),
    /// The engine only answers others until none of them needs it. Its session may have failed before or since.
    Leaving(Option<WorkerError>),
}

impl State {
    /// The reason for the end of the session, if it is over.
    pub fn failure(&self) -> Option<&WorkerError> {
        match self {
            State::Failed(error) | State::Leaving(Some(error)) => Some(error),
            State::Working | State::Leaving(None) => None,
        }
    }

    pub fn fail(&mut self, error: WorkerError) {
        *self = match self {
            State::Leaving(_) => State::Leaving(Some(error)),
            State::Working | State::Failed(_) => State::Failed(error),
        };
    }

    pub fn leave(&mut self) {
        *self = State::Leaving(self.failure().cloned());
    }
}
