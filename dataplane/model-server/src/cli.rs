//! The command line.

use std::path::PathBuf;

use std::net::SocketAddr;

use clap::Parser;
use thc_config::values::Interval;
use thc_model::{ClientConfig, ModelError, ModelJobOptions, ModelServerOptions, Secret};

const EXAMPLES: &str = "\
Examples:
  A job whose workers know its secret, on this machine; nothing survives a restart:
    THC_MODEL_SECRET=$(openssl rand -hex 16) thc-model --job train

  For other machines, with the models kept in a folder; a killed server forgets at most 200 ms:
    thc-model --listen 0.0.0.0:9100 --job train --secret-file train.secret \\
        --state /var/lib/thc-model --durable 200ms

  A large model over two servers: workers name both, in the same order, and each holds half of it:
    thc-model --listen 10.0.0.1:9100 --job train --secret-file train.secret --state state
    thc-model --listen 10.0.0.2:9100 --job train --secret-file train.secret --state state

  List the models of a job, and delete one:
    thc-model list --server 10.0.0.1:9100 --secret-file train.secret
    thc-model delete model --server 10.0.0.1:9100 --secret-file train.secret

  Several jobs from a file; flags override it:
    thc-model --config thc-model.toml --listen 10.0.0.1:9100

    listen = \"10.0.0.1:9100\"
    state = \"/var/lib/thc-model\"
    [[job]]
    name = \"train\"
    secret = \"sixteen letters or more\"
    max_coordinates = 100000000

  See it at work, with four workers of which one is slow:
    torchrun --nproc_per_node 4 python/examples/asynchronous.py --slow 4

The first worker that opens a model says what it is (its length, rate, momentum, epochs, precision, bound on
delays), in Rust by thc_model::Spec, in Python by thc.Asynchronous; the others must say the same.
Traffic is QUIC (UDP): encrypted, with a certificate made at the start; the secret proves both ends to each other and
never travels (docs/asynchronous.md).

Output: `ready ADDRESS:PORT` on stdout once workers can connect; events on stderr (RUST_LOG=debug for more);
totals as JSON on stdout after SIGTERM or Ctrl-C, once everything is written.
Exit status: 0 stopped by a signal; 1 cannot serve, for example because the port is in use;
2 wrong flags or configuration.";

/// THC model server: holds models that workers train asynchronously, in low precision both ways.
#[derive(Parser, Debug)]
#[command(name = "thc-model", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Read this TOML file; flags override it
    #[arg(long, short, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Serve /metrics for Prometheus at this address [default: not at all]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub logs: thc_config::logs::LogFlags,
    #[command(flatten)]
    server: ModelServerOptions,
    #[command(flatten)]
    job: ModelJobOptions,
    /// Read the secret from this file, which keeps it out of process lists
    #[arg(long, value_name = "PATH", conflicts_with = "secret", help_heading = "Job")]
    secret_file: Option<PathBuf>,
}

/// The commands of an administrator.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// List the models of a job
    List {
        #[command(flatten)]
        servers: Servers,
    },
    /// Show one model as JSON: what it is, and the progress of its shards
    Show {
        /// The model's name
        model: String,
        #[command(flatten)]
        servers: Servers,
    },
    /// Delete a model and its files
    Delete {
        /// The model's name
        model: String,
        #[command(flatten)]
        servers: Servers,
    },
}

impl Command {
    /// The server of the models.
    pub fn servers(&self) -> &Servers {
        match self {
            Self::List { servers } | Self::Show { servers, .. } | Self::Delete { servers, .. } => servers,
        }
    }
}

/// The servers of the models, and the job's secret.
#[derive(clap::Args, Debug)]
pub struct Servers {
    /// A server; may be repeated, in the order in which workers name the servers
    #[arg(long = "server", value_name = "HOST:PORT", default_value = "127.0.0.1:9100")]
    servers: Vec<String>,
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
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Servers {
    /// The configuration of an administrator's connection.
    pub fn config(&self) -> Result<ClientConfig, ModelError> {
        let secret = match (&self.secret_file, &self.secret) {
            (Some(path), _) => secret_of(path.clone())?,
            (None, Some(secret)) => secret.clone(),
            (None, None) => {
                let missing = "the job's secret is missing: give --secret-file, or set THC_MODEL_SECRET";
                return Err(ModelError::Config(missing.to_owned()));
            }
        };
        Ok(ClientConfig {
            servers: self.servers.clone(),
            job: self.job.clone(),
            secret,
            timeout: self.timeout.0,
            ..ClientConfig::default()
        })
    }
}

fn secret_of(path: PathBuf) -> Result<Secret, ModelError> {
    let text = std::fs::read_to_string(&path)
        .map_err(|error| ModelError::Read { path, reason: error.to_string() })?;
    Ok(text.as_str().into())
}

impl Flags {
    /// The configuration from the file and the flags.
    pub fn options(mut self) -> Result<ModelServerOptions, ModelError> {
        let file = match &self.config {
            Some(path) => ModelServerOptions::read(path)?,
            None => ModelServerOptions::default(),
        };
        if let Some(path) = self.secret_file {
            self.job.secret = Some(secret_of(path)?);
        }
        Ok(file.with_flags(self.server, self.job))
    }
}
