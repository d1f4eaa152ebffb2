//! The command line, with a file for each command.

mod apply;
mod connection;
mod daemon;
mod diagnose;
mod grid;
mod job;
mod target;
mod terminal;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use connection::{Connection, Remote};
use std::process::ExitCode;
use terminal::Failure;
use thc_config::help::{self, Stop};
use thc_config::logs::print_error;

const EXAMPLES: &str = "\
Examples:
  A software parameter server, the controller with its metrics, and a job of two workers:
    thc-ps --p4runtime 127.0.0.1:9559 &
    thc-controller run --config thc-controller.toml --http 127.0.0.1:9701 &
    thc-controller job create train --workers 2

  Its workers, to which the controller gives numbers, the aggregator's address and the secret:
    thc-worker --ps thc://127.0.0.1:9700/train --coordinates 1000000 &
    thc-worker --ps thc://127.0.0.1:9700/train --coordinates 1000000

  Find out why a job has no traffic:
    thc-controller diagnose train

  A controller on another host, with TLS:
    export THC_CONTROLLER=switch-room.example:9700 THC_CONTROLLER_CA=ca.pem
    thc-controller job list

Exit status: 0 done; 1 failed or refused; 2 wrong flags or values.";

/// The options of [`Remote`].
const REMOTE: [&str; 4] = ["controller", "ca", "cert", "key"];

/// Create and watch THC jobs on P4 switches and software parameter servers.
#[derive(Parser, Debug)]
#[command(name = "thc-controller", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Flags {
    #[command(subcommand)]
    command: Command,
    /// Print answers as JSON, as the gRPC service gives them
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the controller, which keeps the tables of its targets as the jobs need them
    Run(daemon::RunFlags),
    /// Create, list, show and delete jobs
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Make jobs match a file: show the changes, ask for confirmation, and apply them
    Apply(apply::ApplyFlags),
    /// List the targets, which are switches and software parameter servers
    #[command(subcommand)]
    Target(target::TargetCommand),
    /// Report why no traffic flows, and which worker is slow
    Diagnose(diagnose::DiagnoseFlags),
}

impl Flags {
    /// Reads the command line. How to reach a controller is refused where none is asked, and not in the help there: a certificate given
    /// to `run` would protect nothing.
    fn read() -> Result<Flags, Stop> {
        // Options of the same names take the place of those that all commands have.
        let hidden = REMOTE.map(|name| Arg::new(name).long(name).hide(true));
        let command = Flags::command().mut_subcommand("run", |run| run.args(hidden));
        let mut matches = help::read(command, &["json", "controller", "ca", "cert", "key"])?;
        let is_given = |of: &ArgMatches, id| of.value_source(id) == Some(ValueSource::CommandLine);
        if let Some(run) = matches.subcommand_matches("run")
            && let Some(flag) = REMOTE.into_iter().find(|id| is_given(run, id) || is_given(&matches, id))
        {
            let text = format!(
                "--{flag} is for commands that ask a controller, and `run` asks none; the certificates of a controller are in \
                 [controller.tls] of its configuration"
            );
            return Err(Flags::command().error(ErrorKind::ArgumentConflict, text).into());
        }
        Ok(Flags::from_arg_matches_mut(&mut matches)?)
    }
}

/// Runs the command.
pub fn main() -> ExitCode {
    let flags = match Flags::read() {
        Ok(flags) => flags,
        Err(stop) => return stop.print(),
    };
    let logs = match &flags.command {
        Command::Run(flags) => Some(flags.logs),
        _ => None,
    };
    match run(flags) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            // Logging has started, and this is its last event.
            if let (Some(logs), 1) = (logs, failure.status) {
                logs.failure("thc-controller", &failure.message);
                return ExitCode::from(failure.status);
            }
            print_error(format_args!("thc-controller: {}", failure.message));
            ExitCode::from(failure.status)
        }
    }
}

fn run(flags: Flags) -> Result<u8, Failure> {
    if let Command::Run(flags) = &flags.command {
        return daemon::run(flags).map(|()| 0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::error(format!("cannot start: {error}")))?;
    let json = flags.json;
    runtime.block_on(async {
        let connection = Connection::open(&flags.remote).await?;
        match flags.command {
            Command::Job(command) => job::run(command, connection, json).await?,
            Command::Target(command) => target::run(command, connection, json).await?,
            Command::Apply(flags) => return apply::run(flags, connection, json).await,
            Command::Diagnose(flags) => return diagnose::run(flags, connection, json).await,
            Command::Run(_) => {}
        }
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_do_not_contradict_each_other() {
        Flags::command().debug_assert();
    }
}
