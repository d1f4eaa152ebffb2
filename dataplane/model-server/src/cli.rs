//! The command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser};
use thc_config::help::{self, Stop};
use thc_config::values::{Interval, Secret};
use thc_model::{ClientConfig, ModelError, ModelJobConfig, ModelServerConfig};

const EXAMPLES: &str = "\
Examples:
  A job for workers on this machine; its models do not survive a restart:
    THC_MODEL_SECRET=$(openssl rand -hex 16) thc-model --job train

  For workers on other machines, with models in a folder; a killed server loses at most 200 ms:
    thc-model --listen 0.0.0.0:9100 --job train --secret-file train.secret \\
        --state /var/lib/thc-model --durable 200ms

  List the models of a job, and delete one:
    thc-model list --server 10.0.0.1:9100 --secret-file train.secret
    thc-model delete model --server 10.0.0.1:9100 --secret-file train.secret

  Several jobs from a file; flags override it:
    thc-model --config thc-model.toml --listen 10.0.0.1:9100

    state = \"/var/lib/thc-model\"
    [[job]]
    name = \"train\"
    secret = \"sixteen letters or more\"
    max_coordinates = \"100Mi\"

  Train with four workers, one of them slow:
    torchrun --nproc_per_node 4 python/examples/asynchronous.py --slow 4

The first worker that opens a model specifies it, in Rust by thc_model::Spec, in Python by
thc.ModelSpec; the others must give the same specification.

Output: `ready ADDRESS:PORT` on stdout once workers can connect; events on stderr
(RUST_LOG=debug for more); totals as JSON on stdout after SIGTERM or Ctrl-C, once everything is
written.
Exit status: 0 stopped by a signal; 1 cannot serve, for example because the port is in use; 2
wrong flags or configuration.";

/// THC model server: keeps models that workers train asynchronously, in low precision both ways.
#[derive(Parser, Debug)]
#[command(name = "thc-model", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Read this TOML file; flags override it
    #[arg(long, short, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Serve metrics to Prometheus here: http://ADDRESS:PORT/metrics [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub http: Option<SocketAddr>,
    #[command(flatten)]
    pub logs: thc_config::logs::LogFlags,
    /// Read the secret from this file, which keeps it out of process lists
    #[arg(long, value_name = "PATH", conflicts_with = "secret", help_heading = "Job")]
    secret_file: Option<PathBuf>,
}

/// The options that `-h` shows.
const SHORT: [&str; 7] = ["config", "http", "listen", "state", "durable", "name", "secret_file"];

/// The commands of an administrator.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// List the models of a job
    List {
        #[command(flatten)]
        of: JobFlags,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one model as JSON: what it is, and the progress of its shards
    Show {
        /// The model's name
        model: String,
        #[command(flatten)]
        of: JobFlags,
    },
    /// Delete a model and its files
    Delete {
        /// The model's name
        model: String,
        #[command(flatten)]
        of: JobFlags,
    },
}

/// The server and the job of the models.
#[derive(Args, Debug)]
pub struct JobFlags {
    /// The server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9100")]
    server: String,
    /// The name of the job
    #[arg(long, value_name = "NAME", default_value = "train")]
    job: String,
    /// The secret of the job
    #[arg(long, env = "THC_MODEL_SECRET", hide_env_values = true, value_name = "TEXT")]
    secret: Option<Secret>,
    /// Read the secret from this file
    #[arg(long, value_name = "PATH", conflicts_with = "secret")]
    secret_file: Option<PathBuf>,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Interval,
}

impl JobFlags {
    /// The configuration of an administrator's connection.
    pub fn config(&self) -> Result<ClientConfig, ModelError> {
        let Self { server, job, secret, secret_file, timeout } = self;
        let missing = "the job's secret is missing: give --secret-file, or set THC_MODEL_SECRET";
        let secret = match secret_file {
            Some(path) => read_secret(path)?,
            None => secret.clone().ok_or_else(|| ModelError::Config(missing.to_owned()))?,
        };
        let (server, job) = (server.clone(), job.clone());
        Ok(ClientConfig { server, job, secret, timeout: timeout.0, ..ClientConfig::default() })
    }
}

fn read_secret(path: &Path) -> Result<Secret, ModelError> {
    let error = |cause| ModelError::Config(format!("cannot read {}: {cause}", path.display()));
    std::fs::read_to_string(path).map(|text| text.as_str().into()).map_err(error)
}

impl Flags {
    /// Reads the command line: the flags, and a server's configuration among the matches.
    pub fn read() -> Result<(Self, ArgMatches), Stop> {
        let command = ModelServerConfig::augment_args_for_update(Self::command());
        let mut command = ModelJobConfig::augment_args_for_update(command);
        // What was added has brought descriptions of its own.
        if let Some(about) = Self::command().get_about() {
            command = command.about(about.clone());
        }
        let matches = help::read(command, &SHORT)?;
        Ok((Self::from_arg_matches(&matches)?, matches))
    }

    /// The configuration of a server: the file's, with the flags over it.
    pub fn config(&self, matches: &ArgMatches) -> Result<ModelServerConfig, ModelError> {
        let mut config =
            self.config.as_deref().map_or_else(|| Ok(Default::default()), ModelServerConfig::read)?;
        let mut job = ModelJobConfig::default();
        config
            .update_from_arg_matches(matches)
            .and_then(|()| job.update_from_arg_matches(matches))
            .map_err(|error| ModelError::Config(error.to_string()))?;
        if let Some(path) = &self.secret_file {
            job.secret = read_secret(path)?;
        }
        // A secret in the environment alone is no wish for a job.
        if !job.name.is_empty() {
            config.jobs.push(job);
        }
        config.validate()?;
        Ok(config)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// `-h` and `--print-config` show what the help of an option names as its default: given as a flag, it changes nothing.
    #[test]
    fn defaults_in_the_help_are_the_defaults() {
        let command = || {
            let command = ModelServerConfig::augment_args_for_update(Flags::command());
            ModelJobConfig::augment_args_for_update(command)
        };
        let config = |more: &str| {
            let words = format!("p --job=a --secret=sixteen-letters-or-more {more}");
            let matches = command().try_get_matches_from(words.split_whitespace()).ok()?;
            Some(format!("{:?}", Flags::from_arg_matches(&matches).unwrap().config(&matches).unwrap()))
        };
        let mut compared = Vec::new();
        for arg in command().get_arguments().filter(|arg| arg.get_default_values().is_empty()) {
            let (Some(flag), Some(default)) = (arg.get_long(), help::default_of(arg)) else { continue };
            // Others are descriptions.
            if let Some(given) = config(&format!("--{flag}={default}")).filter(|_| flag != "state") {
                assert_eq!(Some(given), config(""), "--{flag} {default}");
                compared.push(flag.to_owned());
            }
        }
        let expected = ["listen", "durable", "connections", "patience", "max-models", "max-coordinates"];
        assert_eq!(compared, expected);
    }
}
