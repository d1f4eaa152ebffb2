//! The counters of the targets as they were read last, and what they say about a job.

use super::{Service, no_job, places};
use crate::diagnose::{self, Seen};
use crate::live::{JobReading, Reading, TargetView, WorkerReading};
use crate::store::Job;
use std::collections::BTreeMap;
use std::time::Duration;
use thc_control_proto::v1::{self, WorkerReport};
use tonic::Status;

/// Readings of counters for a diagnosis, and the time between two: a target is read each second.
const READINGS: usize = 4;
const BETWEEN: Duration = Duration::from_millis(1100);

/// The counters of a job on a target; `None` if none were read yet.
fn read_job(
    job: &Job,
    target: &str,
    view: &TargetView,
    reports: &BTreeMap<(String, u8), WorkerReport>,
) -> Option<JobReading> {
    let name = job.spec.name();
    let counted = view.jobs.get(name)?;
    let session = job.places.get(target).and_then(|place| place.session.as_ref());
    // Members, and their packets in sums of the running session.
    let members = session.iter().flat_map(|session| session.members.keys());
    let in_session = members.map(|&worker| {
        let before = session.and_then(|session| session.before.as_ref()?.get(&worker)).copied();
        (worker, counted.in_sums(worker).saturating_sub(before.unwrap_or(0)))
    });
    let in_session: BTreeMap<u8, u64> = in_session.filter(|_| job.spec.waits_for_all()).collect();
    let foremost = in_session.values().max().copied().unwrap_or(0);
    let workers = (0u8..).zip(&counted.workers).map(|(worker, &counted)| {
        let key = (name.to_owned(), worker);
        WorkerReading {
            worker,
            counted,
            behind: in_session.get(&worker).map(|own| foremost - own),
            silent: view.heard.get(&key).map(|heard| heard.at.elapsed().as_secs_f64()),
            report: reports.get(&key).copied(),
        }
    });
    let (job, target) = (name.to_owned(), target.to_owned());
    Some(JobReading { job, target, answers: counted.answers, workers: workers.collect() })
}

impl Service {
    /// The counters of this job, or of all jobs.
    pub fn counters(&self, name: Option<&str>) -> Reading {
        let (store, views) = (self.shared.store(), self.shared.views());
        let reports = self.shared.reports();
        let jobs = store.jobs.values().filter(|job| name.is_none_or(|name| job.spec.name() == name));
        let jobs = jobs.flat_map(|job| {
            let targets = job.spec.targets().iter();
            targets
                .filter_map(|target| read_job(job, target, views.get(target)?, &reports))
                .collect::<Vec<_>>()
        });
        let carrier = views.iter().map(|(target, view)| (target.clone(), view.carrier)).collect();
        Reading { jobs: jobs.collect(), carrier }
    }

    /// The problems of a job, and their remedies. Counters are read several times, some seconds apart.
    pub async fn diagnose(&self, name: &str) -> Result<v1::DiagnoseResponse, Status> {
        self.job(name)?;
        let mut readings = vec![self.counters(Some(name))];
        for _ in 1..READINGS {
            tokio::time::sleep(BETWEEN).await;
            readings.push(self.counters(Some(name)));
        }
        let targets = self.targets();
        let (store, views) = (self.shared.store(), self.shared.views());
        let job = store.jobs.get(name).ok_or_else(|| no_job(name))?;
        let why =
            |(target, view): (&String, &TargetView)| Some((target.clone(), view.refused.get(name)?.clone()));
        let refused: Vec<(String, String)> = views.iter().filter_map(why).collect();
        let config = job.spec.config();
        let seen = Seen {
            workers: config.workers.into(),
            places: &places(job, &views).collect::<Vec<_>>(),
            readings: &readings,
            targets: &targets,
            refused: &refused,
            behind: u64::from(config.data_slots / 64).max(2),
        };
        Ok(v1::DiagnoseResponse { findings: diagnose::findings(&seen) })
    }
}
