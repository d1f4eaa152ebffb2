//! Brings a connected target to the desired state: the program, and then all rows.

use super::{Agent, FIRST_RETRY, Refused, Reported};
use crate::capacity::{self, Forms};
use crate::error::ControllerError;
use crate::switch::Target;
use crate::switch_rows::SwitchRows;
use std::time::Instant;

/// The complaint about a target's program, and the remedy.
const ANOTHER: &str = "it has another program than its device_config";
const REPLACE: &str = "run the controller with --replace-program to load that one, which empties the target";

impl Agent {
    /// Loads the target's program, if it has none, or has another one that is to be replaced.
    async fn load(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let Some((program, cookie)) = &self.config.loads else { return target.load_if_none().await };
        let name = target.name().to_owned();
        match target.loaded_cookie().await? {
            Some(loaded) if loaded == *cookie => tracing::info!("target {name}: has the program"),
            Some(_) if !self.config.replaces_program => self.complain(format!("{ANOTHER}: {REPLACE}")),
            loaded => {
                target.load(program, *cookie).await?;
                let had = if loaded.is_some() { "another" } else { "no" };
                tracing::info!("target {name}: it had {had} program: loaded");
                // The flag asks for one replacement: a target that keeps no cookie would lose its sessions at each connection.
                self.config.replaces_program = false;
            }
        }
        Ok(())
    }

    /// The target becomes what is desired.
    pub(super) async fn take_over(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        self.load(target).await?;
        let info = target.p4info().await?;
        let info = info.as_ref();
        if info.is_some_and(|info| !self.config.schema.has_tables_of(info)) {
            let what = match &self.config.loads {
                Some(_) => format!("{ANOTHER}, with other tables: {REPLACE}"),
                None => "its program has other tables than the P4Info that the controller has for it: give that program's p4info, or load the program that belongs to this version".to_owned(),
            };
            return Err(ControllerError::target(target.name(), what));
        }
        self.reported = Reported {
            forms: info.map(Forms::from_p4info).or(self.config.capacity.forms),
            room: info.and_then(capacity::room),
            marks: info.is_some_and(capacity::marks),
        };
        self.shared.store().forget_credit(&self.config.name);
        // Rows that the target has refused are tried again.
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
