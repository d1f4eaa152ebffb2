//! An agent's rows on its target, and what the target refuses of them.

use super::{Agent, Packets, RefusedJob};
use crate::error::ControllerError;
use crate::plan::{self, Exclusions};
use crate::store::Job;
use crate::switch::{RefusedUpdate, Target, Written};
use crate::switch_rows::{Owner, owner};
use p4runtime_proto::v1::Update;
use p4runtime_proto::v1::entity::Entity;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use thc_protocol::JobId;
use thc_protocol::wire::Header;

/// For how long joining workers get no answer after a target has refused rows of their job.
const HOLD_OFF: Duration = Duration::from_secs(5);
/// The number of times that rows are written without those that were refused.
const ROUNDS: usize = 32;

impl Agent {
    /// Makes the store's decisions take effect: first in its file, then on the target. Returns those of the
    /// waiting packets that may now be sent.
    pub(super) async fn establish(
        &mut self,
        target: &mut Target,
        mut packets: Packets,
    ) -> Result<Packets, ControllerError> {
        self.pending = true;
        self.record_counted(target).await?;
        self.shared.save().await?;
        self.reconcile(target).await?;
        let new = self.refused.jobs.iter_mut().filter(|(_, refused)| !refused.announced);
        let new: BTreeSet<JobId> =
            new.map(|(&job, refused)| (JobId(job), refused.announced = true).0).collect();
        if !new.is_empty() {
            let about = |bytes: &[u8]| Header::parse(bytes).map(|(header, _)| header.job).ok();
            packets.retain(|(_, bytes)| !about(bytes).is_some_and(|job| new.contains(&job)));
            for job in new {
                packets.extend(self.turn_away(job));
            }
            // They come back without their sessions.
            let actions = self.align();
            let (more, _) = self.record(actions);
            packets.extend(more);
            self.shared.save().await?;
        }
        self.show_refused();
        self.pending = false;
        Ok(packets)
    }

    /// Writes the rows that the target lacks and removes those that it should not have. A job with refused
    /// rows gets none; all others get theirs.
    async fn reconcile(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let mut careful = false;
        // One that comes back is tried again.
        {
            let store = self.shared.store();
            self.refused.tables.retain(|table, _| store.tables.contains_key(table));
        }
        for _ in 0..ROUNDS {
            // After a failure it is not known what the target took: it is read anew.
            let (actual, read) = match self.actual.take() {
                Some(actual) => (actual, false),
                None => (target.read_rows().await?, true),
            };
            let desired = loop {
                let but = self.exclusions();
                let desired = plan::target_rows(&self.config, &self.shared.store(), &but);
                match desired {
                    Err(error @ ControllerError::Room { table, .. }) if !but.tables.contains(&table) => {
                        self.exclude_table(table, &error.to_string());
                    }
                    desired => break desired?,
                }
            };
            let changes = desired.changes(&actual, target.schema())?;
            match target.write(changes, careful).await? {
                Written::All => {
                    self.actual = Some(desired);
                    return Ok(());
                }
                // Somebody else may have changed what it was thought to hold.
                Written::But(_) if !read => {}
                Written::But(refused) => {
                    let known = self.exclusions();
                    refused.into_iter().try_for_each(|refused| self.exclude(target, refused, &known))?;
                }
                Written::NotAll(why) if careful => return Err(failure(target, why)),
                Written::NotAll(_) => careful = true,
            }
        }
        Err(failure(target, "it refuses rows again and again".to_owned()))
    }

    fn exclusions(&self) -> Exclusions {
        Exclusions {
            jobs: self.refused.jobs.keys().copied().collect(),
            tables: self.refused.tables.keys().copied().collect(),
        }
    }

    /// Finds the job of an update that the target has refused. `known` is what the target should already have
    /// nothing of.
    fn exclude(
        &mut self,
        target: &Target,
        RefusedUpdate { update, why }: RefusedUpdate,
        known: &Exclusions,
    ) -> Result<(), ControllerError> {
        let own = &self.config.name;
        let (job, table) = {
            let store = self.shared.store();
            let job = |so: &dyn Fn(&Job, u32) -> bool| {
                let place = |job: &&Job| job.places.get(own).is_some_and(|at| so(job, at.group.into()));
                store.jobs.values().find(place).map(|job| job.spec.number())
            };
            match owner(&update, target.schema()) {
                Owner::Job(number) => (job(&|job, _| job.spec.number() == number), None),
                Owner::Group(group) => (job(&|_, of| of == group), None),
                Owner::Lookup(number) => {
                    let by_id = target.schema().table("lookup").is_ok();
                    let number_of = |id: u8| if by_id { id } else { store.number_of_table(id) };
                    (None, store.tables.keys().copied().find(|&id| number_of(id) == number))
                }
                Owner::Target => (None, None),
            }
        };
        match (job, table) {
            (Some(job), _) if !known.jobs.contains(&job) => self.exclude_job(job, &why),
            (_, Some(table)) if !known.tables.contains(&table) => self.exclude_table(table, &why),
            _ if has_meter(&update) => {
                if std::mem::take(&mut self.config.ports.control_rate) > 0 {
                    let name = target.name();
                    tracing::warn!(
                        "target {name} refuses meters: {why}; its ports may ask this controller as often as they like (control_rate = 0)"
                    );
                }
            }
            _ => return Err(failure(target, why)),
        }
        Ok(())
    }

    fn exclude_job(&mut self, number: u16, why: &str) {
        if self.refused.jobs.contains_key(&number) {
            return;
        }
        let name = {
            let store = self.shared.store();
            let job = store.jobs.values().find(|job| job.spec.number() == number);
            job.map_or(String::new(), |job| job.spec.name().to_owned())
        };
        let target = &self.config.name;
        tracing::warn!("target {target} refuses rows of job {name}: {why}");
        let refused = RefusedJob { why: why.to_owned(), until: Instant::now() + HOLD_OFF, announced: false };
        self.refused.jobs.insert(number, refused);
    }

    /// A lookup table, and the jobs that have it.
    pub(super) fn exclude_table(&mut self, table: u8, why: &str) {
        if self.refused.tables.insert(table, why.to_owned()).is_some() {
            return;
        }
        let of = {
            let store = self.shared.store();
            let has = |job: &&Job| job.places.contains_key(&self.config.name) && job.tables.contains(&table);
            store.jobs.values().filter(has).map(|job| job.spec.number()).collect::<Vec<_>>()
        };
        let target = &self.config.name;
        tracing::warn!("target {target} refuses lookup table {table}: {why}");
        for job in of {
            self.exclude_job(job, why);
        }
    }

    /// A job that the target has refused gets another chance.
    pub(super) fn try_again(&mut self, job: &Job) {
        if self.refused.jobs.remove(&job.spec.number()).is_some() {
            self.refused.tables.retain(|table, _| !job.tables.contains(table));
        }
    }

    fn show_refused(&self) {
        let name = |job: &u16| self.known.get(&JobId(*job)).map(|known| known.name.clone());
        let jobs =
            self.refused.jobs.iter().filter_map(|(job, refused)| Some((name(job)?, refused.why.clone())));
        let jobs = jobs.collect();
        let mut views = self.shared.views();
        let view = views.entry(self.config.name.clone()).or_default();
        (view.refused, view.refused_tables) = (jobs, self.refused.tables.clone());
    }
}

/// Returns whether an update is of a row that only limits a rate.
fn has_meter(update: &Update) -> bool {
    let entity = update.entity.as_ref().and_then(|entity| entity.entity.as_ref());
    matches!(entity, Some(Entity::TableEntry(row)) if row.meter_config.is_some())
}

fn failure(target: &Target, message: String) -> ControllerError {
    ControllerError::target(target.name(), format!("a write failed: {message}"))
}
