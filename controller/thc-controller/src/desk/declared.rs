//! Declared jobs: what a file says that shall be, made so. What a session stands against waits for its end.

use super::{Desk, no_job};
use crate::book::{Declared, Job, Pending};
use crate::capacity::Capacity;
use crate::refusal::Refusal;
use crate::section::JobSection;
use crate::spec::JobSpec;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::time::Duration;
use thc_control_proto::v1;
use thc_control_proto::v1::job_change::Kind;

/// How often it is looked whether what waits can be done.
const LOOK: Duration = Duration::from_secs(1);
const NOW: &str = "now";
const AT_END: &str = "when its session is over";

/// What is to be done about one job.
struct Step {
    change: v1::JobChange,
    /// What it was asked to be, of one that is new.
    asked: JobSection,
    /// What it becomes, and where.
    becomes: Option<(JobSpec, Vec<(String, Capacity)>)>,
}

/// What is asked for, with what the job has already where that would be chosen.
fn fill(job: &Job, asked: &JobSection) -> JobSection {
    let was = job.spec.section(job.targets.clone());
    let stays = asked.targets.is_empty() && asked.servers.is_empty() && !job.spec.is_shared();
    let mut filled = asked.clone();
    filled.options.job = filled.options.job.or(was.options.job);
    filled.options.cookie = filled.options.cookie.or(was.options.cookie);
    filled.options.seed = filled.options.seed.or(was.options.seed);
    if stays {
        filled.targets = was.targets;
    }
    filled
}

/// What differs between two specs, key by key as they are shown; secrets are not.
fn differences(is: (&JobSpec, Vec<String>), shall: (&JobSpec, Vec<String>)) -> Vec<String> {
    let mut found = Vec::new();
    if is.0.cookie != shall.0.cookie {
        found.push("cookie: another".to_owned());
    }
    if is.0.seed != shall.0.seed {
        found.push("seed: another".to_owned());
    }
    let json = |(spec, targets): (&JobSpec, Vec<String>)| serde_json::to_value(spec.to_section(targets));
    let (Ok(is), Ok(shall)) = (json(is), json(shall)) else { return found };
    for (key, shall) in shall.as_object().into_iter().flatten() {
        let is = &is[key];
        if is != shall {
            found.push(format!("{key}: {is} -> {shall}"));
        }
    }
    found
}

impl Desk {
    /// Makes jobs what an operator declares, or says what that would change.
    ///
    /// # Errors
    /// One of them cannot be: then nothing is changed. What is refused later is in that job's change.
    pub async fn apply(&self, asked: &v1::ApplyJobsRequest) -> Result<Vec<v1::JobChange>, Refusal> {
        let jobs =
            JobSection::parse_all(&asked.sections).map_err(|error| Refusal::invalid(error.to_string()))?;
        self.declare(&jobs, Declared::Apply, asked.prune, asked.plan_only).await
    }

    /// Makes jobs what the configuration says; those that it said earlier and says no more go. Targets get them when they come.
    ///
    /// # Errors
    /// One of them cannot be.
    pub async fn apply_configured(&self, jobs: &[JobSection]) -> Result<(), Refusal> {
        let changes = self.declare(jobs, Declared::File, true, false).await?;
        for change in changes.iter().filter(|change| !change.error.is_empty()) {
            let what = format!("job {} of the configuration: {}", change.job, change.error);
            tracing::warn!("{what}");
        }
        Ok(())
    }

    /// Whether the jobs of a configuration can be.
    ///
    /// # Errors
    /// Why one cannot.
    pub fn check(&self, jobs: &[JobSection]) -> Result<(), Refusal> {
        jobs.iter().try_for_each(|asked| self.step(asked).map(drop))
    }

    async fn declare(
        &self,
        jobs: &[JobSection],
        by: Declared,
        prune: bool,
        plan_only: bool,
    ) -> Result<Vec<v1::JobChange>, Refusal> {
        let mut names = BTreeSet::new();
        if let Some(twice) = jobs.iter().find(|job| !names.insert(job.name().to_owned())) {
            return Err(Refusal::invalid(format!("job {}: it is declared twice", twice.name())));
        }
        let mut steps = jobs.iter().map(|asked| self.step(asked)).collect::<Result<Vec<Step>, _>>()?;
        if prune {
            let book = self.shared.book();
            let gone = book.jobs.values().filter(|job| job.declared == Some(by));
            steps.extend(gone.filter(|job| !names.contains(&job.spec.name)).map(|job| Step {
                change: v1::JobChange {
                    job: job.spec.name.clone(),
                    kind: Kind::Delete.into(),
                    when: if job.running_session().is_some() { AT_END } else { NOW }.to_owned(),
                    ..v1::JobChange::default()
                },
                asked: JobSection::default(),
                becomes: None,
            }));
        }
        if plan_only {
            return Ok(steps.into_iter().map(|step| step.change).collect());
        }
        // Beside each other: none waits for a target that only another one is on.
        let changes = join_all(steps.into_iter().map(async |step| {
            let mut change = step.change.clone();
            if let Err(refusal) = self.take(step, by).await {
                change.error = refusal.message;
            }
            change
        }));
        let changes = changes.await;
        let declared = self.change(|book| {
            for job in book.jobs.values_mut().filter(|job| names.contains(&job.spec.name)) {
                job.declared = Some(by);
            }
            Ok(())
        });
        declared.await?;
        Ok(changes)
    }

    /// What is to be done about one job.
    fn step(&self, asked: &JobSection) -> Result<Step, Refusal> {
        let job = self.shared.book().jobs.get(asked.name()).cloned();
        let step = |kind: Kind, differences, when: &str, becomes| Step {
            change: v1::JobChange {
                job: asked.name().to_owned(),
                kind: kind.into(),
                differences,
                when: when.to_owned(),
                error: String::new(),
            },
            asked: asked.clone(),
            becomes,
        };
        let Some(job) = job else {
            let homes = self.homes(asked)?;
            let number = self.shared.book().free_number();
            JobSpec::from_request(asked, number, homes.shared.as_ref())?;
            return Ok(step(Kind::Create, Vec::new(), NOW, None));
        };
        let next = fill(&job, asked);
        let homes = self.homes(&next)?;
        let spec = JobSpec::from_request(&next, job.spec.number, homes.shared.as_ref())?;
        let targets: Vec<String> = homes.rooms.iter().map(|(name, _)| name.clone()).collect();
        let is = match job.pending.as_deref() {
            Some(Pending::Change { spec, targets }) => (&**spec, targets.clone()),
            _ => (&job.spec, job.targets.clone()),
        };
        let differences = differences(is, (&spec, targets));
        if differences.is_empty() && !matches!(job.pending.as_deref(), Some(Pending::Delete)) {
            return Ok(step(Kind::Unchanged, differences, "", None));
        }
        let when = if job.running_session().is_none() { NOW } else { AT_END };
        Ok(step(Kind::Change, differences, when, Some((spec, homes.rooms))))
    }

    /// Does it, or puts it down for later.
    async fn take(&self, step: Step, by: Declared) -> Result<(), Refusal> {
        let Step { change, asked, becomes } = step;
        let name = &change.job;
        match (change.kind(), becomes) {
            (Kind::Create, _) if by == Declared::File => self.create_for_later(&asked).await,
            (Kind::Create, _) => self.create_job(&asked).await.map(drop),
            (Kind::Change, Some((spec, rooms))) => {
                let _turn = self.shared.turn(name).await;
                let job = self.shared.book().jobs.get(name).cloned().ok_or_else(|| no_job(name))?;
                let targets = rooms.iter().map(|(name, _)| name.clone()).collect();
                let later = Pending::Change { spec: Box::new(spec.clone()), targets };
                if change.when == AT_END {
                    return self.wait_for_end(name, later).await;
                }
                match self.change_to(&job, spec, &rooms, by == Declared::Apply).await {
                    // Who is in the session has no place in it.
                    Err(refusal)
                        if job.running_session().is_some()
                            && refusal.code == tonic::Code::FailedPrecondition =>
                    {
                        self.wait_for_end(name, later).await
                    }
                    done => done,
                }
            }
            (Kind::Delete, _) => {
                let _turn = self.shared.turn(name).await;
                match change.when.as_str() {
                    AT_END => self.wait_for_end(name, Pending::Delete).await,
                    _ => self.delete(name).await,
                }
            }
            _ => Ok(()),
        }
    }

    async fn wait_for_end(&self, name: &str, pending: Pending) -> Result<(), Refusal> {
        let change = self.change(|book| {
            let job = book.jobs.get_mut(name).ok_or_else(|| no_job(name))?;
            job.pending = Some(Box::new(pending));
            Ok(())
        });
        change.await.map(drop)
    }

    /// Does what waits for the end of sessions, for ever.
    pub async fn carry_out(&self) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let due: Vec<Job> = {
                let book = self.shared.book();
                let due = |job: &&Job| job.pending.is_some() && job.running_session().is_none();
                book.jobs.values().filter(due).cloned().collect()
            };
            for job in due {
                let name = &job.spec.name;
                if let Err(refusal) = self.carry_out_of(&job).await {
                    tracing::debug!("job {name}: what waits: {}", refusal.message);
                }
            }
        }
    }

    async fn carry_out_of(&self, job: &Job) -> Result<(), Refusal> {
        let _turn = self.shared.turn(&job.spec.name).await;
        // It may have changed meanwhile.
        let now = self.shared.book().jobs.get(&job.spec.name).cloned();
        let Some(job) = now.filter(|now| now.serial == job.serial && now.running_session().is_none()) else {
            return Ok(());
        };
        match job.pending.as_deref() {
            Some(Pending::Delete) => self.delete(&job.spec.name).await,
            Some(Pending::Change { spec, targets }) => {
                let rooms = self.rooms(targets)?;
                self.change_to(&job, (**spec).clone(), &rooms, false).await
            }
            None => Ok(()),
        }
    }
}
