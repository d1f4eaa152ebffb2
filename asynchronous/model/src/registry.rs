//! All jobs of a server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::ModelServerConfig;
use crate::counters::{Counters, ModelServerStats, Reason, add};
use crate::error::ModelError;
use crate::job::Job;
use crate::memory::Memory;
use crate::store;

/// All jobs of a server.
#[derive(Debug)]
pub(crate) struct Registry {
    pub jobs: BTreeMap<String, Arc<Job>>,
    /// What never got as far as a job.
    pub counters: Counters,
    memory: Arc<Memory>,
    /// The server's number among those that have held the models one after the other.
    pub term: u64,
    superseded: AtomicBool,
}

impl Registry {
    /// With what the files have.
    pub fn read(config: &ModelServerConfig, incarnation: u64) -> Result<Self, ModelError> {
        let memory = Memory::new(config.memory);
        let mut jobs = BTreeMap::new();
        for job in &config.jobs {
            jobs.insert(job.name.clone(), Arc::new(Job::read(job, config, &memory, incarnation)?));
        }
        let term = config.state.as_deref().map_or(Ok(0), store::read_term)?;
        Ok(Self { jobs, counters: Counters::default(), memory, term, superseded: AtomicBool::new(false) })
    }

    /// Writes everything that has changed. What cannot be written stays to be written; the first error is returned.
    pub fn save(&self) -> Result<(), ModelError> {
        let mut first = Ok(());
        for job in self.jobs.values() {
            for (_, model) in job.models() {
                for number in 0..model.shards.len() {
                    if !model.is_dirty(number) {
                        continue;
                    }
                    match model.save(number) {
                        Ok(_) => add(&job.counters.saves, 1),
                        Err(error) => first = first.and(Err(error)),
                    }
                }
            }
            first = first.and(job.keep_in_time());
        }
        first
    }

    /// Another server has taken over, as a peer has told that has met it.
    pub fn supersede(&self, term: u64) {
        if term > self.term && !self.superseded.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "a spare has taken over in term {term}, and this server, of term {}, serves no more: start it with --follow",
                self.term
            );
            self.jobs.values().for_each(|job| job.disconnect(Reason::Superseded));
        }
    }

    /// Whether it may not serve any more.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    pub fn stats(&self) -> ModelServerStats {
        let (memory, most_memory) = self.memory.usage();
        ModelServerStats {
            memory,
            most_memory,
            refused: self.counters.read().refused,
            jobs: self.jobs.iter().map(|(name, job)| (name.clone(), job.stats())).collect(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{ModelJobConfig, Spec};

    #[test]
    fn a_shard_that_panicked_is_given_to_nobody_and_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let config = ModelServerConfig {
            jobs: vec![ModelJobConfig::new("train", "a secret for tests".into())],
            state: Some(folder.path().to_owned()),
            ..ModelServerConfig::default()
        };
        let registry = Registry::read(&config, 1).unwrap();
        let model = registry.jobs["train"].open("m", Spec { shard: 16, ..Spec::sgd(32, 1.0) }).unwrap();
        for number in 0..2 {
            assert!(model.shards[number].enter().unwrap().initialise(&[1.0; 16]));
            model.count_value(number);
        }
        registry.save().unwrap();
        let poisoner = Arc::clone(&model);
        let panicked = std::thread::spawn(move || {
            let _shard = poisoner.shards[0].enter().unwrap();
            panic!("of the test");
        });
        assert!(panicked.join().is_err());
        assert_eq!(model.shards[0].enter().err(), Some(Reason::Broken));
        assert!(model.save(0).is_err());
        assert_eq!(model.stats()[0].phase, "broken");
        // The rest goes on, and so does the whole after a restart, from the file.
        assert!(model.shards[1].enter().is_ok() && model.save(1).unwrap());
        registry.save().unwrap();
        let again = Registry::read(&config, 2).unwrap();
        let model = again.jobs["train"].model("m").unwrap();
        assert_eq!(model.shards[0].enter().unwrap().state().x[..], [1.0; 16]);
    }
}
