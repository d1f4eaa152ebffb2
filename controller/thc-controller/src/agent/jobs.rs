//! The jobs of an agent's registry.

use super::{Agent, Known, Refused};
use crate::error::ControllerError;
use crate::plan::{self, Exclusions};
use crate::store::{Job, Placement, fits};
use crate::switch_rows::SwitchRows;
use std::sync::Arc;
use thc_config::job::JobSetup;
use thc_config::values::plural;
use thc_p4::rows::{ControlPlaneRow, Row};
use thc_protocol::session::{Action, SessionMember, StaticJob};
use thc_protocol::wire::{Table, Tables};
use thc_protocol::{Cookie, JobId, TableId, WorkerId};

impl Agent {
    /// A restarted target has lost its sums, and so has a job whose row another has deleted. With a full
    /// quorum workers send them again; with a smaller one a sum that some workers have might be made again
    /// from other workers (P24), so workers must join anew. They must also do so if another has changed their
    /// lookup table, since slots may be half filled with its values (P6).
    ///
    /// A target without this controller's first rows was restarted; one without sessions may have none.
    pub(super) fn end_sessions_that_cannot_go_on(
        &mut self,
        actual: &SwitchRows,
    ) -> Result<(), ControllerError> {
        let schema = &self.config.schema;
        let restarted = !actual.has_rows_of(schema.table(ControlPlaneRow::TABLE)?);
        let sessions = actual.sessions(schema)?;
        let mut store = self.shared.store();
        let desired = match plan::target_rows(&self.config, &store, &Exclusions::default()) {
            // Jobs without room are excluded when rows are written.
            Err(ControllerError::Room { .. }) => actual.clone(),
            desired => desired?,
        };
        let disturbed = desired.disturbed_jobs(actual, schema)?;
        let mut ended = Vec::new();
        for (name, job) in &mut store.jobs {
            let partial = job.spec.config().quorum < job.spec.config().workers;
            let number = job.spec.number();
            let Some(place) = job.places.get_mut(&self.config.name) else { continue };
            // No row was written of a session whose counters were not looked at yet.
            let written = place.session.as_ref().is_some_and(|session| session.before.is_some());
            let lost = restarted || (written && !sessions.contains(&number));
            let disturbed = !lost && disturbed.contains(&number);
            if lost {
                // Its counters begin anew as well.
                place.earlier = None;
            }
            let Some(session) = &mut place.session else { continue };
            if lost {
                session.before = None;
            }
            if disturbed || (partial && lost) {
                place.session = None;
                let why = match (disturbed, restarted) {
                    (true, _) => "its lookup table was changed",
                    (_, true) => "the target was restarted",
                    _ => "somebody else has deleted its row",
                };
                ended.push((JobId(number), name.clone(), why));
            }
        }
        drop(store);
        for (number, name, why) in ended {
            let what = format!("job {name}: {why}; its workers must join anew");
            tracing::warn!("{what}");
            // It comes back without its session.
            self.known.remove(&number);
            self.registry.remove(number);
        }
        Ok(())
    }

    /// Takes jobs that came or went into the registry.
    pub(super) fn align(&mut self) -> Vec<Action> {
        let shared = Arc::clone(&self.shared);
        let mut store = shared.store();
        if let Some(room) = self.reported.room {
            store.give_credit(&self.config.name, room, self.config.shards);
        }
        let here = |known: &Known| {
            store
                .jobs
                .get(&known.name)
                .is_some_and(|job| job.serial == known.serial && job.places.contains_key(&self.config.name))
        };
        let gone: Vec<JobId> =
            self.known.iter().filter(|(_, known)| !here(known)).map(|(number, _)| *number).collect();
        let mut actions = Vec::new();
        for number in gone {
            let known = self.known.remove(&number);
            self.readings.heard.retain(|(job, _), _| *job != number);
            // There is room for others.
            self.refused = Refused::default();
            let ended = self.registry.remove(number);
            // A job that goes on without this target ends nobody's session.
            let goes_on = known.is_some_and(|known| {
                store.jobs.get(&known.name).is_some_and(|job| job.serial == known.serial)
            });
            actions.extend(ended.into_iter().filter(|end| !goes_on || !matches!(end, Action::Send(..))));
        }
        for (name, job) in &store.jobs {
            let number = JobId(job.spec.number());
            let Some(place) = job.places.get(&self.config.name) else { continue };
            if self.known.contains_key(&number) {
                continue;
            }
            let Some(job_here) = self.static_job(job) else { continue };
            match job.spec.follows_at(&self.config.name) {
                true => self.registry.insert_share(job_here),
                false => self.registry.insert(job_here),
            }
            self.restore(name, number, place);
            let known = Known { name: name.clone(), serial: job.serial, workers: job.spec.config().workers };
            self.known.insert(number, known);
        }
        actions
    }

    /// A session that ran before this controller had it goes on.
    fn restore(&mut self, name: &str, number: JobId, place: &Placement) {
        let Some(session) = &place.session else { return };
        let members: Vec<SessionMember> = session
            .members
            .iter()
            .map(|(&worker, member)| {
                self.macs.insert(member.at, member.mac);
                SessionMember { worker: WorkerId(worker), nonce: member.nonce, addr: member.at, left: false }
            })
            .collect();
        if self.registry.restore(self.started.elapsed(), number, Cookie(session.cookie.0), &members) {
            let workers = plural(members.len() as u64, "worker");
            tracing::info!("job {name}: its session of {workers} goes on");
        }
    }

    /// A job in the registry's form; `None` if no worker can join it here, which is logged.
    fn static_job(&mut self, job: &Job) -> Option<StaticJob> {
        let (name, rack, mut setup) = (job.spec.name(), job.spec.rack.as_ref(), job.spec.setup.clone());
        let fit = |table: &Table| fits(name, &self.config.name, self.reported.forms, table, rack);
        if let Err(refusal) = setup.welcome.tables.iter().try_for_each(fit) {
            tracing::warn!("{}; nobody can join it there", refusal.message());
            return None;
        }
        let mut tables = setup.welcome.tables.to_vec();
        tables.iter_mut().zip(&job.tables).for_each(|(table, &id)| table.id = TableId(id));
        setup.config.tables = tables.iter().map(|table| table.id).collect();
        let welcome = &mut setup.welcome;
        welcome.tables = Tables::new(&tables).unwrap_or(welcome.tables);
        (welcome.shards, welcome.credit, welcome.marks) =
            (self.config.shards, job.credit(), self.reported.marks);
        if let Some(rack) = rack {
            self.macs.insert(rack.root, rack.mac);
        }
        let JobSetup { config, welcome, root, .. } = setup;
        Some(StaticJob { config, welcome, root })
    }
}
