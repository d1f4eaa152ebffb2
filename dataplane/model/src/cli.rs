//! The command line.

use std::path::PathBuf;

use clap::Parser;
use thc_model::{JobOptions, ModelError, ServerOptions};

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

  Several jobs, from a file; flags win over it:
    thc-model --config thc-model.toml --listen 10.0.0.1:9100

    listen = \"10.0.0.1:9100\"
    state = \"/var/lib/thc-model\"
    [[job]]
    name = \"train\"
    secret = \"sixteen letters or more\"
    max_coordinates = 100000000

  See it work, with six workers of which one is slow:
    thc async demo

What a model is (its length, rate, momentum, epochs, precision, bound on delays) the first worker says that opens
it, in Rust by thc_model::Spec, in Python by thc.Asynchronous; the others must say the same.
Traffic is QUIC (UDP): encrypted, with a certificate made at the start; the secret proves both ends to each other and
never travels (docs/asynchronous.md).

Output: `ready ADDRESS:PORT` on stdout once workers can come; events on stderr (RUST_LOG=debug for more);
totals as JSON on stdout after SIGTERM or Ctrl-C, when everything was written.
Exit status: 0 stopped by a signal; 1 cannot serve, for example because the port is in use;
2 wrong flags or configuration.";

/// THC model server: holds models that workers train asynchronously, in low precision both ways.
#[derive(Parser, Debug)]
#[command(name = "thc-model", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Flags {
    /// Read this TOML file; flags win over it
    #[arg(long, short, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Print the totals so often, as a line of JSON on stderr
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub stats_interval: Option<std::time::Duration>,
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    job: JobOptions,
    /// Read the secret from this file, out of sight of who lists processes
    #[arg(long, value_name = "PATH", conflicts_with = "secret", help_heading = "Job")]
    secret_file: Option<PathBuf>,
}

impl Flags {
    /// File and flags together.
    pub fn options(mut self) -> Result<ServerOptions, ModelError> {
        let file = match &self.config {
            Some(path) => ServerOptions::read(path)?,
            None => ServerOptions::default(),
        };
        if let Some(path) = self.secret_file {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| ModelError::Read { path, reason: error.to_string() })?;
            self.job.secret = Some(text.as_str().into());
        }
        Ok(file.with_flags(self.server, self.job))
    }
}
