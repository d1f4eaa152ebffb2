//! Workers that join by name, and what they report.

use super::{ALIVE, PROMISE, Service, no_job};
use crate::live::TargetView;
use crate::store::{Given, seconds};
use thc_control_proto::v1;
use tonic::Status;

impl Service {
    /// A worker's place. It is in the file before the worker hears of it: a controller that is started anew
    /// gives the number to no other worker.
    pub async fn join(&self, asked: &v1::JoinRequest) -> Result<v1::JoinResponse, Status> {
        let answer = self.give_number(asked)?;
        self.shared.save().await?;
        Ok(answer)
    }

    fn give_number(&self, asked: &v1::JoinRequest) -> Result<v1::JoinResponse, Status> {
        let target = self.active(&asked.job)?;
        let mut store = self.shared.store();
        let heard = {
            let views = self.shared.views();
            let of_job = |view: &TargetView| {
                let here = view
                    .heard
                    .iter()
                    .filter(|((job, _), heard)| *job == asked.job && heard.at.elapsed() < ALIVE);
                here.map(|((_, worker), _)| *worker).collect::<Vec<u8>>()
            };
            views.get(&target).map(of_job).unwrap_or_default()
        };
        let job = store.jobs.get_mut(&asked.job).ok_or_else(|| no_job(&asked.job))?;
        let workers = job.spec.config().workers;
        let now = seconds();
        let worker = match asked.rank {
            Some(rank) => u8::try_from(rank).ok().filter(|rank| *rank < workers).ok_or_else(|| {
                Status::invalid_argument(format!(
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
                        job.given.get(worker).is_some_and(|given| now.abs_diff(given.asked) < PROMISE);
                    !promised && !heard.contains(worker)
                };
                own.or_else(|| (0..workers).find(free)).ok_or_else(|| {
                    Status::resource_exhausted(format!(
                        "job {} has its {workers} workers: wait for one to end, or make the job larger",
                        asked.job
                    ))
                })?
            }
        };
        job.given.insert(worker, Given { token: asked.token, asked: now });
        job.active = Some(target.clone());
        let config = job.spec.config();
        let at = self.shared.target(&target)?.config.at;
        Ok(v1::JoinResponse {
            aggregator: at.to_string(),
            job: config.job.0.into(),
            worker: worker.into(),
            workers: workers.into(),
            cookie: config.cookie.0,
        })
    }

    /// The server that a job's workers go to: its first server, if its slots are dealt to several; else where they went last, or to the first
    /// of its targets that is there.
    fn active(&self, name: &str) -> Result<String, Status> {
        let (targets, active) = {
            let store = self.shared.store();
            let job = store.jobs.get(name).ok_or_else(|| no_job(name))?;
            let targets = job.spec.targets();
            let count = if job.spec.is_shared() { 1 } else { targets.len() };
            (targets[..count].to_vec(), job.active.clone())
        };
        let there = |target: &&String| self.check_connected(target).is_ok();
        let found = active
            .as_ref()
            .filter(|target| targets.contains(*target))
            .filter(there)
            .or_else(|| targets.iter().find(there));
        match found {
            Some(target) => Ok(target.clone()),
            None => {
                let why = targets.first().and_then(|target| self.check_connected(target).err());
                let message = why.map(|refusal| refusal.message().to_owned()).unwrap_or_default();
                Err(Status::unavailable(format!("job {name} has no target that is there: {message}")))
            }
        }
    }

    /// Notes how a worker fares.
    pub fn report(&self, asked: v1::ReportRequest) -> Result<(), Status> {
        let worker = {
            let mut store = self.shared.store();
            let job = store.jobs.get_mut(&asked.job).ok_or_else(|| no_job(&asked.job))?;
            let worker = u8::try_from(asked.worker).ok().filter(|worker| *worker < job.spec.config().workers);
            let worker = worker.ok_or_else(|| {
                Status::invalid_argument(format!("job {} has no worker {}", asked.job, asked.worker))
            })?;
            match job.given.get_mut(&worker) {
                Some(given) if given.token == asked.token => given.asked = seconds(),
                _ => {
                    return Err(Status::failed_precondition(format!(
                        "worker {worker} of job {} is another process now",
                        asked.job
                    )));
                }
            }
            worker
        };
        if let Some(report) = asked.report {
            self.shared.reports().insert((asked.job, worker), report);
        }
        Ok(())
    }
}
