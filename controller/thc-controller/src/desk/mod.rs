//! What operators and workers ask, done: jobs, tables, joins, counters.

use crate::book::{Book, Given, Job, Session, seconds};
use crate::capacity::Capacity;
use crate::diagnose::{self, Seen};
use crate::error::ControllerError;
use crate::live::{CARRIER, View};
use crate::rack::Rack;
use crate::refusal::Refusal;
use crate::spec::{ShareServers, Spec};
use crate::state::{ControllerState, Reported, TargetHandle};
use crate::tables::{Rack as RackRow, Row};
use std::sync::Arc;
use std::time::Duration;
use thc_codec::table::{LookupTable, choose};
use thc_control_proto::v1;
use thc_options::Fraction;
use thc_protocol::TableId;
use thc_protocol::aggregator::{DropReason, Event};
use thc_protocol::wire::{Form, Table};

/// How long a number stays a worker's that asked for it and was not heard of since, in seconds.
const PROMISE: u64 = 10;
/// A worker whose packets came this recently keeps its number.
const ALIVE: Duration = Duration::from_secs(5);
/// Lanes of the switch program.
const LANE_BITS: u8 = 8;

/// Does what is asked.
#[derive(Clone, Debug)]
pub struct Desk {
    shared: Arc<ControllerState>,
}

fn unwritten(error: ControllerError) -> Refusal {
    let code = match error {
        ControllerError::StandsBy { .. } => tonic::Code::Unavailable,
        _ => tonic::Code::Internal,
    };
    Refusal { code, message: error.to_string() }
}

fn no_job(name: &str) -> Refusal {
    Refusal::missing(format!("there is no job {name:?}: `job list` shows those there are"))
}

fn put_down(book: &mut Book, asked: &v1::JobSpec, homes: &Homes) -> Result<(), Refusal> {
    if book.jobs.contains_key(&asked.name) {
        let text = format!("there is a job {:?} already: delete it, or take another name", asked.name);
        return Err(Refusal::exists(text));
    }
    let number = book.free_number();
    let spec = Spec::of(&homes.asked(asked), number, homes.shared.as_ref())?;
    book.add(spec, &homes.rooms)
}

/// What a job is asked to be, from what it is and what of that is to change.
fn changed(job: &Job, asked: &v1::UpdateJobRequest) -> v1::JobSpec {
    let spec = job.next.as_ref().map_or(&job.spec, |next| &next.spec);
    let mut was = spec.shown(job.targets.clone());
    if let [_] = was.servers.as_slice() {
        was.targets = std::mem::take(&mut was.servers);
    }
    let one_table = spec.one_table || asked.granularity.is_some();
    let resized = asked.workers.is_some() || asked.min_workers.is_some() || asked.max_workers.is_some();
    let bits = asked.bits.or(was.bits);
    // A table that was chosen for some number of workers is chosen anew for another.
    let keeps = one_table || (!resized && bits == was.bits && spec.members.is_none());
    let sized = asked.workers.is_none() && (spec.members.is_some() || asked.max_workers.is_some());
    let (tables, spares) = (asked.tables.clone(), asked.spares.clone());
    v1::JobSpec {
        workers: if sized { 0 } else { asked.workers.unwrap_or(was.workers) },
        min_workers: asked.min_workers.or(was.min_workers).filter(|_| sized),
        max_workers: asked.max_workers.or(was.max_workers).filter(|_| sized),
        gone_after_ms: asked.gone_after_ms.or(was.gone_after_ms).filter(|_| sized),
        gather_ms: asked.gather_ms.or(was.gather_ms).filter(|_| sized),
        quorum: was.quorum.filter(|&quorum| !resized && !sized && quorum < was.workers),
        bits,
        granularity: asked.granularity.or(was.granularity).filter(|_| keeps),
        fraction: asked.fraction.clone().or(was.fraction).filter(|_| keeps),
        tables: tables.map_or(was.tables, |tables| tables.tables),
        spares: spares.map_or(was.spares, |spares| spares.targets),
        cookie: Some(spec.cookie.0),
        seed: spec.seed.map(|seed| seed.0),
        ..was
    }
}

/// Where a job is to be.
struct Homes {
    rooms: Vec<(String, Capacity)>,
    /// If its slots are dealt to them, or some stand by.
    shared: Option<ShareServers>,
    /// The one that has all slots, if it alone does and others stand by.
    only: Option<String>,
}

impl Homes {
    /// A job that is asked for, with the one target that others stand by for as its server.
    fn asked(&self, asked: &v1::JobSpec) -> v1::JobSpec {
        let servers = self.only.clone().map_or_else(|| asked.servers.clone(), |only| vec![only]);
        v1::JobSpec { servers, ..asked.clone() }
    }
}

/// Whether every packet of every worker of a job comes into a sum: only then does their number say who is behind.
pub(crate) fn waits_for_all(spec: &v1::JobSpec) -> bool {
    spec.policy.as_deref() == Some("reliable") && spec.quorum == Some(spec.workers)
}

impl Desk {
    /// Over this state.
    #[must_use]
    pub fn new(shared: Arc<ControllerState>) -> Desk {
        Desk { shared }
    }

    /// The state.
    #[must_use]
    pub fn shared(&self) -> &Arc<ControllerState> {
        &self.shared
    }

    /// Only the controller that has the file changes anything.
    fn may_change(&self) -> Result<(), Refusal> {
        self.shared.book().may_change().map_err(unwritten)
    }

    /// A change of the book: in the file before anybody hears of it, or taken back. What was before it comes with it.
    async fn change<T>(
        &self,
        change: impl FnOnce(&mut Book) -> Result<T, Refusal>,
    ) -> Result<(T, Book), Refusal> {
        let (done, before) = {
            let mut book = self.shared.book();
            book.may_change().map_err(unwritten)?;
            let mut next = book.clone();
            let done = change(&mut next)?;
            (done, std::mem::replace(&mut *book, next))
        };
        match self.shared.save().await {
            Ok(()) => Ok((done, before)),
            Err(error) => {
                self.shared.book().take_back(&before);
                Err(unwritten(error))
            }
        }
    }

    /// Takes a change back that targets would not have, from their rows too. One that cannot be written to now gets rid of
    /// it when it is back.
    async fn take_back(&self, what: &str, before: &Book, targets: &[String]) {
        self.shared.book().take_back(before);
        if let Err(error) = self.shared.save().await {
            tracing::warn!("{what}: taking it back: {error}");
        }
        if let Err(refusal) = self.shared.sync(targets).await {
            tracing::warn!("{what}: taking it back: {}", refusal.message);
        }
    }

    /// Lets these targets get what the book wants; none of them may refuse rows of this job.
    async fn sync_job(&self, name: &str, targets: &[String]) -> Result<(), Refusal> {
        self.shared.sync(targets).await?;
        let views = self.shared.views();
        for target in targets {
            if let Some(why) = views.get(target).and_then(|view| view.refused.get(name)) {
                let text = format!("target {target} refuses rows of job {name}: {why}");
                return Err(Refusal::unavailable(text));
            }
        }
        Ok(())
    }

    /// Makes a job on all its targets, or on none.
    ///
    /// # Errors
    /// It cannot be, there is one, there is no room, a target is away or refuses.
    pub async fn create_job(&self, asked: &v1::JobSpec) -> Result<v1::Job, Refusal> {
        let _one = self.shared.changing.lock().await;
        self.may_change()?;
        let homes = self.homes(asked)?;
        let names: Vec<String> = homes.rooms.iter().map(|(name, _)| name.clone()).collect();
        // What is away cannot take it: better known before anything is written.
        for name in &names {
            self.connected(name)?;
        }
        let ((), before) = self.change(|book| put_down(book, asked, &homes)).await?;
        let name = &asked.name;
        if let Err(refusal) = self.sync_job(name, &names).await {
            self.take_back(&format!("job {name}"), &before, &names).await;
            let message = format!("job {name} was made on no target: {}", refusal.message);
            return Err(Refusal { message, ..refusal });
        }
        tracing::info!("job {name}: made on {}", names.join(", "));
        self.job(name)
    }

    /// Makes jobs of the configuration that are not there; targets get them when they come.
    ///
    /// # Errors
    /// They cannot be.
    pub async fn create_configured(&self, jobs: &[v1::JobSpec]) -> Result<(), Refusal> {
        let made = self.change(|book| {
            for asked in jobs {
                if !book.jobs.contains_key(&asked.name) {
                    put_down(book, asked, &self.homes(asked)?)?;
                }
            }
            Ok(())
        });
        made.await.map(drop)
    }

    /// The targets of a job, or the servers that its slots are dealt to.
    fn homes(&self, asked: &v1::JobSpec) -> Result<Homes, Refusal> {
        let (name, servers) = (&asked.name, &asked.servers);
        let refuse = |what: String| Err(Refusal::invalid(format!("job {name}: {what}")));
        if asked.rack.is_some() && !servers.is_empty() {
            return refuse("a rack has all slots: leave out servers or rack".to_owned());
        }
        let spares = &asked.spares;
        let homes = if servers.is_empty() { &asked.targets } else { servers };
        if servers.is_empty() && spares.is_empty() {
            let rooms = self.rooms(&asked.targets)?;
            if let Some(rack) = &asked.rack {
                self.can_be_rack(name, rack, &rooms)?;
            }
            return Ok(Homes { rooms, shared: None, only: None });
        }
        if !asked.targets.is_empty() && !servers.is_empty() {
            return refuse(
                "give servers, which have a share each, or targets, which have all of it".to_owned(),
            );
        }
        let only = match homes.as_slice() {
            [only] if !spares.is_empty() => Some(only.clone()),
            [only] => {
                return refuse(format!("servers names {only} alone: name two or more, or give it as target"));
            }
            _ if servers.is_empty() => {
                return refuse(
                    "spares stand by for one target, or for servers that have a share each: name that target"
                        .to_owned(),
                );
            }
            _ => None,
        };
        let twice = |&(place, server): &(usize, &String)| homes[..place].contains(server);
        if let Some((_, server)) = homes.iter().enumerate().find(twice) {
            return refuse(format!("servers names {server} twice: each target has one share"));
        }
        let own =
            |&(place, spare): &(usize, &String)| homes.contains(spare) || spares[..place].contains(spare);
        if let Some((_, spare)) = spares.iter().enumerate().find(own) {
            return refuse(format!("spares names {spare}, which has a place already: name another"));
        }
        let all: Vec<String> = homes.iter().chain(spares).cloned().collect();
        let rooms = self.rooms(&all)?;
        let shared = self.shared.dealt(homes, spares);
        let shared = shared.map_err(|error| Refusal::invalid(format!("job {name}: {error}")))?;
        Ok(Homes { rooms, shared: Some(shared), only })
    }

    /// Whether the one target of a rack can be one.
    fn can_be_rack(
        &self,
        job: &str,
        rack: &v1::RackSpec,
        rooms: &[(String, Capacity)],
    ) -> Result<(), Refusal> {
        let refuse = |what: String| Err(Refusal::invalid(format!("job {job}: {what}")));
        let [(only, _)] = rooms else {
            return refuse(format!("a rack is one target, these are {}: name one", rooms.len()));
        };
        let Rack { mac, .. } = Rack::of(job, rack)?;
        let target = self.shared.targets.iter().map(|target| &target.config).find(|c| c.name == *only);
        let Some(target) = target else { return Ok(()) };
        if target.schema.table(RackRow::TABLE).is_err() {
            return refuse(format!("the program of target {only} is no rack: load a newer one"));
        }
        if !target.stations.iter().any(|(station, _)| *station == mac) {
            return refuse(format!(
                "root_mac {} is that of no [[target.station]] of {only}: add one; a thc-ps is told of its root by itself",
                rack.mac
            ));
        }
        Ok(())
    }

    /// The named targets, or all.
    fn rooms(&self, names: &[String]) -> Result<Vec<(String, Capacity)>, Refusal> {
        let views = self.shared.views();
        let all = || {
            self.shared.targets.iter().map(|TargetHandle { config, .. }| {
                // What a target does that is not there yet is its program's, if it gets that from here.
                let loaded = config.loads.as_ref().and(config.capacity.forms);
                let forms = views.get(&config.name).and_then(|view| view.forms).or(loaded);
                (config.name.clone(), Capacity { forms, ..config.capacity })
            })
        };
        if names.is_empty() {
            return Ok(all().collect());
        }
        let mut rooms: Vec<(String, Capacity)> = Vec::with_capacity(names.len());
        for name in names {
            let target = all().find(|(target, _)| target == name);
            let target = target.ok_or_else(|| {
                let there: Vec<String> = all().map(|(name, _)| name).collect();
                Refusal::missing(format!("there is no target {name:?}, but {}", there.join(", ")))
            })?;
            if !rooms.iter().any(|(there, _)| there == name) {
                rooms.push(target);
            }
        }
        Ok(rooms)
    }

    fn connected(&self, name: &str) -> Result<(), Refusal> {
        let views = self.shared.views();
        match views.get(name) {
            Some(view) if view.connected => Ok(()),
            Some(view) if view.error.is_empty() => Err(Refusal::unavailable(format!(
                "target {name} is not connected yet: try again in a second"
            ))),
            Some(view) => Err(Refusal::unavailable(format!("target {name} is away: {}", view.error))),
            None => Err(Refusal::missing(format!("there is no target {name:?}"))),
        }
    }

    /// All jobs.
    #[must_use]
    pub fn jobs(&self) -> Vec<v1::Job> {
        let names: Vec<String> = self.shared.book().jobs.keys().cloned().collect();
        names.iter().filter_map(|name| self.job(name).ok()).collect()
    }

    /// A job.
    ///
    /// # Errors
    /// There is none of the name.
    pub fn job(&self, name: &str) -> Result<v1::Job, Refusal> {
        let book = self.shared.book();
        let job = book.jobs.get(name).ok_or_else(|| no_job(name))?;
        let views = self.shared.views();
        let places = job.targets.iter().filter_map(|target| {
            let place = job.places.get(target)?;
            let view = views.get(target);
            Some(v1::JobPlace {
                target: target.clone(),
                connected: view.is_some_and(|view| view.connected),
                data_base: place.data_base,
                norm_base: place.norm_base,
                group: place.group.into(),
                joined: view.and_then(|view| view.joined.get(name)).copied().unwrap_or(0),
                running: place.session.is_some(),
                sessions: place.sessions,
                members: place.session.as_ref().map_or(0, |session| session.members.len() as u32),
                // Others have it from the one where it began.
                epoch: place.session.as_ref().and(job.running()).map_or(0, |(_, begun)| begun.count.into()),
                seats: place.session.iter().flat_map(Session::seats).map(Into::into).collect(),
                credit: place.session.as_ref().map_or(job.credit(), |session| session.credit),
            })
        });
        Ok(v1::Job {
            next: job.next.as_ref().map(|next| next.spec.shown(Vec::new())),
            spec: Some(job.spec.shown(job.targets.clone())),
            table: job.table.into(),
            tables: job.more.iter().map(|&id| id.into()).collect(),
            places: places.collect(),
            created: job.created,
        })
    }

    /// Changes a job: one whose members come and go when its next session begins, another one while nobody is in it.
    ///
    /// # Errors
    /// There is no such job, who is in it has no place in what it is to be, that cannot be, or a target is away or refuses.
    pub async fn update_job(&self, asked: &v1::UpdateJobRequest) -> Result<v1::Job, Refusal> {
        let _one = self.shared.changing.lock().await;
        self.may_change()?;
        let name = &asked.name;
        let job = self.shared.book().jobs.get(name).cloned().ok_or_else(|| no_job(name))?;
        let next = changed(&job, asked);
        let homes = self.homes(&next)?;
        let names: Vec<String> = homes.rooms.iter().map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.connected(name)?;
        }
        let spec = Spec::of(&homes.asked(&next), job.spec.number, homes.shared.as_ref())?;
        let refuse = |what: String| Err(Refusal::not_now(format!("job {name}: {what}")));
        let (before, after) = (job.spec.members, spec.members);
        let lives = before.is_some() && after.is_some() && job.targets.first() == names.first();
        if let Some((target, session)) = job.running() {
            let n = session.members.len();
            let seats: Vec<u8> = session.seats().collect();
            if before.is_none() {
                return refuse(format!(
                    "it runs with {n} workers on {target}, and always has so many: change it when they have left, or delete it"
                ));
            } else if after.is_none() {
                return refuse(
                    "its members come and go: keep min_workers below max_workers until they have left"
                        .to_owned(),
                );
            } else if !lives {
                return refuse(format!(
                    "its workers join at {}: that changes when they have left",
                    job.targets[0]
                ));
            } else if after.is_some_and(|after| n < after.least.into()) {
                return refuse(format!(
                    "it runs with {n} workers on {target}: let more join first, or ask for fewer at least"
                ));
            } else if let Some(seat) = seats.iter().find(|seat| **seat >= spec.workers) {
                return refuse(format!(
                    "worker {seat} is in its session on {target}: with at most {} there are numbers up to {}",
                    spec.workers,
                    spec.workers - 1
                ));
            }
        }
        let change = self.change(|book| {
            if lives {
                return book.change(name, spec, &homes.rooms);
            }
            let before = book.remove(name).ok_or_else(|| no_job(name))?;
            book.add(spec, &homes.rooms)?;
            if let Some(job) = book.jobs.get_mut(name) {
                job.created = before.created;
            }
            Ok(())
        });
        let ((), before) = change.await?;
        // Where sessions begin comes last: what workers are told there, others must know.
        let all = self.shared.targets.iter().map(|target| target.config.name.clone());
        let first = job.running().map_or(names[0].clone(), |(target, _)| target.to_owned());
        let others: Vec<String> = all.filter(|name| *name != first && self.connected(name).is_ok()).collect();
        let mut synced = self.sync_job(name, &others).await;
        if synced.is_ok() {
            synced = self.sync_job(name, std::slice::from_ref(&first)).await;
        }
        if let Err(refusal) = synced {
            let all: Vec<String> = others.into_iter().chain([first]).collect();
            self.take_back(&format!("job {name}"), &before, &all).await;
            let message = format!("job {name} is as it was: {}", refusal.message);
            return Err(Refusal { message, ..refusal });
        }
        self.job(name)
    }

    /// Deletes a job, also from targets that are away: they get rid of it when they are back.
    ///
    /// # Errors
    /// There is none of the name, or a target refuses.
    pub async fn delete_job(&self, name: &str) -> Result<(), Refusal> {
        let _one = self.shared.changing.lock().await;
        let (job, _) = self.change(|book| book.remove(name).ok_or_else(|| no_job(name))).await?;
        self.shared.reports().retain(|(job, _), _| job != name);
        tracing::info!("job {name}: deleted");
        let there: Vec<String> =
            job.targets.into_iter().filter(|target| self.connected(target).is_ok()).collect();
        self.shared.sync(&there).await
    }

    /// Solves a table and installs it on all targets.
    ///
    /// # Errors
    /// It cannot be, there is no room, a target refuses.
    pub async fn install_table(&self, asked: &v1::InstallTableRequest) -> Result<v1::Table, Refusal> {
        let invalid = |error: &dyn std::fmt::Display| Refusal::invalid(format!("table: {error}"));
        let bits = u8::try_from(asked.bits).ok().filter(|bits| (1..=4).contains(bits));
        let bits = bits.ok_or_else(|| Refusal::invalid(format!("bits is {}: give 1 to 4", asked.bits)))?;
        let table = match (asked.granularity, &asked.fraction, asked.workers) {
            (Some(granularity), Some(fraction), None) => {
                let fraction: Fraction = fraction.parse().map_err(|error: String| invalid(&error))?;
                let granularity = u16::try_from(granularity).unwrap_or(u16::MAX);
                LookupTable::solve(bits, granularity, fraction.0).map_err(|error| invalid(&error))?
            }
            (None, None, Some(workers)) => {
                choose(bits, LANE_BITS, workers).map_err(|error| invalid(&error))?.table
            }
            _ => {
                let text =
                    "give granularity and fraction, or the number of workers that the best table is for";
                return Err(Refusal::invalid(text.to_owned()));
            }
        };
        let told = Table {
            id: TableId(0),
            bits,
            form: Form::USUAL,
            granularity: table.granularity(),
            fraction: table.fraction(),
            t_p: table.t_p(),
            values: table.values16(),
        };
        let _one = self.shared.changing.lock().await;
        let room = self.shared.targets.iter().map(|target| target.config.capacity.tables).min().unwrap_or(0);
        let change = self.change(|book| {
            let id = book.table(&told, room)?;
            if let Some(table) = book.tables.get_mut(&id) {
                table.installed = true;
            }
            Ok(id)
        });
        let (id, before) = change.await?;
        let there = self.targets_there();
        let synced = self.shared.sync(&there).await.and_then(|()| self.takes_table(id, &there));
        if let Err(refusal) = synced {
            self.take_back(&format!("table {id}"), &before, &there).await;
            return Err(refusal);
        }
        self.table(id)
    }

    fn takes_table(&self, id: u8, targets: &[String]) -> Result<(), Refusal> {
        let views = self.shared.views();
        for target in targets {
            if let Some(why) = views.get(target).and_then(|view| view.refused_tables.get(&id)) {
                return Err(Refusal::unavailable(format!("target {target} refuses the table: {why}")));
            }
        }
        Ok(())
    }

    fn targets_there(&self) -> Vec<String> {
        let names = self.shared.targets.iter().map(|target| target.config.name.clone());
        names.filter(|name| self.connected(name).is_ok()).collect()
    }

    fn table(&self, id: u8) -> Result<v1::Table, Refusal> {
        let shown = self.shared.book().shown_table(id);
        shown.ok_or_else(|| {
            Refusal::missing(format!("there is no table {id}: `table list` shows those there are"))
        })
    }

    /// All tables.
    #[must_use]
    pub fn tables(&self) -> Vec<v1::Table> {
        let book = self.shared.book();
        book.tables.keys().filter_map(|&id| book.shown_table(id)).collect()
    }

    /// Deletes a table that no job uses.
    ///
    /// # Errors
    /// There is none, or a job uses it.
    pub async fn delete_table(&self, id: u32) -> Result<(), Refusal> {
        let _one = self.shared.changing.lock().await;
        let shown = self.table(u8::try_from(id).unwrap_or(0))?;
        if !shown.jobs.is_empty() {
            return Err(Refusal::not_now(format!(
                "table {id} is used by {}: delete them first",
                shown.jobs.join(", ")
            )));
        }
        self.change(|book| Ok(book.tables.remove(&(id as u8)))).await?;
        self.shared.sync(&self.targets_there()).await
    }

    /// All targets.
    #[must_use]
    pub fn targets(&self) -> Vec<v1::Target> {
        let book = self.shared.book();
        let views = self.shared.views();
        let targets = self.shared.targets.iter().map(|target| {
            let config = &target.config;
            let view = views.get(&config.name);
            let jobs = book.jobs.values().filter(|job| job.places.contains_key(&config.name));
            v1::Target {
                name: config.name.clone(),
                address: config.address.clone(),
                connected: view.is_some_and(|view| view.connected),
                error: view.map(|view| view.error.clone()).unwrap_or_default(),
                aggregator: config.at.to_string(),
                data_slots: config.capacity.data_slots,
                data_slots_used: jobs.map(|job| job.spec.data_slots).sum(),
            }
        });
        targets.collect()
    }

    /// Counters of a job, or of all if the name is empty.
    ///
    /// # Errors
    /// There is no such job.
    pub fn counters(&self, name: &str) -> Result<v1::ReadCountersResponse, Refusal> {
        let book = self.shared.book();
        if !name.is_empty() && !book.jobs.contains_key(name) {
            return Err(no_job(name));
        }
        let views = self.shared.views();
        let reports = self.shared.reports();
        let mut jobs = Vec::new();
        for job in book.jobs.values().filter(|job| name.is_empty() || job.spec.name == name) {
            for target in &job.targets {
                let job_name = &job.spec.name;
                let Some(view) = views.get(target) else { continue };
                let Some(counted) = view.jobs.get(job_name) else { continue };
                let members = job.places.get(target).and_then(|place| place.session.as_ref());
                let workers = (0u8..).zip(&counted.workers).map(|(worker, c)| {
                    // Packets have numbers of the session, and workers report under those of the job.
                    let seat = members.and_then(|session| session.members.get(&worker)?.seat);
                    let (key, reported_as) =
                        ((job_name.clone(), worker), (job_name.clone(), seat.unwrap_or(worker)));
                    let event = |event: Event| c.events[event as usize];
                    let drops = DropReason::ALL.iter().zip(c.drops).filter(|(_, packets)| *packets > 0);
                    let member = members.and_then(|session| session.members.get(&worker));
                    let before = members.and_then(|session| session.before.as_ref()?.get(&worker)).copied();
                    let in_sums = event(Event::Opened) + event(Event::Added);
                    v1::WorkerCounters {
                        worker: worker.into(),
                        address: member.map(|member| member.at.to_string()).unwrap_or_default(),
                        packets: c.packets,
                        bytes: c.bytes,
                        opened: event(Event::Opened),
                        added: event(Event::Added),
                        duplicate: event(Event::Duplicate),
                        late: event(Event::Late),
                        stale: event(Event::Stale),
                        mismatch: event(Event::Mismatch),
                        drops: drops
                            .map(|(reason, packets)| v1::Drop { reason: reason.name().to_owned(), packets })
                            .collect(),
                        in_session: match members {
                            Some(_) => in_sums.saturating_sub(before.unwrap_or(0)),
                            None => 0,
                        },
                        silent: view.heard.get(&key).map(|heard| heard.at.elapsed().as_secs_f64()),
                        report: reports.get(&reported_as).map(|reported| reported.report),
                    }
                });
                jobs.push(v1::JobCounters {
                    job: job_name.clone(),
                    target: target.clone(),
                    results: counted.answers[0],
                    resent: counted.answers[1],
                    nudges: counted.answers[2],
                    recirculations: counted.answers[3],
                    workers: workers.collect(),
                });
            }
        }
        let targets = self.shared.targets.iter().filter_map(|target| {
            let view = views.get(&target.config.name)?;
            let drops = CARRIER.iter().zip(view.carrier).filter(|(_, packets)| *packets > 0);
            let drops =
                drops.map(|((_, reason), packets)| v1::Drop { reason: (*reason).to_owned(), packets });
            Some(v1::TargetCounters { target: target.config.name.clone(), drops: drops.collect() })
        });
        Ok(v1::ReadCountersResponse { jobs, targets: targets.collect() })
    }

    /// Looks at the counters as often as they are read from the targets, for ever.
    pub async fn sample(&self) {
        let mut ticks = tokio::time::interval(crate::rates::PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let at = ticks.tick().await;
            let counters = self.counters("").unwrap_or_default();
            self.shared.rates().sample(at, &counters);
        }
    }

    /// What is wrong with a job, and what to do.
    ///
    /// # Errors
    /// There is no such job.
    pub fn diagnose(&self, name: &str) -> Result<v1::DiagnoseResponse, Refusal> {
        let job = self.job(name)?;
        let counters = self.counters(name)?;
        let spec = job.spec.clone().unwrap_or_default();
        let slots = u64::from(spec.data_slots.unwrap_or_default());
        let rates = self.shared.rates();
        let slow = |target: &str| {
            waits_for_all(&spec).then(|| rates.slow(name, target, (slots / 64).max(2))).flatten()
        };
        let refused: Vec<(String, String)> = {
            let views = self.shared.views();
            let why =
                |(target, view): (&String, &View)| Some((target.clone(), view.refused.get(name)?.clone()));
            views.iter().filter_map(why).collect()
        };
        let (recent, targets) = (rates.recent(&counters), self.targets());
        let seen =
            Seen { job: &job, counters: &counters, recent: &recent, targets: &targets, refused: &refused };
        let findings = diagnose::findings(&seen, slow);
        Ok(v1::DiagnoseResponse { findings })
    }

    /// A worker's place.
    ///
    /// # Errors
    /// There is no such job, no place, or no target.
    pub fn join(&self, asked: &v1::JoinRequest) -> Result<v1::JoinResponse, Refusal> {
        self.may_change()?;
        let target = self.active(&asked.job)?;
        let mut book = self.shared.book();
        let heard = {
            let views = self.shared.views();
            let of_job = |view: &View| {
                let here = view
                    .heard
                    .iter()
                    .filter(|((job, _), heard)| *job == asked.job && heard.at.elapsed() < ALIVE);
                here.map(|((_, worker), _)| *worker).collect::<Vec<u8>>()
            };
            views.get(&target).map(of_job).unwrap_or_default()
        };
        // Where members come and go, packets do not tell whose seat theirs is.
        let joined = self.shared.views().get(&target).and_then(|view| view.joined.get(&asked.job).copied());
        let job = book.jobs.get_mut(&asked.job).ok_or_else(|| no_job(&asked.job))?;
        let joined = joined.filter(|_| job.spec.members.is_some());
        let workers = job.spec.workers;
        let now = seconds();
        let worker = match asked.rank {
            Some(rank) => u8::try_from(rank).ok().filter(|rank| *rank < workers).ok_or_else(|| {
                Refusal::invalid(format!(
                    "rank {rank}: job {} has the workers 0 to {}",
                    asked.job,
                    workers - 1
                ))
            })?,
            None => {
                let own =
                    job.given.iter().find(|(_, given)| given.token == asked.token).map(|(worker, _)| *worker);
                let free = |worker: &u8| {
                    let promised =
                        job.given.get(worker).is_some_and(|given| now.saturating_sub(given.asked) < PROMISE);
                    let here = match joined {
                        Some(seats) => seats >> worker & 1 == 1,
                        None => heard.contains(worker),
                    };
                    !promised && !here
                };
                own.or_else(|| (0..workers).find(free)).ok_or_else(|| {
                    Refusal::full(format!(
                        "job {} has its {workers} workers: wait for one to end, or make the job larger",
                        asked.job
                    ))
                })?
            }
        };
        job.given.insert(worker, Given { token: asked.token, asked: now });
        job.active = Some(target.clone());
        let spec = &job.spec;
        let table = job.table;
        let config = self.shared.targets.iter().map(|t| &t.config).find(|config| config.name == target);
        let at = config.map(|config| config.at).ok_or_else(|| no_job(&asked.job))?;
        Ok(v1::JoinResponse {
            aggregator: at.to_string(),
            job: spec.number.into(),
            worker: worker.into(),
            workers: workers.into(),
            cookie: spec.cookie.0,
            table: table.into(),
            bits: spec.bits.into(),
            granularity: spec.granularity.into(),
            data_slots: spec.data_slots,
            window: spec.data_slots / 2,
            policy: spec.policy().to_owned(),
        })
    }

    /// Where a job's workers go: to its first server, if its slots are dealt to several; else where they went last, or to the first
    /// of its targets that is there.
    fn active(&self, name: &str) -> Result<String, Refusal> {
        let (targets, active) = {
            let book = self.shared.book();
            let job = book.jobs.get(name).ok_or_else(|| no_job(name))?;
            let shared = job.spec.is_shared();
            (job.targets[..if shared { 1 } else { job.targets.len() }].to_vec(), job.active.clone())
        };
        let there = |target: &&String| self.connected(target).is_ok();
        let found = active
            .as_ref()
            .filter(|target| targets.contains(*target))
            .filter(there)
            .or_else(|| targets.iter().find(there));
        match found {
            Some(target) => Ok(target.clone()),
            None => {
                let why = targets.first().map(|target| self.connected(target)).and_then(Result::err);
                let message = why.map(|refusal| refusal.message).unwrap_or_default();
                Err(Refusal::unavailable(format!("job {name} has no target that is there: {message}")))
            }
        }
    }

    /// Notes how a worker fares.
    ///
    /// # Errors
    /// It is no worker of the job.
    pub fn report(&self, asked: v1::ReportRequest) -> Result<(), Refusal> {
        self.may_change()?;
        let worker = {
            let mut book = self.shared.book();
            let job = book.jobs.get_mut(&asked.job).ok_or_else(|| no_job(&asked.job))?;
            let worker = u8::try_from(asked.worker).ok().filter(|worker| *worker < job.spec.workers);
            let worker = worker.ok_or_else(|| {
                Refusal::invalid(format!("job {} has no worker {}", asked.job, asked.worker))
            })?;
            match job.given.get_mut(&worker) {
                Some(given) if given.token == asked.token => given.asked = seconds(),
                _ => {
                    return Err(Refusal::not_now(format!(
                        "worker {worker} of job {} is another process now",
                        asked.job
                    )));
                }
            }
            worker
        };
        if let Some(report) = asked.report {
            self.shared.reports().insert((asked.job, worker), Reported { report, token: asked.token });
        }
        Ok(())
    }
}
