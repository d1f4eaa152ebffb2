//! All jobs of a server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ring::rand::{SecureRandom, SystemRandom};

use crate::config::ModelServerConfig;
use crate::counters::{ModelServerStats, Reason, Refusals};
use crate::error::ModelError;
use crate::job::Job;
use crate::{lock, store};

/// All jobs of a server.
#[derive(Debug)]
pub(crate) struct Registry {
    pub jobs: BTreeMap<String, Arc<Job>>,
    /// Refusals before a connection belongs to a job.
    refused: Mutex<Refusals>,
    /// The number of this life of the server: pushes that answer pulls of another life are refused.
    pub incarnation: u64,
}

impl Registry {
    /// The jobs with the models of their files, which can be written.
    pub fn read(config: &ModelServerConfig) -> Result<Self, ModelError> {
        config.state.as_deref().map_or(Ok(()), store::check_state)?;
        let mut incarnation = [0; 8];
        SystemRandom::new()
            .fill(&mut incarnation)
            .map_err(|_| ModelError::Config("the system gives no random numbers".to_owned()))?;
        let mut jobs = BTreeMap::new();
        for job in &config.jobs {
            jobs.insert(job.name.clone(), Arc::new(Job::read(job, config)?));
        }
        Ok(Self { jobs, refused: Mutex::default(), incarnation: u64::from_le_bytes(incarnation) })
    }

    /// Writes everything that has changed. What cannot be written stays to be written; the first error is returned.
    pub fn save(&self) -> Result<(), ModelError> {
        self.jobs.values().map(|job| job.save_all()).fold(Ok(()), Result::and)
    }

    pub fn refuse(&self, reason: Reason) {
        *lock(&self.refused).entry(reason.key()).or_default() += 1;
    }

    pub fn stats(&self) -> ModelServerStats {
        ModelServerStats {
            refused: lock(&self.refused).clone(),
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
        let registry = Registry::read(&config).unwrap();
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
        assert_eq!(model.stats("m").shards[0].phase, "broken");
        // The rest goes on, and so does the whole after a restart, from the file.
        assert!(model.shards[1].enter().is_ok() && model.save(1).unwrap());
        registry.save().unwrap();
        let again = Registry::read(&config).unwrap();
        let model = again.jobs["train"].model("m").unwrap();
        assert_eq!(model.shards[0].enter().unwrap().state().x[..], [1.0; 16]);
    }
}
