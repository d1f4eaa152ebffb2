//! Sessions that an operator ends, and workers whom an operator sends away.

use super::{Desk, no_job};
use crate::refusal::Refusal;
use crate::state::AgentCommand;

/// Tokens of workers sent away that a job keeps.
const KEPT: usize = 64;

impl Desk {
    /// Ends the session of a job on all its targets: its workers are told, and join anew. The targets where there was one.
    ///
    /// # Errors
    /// There is no such job, or a target with a session is away.
    pub async fn end_session(&self, job: &str) -> Result<Vec<String>, Refusal> {
        let _turn = self.shared.turn(job).await;
        self.end_sessions(job).await
    }

    async fn end_sessions(&self, name: &str) -> Result<Vec<String>, Refusal> {
        let running: Vec<String> = {
            let book = self.shared.book();
            let job = book.jobs.get(name).ok_or_else(|| no_job(name))?;
            let places = job.places.iter().filter(|(_, place)| place.session.is_some());
            places.map(|(target, _)| target.clone()).collect()
        };
        let mut ended = Vec::new();
        for target in running {
            let job = name.to_owned();
            if self.shared.ask(&target, |answer| AgentCommand::EndSession { job, answer }).await? {
                let what = format!("job {name}: an operator has ended its session");
                tracing::info!("{what}");
                ended.push(target);
            }
        }
        Ok(ended)
    }

    /// Takes its number from a worker that has joined by name, and ends the session that it is in: the process that had the number
    /// gets none of this job any more.
    ///
    /// # Errors
    /// There is no such job or worker, or a target with a session is away.
    pub async fn evict(&self, name: &str, worker: u32) -> Result<Vec<String>, Refusal> {
        let _turn = self.shared.turn(name).await;
        let change = self.change(|book| {
            let job = book.jobs.get_mut(name).ok_or_else(|| no_job(name))?;
            let number = u8::try_from(worker).ok().filter(|number| *number < job.spec.workers);
            let Some(number) = number else {
                let most = job.spec.workers - 1;
                return Err(Refusal::invalid(format!("job {name} has no worker {worker}, but 0 to {most}")));
            };
            let given = job.given.remove(&number).ok_or_else(|| {
                Refusal::not_found(format!(
                    "worker {worker} of job {name} has not joined by name: stop its process instead"
                ))
            })?;
            if job.evicted.len() == KEPT {
                job.evicted.remove(0);
            }
            job.evicted.push(given.token);
            Ok(())
        });
        change.await?;
        let what = format!("job {name}: an operator has sent worker {worker} away");
        tracing::warn!("{what}");
        self.end_sessions(name).await
    }
}
