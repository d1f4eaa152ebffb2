//! What the targets have counted, and what that says.

use super::{Service, no_job, places};
use crate::diagnose::{self, Seen};
use crate::live::{CARRIER, TargetView};
use crate::store::Job;
use std::collections::BTreeMap;
use std::time::Duration;
use thc_control_proto::v1::{self, WorkerReport};
use thc_protocol::aggregator::{DropReason, Event};
use tonic::Status;

/// Readings of counters for a diagnosis, and the time between two: a target is read each second.
const READINGS: usize = 4;
const BETWEEN: Duration = Duration::from_millis(1100);

/// What a target has counted of a job; `None` if nothing was read yet.
fn job_counters(
    job: &Job,
    target: &str,
    view: &TargetView,
    reports: &BTreeMap<(String, u8), WorkerReport>,
) -> Option<v1::JobCounters> {
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
    let workers = (0u8..).zip(&counted.workers).map(|(worker, c)| {
        let key = (name.to_owned(), worker);
        let event = |event: Event| c.events[event as usize];
        let drops = DropReason::ALL.iter().zip(c.drops).filter(|(_, packets)| *packets > 0);
        let member = session.and_then(|session| session.members.get(&worker));
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
            behind: in_session.get(&worker).map(|own| foremost - own),
            silent: view.heard.get(&key).map(|heard| heard.at.elapsed().as_secs_f64()),
            report: reports.get(&key).copied(),
        }
    });
    Some(v1::JobCounters {
        job: name.to_owned(),
        target: target.to_owned(),
        results: counted.answers[0],
        resent: counted.answers[1],
        nudges: counted.answers[2],
        recirculations: counted.answers[3],
        workers: workers.collect(),
    })
}

impl Service {
    /// Counters of a job, or of all if the name is empty.
    pub fn counters(&self, name: &str) -> Result<v1::ReadCountersResponse, Status> {
        let store = self.shared.store();
        if !name.is_empty() && !store.jobs.contains_key(name) {
            return Err(no_job(name));
        }
        let views = self.shared.views();
        let reports = self.shared.reports();
        let jobs = store.jobs.values().filter(|job| name.is_empty() || job.spec.name() == name);
        let jobs = jobs.flat_map(|job| {
            let targets = job.spec.targets().iter();
            targets
                .filter_map(|target| job_counters(job, target, views.get(target)?, &reports))
                .collect::<Vec<_>>()
        });
        let targets = self.shared.targets.iter().filter_map(|target| {
            let view = views.get(&target.config.name)?;
            let drops = CARRIER.iter().zip(view.carrier).filter(|(_, packets)| *packets > 0);
            let drops =
                drops.map(|((_, reason), packets)| v1::Drop { reason: (*reason).to_owned(), packets });
            Some(v1::TargetCounters { target: target.config.name.clone(), drops: drops.collect() })
        });
        Ok(v1::ReadCountersResponse { jobs: jobs.collect(), targets: targets.collect() })
    }

    /// What is wrong with a job, and what to do. Counters are read several times, some seconds apart.
    pub async fn diagnose(&self, name: &str) -> Result<v1::DiagnoseResponse, Status> {
        let mut readings = vec![self.counters(name)?];
        for _ in 1..READINGS {
            tokio::time::sleep(BETWEEN).await;
            readings.push(self.counters(name)?);
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
