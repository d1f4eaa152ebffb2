//! Tables, jobs and members, as the control plane sets them.

use super::admission::Admissions;
use super::config::JobConfig;
use super::endpoint::Endpoint;
use super::error::JobConfigError;
use super::job::{Job, UNUSED};
use super::kernels::Kernels;
use super::lookup::Lookup;
use super::{Aggregator, NEAR};
use crate::{JobId, TableId, WorkerId};

impl<K: Kernels> Aggregator<K> {
    /// Installs a lookup table (P6).
    ///
    /// # Errors
    /// [`JobConfigError::TableInUse`] if a job uses another table under this id.
    pub fn install_table(&mut self, id: TableId, table: Lookup) -> Result<(), JobConfigError> {
        let cell = &mut self.tables[usize::from(id.0)];
        if *cell != Some(table)
            && let Some(job) = self.jobs.iter().flatten().find(|job| job.config.tables.contains(&id))
        {
            return Err(JobConfigError::TableInUse { table: id, job: job.config.job });
        }
        *cell = Some(table);
        Ok(())
    }

    /// Removes a lookup table.
    ///
    /// # Errors
    /// [`JobConfigError::TableInUse`] if a job uses it.
    pub fn remove_table(&mut self, id: TableId) -> Result<(), JobConfigError> {
        if let Some(job) = self.jobs.iter().flatten().find(|job| job.config.tables.contains(&id)) {
            return Err(JobConfigError::TableInUse { table: id, job: job.config.job });
        }
        self.tables[usize::from(id.0)] = None;
        Ok(())
    }

    /// Installs or changes a job. Its slots keep their state if cookie, workers, quorum and
    /// slots stay the same, and are emptied otherwise (P24). Members below n and counters stay in any case.
    ///
    /// # Errors
    /// [`JobConfigError`] if the numbers do not fit together, a table is missing, has changed since the job used
    /// it or n·g overflows the lane (P6), or the slots need more memory than is allowed.
    pub fn install_job(&mut self, config: JobConfig) -> Result<(), JobConfigError> {
        config.check()?;
        self.admissions = Admissions::NONE;
        for &id in &config.tables {
            let table = self.table(id).ok_or(JobConfigError::NoTable { table: id, job: config.job })?;
            config.check_sum(table)?;
        }
        let place = self.index[usize::from(config.job.0)];
        if place != UNUSED
            && let Some(job) = self.jobs[place as usize].as_mut()
            && job.config.same_slots(&config)
        {
            for &id in &config.tables {
                if self.tables[usize::from(id.0)].is_some_and(|table| job.used_otherwise(id, &table)) {
                    return Err(JobConfigError::TableChanged { table: id, job: config.job });
                }
            }
            job.set_tables(&config, &self.tables);
            job.config = config;
            return Ok(());
        }
        let others = self.jobs.iter().flatten().filter(|job| job.config.job != config.job);
        let others: usize = others.map(|job| job.config.memory(self.shard)).sum();
        let needs = config.memory(self.shard);
        if others + needs > self.memory_limit {
            let free = self.memory_limit.saturating_sub(others);
            return Err(JobConfigError::Memory { job: config.job, needs, free });
        }
        let place = if place == UNUSED {
            match self.jobs.iter().position(Option::is_none) {
                Some(free) => free,
                None => {
                    self.jobs.push(None);
                    self.jobs.len() - 1
                }
            }
        } else {
            place as usize
        };
        // The old slots' memory goes before the new slots' comes.
        let kept = self.jobs[place].take().map(|old| old.without_slots());
        self.index[usize::from(config.job.0)] = place as u32;
        self.jobs[place] = Some(Box::new(Job::new(config, self.shard, &self.tables, kept)));
        self.far = self.memory() > NEAR;
        Ok(())
    }

    /// Removes a job with its members, slots and counters. Returns whether there was one.
    pub fn remove_job(&mut self, job: JobId) -> bool {
        self.admissions = Admissions::NONE;
        let place = std::mem::replace(&mut self.index[usize::from(job.0)], UNUSED);
        let removed = place != UNUSED && self.jobs[place as usize].take().is_some();
        self.far = self.memory() > NEAR;
        removed
    }

    /// Sets where a member of a job sends from and is sent to.
    ///
    /// # Errors
    /// [`JobConfigError::NoJob`], or [`JobConfigError::NoSuchWorker`] beyond the job's n.
    pub fn set_member(&mut self, job: JobId, worker: WorkerId, at: Endpoint) -> Result<(), JobConfigError> {
        self.job_with(job, worker)?.set_member(worker, Some(at));
        Ok(())
    }

    /// Sets where answers to a worker of a job go, when that is not where its packets come from: nowhere if
    /// `to` is `None`. `copies` says whether it gets copies of what goes to all. A later [`Self::set_member`]
    /// or [`Self::remove_member`] of that worker replaces this.
    ///
    /// # Errors
    /// [`JobConfigError::NoJob`], or [`JobConfigError::NoSuchWorker`] beyond the job's n.
    pub fn set_receiver(
        &mut self,
        job: JobId,
        worker: WorkerId,
        to: Option<Endpoint>,
        copies: bool,
    ) -> Result<(), JobConfigError> {
        self.job_with(job, worker)?.set_receiver(worker, to, copies);
        Ok(())
    }

    fn job_with(&mut self, job: JobId, worker: WorkerId) -> Result<&mut Job, JobConfigError> {
        let job_ref = self.job_mut(job).ok_or(JobConfigError::NoJob { job })?;
        if worker.0 >= job_ref.config.workers {
            return Err(JobConfigError::NoSuchWorker { job, worker, workers: job_ref.config.workers });
        }
        Ok(job_ref)
    }

    /// Removes a member: its packets are dropped and it is sent nothing.
    pub fn remove_member(&mut self, job: JobId, worker: WorkerId) {
        if let Some(job) = self.job_mut(job)
            && worker.0 < job.config.workers
        {
            job.set_member(worker, None);
        }
    }
}
