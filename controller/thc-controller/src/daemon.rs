//! The controller at work: takes JOIN and LEAVE from the switch, and keeps the switch's rows what its sessions
//! want, also after the switch or the connection was gone.

use crate::config::Config;
use crate::error::ControllerError;
use crate::frame::Datagram;
use crate::place::PlacedJob;
use crate::tables::{
    Address, ControlPlane, Job, JobTable, Lookup, Mac, Member, OwnAddress, OwnArp, Pass, Station,
    StationAction,
};
use crate::target::{Event, Target};
use crate::wanted::{Group, Wanted};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant, SystemTime};
use thc_protocol::aggregator::{Endpoint, JobConfig};
use thc_protocol::session::{Action, Registry};
use thc_protocol::wire::Kind;
use thc_protocol::{JobId, WorkerId};

/// How often counters are read.
const TICK: Duration = Duration::from_millis(250);
/// How long until a switch that is gone is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Senders of JOINs whose Ethernet addresses are kept: above all workers of all jobs.
const MAX_ADDRESSES: usize = 4096;
/// The group of all ports.
const FLOOD: u16 = 100;
/// Passes that a packet may go to after the first.
const LATER_PASSES: u8 = 7;
/// Bits of a worker's number in counters' indices; numbers beyond are one.
const WORKER_BITS: u32 = 7;

#[derive(Debug)]
struct Session {
    config: JobConfig,
    members: BTreeMap<u8, Endpoint>,
    epoch: u32,
}

/// What was counted of a member last, and when that changed.
#[derive(Clone, Copy, Debug)]
struct Heard {
    packets: u64,
    at: Duration,
}

/// A controller of one switch.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    registry: Registry,
    sessions: BTreeMap<JobId, Session>,
    heard: BTreeMap<(JobId, u8), Heard>,
    /// Ethernet addresses of those who joined.
    macs: BTreeMap<SocketAddrV4, Mac>,
    epoch: u32,
    started: Instant,
}

impl Daemon {
    /// A controller with this configuration.
    #[must_use]
    pub fn new(config: Config) -> Daemon {
        // Cells of an earlier controller's epochs may still be full: time makes them differ.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let epoch = since.map_or(1, |since| since.as_secs() as u32);
        let registry = Registry::new(config.jobs.iter().map(|job| job.setup.to_static()));
        Daemon {
            config,
            registry,
            sessions: BTreeMap::new(),
            heard: BTreeMap::new(),
            macs: BTreeMap::new(),
            epoch,
            started: Instant::now(),
        }
    }

    /// Runs until `stop`; the switch then goes on as it is. `ready` is called when workers can join first.
    ///
    /// # Errors
    /// [`ControllerError::NotPrimary`], and whatever keeps the first connection from being made; later the
    /// switch is tried again and again.
    pub async fn run(
        mut self,
        stop: impl Future<Output = ()>,
        mut ready: impl FnMut(),
    ) -> Result<(), ControllerError> {
        tokio::pin!(stop);
        let mut first = true;
        loop {
            let end = tokio::select! {
                () = &mut stop => return Ok(()),
                end = self.serve(first, &mut ready) => end,
            };
            match end {
                (_, error @ ControllerError::NotPrimary { .. }) => return Err(error),
                (false, error) if first => return Err(error),
                (_, error) => tracing::warn!("{error}; trying again"),
            }
            first = false;
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// Serves one connection until it ends. Whether the switch could be set up, and why it ended.
    async fn serve(&mut self, first: bool, ready: &mut impl FnMut()) -> (bool, ControllerError) {
        let mut target = match self.set_up().await {
            Ok(target) => target,
            Err(error) => return (false, error),
        };
        if first {
            ready();
        } else {
            tracing::info!(target = target.name(), "back, with all rows in place");
        }
        (true, self.exchange(&mut target).await)
    }

    async fn set_up(&mut self) -> Result<Target, ControllerError> {
        let mut target = Target::connect(&self.config.target).await?;
        if let Some((program, cookie)) = &self.config.target.program {
            let loaded = target.load(program, *cookie).await?;
            tracing::info!(
                target = target.name(),
                "{}",
                if loaded { "program loaded" } else { "has the program" }
            );
        }
        self.reconcile(&mut target).await?;
        Ok(target)
    }

    async fn exchange(&mut self, target: &mut Target) -> ControllerError {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let result = tokio::select! {
                event = target.event() => match event {
                    Event::Packet(frame) => self.packet(target, &frame).await,
                    Event::Primary(true) => Ok(()),
                    Event::Primary(false) => {
                        Err(ControllerError::NotPrimary { target: target.name().to_owned() })
                    }
                    Event::Closed => Err(ControllerError::Closed { target: target.name().to_owned() }),
                },
                _ = ticks.tick() => self.listen(target).await,
            };
            if let Err(error) = result {
                return error;
            }
        }
    }

    /// Takes a frame of the control plane.
    async fn packet(&mut self, target: &mut Target, frame: &[u8]) -> Result<(), ControllerError> {
        let own = (self.config.target.mac, self.config.target.at);
        let Some(datagram) = Datagram::parse(frame).filter(|datagram| datagram.to == own) else {
            return Ok(());
        };
        let (mac, from) = datagram.from;
        if self.macs.len() >= MAX_ADDRESSES {
            self.macs
                .retain(|at, _| self.sessions.values().any(|s| s.members.values().any(|m| m.addr == *at)));
        }
        if self.port(mac).is_none() {
            tracing::warn!(
                "{from} ({}) is behind no port that is configured: add a [[target.station]] for it",
                mac.map(|byte| format!("{byte:02x}")).join(":")
            );
            return Ok(());
        }
        self.macs.insert(from, mac);
        let now = self.started.elapsed();
        let heard = &self.heard;
        let alive =
            |job, worker: WorkerId| heard.get(&(job, worker.0)).map(|heard| now.saturating_sub(heard.at));
        let actions = self.registry.handle(now, from, datagram.payload, alive, || fastrand::u32(..));
        let mut changed = false;
        let mut answers = Vec::new();
        for action in actions {
            match action {
                Action::Send(to, bytes) => answers.push((to, bytes)),
                Action::Install(config, members) => {
                    self.install(config, &members);
                    changed = true;
                }
                Action::Move(job, worker, at) => {
                    if let Some(session) = self.sessions.get_mut(&job) {
                        session.members.insert(worker.0, at);
                    }
                    changed = true;
                }
                Action::Remove(job) => {
                    tracing::info!("job {job}: session over");
                    self.sessions.remove(&job);
                    changed = true;
                }
            }
        }
        if changed {
            // Workers send as soon as they are welcomed, so the rows go first.
            self.reconcile(target).await?;
        }
        for (to, bytes) in answers {
            if let Some(&mac) = self.macs.get(&to) {
                target.send(Datagram { from: own, to: (mac, to), payload: &bytes }.frame()).await?;
            }
        }
        Ok(())
    }

    fn install(&mut self, config: JobConfig, members: &[(WorkerId, Endpoint)]) {
        tracing::info!("job {}: session of {} workers", config.job, members.len());
        self.epoch = self.epoch.wrapping_add(1);
        self.heard.retain(|(job, _), _| *job != config.job);
        let members = members.iter().map(|&(worker, at)| (worker.0, at)).collect();
        self.sessions.insert(config.job, Session { config, members, epoch: self.epoch });
    }

    /// The port that a station is behind.
    fn port(&self, mac: Mac) -> Option<u16> {
        let stations = &self.config.target.stations;
        stations.iter().find(|(station, _)| *station == mac).map(|&(_, port)| port)
    }

    /// Writes what the switch lacks and removes what it has too much.
    async fn reconcile(&self, target: &mut Target) -> Result<(), ControllerError> {
        let held = target.held().await?;
        let updates = self.wanted()?.updates(&held, target.schema())?;
        tracing::debug!(target = target.name(), "{} updates", updates.len());
        target.write(updates).await
    }

    /// Everything that the switch should hold.
    fn wanted(&self) -> Result<Wanted, ControllerError> {
        let switch = &self.config.target;
        let schema = &switch.schema;
        let mut wanted = Wanted::default();
        wanted.row(schema, &OwnAddress { mac: switch.mac, address: *switch.at.ip() })?;
        wanted.row(schema, &OwnArp { address: *switch.at.ip(), mac: switch.mac })?;
        // What is for the aggregator but unknown to it must not be flooded.
        wanted.row(schema, &Station { mac: Some(switch.mac), action: StationAction::Drop })?;
        wanted.row(schema, &Station { mac: None, action: StationAction::Flood(FLOOD) })?;
        for &(mac, port) in &switch.stations {
            wanted.row(schema, &Station { mac: Some(mac), action: StationAction::Port(port) })?;
        }
        let mut ports: Vec<u16> = switch.stations.iter().map(|&(_, port)| port).collect();
        ports.sort_unstable();
        ports.dedup();
        wanted.group(FLOOD, Group(ports.into_iter().map(|port| (port, 0)).collect()));
        for kind in [Kind::Join, Kind::Leave] {
            wanted.row(schema, &ControlPlane { kind: kind as u8, port: switch.cpu_port })?;
        }
        for (pass, &port) in (1..=LATER_PASSES).zip(switch.pass_ports.iter().cycle()) {
            wanted.row(schema, &Pass { pass, port })?;
        }
        for placed in &self.config.jobs {
            if let Some(session) = self.sessions.get(&placed.setup.config.job) {
                self.want_session(&mut wanted, placed, session)?;
            }
        }
        Ok(wanted)
    }

    fn want_session(
        &self,
        wanted: &mut Wanted,
        placed: &PlacedJob,
        session: &Session,
    ) -> Result<(), ControllerError> {
        let schema = &self.config.target.schema;
        let config = &session.config;
        let job = config.job.0;
        let welcome = &placed.setup.welcome;
        wanted.row(schema, &Lookup { table: welcome.table.0, values: welcome.values })?;
        wanted.row(schema, &JobTable { job, table: welcome.table.0 })?;
        let mut copies = Vec::with_capacity(session.members.len());
        for (&worker, member) in &session.members {
            let Some(&mac) = self.macs.get(&member.addr) else { continue };
            let Some(port) = self.port(mac) else { continue };
            wanted.row(schema, &Member { job, worker, ingress_port: port, at: member.addr })?;
            wanted.row(schema, &Address { job, worker, mac, at: member.addr })?;
            copies.push((port, u16::from(worker)));
        }
        copies.sort_unstable();
        wanted.group(placed.group, Group(copies));
        wanted.row(
            schema,
            &Job {
                job,
                index: placed.index,
                cookie: config.cookie.0,
                epoch: session.epoch,
                workers: config.workers,
                quorum: config.quorum,
                data_base: placed.data_base,
                data_slots: config.data_slots,
                norm_base: placed.norm_base,
                norm_slots: config.norm_slots,
                group: placed.group,
            },
        )
    }

    /// Looks which members' packets still come, so that nobody takes the place of a living one.
    async fn listen(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let mut members = Vec::new();
        for placed in &self.config.jobs {
            let job = placed.setup.config.job;
            if let Some(session) = self.sessions.get(&job) {
                let base = u32::from(placed.index) << WORKER_BITS;
                members.extend(session.members.keys().map(|&worker| (job, worker, base | u32::from(worker))));
            }
        }
        if members.is_empty() {
            return Ok(());
        }
        let cells: Vec<u32> = members.iter().map(|&(.., cell)| cell).collect();
        let counted = target.counters("packets", &cells).await?;
        let at = self.started.elapsed();
        for ((job, worker, _), (packets, _)) in members.into_iter().zip(counted) {
            let heard = self.heard.entry((job, worker)).or_insert(Heard { packets, at });
            if heard.packets != packets {
                *heard = Heard { packets, at };
            }
        }
        Ok(())
    }
}
