//! The agent of one target: keeps the connection, takes JOIN and LEAVE from the target, and keeps the target's rows
//! what the book wants, also after the target or the connection was gone.

use crate::book::{Job, Member, Placement, fits};
use crate::capacity::Forms;
use crate::config::TargetConfig;
use crate::error::{ControllerError, NOT_PRIMARY};
use crate::live::{self, Heard, JobCounted};
use crate::plan;
use crate::spec::Spec;
use crate::state::{AgentCommand, ControllerState};
use crate::tables::{Mac, Row};
use crate::target::{Event, Target};
use crate::wanted::Wanted;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thc_options::JobSetup;
use thc_options::credit::Room;
use thc_protocol::aggregator::{Endpoint, JobConfig, Level};
use thc_protocol::session::{Action, Happening, Registry, SessionMember, StaticJob};
use thc_protocol::wire::{Table, Tables, Welcome};
use thc_protocol::{Cookie, JobId, TableId, WorkerId};
use thc_transport::frame::Datagram;
use tokio::sync::{mpsc, watch};

/// How often it is looked who still sends.
const TICK: Duration = Duration::from_millis(250);
/// Ticks between two readings of all counters.
const ALL_COUNTERS: u32 = 4;
/// How long until a target that is gone is tried again, at most. It takes longer each time: a server that is started anew
/// at once has its jobs at once.
const RETRY: Duration = Duration::from_secs(1);
/// How long the first time.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Different complaints of one target that the log gets.
const MAX_COMPLAINTS: usize = 8;
/// Senders of JOINs whose Ethernet addresses are kept: above all workers of all jobs.
const MAX_ADDRESSES: usize = 4096;

/// A job that the registry has: its name, and the serial number that tells it from others of the name.
#[derive(Debug)]
struct Known {
    name: String,
    serial: u64,
    workers: u8,
    /// Whether its members come and go.
    sized: bool,
    /// Of what it is.
    version: u64,
}

/// An agent.
#[derive(Debug)]
pub struct Agent {
    config: TargetConfig,
    shared: Arc<ControllerState>,
    registry: Registry,
    /// The packets that the target does, once it has said so.
    forms: Option<Forms>,
    /// Those that it holds, if it has said so or the configuration does.
    room: Option<Room>,
    /// Whether its program keeps and tells congestion marks (P46).
    marks: bool,
    known: BTreeMap<JobId, Known>,
    /// When packets of a member were counted last, for the registry.
    heard: BTreeMap<(JobId, u8), Heard>,
    /// When members' packets were read last.
    listened: Option<Instant>,
    /// Ethernet addresses of those who joined.
    macs: BTreeMap<SocketAddrV4, Mac>,
    /// What the target holds, as far as is known.
    held: Option<Wanted>,
    started: Instant,
    ticks: u32,
    /// What the log says of the target already, since it was there last.
    complaints: BTreeSet<String>,
    /// How long until it is tried again.
    retry: Duration,
}

impl Agent {
    /// Of this target.
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
            held: None,
            started: Instant::now(),
            ticks: 0,
            complaints: BTreeSet::new(),
            retry: FIRST_RETRY,
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
            // Not once a second for as long as a switch is off, even if its refusals take turns.
            let news = self.complaints.len() < MAX_COMPLAINTS && self.complaints.insert(message.clone());
            if news {
                tracing::warn!("target {name}: {message}; trying again every {} s", RETRY.as_secs());
            }
            let retry = tokio::time::sleep(self.retry);
            self.retry = (2 * self.retry).min(RETRY);
            tokio::pin!(retry);
            loop {
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => return,
                    () = &mut retry => break,
                    Some(AgentCommand::Sync(answer)) = commands.recv() => {
                        // Who asked may have gone; that is no loss.
                        let _ = answer.send(Err(self.away(&message)));
                    }
                }
            }
        }
    }

    fn away(&self, message: &str) -> ControllerError {
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
        let (mut target, mut primary) = loop {
            tokio::select! {
                connected = &mut connecting => break connected?,
                Some(AgentCommand::Sync(answer)) = commands.recv() => {
                    let _ = answer.send(Err(self.away("connecting")));
                }
            }
        };
        if primary {
            self.take_over(&mut target).await?;
        } else {
            self.stand_by(&target);
        }
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = target.event() => match event {
                    Event::Packet(frame) if primary => self.packet(&mut target, &frame).await?,
                    Event::Packet(_) => {}
                    Event::Primary(now) => {
                        if now && !primary {
                            self.take_over(&mut target).await?;
                        } else if !now {
                            self.stand_by(&target);
                        }
                        primary = now;
                    }
                    Event::Vacant(highest) => target.claim(highest).await?,
                    Event::Closed => return Err(ControllerError::Closed { target: target.name().to_owned() }),
                },
                Some(AgentCommand::Sync(answer)) = commands.recv() => {
                    let result = if primary {
                        self.sync(&mut target).await
                    } else {
                        Err(ControllerError::NotPrimary { target: target.name().to_owned() })
                    };
                    let _ = answer.send(result);
                }
                _ = ticks.tick(), if primary => {
                    self.listen(&mut target).await?;
                    let due = self.due();
                    self.answer(&mut target, due).await?;
                }
            }
        }
    }

    fn stand_by(&mut self, target: &Target) {
        tracing::info!("target {}: {NOT_PRIMARY}; standing by", target.name());
        let mut views = self.shared.views();
        let view = views.entry(self.config.name.clone()).or_default();
        view.connected = false;
        view.error = NOT_PRIMARY.to_owned();
    }

    /// The target becomes what is wanted.
    async fn take_over(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        if let Some((program, cookie)) = &self.config.loads {
            let loaded = target.load(program, *cookie).await?;
            tracing::info!(
                target = target.name(),
                "{}",
                if loaded { "program loaded" } else { "has the program" }
            );
        } else {
            target.load_if_none().await?;
        }
        let (forms, room, marks) = target.says().await;
        self.forms = forms.or(self.config.capacity.forms);
        self.room = self.config.capacity.room.or(room);
        self.marks = marks;
        self.shared.book().forget_credit(&self.config.name);
        let held = target.held().await?;
        self.end_sessions_that_cannot_go_on(&held)?;
        self.held = Some(held);
        self.sync(target).await?;
        // Nobody was heard while there was no connection.
        self.heard.clear();
        self.registry.listen_anew(self.started.elapsed());
        self.complaints.clear();
        self.retry = FIRST_RETRY;
        let mut views = self.shared.views();
        let view = views.entry(self.config.name.clone()).or_default();
        view.connected = true;
        view.forms = self.forms;
        view.error.clear();
        tracing::info!(target = target.name(), "connected; its rows are as wanted");
        Ok(())
    }

    /// A target that was restarted has lost its sums. With a full quorum workers send them again; with a smaller one
    /// a sum that some have already might be made anew of other workers (P24), so workers must join anew. So they must
    /// if somebody else has changed their lookup table: slots may be half filled with its values (P6).
    fn end_sessions_that_cannot_go_on(&mut self, held: &Wanted) -> Result<(), ControllerError> {
        let jobs = self.config.schema.table(crate::tables::Job::TABLE)?;
        let lost = !held.has_rows_of(jobs);
        let mut book = self.shared.book();
        let disturbed = plan::wanted(&self.config, &book)?.disturbed(held, &self.config.schema)?;
        let mut ended = Vec::new();
        let mut changed = false;
        for (name, job) in &mut book.jobs {
            let partial = job.spec.quorum < job.spec.workers;
            let disturbed = !lost && disturbed.contains(&job.spec.number);
            let concerned = |_: &&mut Placement| lost || disturbed;
            let Some(place) = job.places.get_mut(&self.config.name).filter(concerned) else { continue };
            changed = true;
            if lost {
                // Its counters begin anew as well.
                place.earlier = None;
            }
            let Some(session) = &mut place.session else { continue };
            if lost {
                session.before.clear();
            }
            if partial || disturbed {
                place.session = None;
                let why = if disturbed { "its lookup table was changed" } else { "the target was restarted" };
                tracing::info!("job {name}: {why}; its workers must join anew");
                ended.push(JobId(job.spec.number));
            }
        }
        if changed {
            book.save()?;
        }
        for number in ended {
            // It comes back without its session.
            self.known.remove(&number);
            self.registry.remove(number);
        }
        Ok(())
    }

    /// Takes jobs that came or went into the registry, and writes what the target lacks or has too much.
    async fn sync(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let actions = self.align()?;
        self.note_earlier(target).await?;
        self.reconcile(target).await?;
        self.answer(target, actions).await
    }

    /// Takes jobs that came or went into the registry.
    fn align(&mut self) -> Result<Vec<Action>, ControllerError> {
        let shared = Arc::clone(&self.shared);
        let mut book = shared.book();
        if let Some(room) = self.room
            && book.give_credit(&self.config.name, room, self.config.shards)
        {
            book.save()?;
        }
        let here = |known: &Known| {
            book.jobs
                .get(&known.name)
                .is_some_and(|job| job.serial == known.serial && job.places.contains_key(&self.config.name))
        };
        let gone: Vec<JobId> =
            self.known.iter().filter(|(_, known)| !here(known)).map(|(number, _)| *number).collect();
        let mut actions = Vec::new();
        for number in gone {
            let known = self.known.remove(&number);
            self.heard.retain(|(job, _), _| *job != number);
            let ended = self.registry.remove(number);
            // A job that goes on without this target ends nobody's session.
            let goes_on = known.is_some_and(|known| {
                book.jobs.get(&known.name).is_some_and(|job| job.serial == known.serial)
            });
            actions.extend(ended.into_iter().filter(|end| !goes_on || !matches!(end, Action::Send(..))));
        }
        for (name, job) in &book.jobs {
            let number = JobId(job.spec.number);
            let Some(place) = job.places.get(&self.config.name) else { continue };
            let seen = self.known.get(&number).map(|known| known.version);
            if seen == Some(job.version) {
                continue;
            }
            // A spare that is about to be one is that from the beginning.
            let next = job.next.as_deref().filter(|next| next.is_on(&self.config.name));
            let is_here = job.targets.contains(&self.config.name);
            if seen.is_none() {
                let first = if is_here { self.told(job, &job.spec)? } else { None };
                let first = match (first, next) {
                    (None, Some(next)) if !is_here => self.told(job, &next.spec)?,
                    (first, _) => first,
                };
                let Some(job_here) = first else { continue };
                let spec = next.filter(|_| !is_here).map_or(&job.spec, |next| &next.spec);
                match spec.follows_at(&self.config.name) {
                    true => self.registry.insert_share(job_here),
                    false => self.registry.insert(job_here),
                }
                self.restore(name, number, place);
            }
            let changed = match next {
                Some(next) if is_here => self.told(job, &next.spec)?,
                None if seen.is_some() => self.told(job, &job.spec)?,
                _ => None,
            };
            if let Some(changed) = changed {
                self.registry.change(changed);
                let runs = self.registry.status(number).is_some_and(|(_, runs)| runs);
                // Where a session runs, and it begins there, its boundary is waited for.
                if !runs || (next.is_none() && job.spec.follows_at(&self.config.name)) {
                    self.registry.settle(number);
                }
            }
            let workers = job.spec.workers.max(job.next.as_ref().map_or(0, |next| next.spec.workers));
            let (sized, version) = (job.spec.members.is_some(), job.version);
            let known = Known { name: name.clone(), serial: job.serial, workers, sized, version };
            self.known.insert(number, known);
        }
        Ok(actions)
    }

    /// A session that ran before this controller had it goes on.
    fn restore(&mut self, name: &str, number: JobId, place: &Placement) {
        let Some(session) = &place.session else { return };
        let members: Vec<SessionMember> = session
            .members
            .iter()
            .map(|(&worker, member)| {
                self.macs.insert(member.at, member.mac);
                let worker = WorkerId(member.seat.unwrap_or(worker));
                SessionMember { worker, nonce: member.nonce, addr: member.at, left: false }
            })
            .collect();
        let of = (Cookie(session.cookie.0), session.count);
        if self.registry.restore(self.started.elapsed(), number, of, &members) {
            tracing::info!("job {name}: its session of {} workers goes on", members.len());
        }
    }

    /// What the registry is told of a job that is of this spec, or will be; none if nobody can join it here, which the log has.
    fn told(&mut self, job: &Job, spec: &Spec) -> Result<Option<StaticJob>, ControllerError> {
        let name = &spec.name;
        let dealt = match (spec.is_shared(), self.shared.dealt(&spec.servers, &spec.spares)) {
            (false, _) => None,
            (true, Ok(dealt)) => Some(dealt),
            (true, Err(error)) => {
                tracing::warn!("job {name}: {error}; nobody can join it until that is so");
                return Ok(None);
            }
        };
        let mut setup = spec.setup(dealt.as_ref())?;
        let rack = spec.rack.as_ref();
        let fit = |table: &Table| fits(name, &self.config.name, self.forms, table, rack);
        if let Err(refusal) = setup.welcome.tables.iter().try_for_each(fit) {
            tracing::warn!("{}; nobody can join it there", refusal.message);
            return Ok(None);
        }
        let ids = |workers: u8| -> Vec<u8> {
            match job.next.as_deref().filter(|next| next.spec == *spec) {
                Some(next) => next.tables_of(workers).collect(),
                None => job.tables_of(workers).collect(),
            }
        };
        let number =
            |welcome: &mut Welcome, config: &mut JobConfig, ids: Vec<u8>, most: Option<(u8, Table)>| {
                let mut tables = welcome.tables.to_vec();
                // Where there is no room for another, it is that of the most.
                if let (Some((id, table)), Some(first)) = (most, tables.first_mut())
                    && ids.first() == Some(&id)
                {
                    *first = table;
                }
                tables.iter_mut().zip(ids).for_each(|(table, id)| table.id = TableId(id));
                config.tables = tables.iter().map(|table| table.id).collect();
                welcome.tables = Tables::new(&tables).unwrap_or(welcome.tables);
                welcome.shards = self.config.shards;
            };
        let most = ids(u8::MAX);
        let largest = most.first().map(|&id| (id, *setup.welcome.tables.first()));
        if let Some(sizes) = &mut setup.sizes {
            for (config, welcome) in &mut Arc::make_mut(sizes).shapes {
                let ids = ids(config.workers);
                number(welcome, config, ids, largest);
            }
        }
        let own = ids(setup.config.workers);
        number(&mut setup.welcome, &mut setup.config, own, largest);
        let credit = job.credit();
        let say = |welcome: &mut Welcome| (welcome.credit, welcome.marks) = (credit, self.marks);
        say(&mut setup.welcome);
        if let Some(sizes) = &mut setup.sizes {
            Arc::make_mut(sizes).shapes.iter_mut().for_each(|(_, welcome)| say(welcome));
        }
        if let Some(rack) = rack {
            self.macs.insert(rack.root, rack.mac);
        }
        let JobSetup { config, welcome, root, sizes, .. } = setup;
        Ok(Some(StaticJob { config, welcome, root, sizes }))
    }

    /// Notes which jobs have become what they were to become, since a session of theirs has begun here.
    fn settle(&mut self) {
        let mut settled = Vec::new();
        {
            let mut book = self.shared.book();
            for (&number, known) in &mut self.known {
                let Some(job) = book.jobs.get(&known.name).filter(|job| job.serial == known.serial) else {
                    continue;
                };
                let here = job.next.as_ref().is_some_and(|next| next.by == self.config.name);
                if !here || known.version != job.version || self.registry.changes(number) {
                    continue;
                }
                book.settle(&known.name);
                let job = book.jobs.get(&known.name);
                known.version = job.map_or(known.version, |job| job.version);
                known.workers = job.map_or(known.workers, |job| job.spec.workers);
                tracing::info!("job {}: changed", known.name);
                settled.extend(job.map(|job| job.targets.clone()));
            }
        }
        for targets in settled {
            let (shared, own) = (Arc::clone(&self.shared), self.config.name.clone());
            // Others follow; one that is away does when it is back.
            tokio::spawn(async move {
                let others: Vec<String> = shared.targets.iter().map(|t| t.config.name.clone()).collect();
                let others: Vec<String> = others.into_iter().filter(|name| *name != own).collect();
                if let Err(refusal) = shared.sync(&others).await {
                    tracing::debug!("{}: {}", targets.join(", "), refusal.message);
                }
            });
        }
    }

    /// Writes what the target lacks and removes what it has too much.
    async fn reconcile(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let held = match self.held.take() {
            Some(held) => held,
            None => target.held().await?,
        };
        let wanted = plan::wanted(&self.config, &self.shared.book())?;
        let updates = wanted.updates(&held, target.schema())?;
        tracing::debug!(target = target.name(), "{} updates", updates.len());
        // After a failure it is not known what the target took: it is read anew.
        target.write(updates).await?;
        self.held = Some(wanted);
        Ok(())
    }

    /// Takes a frame of the control plane.
    async fn packet(&mut self, target: &mut Target, frame: &[u8]) -> Result<(), ControllerError> {
        let own = (self.config.mac, self.config.at);
        let Some(datagram) = Datagram::parse(frame).ok().filter(|datagram| datagram.to == own) else {
            return Ok(());
        };
        let (mac, from) = datagram.from;
        if self.macs.len() >= MAX_ADDRESSES {
            let book = self.shared.book();
            let sessions =
                book.jobs.values().flat_map(|job| job.places.values()).filter_map(|p| p.session.as_ref());
            let members: Vec<SocketAddrV4> =
                sessions.flat_map(|s| s.members.values()).map(|m| m.at).collect();
            self.macs.retain(|at, _| members.contains(at));
        }
        if self.port(mac).is_none() {
            tracing::warn!(
                "{from} ({}) is behind no port that is configured: add a [[target.station]] for it",
                mac.map(|byte| format!("{byte:02x}")).join(":")
            );
            return Ok(());
        }
        self.macs.insert(from, mac);
        let heard = &self.heard;
        let alive = |job, worker: WorkerId| heard.get(&(job, worker.0)).map(|heard| heard.since.elapsed());
        let now = self.started.elapsed();
        let mut actions =
            self.registry.handle(now, from, datagram.payload, alive, thc_options::cookie::random);
        actions.extend(self.due());
        self.answer(target, actions).await?;
        self.show_joined();
        Ok(())
    }

    /// What time brings. A member is as silent as it was when packets were counted last: that may be late.
    fn due(&mut self) -> Vec<Action> {
        let (heard, listened) = (&self.heard, self.listened);
        let alive = |job, worker: WorkerId| {
            let Heard { at, .. } = heard.get(&(job, worker.0))?;
            Some(listened?.saturating_duration_since(*at))
        };
        self.registry.poll(self.started.elapsed(), alive, thc_options::cookie::random)
    }

    /// Does what the registry says: rows first, since workers send as soon as they are welcomed.
    async fn answer(&mut self, target: &mut Target, actions: Vec<Action>) -> Result<(), ControllerError> {
        let mut changed = false;
        let mut packets = Vec::new();
        self.settle();
        for action in actions {
            match action {
                Action::Send(to, bytes) => packets.push((to, bytes)),
                Action::RootDiffers(job, change) => {
                    let name = self.known.get(&job).map_or("", |known| &known.name);
                    tracing::warn!(
                        "job {name}: its root has another one: {change}; nobody can join it until that is so"
                    );
                }
                Action::RootRefuses(job, reason) => {
                    let name = self.known.get(&job).map_or("", |known| &known.name);
                    tracing::warn!("job {name}: its root does not let the rack in: {reason}");
                }
                Action::Tell(job, worker, happened) => {
                    let name = self.known.get(&job).map_or("", |known| known.name.as_str());
                    match happened {
                        Happening::Gone => tracing::warn!("job {name}: worker {worker} is gone"),
                        Happening::Left => tracing::info!("job {name}: worker {worker} has left"),
                        Happening::Came => tracing::info!("job {name}: worker {worker} is let in"),
                    }
                }
                Action::Install(config, members) => {
                    let before = self.counted_before(target, &config, &members).await?;
                    self.install(&config, &members, before);
                    changed = true;
                }
                Action::Move(job, worker, at) => {
                    self.change_session(job, |members| {
                        if let Some(member) = members.get_mut(&worker.0) {
                            member.at = at.addr;
                        }
                    });
                    changed = true;
                }
                Action::Remove(job) => {
                    if let Some(known) = self.known.get(&job) {
                        tracing::info!("job {}: session over", known.name);
                        let all_left = self.registry.status(job).is_none_or(|(joined, _)| joined == 0);
                        if let Some(record) = self.shared.book().jobs.get_mut(&known.name) {
                            if let Some(place) = record.places.get_mut(&self.config.name) {
                                place.session = None;
                            }
                            if all_left && !record.spec.follows_at(&self.config.name) {
                                // Their numbers are free for the next.
                                record.given.clear();
                            }
                        }
                    }
                    changed = true;
                    if self.known.get(&job).is_some_and(|known| known.sized) {
                        // The next session may have another size and table: its row cannot take the place of this one's.
                        self.shared.book().save()?;
                        self.reconcile(target).await?;
                    }
                }
            }
        }
        if changed {
            self.shared.book().save()?;
            self.reconcile(target).await?;
        }
        let own = (self.config.mac, self.config.at);
        for (to, bytes) in packets {
            if let Some(&mac) = self.macs.get(&to) {
                target.send(Datagram { from: own, to: (mac, to), ecn: 0, payload: &bytes }.frame()).await?;
            }
        }
        Ok(())
    }

    /// Notes what counters of new jobs' indices had before, of jobs that are gone. This is before any row of theirs is
    /// written, so nothing of their own is in it.
    async fn note_earlier(&self, target: &mut Target) -> Result<(), ControllerError> {
        let new: Vec<(String, u64, u8, Placement)> = {
            let book = self.shared.book();
            let place = |(name, job): (&String, &Job)| {
                let place = job.places.get(&self.config.name).filter(|place| place.earlier.is_none())?;
                Some((name.clone(), job.serial, job.spec.workers, place.clone()))
            };
            book.jobs.iter().filter_map(place).collect()
        };
        for (name, serial, workers, place) in new {
            let earlier = live::read_job(target, &place, workers).await?;
            let mut book = self.shared.book();
            let job = book.jobs.get_mut(&name).filter(|job| job.serial == serial);
            if let Some(place) = job.and_then(|job| job.places.get_mut(&self.config.name)) {
                place.earlier = Some(earlier);
                book.save()?;
            }
        }
        Ok(())
    }

    /// What the target has counted of a session's members in earlier ones.
    async fn counted_before(
        &self,
        target: &mut Target,
        config: &JobConfig,
        members: &[(WorkerId, Endpoint)],
    ) -> Result<BTreeMap<u8, u64>, ControllerError> {
        let place = self.known.get(&config.job).and_then(|known| {
            self.shared.book().jobs.get(&known.name)?.places.get(&self.config.name).cloned()
        });
        let Some(place) = place else { return Ok(BTreeMap::new()) };
        let workers: Vec<u8> = members.iter().map(|(worker, _)| worker.0).collect();
        let mut sums = live::read_in_sums(target, &place, &workers).await?;
        if let Some(earlier) = &place.earlier {
            sums.iter_mut().for_each(|(&worker, sum)| *sum = sum.saturating_sub(earlier.in_sums(worker)));
        }
        Ok(sums)
    }

    fn install(&mut self, config: &JobConfig, members: &[(WorkerId, Endpoint)], before: BTreeMap<u8, u64>) {
        let Some(known) = self.known.get(&config.job) else { return };
        tracing::info!("job {}: session of {} workers", known.name, members.len());
        self.heard.retain(|(job, _), _| *job != config.job);
        // Seats are in the order of the session's numbers.
        let seats = self.registry.session(config.job).map(|(_, members)| members).unwrap_or_default();
        let sized = known.sized;
        let members = members.iter().zip(0..).filter_map(|((worker, at), place): (_, usize)| {
            let mac = *self.macs.get(&at.addr)?;
            let known =
                if sized { seats.get(place) } else { seats.iter().find(|seat| seat.worker == *worker) };
            let (nonce, seat) = (known?.nonce, sized.then_some(known?.worker.0));
            Some((worker.0, Member { at: at.addr, mac, port: self.port(mac)?, nonce, seat }))
        });
        let members = members.collect();
        let ports = if let Level::Rack { ports, .. } = config.level { ports } else { 0 };
        let of = (ports, self.registry.epoch(config.job));
        self.shared.book().begin(&known.name, &self.config.name, config.cookie.0, members, of, before);
    }

    fn change_session(&self, job: JobId, change: impl FnOnce(&mut BTreeMap<u8, Member>)) {
        let Some(known) = self.known.get(&job) else { return };
        if let Some(place) = self.shared.book().place_mut(&known.name, &self.config.name)
            && let Some(session) = &mut place.session
        {
            change(&mut session.members);
        }
    }

    /// The port that a station is behind; 0 where ports mean nothing.
    fn port(&self, mac: Mac) -> Option<u16> {
        let stations = &self.config.stations;
        if stations.is_empty() {
            return Some(0);
        }
        stations.iter().find(|(station, _)| *station == mac).map(|&(_, port)| port)
    }

    fn show_joined(&self) {
        let joined = self.known.iter().map(|(&number, known)| {
            (known.name.clone(), self.registry.status(number).map_or(0, |(joined, _)| joined))
        });
        let joined = joined.collect();
        if let Some(view) = self.shared.views().get_mut(&self.config.name) {
            view.joined = joined;
        }
    }

    /// Looks which members' packets still come, so that nobody takes the place of a living one, and now and
    /// then reads all counters.
    async fn listen(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let jobs: Vec<_> = {
            let book = self.shared.book();
            let registry = &mut self.registry;
            let jobs = self.known.iter().filter_map(|(&number, known)| {
                let job = book.jobs.get(&known.name)?;
                // Another of its servers may have less room.
                registry.set_credit(number, job.credit());
                let place = job.places.get(&self.config.name)?.clone();
                Some((number, known.name.clone(), known.workers, place))
            });
            jobs.collect()
        };
        let mut members = Vec::new();
        for (number, name, _, place) in &jobs {
            let base = u32::from(place.index) << crate::capacity::WORKER_BITS;
            let workers = place.session.iter().flat_map(|session| session.members.keys());
            members.extend(workers.map(|&worker| (*number, name, worker, base | u32::from(worker))));
        }
        let cells: Vec<u32> = members.iter().map(|&(.., cell)| cell).collect();
        let counted = target.counters("packets", &cells).await?;
        let at = Instant::now();
        for (&(number, _, worker, _), (packets, _)) in members.iter().zip(counted) {
            let heard = self.heard.entry((number, worker)).or_insert(Heard { packets, at, since: at });
            if heard.packets != packets {
                // Packets before a worker was asked whether it runs do not show that it does (P24).
                *heard = Heard { packets, at, since: self.listened.unwrap_or(at) };
            }
        }
        self.listened = Some(at);
        self.show_joined();
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks % ALL_COUNTERS != 1 {
            return Ok(());
        }
        let mut counted = BTreeMap::new();
        for (_, name, workers, place) in &jobs {
            let now = live::read_job(target, place, *workers).await?;
            counted.insert(name.clone(), place.earlier.iter().fold(now, JobCounted::since));
        }
        let carrier = live::read_carrier(target).await?;
        if let Some(view) = self.shared.views().get_mut(&self.config.name) {
            view.jobs = counted;
            view.carrier = carrier;
            let names =
                |(number, worker): &(JobId, u8)| Some((self.known.get(number)?.name.clone(), *worker));
            view.heard = self.heard.iter().filter_map(|(key, heard)| Some((names(key)?, *heard))).collect();
        }
        Ok(())
    }
}
