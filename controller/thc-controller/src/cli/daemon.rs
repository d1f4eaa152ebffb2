//! `run`: the controller itself.

use super::terminal::{Failure, print};
use clap::Args;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use thc_config::logs::LogFlags;
use thc_config::values::plural;
use thc_controller::{Addresses, Config, ControllerError, Daemon, Options};
use tokio::signal::unix::{SignalKind, signal};

const EXAMPLES: &str = "\
Example: a configuration for one thc-ps on this machine, and how to run it:
    printf '[[target]]\\nname = \"ps1\"\\naddress = \"127.0.0.1:9559\"\\nip = \"127.0.0.1\"\\n' \\
        >thc-controller.toml
    thc-controller run --config thc-controller.toml --http 127.0.0.1:9701

A switch needs more keys, which are in thc-controller.example.toml. The controller tries absent
targets every second, and writes their rows when they answer.

Output: `metrics http://ADDRESS:PORT/metrics` if asked for, and `ready ADDRESS:PORT` on stdout
once it answers; events on stderr (RUST_LOG=debug for more).
Exit status: 0 stopped by a signal (targets and sessions go on); 1 cannot serve, for example
because the port is in use; 2 wrong flags or configuration.";

/// Flags of `run`; they win over the configuration.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunFlags {
    /// Read this TOML file, which has the targets, and may have jobs
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Listen here for commands and workers [default: 127.0.0.1:9700]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Serve /metrics, /healthz and /readyz here [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    #[command(flatten)]
    pub(super) logs: LogFlags,
    /// Keep jobs in this file across restarts, or `none` for no file [default: jobs.state in $STATE_DIRECTORY, or in
    /// thc-controller of $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Replace another program on a target by its device_config. This clears the target, and its rows are written again
    #[arg(long)]
    replace_program: bool,
    /// End sessions that a target has and the state file does not know [default: leave them alone]
    #[arg(long)]
    drop_unknown: bool,
    /// Check the configuration, its certificates and the state file, and exit
    #[arg(long)]
    check: bool,
}

impl RunFlags {
    fn config(&self) -> Result<Config, ControllerError> {
        let mut options = Options::read(&self.config)?;
        let secret = options.job.iter().any(|job| job.options.cookie.is_some() || job.options.seed.is_some());
        let mode = fs::metadata(&self.config).map_or(0, |file| file.permissions().mode());
        if secret && mode & 0o004 != 0 {
            let file = self.config.display();
            tracing::warn!(
                "{file} has jobs' secrets and every user of this machine can read it: chmod o-rwx {file}"
            );
        }
        let controller = &mut options.controller;
        controller.listen = self.listen.or(controller.listen);
        controller.http = self.http.or(controller.http);
        controller.state = self.state.clone().or(controller.state.take());
        let mut config = options.validate()?;
        for target in &mut config.targets {
            (target.replaces_program, target.drops_unknown) = (self.replace_program, self.drop_unknown);
        }
        Ok(config)
    }
}

/// Runs until a signal comes.
pub fn run(flags: &RunFlags) -> Result<(), Failure> {
    flags.logs.start();
    let config = flags.config().map_err(|error| match error {
        error @ ControllerError::Read { .. } => Failure::usage(error),
        error => Failure::usage(format!("{}: {error}", flags.config.display())),
    })?;
    if flags.check {
        let (targets, jobs) = (config.targets.len(), config.jobs.len());
        let kept = Daemon::new(config).check().map_err(Failure::error)?;
        return print(&format!(
            "ok: {}, {}, {} in the state file\n",
            plural(targets as u64, "target"),
            plural(jobs as u64, "declared job"),
            plural(kept as u64, "job")
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stop = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        let ready = |at: Addresses| {
            let metrics = at.http.map(|at| format!("metrics http://{at}/metrics\n")).unwrap_or_default();
            // A pipe that is closed is no loss.
            let _ = print(&format!("{metrics}ready {}\n", at.listen));
        };
        Daemon::new(config).run(stop, ready).await.map_err(Failure::error)
    })
}
