//! All jobs of a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::ModelServerConfig;
use crate::counters::{Counters, ModelServerStats, add};
use crate::error::ModelError;
use crate::job::Job;

/// All jobs of a server.
#[derive(Debug)]
pub(crate) struct Registry {
    pub jobs: BTreeMap<String, Arc<Job>>,
    /// What never got as far as a job.
    pub counters: Counters,
    /// The number of this life of the server: pushes that answer pulls of another life are refused.
    pub incarnation: u64,
}

impl Registry {
    /// With what the files have.
    pub fn read(config: &ModelServerConfig, incarnation: u64) -> Result<Self, ModelError> {
        let mut jobs = BTreeMap::new();
        for job in &config.jobs {
            jobs.insert(job.name.clone(), Arc::new(Job::read(job, config)?));
        }
        Ok(Self { jobs, counters: Counters::default(), incarnation })
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
        }
        first
    }

    pub fn stats(&self) -> ModelServerStats {
        ModelServerStats {
            refused: self.counters.read().refused,
            jobs: self.jobs.iter().map(|(name, job)| (name.clone(), job.stats())).collect(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::counters::Reason;
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
