//! The configuration of a server, from flags and a file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use thc_config::values::{Interval, Secret, Size};

use crate::error::ModelError;
use crate::proof;
use crate::wire::is_name;

/// A job: its workers' secret, and its limits.
#[derive(Clone, Debug)]
pub struct ModelJobConfig {
    /// Letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// The secret of the job's workers.
    pub secret: Secret,
    /// The largest number of models.
    pub max_models: usize,
    /// The largest number of coordinates of all models together, each of which takes 4 to 20 bytes on the server.
    pub max_coordinates: u64,
    /// The largest number of connections at a time. `None`: the server's limit.
    pub connections: Option<usize>,
}

/// A server.
#[derive(Clone, Debug)]
pub struct ModelServerConfig {
    /// UDP address and port.
    pub listen: SocketAddr,
    /// The jobs, each with its name.
    pub jobs: Vec<ModelJobConfig>,
    /// Folder of state files; `None`: nothing survives.
    pub state: Option<PathBuf>,
    /// Longest time between a push and its place in a file.
    pub durable: Duration,
    /// Threads that serve.
    pub threads: usize,
    /// Most connections of a job at a time.
    pub connections: usize,
    /// How long a worker may take from pull to push while others wait for it.
    pub lease: Duration,
    /// How long a peer may take for a request that it has begun, and for an answer.
    pub patience: Duration,
}

impl Default for ModelServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9100)),
            jobs: Vec::new(),
            state: None,
            durable: Duration::from_secs(1),
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(16),
            connections: 256,
            lease: Duration::from_secs(30),
            patience: Duration::from_secs(30),
        }
    }
}

impl ModelJobConfig {
    /// A job with the usual limits: 64 models, 2^28 coordinates.
    #[must_use]
    pub fn new(name: &str, secret: Secret) -> Self {
        Self { name: name.to_owned(), secret, max_models: 64, max_coordinates: 1 << 28, connections: None }
    }
}

impl ModelServerConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// [`ModelError::Config`], which names the key.
    pub fn validate(&self) -> Result<(), ModelError> {
        let wrong = |what: String| Err(ModelError::Config(what));
        if self.jobs.is_empty() {
            return wrong(
                "there is no job: give --job and --secret, or [[job]] sections in a file".to_owned(),
            );
        }
        for (i, job) in self.jobs.iter().enumerate() {
            if !is_name(&job.name) {
                let name = &job.name;
                return wrong(format!("job {name:?}: take 1 to 64 letters, digits, '.', '_' and '-'"));
            }
            if self.jobs[..i].iter().any(|other| other.name == job.name) {
                return wrong(format!("job {} is there twice", job.name));
            }
            if let Err(error) = proof::check(&job.secret) {
                return wrong(format!("job {}: {error} (--secret, THC_MODEL_SECRET or secret)", job.name));
            }
            if job.max_models == 0 || job.max_coordinates == 0 || job.connections == Some(0) {
                return wrong(format!(
                    "job {}: max_models, max_coordinates and connections must be above 0",
                    job.name
                ));
            }
        }
        if self.threads == 0 || self.threads > 256 {
            return wrong("threads must be 1 to 256".to_owned());
        }
        if self.connections == 0 {
            return wrong("connections must be above 0".to_owned());
        }
        for (key, time) in [("durable", self.durable), ("lease", self.lease), ("patience", self.patience)] {
            if time < Duration::from_millis(10) {
                return wrong(format!("{key} must be at least 10ms"));
            }
        }
        Ok(())
    }
}

/// A secret of a file is text. Of a number the file would keep the value and not the digits, and workers have these.
fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Secret>, D::Error> {
    String::deserialize(from).map(|text| Some(text.as_str().into()))
}

/// Coordinates like 1000000, "64Mi" or "1G".
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let count = text.parse::<Size>().map(|count| count.0 as u64);
    count.map_err(|_| "give a number like 1000000 or 64Mi".to_owned())
}

/// Keys of a server, each optional: a file's, or those of the command line, which win.
#[derive(Clone, Debug, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ModelServerOptions {
    /// UDP address and port to listen on [default: 127.0.0.1:9100]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Server")]
    pub listen: Option<SocketAddr>,
    /// Keep the models in this folder, so that they survive a restart [default: they do not]
    #[arg(long, value_name = "DIR", help_heading = "Server")]
    pub state: Option<PathBuf>,
    /// How often to write what has changed; a killed server forgets at most the pushes of this time and of one save
    /// [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Server")]
    pub durable: Option<Interval>,
    /// Threads that serve [default: one per core, at most 16]
    #[arg(long, value_name = "NUMBER", help_heading = "Server")]
    pub threads: Option<usize>,
    /// Most connections of a job at a time [default: 256]
    #[arg(long, value_name = "NUMBER", help_heading = "Server")]
    pub connections: Option<usize>,
    /// How long a worker may take from pull to push while others wait for it [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Server")]
    pub lease: Option<Interval>,
    /// How long a peer may take to finish a request [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Server")]
    pub patience: Option<Interval>,
    /// Jobs of a file.
    #[arg(skip)]
    #[serde(default, rename = "job")]
    pub jobs: Vec<ModelJobOptions>,
}

/// Keys of a job.
#[derive(Clone, Debug, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ModelJobOptions {
    /// Name of the job
    #[arg(long = "job", value_name = "NAME", help_heading = "Job")]
    #[serde(default)]
    pub name: Option<String>,
    /// The secret that its workers must know, 16 characters or more
    #[arg(long, env = "THC_MODEL_SECRET", hide_env_values = true, value_name = "TEXT", help_heading = "Job")]
    #[serde(default, deserialize_with = "secret")]
    pub secret: Option<Secret>,
    /// Most models [default: 64]
    #[arg(long, value_name = "NUMBER", help_heading = "Job")]
    #[serde(default)]
    pub max_models: Option<usize>,
    /// Most coordinates of all models together, 4 to 20 bytes each [default: 256Mi]
    #[arg(long, value_name = "NUMBER", value_parser = count, help_heading = "Job")]
    #[serde(default)]
    pub max_coordinates: Option<u64>,
    /// Most connections of the job at a time [default: the server's]
    #[arg(skip)]
    #[serde(default)]
    pub connections: Option<usize>,
}

impl ModelServerOptions {
    /// Reads the options of a file.
    ///
    /// # Errors
    /// [`ModelError::Read`].
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ModelError::Read { path: path.to_owned(), reason: error.to_string() })?;
        // Only the message: the rest of what toml says quotes the line, which may hold a secret.
        toml::from_str(&text).map_err(|error: toml::de::Error| ModelError::Read {
            path: path.to_owned(),
            reason: error.message().replace('\n', " "),
        })
    }

    /// Returns these options, overridden by those of the command line.
    #[must_use]
    pub fn with_flags(mut self, flags: Self, job: ModelJobOptions) -> Self {
        let Self { listen, state, durable, threads, connections, lease, patience, .. } = flags;
        self.listen = listen.or(self.listen);
        self.state = state.or(self.state);
        self.durable = durable.or(self.durable);
        self.threads = threads.or(self.threads);
        self.connections = connections.or(self.connections);
        self.lease = lease.or(self.lease);
        self.patience = patience.or(self.patience);
        if job.name.is_some() {
            self.jobs.push(job);
        }
        self
    }

    /// Makes the configuration from these options.
    ///
    /// # Errors
    /// [`ModelError::Config`], which names the key.
    pub fn validate(&self) -> Result<ModelServerConfig, ModelError> {
        let defaults = ModelServerConfig::default();
        let jobs = self.jobs.iter().map(|job| {
            let defaults = ModelJobConfig::new("", Secret::default());
            ModelJobConfig {
                name: job.name.clone().unwrap_or_default(),
                secret: job.secret.clone().unwrap_or_default(),
                max_models: job.max_models.unwrap_or(defaults.max_models),
                max_coordinates: job.max_coordinates.unwrap_or(defaults.max_coordinates),
                connections: job.connections,
            }
        });
        let config = ModelServerConfig {
            listen: self.listen.unwrap_or(defaults.listen),
            jobs: jobs.collect(),
            state: self.state.clone(),
            durable: self.durable.map_or(defaults.durable, |time| time.0),
            threads: self.threads.unwrap_or(defaults.threads),
            connections: self.connections.unwrap_or(defaults.connections),
            lease: self.lease.map_or(defaults.lease, |time| time.0),
            patience: self.patience.map_or(defaults.patience, |time| time.0),
        };
        config.validate()?;
        Ok(config)
    }
}
