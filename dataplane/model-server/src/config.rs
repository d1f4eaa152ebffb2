//! The configuration of a server. Each key is declared once: it is a flag of the program and a key of its file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use thc_config::values::{Interval, Secret, Size};

use crate::error::ModelError;
use crate::proof;
use crate::wire::is_name;

/// A server.
#[derive(Clone, Debug, Deserialize, clap::Args)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Server")]
pub struct ModelServerConfig {
    /// UDP address and port to listen on [default: 127.0.0.1:9100]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Keep models in this folder across restarts [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// How often to write changes; a killed server loses at most the pushes of this time and of one save [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub durable: Interval,
    /// Server threads [default: one per core, at most 16]
    #[arg(long, value_name = "NUMBER")]
    pub threads: usize,
    /// Maximum number of open connections; each job has an even part of them [default: 1024]
    #[arg(long, value_name = "NUMBER")]
    pub connections: usize,
    /// How long a peer may take to finish a request, or to read an answer [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub patience: Interval,
    /// The jobs, each with its name.
    #[arg(skip)]
    #[serde(rename = "job")]
    pub jobs: Vec<ModelJobConfig>,
}

/// A job: its workers' secret, and its limits.
#[derive(Clone, Debug, Deserialize, clap::Args)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Job")]
pub struct ModelJobConfig {
    /// Name of the job: letters, digits, '.', '_' and '-'
    #[arg(long = "job", value_name = "NAME")]
    pub name: String,
    /// Secret of the job and its workers, 16 characters or more
    #[arg(long, env = "THC_MODEL_SECRET", hide_env_values = true, value_name = "TEXT")]
    #[serde(deserialize_with = "secret")]
    pub secret: Secret,
    /// Maximum number of models [default: 64]
    #[arg(long, value_name = "NUMBER")]
    pub max_models: usize,
    /// Maximum number of coordinates over all models, 4 to 20 bytes each [default: 256Mi]
    #[arg(long, value_name = "NUMBER")]
    pub max_coordinates: Size,
}

impl Default for ModelServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9100)),
            state: None,
            durable: Interval(Duration::from_secs(1)),
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(16),
            connections: 1024,
            patience: Interval(Duration::from_secs(30)),
            jobs: Vec::new(),
        }
    }
}

impl Default for ModelJobConfig {
    fn default() -> Self {
        Self::new("", Secret::default())
    }
}

impl ModelJobConfig {
    /// A job with the usual limits: 64 models, 2^28 coordinates.
    #[must_use]
    pub fn new(name: &str, secret: Secret) -> Self {
        Self { name: name.to_owned(), secret, max_models: 64, max_coordinates: Size(1 << 28) }
    }

    fn validate(&self) -> Result<(), String> {
        let Self { name, secret, max_models, max_coordinates } = self;
        if !is_name(name) {
            return Err(format!("job {name:?}: take 1 to 64 letters, digits, '.', '_' and '-'"));
        }
        if let Err(error) = proof::check(secret) {
            return Err(format!("job {name}: {error} (--secret, THC_MODEL_SECRET or secret)"));
        }
        if *max_models == 0 || max_coordinates.0 == 0 {
            return Err(format!("job {name}: max_models and max_coordinates must be above 0"));
        }
        Ok(())
    }
}

/// A secret in a file is text. Of a number the file would keep the value and not the digits, and workers have the digits.
fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
    String::deserialize(from).map(|text| text.as_str().into())
}

impl ModelServerConfig {
    /// Reads a file. Keys that are not there have their defaults.
    ///
    /// # Errors
    /// [`ModelError::Config`].
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let error = |reason: String| ModelError::Config(format!("cannot read {}: {reason}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|cause| error(cause.to_string()))?;
        thc_config::file::parse(&text).map_err(|cause| error(cause.to_string()))
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// [`ModelError::Config`], which names the key.
    pub fn validate(&self) -> Result<(), ModelError> {
        let names: Vec<&str> = self.jobs.iter().map(|job| job.name.as_str()).collect();
        let twice = (1..names.len()).find(|i| names[..*i].contains(&names[*i]));
        let times = [("durable", self.durable), ("patience", self.patience)];
        let short = times.into_iter().find(|(_, time)| time.0 < Duration::from_millis(10));
        let fault = if names.is_empty() {
            Some("there is no job: give --job and --secret, or [[job]] sections in a file".to_owned())
        } else if let Some(fault) = self.jobs.iter().find_map(|job| job.validate().err()) {
            Some(fault)
        } else if let Some(twice) = twice {
            Some(format!("job {} is there twice", names[twice]))
        } else if !(1..=256).contains(&self.threads) {
            Some("threads must be 1 to 256".to_owned())
        } else if self.connections == 0 {
            Some("connections must be above 0".to_owned())
        } else {
            short.map(|(key, _)| format!("{key} must be at least 10ms"))
        };
        fault.map_or(Ok(()), |fault| Err(ModelError::Config(fault)))
    }
}
