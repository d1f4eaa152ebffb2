//! What operators and workers ask, done: jobs, tables, joins, counters.

mod declared;
mod jobs;
mod joins;
mod tables;
mod targets;

pub(crate) use jobs::waits_for_all;

use crate::book::Book;
use crate::diagnose::{self, Seen};
use crate::error::ControllerError;
use crate::live::{CARRIER, TargetView};
use crate::rates::{recent, slowest_worker};
use crate::refusal::Refusal;
use crate::section::JobSection;
use crate::state::ControllerState;
use std::sync::Arc;
use std::time::Duration;
use thc_control_proto::v1;
use thc_protocol::aggregator::{DropReason, Event};

/// How long a number stays a worker's that asked for it and was not heard of since, in seconds.
const PROMISE: u64 = 10;
/// A worker whose packets came this recently keeps its number.
const ALIVE: Duration = Duration::from_secs(5);
/// Readings of counters for a diagnosis, and the time between two: a target is read each second.
const READINGS: usize = 4;
const BETWEEN: Duration = Duration::from_millis(1100);
/// Lanes of the switch program.
const LANE_BITS: u8 = 8;

/// Does what is asked.
#[derive(Clone, Debug)]
pub struct Desk {
    shared: Arc<ControllerState>,
}

fn write_refusal(error: ControllerError) -> Refusal {
    Refusal { code: tonic::Code::Internal, message: error.to_string() }
}

fn no_job(name: &str) -> Refusal {
    Refusal::not_found(format!("there is no job {name:?}: `job list` shows those there are"))
}

impl Desk {
    /// Over this state.
    #[must_use]
    pub fn new(shared: Arc<ControllerState>) -> Desk {
        Desk { shared }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &Arc<ControllerState> {
        &self.shared
    }

    /// Changes one job, or tables if it names none, and returns when the change is in the file: nobody hears of
    /// it before. A change that is refused, or that the disk does not take, is undone.
    async fn change<T>(
        &self,
        job: &str,
        change: impl FnOnce(&mut Book) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let _changing = self.shared.changing.lock().await;
        let (done, undo) = self.shared.book().change(job, change)?;
        match self.shared.save().await {
            Ok(()) => Ok(done),
            Err(error) => {
                self.shared.book().undo(undo);
                Err(write_refusal(error))
            }
        }
    }

    /// Lets these targets get what the book wants; none of them may refuse rows of this job.
    async fn sync_job(&self, name: &str, targets: &[String]) -> Result<(), Refusal> {
        self.shared.sync(targets).await?;
        let views = self.shared.views();
        for target in targets {
            if let Some(why) = views.get(target).and_then(|view| view.refused.get(name)) {
                let text = format!("target {target} refuses rows of job {name}: {why}");
                return Err(Refusal::unavailable(text));
            }
        }
        Ok(())
    }

    fn check_connected(&self, name: &str) -> Result<(), Refusal> {
        let views = self.shared.views();
        match views.get(name) {
            Some(view) if view.connected => Ok(()),
            Some(view) if view.error.is_empty() => Err(Refusal::unavailable(format!(
                "target {name} is not connected yet: try again in a second"
            ))),
            Some(view) => {
                // What goes wrong at a target often says itself what to do.
                let way = match view.error.contains("; ") {
                    true => "",
                    false => "; start it or name another target: it is tried again each second",
                };
                Err(Refusal::unavailable(format!("target {name} is away: {}{way}", view.error)))
            }
            None => Err(Refusal::not_found(format!("there is no target {name:?}"))),
        }
    }

    /// Counters of a job, or of all if the name is empty.
    ///
    /// # Errors
    /// There is no such job.
    pub fn counters(&self, name: &str) -> Result<v1::ReadCountersResponse, Refusal> {
        let book = self.shared.book();
        if !name.is_empty() && !book.jobs.contains_key(name) {
            return Err(no_job(name));
        }
        let views = self.shared.views();
        let reports = self.shared.reports();
        let mut jobs = Vec::new();
        for job in book.jobs.values().filter(|job| name.is_empty() || job.spec.name == name) {
            for target in &job.targets {
                let job_name = &job.spec.name;
                let Some(view) = views.get(target) else { continue };
                let Some(counted) = view.jobs.get(job_name) else { continue };
                let members = job.places.get(target).and_then(|place| place.session.as_ref());
                let workers = (0u8..).zip(&counted.workers).map(|(worker, c)| {
                    let key = (job_name.clone(), worker);
                    let event = |event: Event| c.events[event as usize];
                    let drops = DropReason::ALL.iter().zip(c.drops).filter(|(_, packets)| *packets > 0);
                    let member = members.and_then(|session| session.members.get(&worker));
                    let before = members.and_then(|session| session.before.as_ref()?.get(&worker)).copied();
                    let in_sums = event(Event::Opened) + event(Event::Added);
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
                        in_session: match members {
                            Some(_) => in_sums.saturating_sub(before.unwrap_or(0)),
                            None => 0,
                        },
                        silent: view.heard.get(&key).map(|heard| heard.at.elapsed().as_secs_f64()),
                        report: reports.get(&key).copied(),
                    }
                });
                jobs.push(v1::JobCounters {
                    job: job_name.clone(),
                    target: target.clone(),
                    results: counted.answers[0],
                    resent: counted.answers[1],
                    nudges: counted.answers[2],
                    recirculations: counted.answers[3],
                    workers: workers.collect(),
                });
            }
        }
        let targets = self.shared.targets.iter().filter_map(|target| {
            let view = views.get(&target.config.name)?;
            let drops = CARRIER.iter().zip(view.carrier).filter(|(_, packets)| *packets > 0);
            let drops =
                drops.map(|((_, reason), packets)| v1::Drop { reason: (*reason).to_owned(), packets });
            Some(v1::TargetCounters { target: target.config.name.clone(), drops: drops.collect() })
        });
        Ok(v1::ReadCountersResponse { jobs, targets: targets.collect() })
    }

    /// What is wrong with a job, and what to do. Counters are read several times, some seconds apart.
    ///
    /// # Errors
    /// There is no such job.
    pub async fn diagnose(&self, name: &str) -> Result<v1::DiagnoseResponse, Refusal> {
        let mut readings = vec![self.counters(name)?];
        for _ in 1..READINGS {
            tokio::time::sleep(BETWEEN).await;
            readings.push(self.counters(name)?);
        }
        self.findings(name, &readings)
    }

    fn findings(
        &self,
        name: &str,
        readings: &[v1::ReadCountersResponse],
    ) -> Result<v1::DiagnoseResponse, Refusal> {
        let job = self.job(name)?;
        let (Some(first), Some(counters)) = (readings.first(), readings.last()) else {
            return Ok(v1::DiagnoseResponse::default());
        };
        let section = JobSection::from_job(&job);
        let slots = section.options.data_slots.unwrap_or_default();
        let slow = |target: &str| {
            let place = job.places.iter().find(|place| place.target == target)?;
            let behind = (slots / 64).max(2);
            waits_for_all(&section).then(|| slowest_worker(readings, target, place.members, behind)).flatten()
        };
        let refused: Vec<(String, String)> = {
            let views = self.shared.views();
            let why = |(target, view): (&String, &TargetView)| {
                Some((target.clone(), view.refused.get(name)?.clone()))
            };
            views.iter().filter_map(why).collect()
        };
        let (recent, targets) = (recent(first, counters), self.targets());
        let seen = Seen { job: &job, counters, recent: &recent, targets: &targets, refused: &refused };
        Ok(v1::DiagnoseResponse { findings: diagnose::findings(&seen, slow) })
    }
}
