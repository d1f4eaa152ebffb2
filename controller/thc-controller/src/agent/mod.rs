//! The agent of one target: keeps the connection, takes JOIN and LEAVE from the target, and makes the
//! target's rows those that the store says, even after the target or the connection was gone.
//!
//! Decisions are in the store before the agent waits for anything: whatever fails then, target or disk, the
//! agent begins anew with [`Agent::take_over`], which makes the target what the store says.

mod compare;
mod jobs;
mod program;
mod readings;
mod rows;
mod sessions;

use crate::capacity::Forms;
use crate::config::TargetConfig;
use crate::error::ControllerError;
use crate::live::Heard;
use crate::state::{Answer, ControllerState};
use crate::switch::{SwitchEvent, Target, closed};
use crate::switch_rows::SwitchRows;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thc_config::job::credit::Room;
use thc_protocol::JobId;
use thc_protocol::session::Registry;
use thc_transport::frame::Mac;
use tokio::sync::{mpsc, watch};

/// The time between two looks at what is due.
const TICK: Duration = Duration::from_millis(250);
/// The longest time until an absent target is tried again. The time grows with each try, so a server that
/// restarts at once has its jobs at once.
const RETRY: Duration = Duration::from_secs(1);
/// The time until the first such try.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Different complaints of one target that the log gets.
const MAX_COMPLAINTS: usize = 8;

/// Packets to workers and roots, each with its address.
type Packets = Vec<(SocketAddr, Vec<u8>)>;

/// A job that the registry has: its name, and the serial number that distinguishes it from others of that
/// name.
#[derive(Debug)]
struct Known {
    name: String,
    serial: u64,
    workers: u8,
}

/// A job of which the target has refused rows.
#[derive(Debug)]
struct RefusedJob {
    why: String,
    /// Until when nobody who joins it is answered.
    until: Instant,
    /// `true` if its members have been informed.
    announced: bool,
}

/// The properties that a target reports when it is connected.
#[derive(Debug, Default)]
struct Reported {
    /// The forms of packets that it supports.
    forms: Option<Forms>,
    /// The packets that it holds for all jobs (P41), which a thc-ps reports.
    room: Option<Room>,
    /// `true` if its program keeps congestion marks (P46).
    marks: bool,
}

/// Readings of a target's counters.
#[derive(Debug, Default)]
struct Readings {
    /// When packets of a member were counted last, for the registry.
    heard: BTreeMap<(JobId, u8), Heard>,
    /// When members' packets were read last.
    listened: Option<Instant>,
    ticks: u32,
}

/// Jobs and tables that a target has refused.
#[derive(Debug, Default)]
struct Refused {
    /// Jobs by number: it has none of their rows until they are tried again.
    jobs: BTreeMap<u16, RefusedJob>,
    /// Lookup tables, and why.
    tables: BTreeMap<u8, String>,
}

/// An agent.
#[derive(Debug)]
pub struct Agent {
    config: TargetConfig,
    shared: Arc<ControllerState>,
    registry: Registry,
    reported: Reported,
    known: BTreeMap<JobId, Known>,
    readings: Readings,
    /// Ethernet addresses of those who joined.
    macs: BTreeMap<SocketAddr, Mac>,
    /// The rows that the target holds, if they are known.
    actual: Option<SwitchRows>,
    refused: Refused,
    started: Instant,
    /// Complaints that the log has already, since the target was connected last.
    complaints: BTreeSet<String>,
    /// When its rows were compared with what was written last.
    compared: Option<Instant>,
    /// The time until it is tried again.
    retry: Duration,
    /// `true` if the store has changes that are not in its file, or not on the target.
    pending: bool,
}

impl Agent {
    /// The agent of this target.
    pub fn new(config: TargetConfig, shared: Arc<ControllerState>) -> Agent {
        Agent {
            config,
            shared,
            registry: Registry::default(),
            reported: Reported::default(),
            known: BTreeMap::new(),
            readings: Readings::default(),
            macs: BTreeMap::new(),
            actual: None,
            refused: Refused::default(),
            started: Instant::now(),
            complaints: BTreeSet::new(),
            compared: None,
            retry: FIRST_RETRY,
            pending: false,
        }
    }

    /// Runs until `stop` is true; the target then goes on as it is.
    pub async fn run(mut self, mut syncs: mpsc::Receiver<Answer>, mut stop: watch::Receiver<bool>) {
        loop {
            let error = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                Err(error) = self.serve(&mut syncs) => error,
            };
            // Whatever shows it names the target.
            let message = match error {
                ControllerError::Target { message, .. } => message,
                error => error.to_string(),
            };
            if let Some(view) = self.shared.views().get_mut(&self.config.name) {
                view.connected = false;
                view.error.clone_from(&message);
            }
            self.complain(format!("{message}; trying again every {} s", RETRY.as_secs()));
            let retry = tokio::time::sleep(self.retry);
            self.retry = (2 * self.retry).min(RETRY);
            tokio::pin!(retry);
            loop {
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => return,
                    () = &mut retry => break,
                    Some(answer) = syncs.recv() => drop(answer.send(Err(self.away_error(&message)))),
                }
            }
        }
    }

    /// Writes a complaint to the log: not once a second for as long as a switch is off, even if its refusals take
    /// turns.
    fn complain(&mut self, message: String) {
        let what = format!("target {}: {message}", self.config.name);
        if self.complaints.len() < MAX_COMPLAINTS && self.complaints.insert(message) {
            tracing::warn!("{what}");
        }
    }

    /// A disk that does not take the state file is no fault of the target, which stays connected. What is pending
    /// is tried again with each tick.
    fn outlast_disk(&mut self, done: Result<(), ControllerError>) -> Result<(), ControllerError> {
        match done {
            Err(error @ ControllerError::StateFile { .. }) => {
                self.complain(error.to_string());
                Ok(())
            }
            done => done,
        }
    }

    fn away_error(&self, message: &str) -> ControllerError {
        let message = format!("it is not connected: {message}; it is tried again each second");
        ControllerError::target(&self.config.name, message)
    }

    /// Serves one connection until it ends, and says why it ended.
    async fn serve(
        &mut self,
        syncs: &mut mpsc::Receiver<Answer>,
    ) -> Result<std::convert::Infallible, ControllerError> {
        let config = self.config.clone();
        let connecting = Target::connect(&config);
        tokio::pin!(connecting);
        // Until this controller is the primary one, `why` says what prevents that.
        let (mut target, mut why) = loop {
            tokio::select! {
                connected = &mut connecting => break connected?,
                Some(answer) = syncs.recv() => drop(answer.send(Err(self.away_error("connecting")))),
            }
        };
        match &why {
            None => self.take_over(&mut target).await?,
            Some(reason) => self.stand_by(&target, reason),
        }
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = target.event() => match event {
                    SwitchEvent::Packet { frame, port } if why.is_none() => {
                        let done = self.packet(&mut target, &frame, port).await;
                        self.outlast_disk(done)?;
                    }
                    SwitchEvent::Packet { .. } => {}
                    SwitchEvent::Primary => {
                        if why.take().is_some() {
                            self.take_over(&mut target).await?;
                        }
                    }
                    SwitchEvent::Secondary(reason) => {
                        self.stand_by(&target, &reason);
                        why = Some(reason);
                    }
                    SwitchEvent::Closed(message) => {
                        return Err(closed(target.name(), &message));
                    }
                },
                // The caller may have gone, which is no loss.
                Some(answer) = syncs.recv() => drop(answer.send(match &why {
                    None => self.sync(&mut target).await,
                    Some(why) => Err(ControllerError::target(target.name(), why)),
                })),
                _ = ticks.tick(), if why.is_none() => {
                    let done = self.tick(&mut target).await;
                    self.outlast_disk(done)?;
                }
            }
        }
    }

    fn stand_by(&mut self, target: &Target, why: &str) {
        let name = target.name();
        tracing::warn!("target {name}: {why}");
        let mut views = self.shared.views();
        let view = views.entry(self.config.name.clone()).or_default();
        (view.connected, view.error) = (false, why.to_owned());
    }

    async fn tick(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        self.listen(target).await?;
        self.compare_if_due(target).await?;
        let due = self.poll_sessions();
        self.answer(target, due, None).await
    }

    /// Updates the registry with new and removed jobs, adds rows that the target lacks, and removes those
    /// that it should not have.
    async fn sync(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let actions = self.align();
        let (packets, _) = self.record(actions);
        let packets = self.establish(target, packets).await?;
        self.send(target, packets, None).await?;
        self.shared.store().forget_removed(&self.config.name);
        Ok(())
    }
}
