//! What an agent does when its target is connected: the program, and then all rows.

use super::{Agent, FIRST_RETRY, Refused, Reported};
use crate::capacity::{self, Forms};
use crate::error::ControllerError;
use crate::switch::Target;
use crate::switch_rows::SwitchRows;
use std::time::Instant;

impl Agent {
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
        let way = match jobs.as_slice() {
            [] => {
                "run the controller with --replace-program to load that, which empties the target".to_owned()
            }
            jobs => format!(
                "that is loaded when the sessions of {} are over, or when these jobs are deleted",
                jobs.join(", ")
            ),
        };
        let what = "it has another program than its device_config";
        if !target.p4info().await?.is_some_and(|info| self.config.schema.has_tables_of(&info)) {
            return Err(ControllerError::target(&name, format!("{what}, with other tables: {way}")));
        }
        self.outdated = !jobs.is_empty();
        let what = format!("target {name}: {what}, of the same tables: {way}");
        // Not again each time that a session ends.
        if self.complaints.insert(what.clone()) {
            tracing::warn!("{what}");
        }
        Ok(())
    }

    /// The target becomes what is desired.
    pub(super) async fn take_over(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        self.load(target).await?;
        let info = target.p4info().await?;
        let info = info.as_ref();
        let loads = self.config.loads.is_some();
        if !loads && info.is_some_and(|info| !self.config.schema.has_tables_of(info)) {
            return Err(ControllerError::target(
                target.name(),
                "its program has other tables than the P4Info that the controller has for it: give that program's p4info, or load the program that belongs to this version",
            ));
        }
        self.reported = Reported {
            forms: info.map(Forms::from_p4info).or(self.config.capacity.forms),
            room: info.and_then(capacity::room),
            marks: info.is_some_and(capacity::marks),
        };
        self.shared.store().forget_credit(&self.config.name);
        // What it has refused is tried again.
        self.refused = Refused::default();
        let actual = target.read_rows().await?;
        self.refuse_unknown_sessions(&actual)?;
        self.end_sessions_that_cannot_go_on(&actual)?;
        self.actual = Some(actual);
        self.compared = Some(Instant::now());
        self.sync(target).await?;
        // Nobody was heard while there was no connection.
        self.readings.heard.clear();
        self.complaints.clear();
        self.retry = FIRST_RETRY;
        let mut views = self.shared.views();
        let view = views.entry(self.config.name.clone()).or_default();
        view.connected = true;
        view.forms = self.reported.forms;
        view.compared = self.compared;
        view.error.clear();
        drop(views);
        tracing::info!("target {}: connected; its rows are as desired", target.name());
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
        let jobs = jobs.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let what = format!(
            "it holds sessions of jobs that the state file does not have (numbers {jobs}), and they are left as they are: start with the state file that has them, or with --drop-unknown to end them"
        );
        Err(ControllerError::target(&self.config.name, what))
    }
}
