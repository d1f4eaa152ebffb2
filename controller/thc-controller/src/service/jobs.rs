//! Jobs: created, changed, deleted.

use super::{Service, no_job};
use crate::capacity::Capacity;
use crate::live::TargetView;
use crate::rack::RackPlace;
use crate::section::JobSection;
use crate::spec::{JobSpec, ShareServers};
use crate::state::TargetHandle;
use crate::store::Job;
use std::collections::BTreeMap;
use thc_config::values::plural;
use thc_control_proto::v1;
use thc_p4::rows::{RackRow, Row};
use tonic::Status;

/// Checks that no worker is in a job; the refusal ends with this advice.
pub(super) fn check_idle(job: &Job, advice: &str) -> Result<(), Status> {
    let Some((target, session)) = job.running_session() else { return Ok(()) };
    let (name, workers) = (job.spec.name(), plural(session.members.len() as u64, "worker"));
    let message = format!("job {name} runs with {workers} on {target}: {advice}");
    Err(Status::failed_precondition(message))
}

/// The targets of a job.
pub(super) struct Homes {
    /// The job's section, which names them.
    pub(super) section: JobSection,
    pub(super) rooms: Vec<(String, Capacity)>,
    /// If its slots are dealt to them.
    pub(super) shared: Option<ShareServers>,
}

impl Homes {
    /// Names of the targets.
    pub(super) fn names(&self) -> Vec<String> {
        self.rooms.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The job of this number there.
    pub(super) fn spec(&self, number: u16) -> Result<JobSpec, Status> {
        JobSpec::from_request(&self.section, number, self.shared.as_ref())
    }
}

/// A job's places on its targets.
pub(crate) fn places<'a>(
    job: &'a Job,
    views: &'a BTreeMap<String, TargetView>,
) -> impl Iterator<Item = v1::JobPlace> + 'a {
    job.spec.targets().iter().filter_map(|target| {
        let place = job.places.get(target)?;
        let view = views.get(target);
        Some(v1::JobPlace {
            target: target.clone(),
            connected: view.is_some_and(|view| view.connected),
            data_base: place.data_base,
            norm_base: place.norm_base,
            group: place.group.into(),
            joined: view.and_then(|view| view.joined.get(job.spec.name())).copied().unwrap_or(0),
            running: place.session.is_some(),
            sessions: place.sessions,
            members: place.session.as_ref().map_or(0, |session| session.members.len() as u32),
            credit: place.session.as_ref().map_or(job.credit(), |session| session.credit),
        })
    })
}

fn job_message(job: &Job, views: &BTreeMap<String, TargetView>) -> Result<v1::Job, Status> {
    let mut tables = job.tables.iter().map(|&id| id.into());
    Ok(v1::Job {
        section: job.spec.shown().to_toml()?,
        table: tables.next().unwrap_or_default(),
        tables: tables.collect(),
        places: places(job, views).collect(),
        created: job.created,
    })
}

impl Service {
    /// Makes a job on all its targets, or on none.
    pub async fn create_job(&self, asked: &JobSection) -> Result<v1::Job, Status> {
        let _turn = self.shared.turn(asked.name()).await;
        self.wait_for_first_attempts().await;
        let homes = self.homes(asked)?;
        let names = homes.names();
        // A target that is away cannot take the job: refuse before anything is written.
        names.iter().try_for_each(|name| self.check_connected(name))?;
        let name = asked.name();
        self.change(name, |store| store.add(homes.spec(store.free_number())?, &homes.rooms)).await?;
        let Err(refusal) = self.sync(name, &names).await else {
            tracing::info!("job {name}: created on {}", names.join(", "));
            return self.job(name);
        };
        // A target that cannot be written to now gets rid of it when it is back.
        let mut message = format!("job {name} was created on no target: {}", refusal.message());
        if let Err(undo) = self.delete(name).await {
            tracing::warn!("job {name}: deleting it again: {}", undo.message());
            if self.shared.store().jobs.contains_key(name) {
                message = format!("{message}; it is still there, since {}: delete it", undo.message());
            }
        }
        Err(Status::new(refusal.code(), message))
    }

    /// The targets of a job, or the servers that its slots are dealt to.
    pub(super) fn homes(&self, asked: &JobSection) -> Result<Homes, Status> {
        let (name, servers) = (asked.name(), &asked.servers);
        let refuse = |what: String| Err(Status::invalid_argument(format!("job {name}: {what}")));
        if asked.rack.is_some() && !servers.is_empty() {
            return refuse("a rack has all slots: leave out servers or rack".to_owned());
        }
        if servers.is_empty() {
            let rooms = self.rooms(&asked.targets)?;
            if let Some(rack) = RackPlace::from_section(asked)? {
                self.can_be_rack(name, &rack, &rooms)?;
            }
            let targets = rooms.iter().map(|(name, _)| name.clone()).collect();
            return Ok(Homes { section: JobSection { targets, ..asked.clone() }, rooms, shared: None });
        }
        if !asked.targets.is_empty() {
            return refuse(
                "give servers, which have a share each, or targets, which have all of it".to_owned(),
            );
        }
        if let [only] = servers.as_slice() {
            return refuse(format!("servers names {only} alone: name two or more, or give it as target"));
        }
        let twice = |&(place, server): &(usize, &String)| servers[..place].contains(server);
        if let Some((_, server)) = servers.iter().enumerate().find(twice) {
            return refuse(format!("servers names {server} twice: each target has one share"));
        }
        let rooms = self.rooms(servers)?;
        let shared = self.shared.deal(servers);
        let shared = shared
            .map_err(|refusal| Status::invalid_argument(format!("job {name}: {}", refusal.message())))?;
        Ok(Homes { section: asked.clone(), rooms, shared: Some(shared) })
    }

    /// Gives jobs that are dealt to servers the addresses that the configuration has for these now.
    pub fn find_servers(&self) -> Result<(), Status> {
        for job in self.shared.store().jobs.values_mut().filter(|job| job.spec.is_shared()) {
            job.spec = job.spec.with_servers(self.shared.deal(job.spec.targets())?)?;
        }
        Ok(())
    }

    /// Checks that the one target of a rack can be one.
    fn can_be_rack(&self, job: &str, rack: &RackPlace, rooms: &[(String, Capacity)]) -> Result<(), Status> {
        let refuse = |what: String| Err(Status::invalid_argument(format!("job {job}: {what}")));
        let [(only, _)] = rooms else {
            return refuse(format!("a rack is one target, these are {}: name one", rooms.len()));
        };
        let target = &self.shared.target(only)?.config;
        if target.schema.table(RackRow::TABLE).is_err() {
            return refuse(format!("the program of target {only} cannot be a rack: load a newer one"));
        }
        if !target.ports.stations.iter().any(|(station, _)| *station == rack.mac) {
            return refuse(format!(
                "root_mac {} is that of no [[target.station]] of {only}: add one; a thc-ps has its root in its own configuration",
                rack.mac_text()
            ));
        }
        Ok(())
    }

    /// The named targets, or all.
    pub(super) fn rooms(&self, names: &[String]) -> Result<Vec<(String, Capacity)>, Status> {
        let views = self.shared.views();
        let room = |TargetHandle { config, .. }: &TargetHandle| {
            // The abilities of a target that is not up yet are those of its program, if the controller loads it.
            let loaded = config.loads.as_ref().and(config.capacity.forms);
            let forms = views.get(&config.name).and_then(|view| view.forms).or(loaded);
            (config.name.clone(), Capacity { forms, ..config.capacity })
        };
        if names.is_empty() {
            return Ok(self.shared.targets.iter().map(room).collect());
        }
        let mut rooms: Vec<(String, Capacity)> = Vec::with_capacity(names.len());
        for name in names {
            let target = self.shared.target(name)?;
            if !rooms.iter().any(|(there, _)| there == name) {
                rooms.push(room(target));
            }
        }
        Ok(rooms)
    }

    /// All jobs.
    pub fn jobs(&self) -> Vec<v1::Job> {
        let (store, views) = (self.shared.store(), self.shared.views());
        store.jobs.values().filter_map(|job| job_message(job, &views).ok()).collect()
    }

    /// A job.
    pub fn job(&self, name: &str) -> Result<v1::Job, Status> {
        let store = self.shared.store();
        job_message(store.jobs.get(name).ok_or_else(|| no_job(name))?, &self.shared.views())
    }

    /// Makes a job what this section says, on all of its targets, which take it.
    pub(super) async fn change_to(&self, job: &Job, next: &JobSection) -> Result<(), Status> {
        self.wait_for_first_attempts().await;
        let (name, homes) = (job.spec.name(), self.homes(next)?);
        let spec = homes.spec(job.spec.number())?;
        let mut all = homes.names();
        all.iter().try_for_each(|name| self.check_connected(name))?;
        // Targets that it was on, too, if they are there.
        let gone = job.spec.targets().iter().filter(|&target| !all.contains(target));
        let gone: Vec<String> = gone.filter(|target| self.check_connected(target).is_ok()).cloned().collect();
        all.extend(gone);
        check_idle(job, "change it when they have left, or delete it")?;
        self.change(name, |store| store.replace(spec, &homes.rooms)).await?;
        self.sync(name, &all).await.map_err(|refusal| {
            let why = refusal.message();
            let message = format!("job {name} is changed, but {why}; change it again, or delete it");
            Status::new(refusal.code(), message)
        })?;
        tracing::info!("job {name}: changed");
        Ok(())
    }

    /// Deletes a job, also from targets that are away: they get rid of it when they are back.
    pub async fn delete_job(&self, name: &str) -> Result<(), Status> {
        let _turn = self.shared.turn(name).await;
        self.delete(name).await
    }

    /// [`Self::delete_job`] while no other change of the job is made.
    pub(super) async fn delete(&self, name: &str) -> Result<(), Status> {
        let job = self.change(name, |store| store.remove(name).ok_or_else(|| no_job(name))).await?;
        self.shared.reports().retain(|(job, _), _| job != name);
        tracing::info!("job {name}: deleted");
        let there: Vec<String> =
            job.places.into_keys().filter(|target| self.check_connected(target).is_ok()).collect();
        self.sync(name, &there).await
    }
}
