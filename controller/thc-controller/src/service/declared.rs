//! Declared jobs: a file's jobs are created, changed and deleted. A job that runs is left as it is.

use super::jobs::check_idle;
use super::{Service, no_job};
use crate::section::JobSection;
use crate::spec::JobSpec;
use crate::store::Job;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use thc_control_proto::v1;
use thc_control_proto::v1::job_change::Kind;
use tonic::Status;

/// The step that makes one job as declared.
struct Step {
    change: v1::JobChange,
    /// The job's section after the change; empty if the job is deleted.
    next: JobSection,
}

/// The declared section, with the job's own values for keys that the controller would choose.
fn fill(job: &Job, asked: &JobSection) -> JobSection {
    let was = job.spec.section.clone();
    let mut filled = asked.clone();
    filled.options.job = filled.options.job.or(was.options.job);
    filled.options.cookie = filled.options.cookie.or(was.options.cookie);
    filled.options.seed = filled.options.seed.or(was.options.seed);
    if asked.targets.is_empty() && asked.servers.is_empty() {
        filled.targets = was.targets;
    }
    filled
}

/// The keys in which two specs differ, as they are shown; secrets are not.
fn differences(actual: &JobSpec, desired: &JobSpec) -> Vec<String> {
    let mut found = Vec::new();
    if actual.config().cookie != desired.config().cookie {
        found.push("cookie: another".to_owned());
    }
    if actual.setup.welcome.job_seed != desired.setup.welcome.job_seed {
        found.push("seed: another".to_owned());
    }
    let json = |spec: &JobSpec| serde_json::to_value(spec.shown());
    let (Ok(actual), Ok(desired)) = (json(actual), json(desired)) else { return found };
    for (key, desired) in desired.as_object().into_iter().flatten() {
        let actual = &actual[key];
        if actual != desired {
            found.push(format!("{key}: {actual} -> {desired}"));
        }
    }
    found
}

impl Service {
    /// Makes jobs what an operator declares, or says what that would change. With `prune` jobs that are not
    /// declared are deleted.
    pub async fn apply(&self, asked: &v1::ApplyJobsRequest) -> Result<Vec<v1::JobChange>, Status> {
        let jobs = asked.sections.iter().map(|text| JobSection::parse(text));
        let jobs: Vec<JobSection> = jobs.collect::<Result<_, _>>()?;
        let mut steps = self.steps(&jobs)?;
        if asked.prune {
            let store = self.shared.store();
            let is_declared = |name: &String| jobs.iter().any(|job| job.name() == name);
            let gone = store.jobs.keys().filter(|name| !is_declared(name));
            steps.extend(gone.map(|name| Step {
                change: v1::JobChange {
                    job: name.clone(),
                    kind: Kind::Delete.into(),
                    ..v1::JobChange::default()
                },
                next: JobSection::default(),
            }));
        }
        if asked.plan_only {
            return Ok(steps.into_iter().map(|step| step.change).collect());
        }
        // Beside each other: none waits for a target that only another one is on.
        Ok(join_all(steps.into_iter().map(|step| self.take(step))).await)
    }

    /// Makes jobs what the configuration says. Targets get them when they come.
    pub async fn apply_configured(&self, jobs: &[JobSection]) -> Result<(), Status> {
        let steps = self.steps(jobs)?;
        let _changing = self.shared.changing.lock().await;
        for Step { change, next } in steps {
            if change.kind() == Kind::Unchanged {
                continue;
            }
            let made = self.homes(&next).and_then(|homes| {
                self.shared.store().change(&change.job, |store| {
                    let job = store.jobs.get(&change.job).cloned();
                    let number = job.as_ref().map_or_else(|| store.free_number(), |job| job.spec.number());
                    let spec = homes.spec(number)?;
                    let Some(job) = job else { return store.add(spec, &homes.rooms) };
                    check_idle(&job, "it is changed at the next start")?;
                    store.replace(spec, &homes.rooms)
                })
            });
            if let Err(refusal) = made {
                tracing::warn!("the configuration: {}", refusal.message());
            }
        }
        Ok(self.shared.save().await?)
    }

    /// Checks the jobs of a configuration against the targets.
    pub fn check(&self, jobs: &[JobSection]) -> Result<(), Status> {
        self.steps(jobs).map(drop)
    }

    fn steps(&self, jobs: &[JobSection]) -> Result<Vec<Step>, Status> {
        let mut names = BTreeSet::new();
        if let Some(twice) = jobs.iter().find(|job| !names.insert(job.name())) {
            return Err(Status::invalid_argument(format!("job {}: it is declared twice", twice.name())));
        }
        jobs.iter().map(|asked| self.step(asked)).collect()
    }

    /// The step that makes one job as declared.
    fn step(&self, asked: &JobSection) -> Result<Step, Status> {
        let job = self.shared.store().jobs.get(asked.name()).cloned();
        let step = |kind: Kind, differences, next| Step {
            change: v1::JobChange {
                job: asked.name().to_owned(),
                kind: kind.into(),
                differences,
                error: String::new(),
            },
            next,
        };
        let Some(job) = job else {
            let (homes, number) = (self.homes(asked)?, self.shared.store().free_number());
            homes.spec(number)?;
            return Ok(step(Kind::Create, Vec::new(), asked.clone()));
        };
        let next = fill(&job, asked);
        let homes = self.homes(&next)?;
        let desired = homes.spec(job.spec.number())?;
        let mut differences = differences(&job.spec, &desired);
        // A key that follows from a declared one is shown only if no declared one differs.
        let declared = serde_json::to_value(asked).unwrap_or_default();
        let is_declared =
            |line: &String| line.split_once(':').is_some_and(|(key, _)| !declared[key].is_null());
        if differences.iter().any(is_declared) {
            differences.retain(is_declared);
        }
        let kind = if differences.is_empty() { Kind::Unchanged } else { Kind::Change };
        Ok(step(kind, differences, next))
    }

    /// Carries out a step. The reason of a refusal is in the result.
    async fn take(&self, step: Step) -> v1::JobChange {
        let Step { change, next } = step;
        let done = match change.kind() {
            Kind::Unchanged => Ok(()),
            Kind::Create => self.create_job(&next).await.map(drop),
            Kind::Change => {
                let _turn = self.shared.turn(&change.job).await;
                let job = self.shared.store().jobs.get(&change.job).cloned();
                match job.ok_or_else(|| no_job(&change.job)) {
                    Ok(job) => self.change_to(&job, &next).await,
                    Err(refusal) => Err(refusal),
                }
            }
            Kind::Delete => self.delete_if_idle(&change.job).await,
        };
        match done {
            Ok(()) => change,
            Err(refusal) => v1::JobChange { error: refusal.message().to_owned(), ..change },
        }
    }

    async fn delete_if_idle(&self, name: &str) -> Result<(), Status> {
        let _turn = self.shared.turn(name).await;
        let job = self.shared.store().jobs.get(name).cloned().ok_or_else(|| no_job(name))?;
        check_idle(&job, &format!("wait until they have left, or `job delete {name} --yes`"))?;
        self.delete(name).await
    }
}
