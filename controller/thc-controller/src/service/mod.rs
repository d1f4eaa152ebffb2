//! The requests of operators and workers: jobs, joins, diagnosis.

mod counters;
mod declared;
mod grpc;
mod jobs;
mod joins;
mod targets;

pub(crate) use jobs::places;

use crate::error::ControllerError;
use crate::state::ControllerState;
use crate::store::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Status;

/// The seconds for which a number stays that of a worker that asked for it and was not heard of since.
const PROMISE: u64 = 10;
/// A worker whose packets came this recently keeps its number.
const ALIVE: Duration = Duration::from_secs(5);

/// The controller's service.
#[derive(Clone, Debug)]
pub struct Service {
    shared: Arc<ControllerState>,
}

fn no_job(name: &str) -> Status {
    Status::not_found(format!("there is no job {name:?}: see `thc-controller job list`"))
}

impl Service {
    /// The service of this state.
    pub fn new(shared: Arc<ControllerState>) -> Service {
        Service { shared }
    }

    /// The state.
    pub fn state(&self) -> &Arc<ControllerState> {
        &self.shared
    }

    /// Changes one job, or tables if it names none, and returns when the change is in the file: nobody hears of
    /// it before. A change that is refused, or that the disk does not take, is undone.
    async fn change<T>(
        &self,
        job: &str,
        change: impl FnOnce(&mut Store) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let _changing = self.shared.changing.lock().await;
        let (done, undo) = self.shared.store().change(job, change)?;
        match self.shared.save().await {
            Ok(()) => Ok(done),
            Err(error) => {
                self.shared.store().undo(undo);
                Err(error.into())
            }
        }
    }

    /// Has the agents of these targets write the store's rows, none of which a target may refuse of this job.
    async fn sync(&self, name: &str, targets: &[String]) -> Result<(), Status> {
        let mut answers = Vec::new();
        for handle in self.shared.targets.iter().filter(|handle| targets.contains(&handle.config.name)) {
            let (sender, answer) = oneshot::channel();
            // Without an agent the answer says so.
            let _ = handle.syncs.send(sender).await;
            answers.push((handle, answer));
        }
        let mut first = Ok(());
        for (handle, answer) in answers {
            let done = answer.await.unwrap_or_else(|_| {
                Err(ControllerError::target(&handle.config.name, "the controller is stopping"))
            });
            first = first.and(done);
        }
        first.map_err(|error| Status::unavailable(error.to_string()))?;
        let views = self.shared.views();
        for target in targets {
            if let Some(why) = views.get(target).and_then(|view| view.refused.get(name)) {
                let text = format!("target {target} refuses rows of job {name}: {why}");
                return Err(Status::unavailable(text));
            }
        }
        Ok(())
    }

    /// Waits until the controller, which may just have started, has tried to reach every target; at most two seconds.
    async fn wait_for_first_attempts(&self) {
        for _ in 0..20 {
            if self.shared.views().values().all(|view| view.connected || !view.error.is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn check_connected(&self, name: &str) -> Result<(), Status> {
        let views = self.shared.views();
        match views.get(name) {
            Some(view) if view.connected => Ok(()),
            Some(view) if view.error.is_empty() => {
                Err(Status::unavailable(format!("target {name} is not connected yet: try again in a second")))
            }
            Some(view) => {
                // Errors of a target often say themselves what to do.
                let way = match view.error.contains("; ") {
                    true => "",
                    false => "; start it or name another target: it is tried again each second",
                };
                Err(Status::unavailable(format!("target {name} is away: {}{way}", view.error)))
            }
            None => Err(Status::not_found(format!("there is no target {name:?}"))),
        }
    }
}
