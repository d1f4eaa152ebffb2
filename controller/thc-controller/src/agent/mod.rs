//! The agent of one target: keeps the connection, takes JOIN and LEAVE from the target, and makes the
//! target's rows those that the store says, even after the target or the connection was gone.
//!
//! Decisions are in the store before the agent waits for anything: whatever fails then, target or disk, the
//! agent begins anew with [`Agent::take_over`], which makes the target what the store says.

mod compare;
mod jobs;
mod readings;
mod refused_job;
mod rows;
mod sessions;

use crate::capacity::{self, Forms};
use crate::config::TargetConfig;
use crate::difference;
use crate::error::ControllerError;
use crate::live::Heard;
use crate::state::{AgentCommand, ControllerState};
use crate::switch_rows::SwitchRows;
use crate::target::{SwitchEvent, Target};
use refused_job::RefusedJob;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thc_config::job::credit::Room;
use thc_protocol::JobId;
use thc_protocol::session::Registry;
use thc_transport::frame::Mac;
use tokio::sync::{mpsc, watch};

/// How often it is looked what is due.
const TICK: Duration = Duration::from_millis(250);
/// The longest time until an absent target is tried again. The time grows with each try, so a server that
/// restarts at once has its jobs at once.
const RETRY: Duration = Duration::from_secs(1);
/// How long the first time.
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

/// An agent.
#[derive(Debug)]
pub struct Agent {
    config: TargetConfig,
    shared: Arc<ControllerState>,
    registry: Registry,
    /// The packets that the target does, once it has said so.
    forms: Option<Forms>,
    /// How many rows its tables hold, if the target or the configuration says so.
    room: Option<Room>,
    /// Whether its program keeps and tells congestion marks (P46).
    marks: bool,
    known: BTreeMap<JobId, Known>,
    /// When packets of a member were counted last, for the registry.
    heard: BTreeMap<(JobId, u8), Heard>,
    /// When members' packets were read last.
    listened: Option<Instant>,
    /// Ethernet addresses of those who joined.
    macs: BTreeMap<SocketAddr, Mac>,
    /// What the target holds, as far as is known.
    actual: Option<SwitchRows>,
    /// Jobs of which the target has refused rows: it has none of them until they are tried again. By number.
    refused_jobs: BTreeMap<u16, RefusedJob>,
    /// Lookup tables that it has refused, and why.
    refused_tables: BTreeMap<u8, String>,
    /// Whether it still has another program than the one to load, because of sessions.
    outdated: bool,
    started: Instant,
    ticks: u32,
    /// What the log says of the target already, since it was there last.
    complaints: BTreeSet<String>,
    /// When its rows were compared with what was written last.
    compared: Option<Instant>,
    /// How long until it is tried again.
    retry: Duration,
    /// Whether the store has what is not established yet: not in its file, or not on the target.
    pending: bool,
}

impl Agent {
    /// The agent of this target.
    #[must_use]
    pub fn new(config: TargetConfig, shared: Arc<ControllerState>) -> Agent {
        Agent {
            config,
            shared,
            registry: Registry::default(),
            forms: None,
            room: None,
            marks: false,
            known: BTreeMap::new(),
            heard: BTreeMap::new(),
            listened: None,
            macs: BTreeMap::new(),
            actual: None,
            refused_jobs: BTreeMap::new(),
            refused_tables: BTreeMap::new(),
            outdated: false,
            started: Instant::now(),
            ticks: 0,
            complaints: BTreeSet::new(),
            compared: None,
            retry: FIRST_RETRY,
            pending: false,
        }
    }

    /// Runs until `stop` is true; the target then goes on as it is.
    pub async fn run(mut self, mut commands: mpsc::Receiver<AgentCommand>, mut stop: watch::Receiver<bool>) {
        loop {
            let error = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                error = self.serve(&mut commands) => error,
            };
            let text = error.to_string();
            let name = &self.config.name;
            // Whoever shows it names the target.
            let message = text.strip_prefix(&format!("target {name}: ")).unwrap_or(&text).to_owned();
            if let Some(view) = self.shared.views().get_mut(name) {
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
                    Some(command) = commands.recv() => command.refuse(self.away_error(&message)),
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
            Err(error @ (ControllerError::StateFile { .. } | ControllerError::StateSlow { .. })) => {
                self.complain(error.to_string());
                Ok(())
            }
            done => done,
        }
    }

    fn away_error(&self, message: &str) -> ControllerError {
        ControllerError::Away { target: self.config.name.clone(), message: message.to_owned() }
    }

    /// Serves one connection until it ends, and says why it ended.
    async fn serve(&mut self, commands: &mut mpsc::Receiver<AgentCommand>) -> ControllerError {
        match self.connection(commands).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn connection(
        &mut self,
        commands: &mut mpsc::Receiver<AgentCommand>,
    ) -> Result<std::convert::Infallible, ControllerError> {
        let config = self.config.clone();
        let connecting = Target::connect(&config);
        tokio::pin!(connecting);
        // Why this controller is not the primary one, while it is not.
        let (mut target, mut why) = loop {
            tokio::select! {
                connected = &mut connecting => break connected?,
                Some(command) = commands.recv() => command.refuse(self.away_error("connecting")),
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
                    SwitchEvent::Packet(frame) if why.is_none() => {
                        let done = self.packet(&mut target, &frame).await;
                        self.outlast_disk(done)?;
                    }
                    SwitchEvent::Packet(_) => {}
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
                        return Err(ControllerError::Closed { target: target.name().to_owned(), message });
                    }
                },
                Some(command) = commands.recv() => match &why {
                    None => self.obey(&mut target, command).await,
                    Some(why) => {
                        let target = target.name().to_owned();
                        command.refuse(ControllerError::NotPrimary { target, why: why.clone() });
                    }
                },
                _ = ticks.tick(), if why.is_none() => {
                    let done = self.tick(&mut target).await;
                    self.outlast_disk(done)?;
                }
            }
        }
    }

    /// Does what is asked. Who has asked may have gone; that is no loss.
    async fn obey(&mut self, target: &mut Target, command: AgentCommand) {
        match command {
            AgentCommand::Sync(answer) => drop(answer.send(self.sync(target).await)),
            AgentCommand::Rows(answer) => {
                let actual = target.read_rows().await;
                drop(answer.send(actual.map(|actual| difference::rows(&actual, target.schema()))));
            }
            AgentCommand::Compare { repair, answer } => {
                drop(answer.send(self.compare(target, repair).await));
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
        if self.outdated && self.running_jobs().is_empty() {
            self.take_over(target).await?;
        }
        self.listen(target).await?;
        self.compare_if_due(target).await?;
        let due = self.poll_sessions();
        self.answer(target, due, None).await
    }

    /// Names of the jobs with a session here.
    fn running_jobs(&self) -> Vec<String> {
        let store = self.shared.store();
        let runs = |job: &crate::store::Job| {
            job.places.get(&self.config.name).is_some_and(|place| place.session.is_some())
        };
        store.jobs.iter().filter(|(_, job)| runs(job)).map(|(name, _)| name.clone()).collect()
    }

    /// Loads the target's program. A wrong program is replaced when no session is lost with it.
    async fn load(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        self.outdated = false;
        let Some((program, cookie)) = &self.config.loads else { return target.load_if_none().await };
        let name = target.name().to_owned();
        match target.loaded_cookie().await? {
            Some(has) if has == *cookie => {
                tracing::info!("target {name}: has the program");
                return Ok(());
            }
            Some(_) => {}
            None => {
                target.load(program, *cookie).await?;
                tracing::info!("target {name}: it had no program: loaded");
                return Ok(());
            }
        }
        let jobs = self.running_jobs();
        if jobs.is_empty() {
            // What it holds stays, if it knows how; what runs is emptied only if somebody has said so.
            if target.reconcile(program, *cookie).await? {
                tracing::info!("target {name}: its program is replaced, and its rows stay");
                return Ok(());
            }
            if self.config.replaces_program {
                target.load(program, *cookie).await?;
                tracing::info!("target {name}: its program is replaced");
                return Ok(());
            }
        }
        if !target.p4info().await?.is_some_and(|info| self.config.schema.has_tables_of(&info)) {
            return Err(ControllerError::OtherProgram { target: name, jobs });
        }
        self.outdated = !jobs.is_empty();
        let when = match jobs.as_slice() {
            [] => {
                "run the controller with --replace-program to load that, which empties the target".to_owned()
            }
            jobs => format!("that is loaded when the sessions of {} are over", jobs.join(", ")),
        };
        let what = format!(
            "target {name}: it has another program than its device_config, of the same tables: {when}"
        );
        // Not again each time that a session ends.
        if self.complaints.insert(what.clone()) {
            tracing::warn!("{what}");
        }
        Ok(())
    }

    /// The target becomes what is desired.
    async fn take_over(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        self.load(target).await?;
        let info = target.p4info().await?;
        let info = info.as_ref();
        let loads = self.config.loads.is_some();
        if !loads && info.is_some_and(|info| !self.config.schema.has_tables_of(info)) {
            return Err(ControllerError::OtherTables { target: target.name().to_owned() });
        }
        self.forms = info.map(Forms::from_p4info).or(self.config.capacity.forms);
        self.room = self.config.capacity.room.or(info.and_then(capacity::room));
        self.marks = info.is_some_and(capacity::marks);
        self.shared.store().forget_credit(&self.config.name);
        // What it has refused is tried again.
        self.refused_jobs.clear();
        self.refused_tables.clear();
        let actual = target.read_rows().await?;
        self.refuse_unknown_sessions(&actual)?;
        self.end_sessions_that_cannot_go_on(&actual)?;
        self.actual = Some(actual);
        self.compared = Some(Instant::now());
        self.sync(target).await?;
        // Nobody was heard while there was no connection.
        self.heard.clear();
        self.complaints.clear();
        self.retry = FIRST_RETRY;
        let mut views = self.shared.views();
        let view = views.entry(self.config.name.clone()).or_default();
        view.connected = true;
        view.forms = self.forms;
        view.compared = self.compared;
        view.differences.clear();
        view.error.clear();
        drop(views);
        let what = format!("target {}: connected; its rows are as desired", target.name());
        tracing::info!("{what}");
        Ok(())
    }

    /// Sessions of jobs that the state file does not have are another controller's, or this one was started
    /// with another file: deleting their rows would end training that runs.
    fn refuse_unknown_sessions(&self, actual: &SwitchRows) -> Result<(), ControllerError> {
        if self.config.drops_unknown {
            return Ok(());
        }
        let store = self.shared.store();
        let jobs = actual.sessions(&self.config.schema)?;
        let jobs: Vec<u16> = jobs.into_iter().filter(|&job| !store.knows(&self.config.name, job)).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        Err(ControllerError::UnknownSessions { target: self.config.name.clone(), jobs })
    }

    /// Updates the registry with new and removed jobs, adds rows that the target lacks, and removes those
    /// that it should not have.
    async fn sync(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let actions = self.align();
        let (packets, _) = self.note(actions);
        let packets = self.establish(target, packets).await?;
        self.send(target, packets, None).await?;
        self.shared.store().forget_removed(&self.config.name);
        Ok(())
    }
}
